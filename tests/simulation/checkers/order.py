"""The offsets of every replica are in order: log end >= last stable offset >= local start >= log start, and of a leader
last stable offset >= remote end >= remote start; nothing that was never stable is in the remote tier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from backend.engine.replica.partition import Partition
from backend.tiering.ids import TopicIdPartition
from backend.tiering.segment_state import SegmentState
from tests.simulation.checkers.checker import Checker, Seen, metadata_version
from tests.simulation.history import PartitionHistory, TopicHistory

if TYPE_CHECKING:
    from tests.simulation.world import World


class OffsetsInOrder(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        # The inputs of the last check of a partition's remote end.
        self._seen: dict[TopicIdPartition, tuple[Any, ...]] = {}

    def step(self, replicas: Sequence[Seen]) -> None:
        for node, topic, history, replica in replicas:
            log = replica.log
            start, local_start, end = log.log_start_offset, log.local_log_start_offset, log.log_end_offset
            stable = log.last_stable_offset
            # A follower that was built from the remote tier has yet to fetch the end of a transaction that its producer
            # snapshot has open; it cannot be in sync, nor lead, before.
            low = stable if replica.is_leader else log.high_watermark
            if not (start <= local_start <= low and start <= stable <= log.high_watermark <= end):
                raise self.violated(f"broker {node}: {log.describe()}, last stable offset {stable}")
            if replica.is_leader and stable > history.stable_end:
                history.stable_end = stable
            if replica.is_leader and start > history.log_start:
                history.log_start = start
            # A new leader learns of its predecessor's last stable offset by and by; the partition has had it.
            if log.highest_remote_offset >= history.stable_end and not topic.unclean:
                raise self.violated(
                    f"broker {node}: {log.describe()}, but records were stable up to {history.stable_end} only"
                )

    def look(self) -> None:
        for _, _, _, replica in self.replicas():
            replica.log.check()
        for node, topic, history, replica in self.leaders():
            if topic.tiered:
                self._check_remote_end(node, topic, history, replica)

    def _check_remote_end(self, node: int, topic: TopicHistory, history: PartitionHistory, replica: Partition) -> None:
        """The remote tier ends below the last stable offset, and not before it starts."""
        log, tip = replica.log, replica.topic_id_partition
        remote = self.world.brokers()[node].services.remote_log_manager
        if remote is None or not remote.is_ready(tip):
            return
        start, local_start = log.log_start_offset, log.local_log_start_offset
        depends_on = (node, start, local_start, metadata_version(remote, tip))
        if self._seen.get(tip) == depends_on:
            return
        self._seen[tip] = depends_on
        segments = remote._tier.metadata.segments(tip)
        ends = [segment.end_offset for segment in segments if segment.state is SegmentState.COPY_SEGMENT_FINISHED]
        end = max(ends, default=-1)
        if (end >= history.stable_end and not topic.unclean) or (start < local_start and end < start):
            raise self.violated(f"broker {node}: {log.describe()}, and the remote tier ends at {end}")
