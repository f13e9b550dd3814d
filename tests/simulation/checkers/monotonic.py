"""High watermark and log start of a replica never go back while its process lives.

A restart starts from checkpoints, which are older; a replica that is given up and created again is another one. Where
unclean elections are allowed a high watermark may go back with the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backend.engine.log.unified_log import UnifiedLog
from tests.simulation.checkers.checker import Checker, Seen

if TYPE_CHECKING:
    from tests.simulation.world import World


class NeverBack(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._seen: dict[tuple[int, str, int], tuple[UnifiedLog, int, int]] = {}

    def step(self, replicas: Sequence[Seen]) -> None:
        seen = self._seen
        for node, topic, _, replica in replicas:
            log = replica.log
            start, mark = log.log_start_offset, log.high_watermark
            key = (node, topic.name, replica.topic_id_partition.partition)
            before = seen.get(key)
            if before is not None and before[0] is log:
                if start == before[1] and mark == before[2]:
                    continue
                if start < before[1]:
                    raise self.violated(f"log start of {log} on broker {node} went from {before[1]} to {start}")
                if mark < before[2] and not topic.unclean:
                    raise self.violated(f"high watermark of {log} on broker {node} went from {before[2]} to {mark}")
            seen[key] = (log, start, mark)
