"""No gap between the tiers: every offset from log start on is local or in a finished remote segment of the leader's
own history, whose objects are there.

Log start is the highest that any leader has had: a new leader learns it a moment after its election.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backend.engine.replica.partition import Partition
from backend.tiering.ids import TopicIdPartition
from tests.simulation.checkers.checker import Checker, metadata_version

if TYPE_CHECKING:
    from tests.simulation.world import World


class NoGap(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        # The inputs of the last walk over a partition: the same inputs have no gap either.
        self._walked: dict[TopicIdPartition, tuple[Any, ...]] = {}

    def look(self) -> None:
        for node, _, history, replica in self.leaders():
            if replica.log.remote_enabled:
                self._walk(node, max(history.log_start, replica.log.log_start_offset), replica)

    def _walk(self, node: int, start: int, replica: Partition) -> None:
        log, broker = replica.log, self.world.brokers()[node]
        remote = broker.services.remote_log_manager
        assert remote is not None
        tip = log.topic_id_partition
        if not remote.is_ready(tip):
            return
        offset, local = start, log.segments.first_base_offset
        depends_on = (node, start, local, log, log.leader_epochs.entries, metadata_version(remote, tip))
        if self._walked.get(tip) == depends_on:
            return
        while offset < local:
            epoch = log.leader_epochs.epoch_for_offset(offset)
            segment = None if epoch is None else remote._tier.metadata.lookup(tip, epoch, offset)
            if segment is None:
                raise self.violated(
                    f"offset {offset} of {tip} (leader epoch {epoch}) is neither on leader {node}, whose first local "
                    f"segment is {local}, nor in a finished remote segment; {log.describe()}"
                )
            offset = segment.end_offset + 1
        self._walked[tip] = depends_on

    async def finish(self) -> None:
        self.look()
