"""Replicas agree below the high watermark: what one of them counts as committed, all have byte for byte, for ever.

Every replica's local log is read up to its own high watermark, what came since the last look; after a restart, or when
the log was cut, from its start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.engine.log.unified_log import UnifiedLog
from backend.engine.replica.partition import Partition
from backend.protocol.record_batches.record_batch import iter_batches
from tests.simulation.checkers.checker import Checker
from tests.simulation.history import Batch, PartitionHistory

if TYPE_CHECKING:
    from tests.simulation.world import World

READ_BYTES = 1 << 20


class ReplicasAgree(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        # How far a replica's log has been compared: (log, how often it was cut, next offset).
        self._seen: dict[tuple[int, str, int], tuple[UnifiedLog, int, int]] = {}

    def look(self) -> None:
        for node, topic, history, replica in self.replicas():
            if topic.keeps_records:
                self._compare(node, history, replica)

    def _compare(self, node: int, history: PartitionHistory, replica: Partition) -> None:
        log = replica.log
        key = (node, log.topic_id_partition.topic, log.topic_id_partition.partition)
        before = self._seen.get(key)
        fresh = before is None or before[0] is not log or before[1] != log.truncations
        first = max(log.log_start_offset, log.segments.first_base_offset)
        offset = first if fresh or before is None else max(before[2], first)
        end = log.high_watermark
        while offset < end:
            data = log.reader.read(offset, READ_BYTES, up_to_offset=end, min_one_message=True).records
            if not data:
                break
            for _, header in iter_batches(data):
                committed, batch = history.committed.setdefault(header.base_offset, Batch.of(header)), Batch.of(header)
                if committed != batch:
                    raise self.violated(
                        f"broker {node} has {batch} at offset {header.base_offset} of {log}, below its high watermark "
                        f"{end}; committed was {committed}"
                    )
                offset = header.next_offset
        self._seen[key] = (log, log.truncations, offset)

    async def finish(self) -> None:
        self._seen.clear()
        self.look()
