"""After the faults have stopped everything recovers within a bounded virtual time: every replica is in its ISR, every
leader knows what is remote, and everything closed and stable is. All is stable but for transactions that hang.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from backend.tiering.ids import TopicPartition
from tests.simulation.checkers.checker import Checker, Seen
from tests.simulation.checkers.hanging import EndedTransactions

if TYPE_CHECKING:
    from tests.simulation.world import World

# The longest back-off of anything in the engine is 30 s (a copy that failed many times in a row).
RECOVERY_MS_MAX: Final = 60_000.0
LOOK_S: Final = 0.25


class EverythingRecovers(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._ended = EndedTransactions(world)
        # Where transactions hang, and whose.
        self.hanging: dict[TopicPartition, list[int]] = {}

    def step(self, replicas: Sequence[Seen]) -> None:
        for node, topic, _, replica in replicas:
            if topic.unclean:
                self._ended.read_on(node, replica)

    async def finish(self) -> None:
        loop = self.world.loop
        started_ms = loop.now_ms
        while (waiting := self._waits_for()) is not None:
            if loop.now_ms - started_ms > RECOVERY_MS_MAX:
                raise self.violated(f"{RECOVERY_MS_MAX / 1000:.0f} s after the last fault {waiting}")
            await asyncio.sleep(LOOK_S)
        for at, producers in self.hanging.items():
            self.world.trace.note(f"{at} has lost the markers of producers {producers}: their transactions hang")
        self.world.trace.note(f"recovered within {loop.now_ms - started_ms:.0f} ms")

    def _waits_for(self) -> str | None:
        """The conditions that do not hold yet."""
        image = self.world.image
        if image is None:
            return "there is no controller"
        for topic in image.topics.values():
            for index, registration in topic.partitions.items():
                at = f"{topic.name}-{index}"
                if registration.reassigning:
                    return f"{at} is being moved to {registration.replicas}"
                if registration.leader < 0 or set(registration.isr) != set(registration.replicas):
                    return (
                        f"{at} has leader {registration.leader} and ISR {registration.isr} of {registration.replicas}"
                    )
        for history in self.world.history.living:
            if history.tiered:
                for index in history.partitions:
                    late = self._not_remote(TopicPartition(history.name, index))
                    if late is not None:
                        return late
        return None

    def _not_remote(self, at: TopicPartition) -> str | None:
        registration = self.world.registration(at)
        if registration is None:
            return f"{at} is not known"
        replica = self.world.replica(registration.leader, at)
        if replica is None or not replica.is_leader:
            return f"broker {registration.leader} does not lead {at}"
        remote = self.world.brokers()[registration.leader].services.remote_log_manager
        # A topic that is tiered again a moment ago: which segments there are its leader has to read first.
        if remote is None or not remote.is_ready(replica.topic_id_partition):
            return f"broker {registration.leader} does not know the remote segments of {at}"
        log = replica.log
        stable = log.last_stable_offset
        self.hanging.pop(at, None)
        if stable < log.log_end_offset:
            hanging = self._ended.hanging(replica)
            if not hanging:
                return f"{at} is stable up to {stable} only: {log.describe()}"
            self.hanging[at] = hanging
        # With all of it stable, this is the active one.
        unstable = log.segments.floor(stable)
        assert unstable is not None, f"{at} is stable up to {stable}: {log.describe()}"
        if unstable.base_offset > max(log.log_start_offset, log.highest_remote_offset + 1):
            return f"not everything closed of {at} is remote: {log.describe()}"
        return None
