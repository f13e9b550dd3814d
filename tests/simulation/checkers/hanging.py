"""Transactions that hang: a marker had ended them, and an unclean election has cut off the marker, not their records.

Their coordinator knows that the partition has the marker and never writes another, so the last stable offset stays
where they begin. Apache Kafka does no better: an operator finds them with `kafka-transactions.sh find-hanging` and
aborts them (KIP-664). Of no other transaction may it be said that it hangs: the marker must have been seen in a log of
a topic that allows unclean elections, behind the very records that are still there.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from backend.engine.coordinator.transaction.transaction_records import TRANSACTIONS_TOPIC
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.replica.partition import Partition
from backend.protocol.errors import KafkaError
from backend.protocol.record_batches.record_batch import iter_batches
from backend.tiering.ids import TopicIdPartition, TopicPartition
from tests.simulation.history import Batch

if TYPE_CHECKING:
    from tests.simulation.world import World

READ_BYTES = 1 << 20
# A batch and its base offset.
Placed: TypeAlias = tuple[int, Batch]


class _Reading:
    """How far a replica's log has been read: `open` has the first batch of each producer's transaction."""

    def __init__(self, log: UnifiedLog) -> None:
        self.log = log
        self.truncations = log.truncations
        self.next_offset = max(log.log_start_offset, log.segments.first_base_offset)
        self.open: dict[int, Placed] = {}

    def is_of(self, log: UnifiedLog) -> bool:
        return self.log is log and self.truncations == log.truncations


class EndedTransactions:
    """The markers that were in any replica's log."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._readings: dict[tuple[int, TopicIdPartition], _Reading] = {}
        # First batch of a transaction → the markers that have ended it.
        self._ended: defaultdict[tuple[TopicIdPartition, Placed], set[Placed]] = defaultdict(set)

    def read_on(self, node: int, replica: Partition) -> None:
        """Batches since the last call; after a restart, or when the log was cut, from its start."""
        log, key = replica.log, (node, replica.topic_id_partition)
        reading = self._readings.get(key)
        if reading is None or not reading.is_of(log):
            reading = self._readings[key] = _Reading(log)
        end = log.log_end_offset
        reading.next_offset = max(reading.next_offset, log.log_start_offset, log.segments.first_base_offset)
        while reading.next_offset < end:
            data = log.reader.read(reading.next_offset, READ_BYTES, up_to_offset=end, min_one_message=True).records
            if not data:
                return
            for _, header in iter_batches(data):
                placed = (header.base_offset, Batch.of(header))
                if header.is_control:
                    first = reading.open.pop(header.producer_id, None)
                    if first is not None:
                        self._ended[replica.topic_id_partition, first].add(placed)
                elif header.is_transactional:
                    reading.open.setdefault(header.producer_id, placed)
                reading.next_offset = header.next_offset

    def hanging(self, leader: Partition) -> list[int]:
        """Producers whose transactions hang, if that is the only reason for which not all records are stable."""
        log = leader.log
        open_now = [entry for entry in log.producer_state.producers if entry.txn_first_offset is not None]
        if log.high_watermark < log.log_end_offset:
            return []
        for entry in open_now:
            assert entry.txn_first_offset is not None
            first = _batch_at(log, entry.txn_first_offset)
            markers = set() if first is None else self._ended.get((leader.topic_id_partition, first), set())
            lost = markers and all(_batch_at(log, offset) != (offset, marker) for offset, marker in markers)
            if not lost or not self._is_over(entry.producer_id, leader.topic_id_partition):
                return []
        return [entry.producer_id for entry in open_now]

    def _is_over(self, producer_id: int, tip: TopicIdPartition) -> bool:
        """Whether the producer's coordinator knows it and has nothing more to tell the partition."""
        image, at = self._world.image, TopicPartition(tip.topic, tip.partition)
        topic = None if image is None else image.topic(TRANSACTIONS_TOPIC)
        for registration in () if topic is None else topic.partitions.values():
            broker = self._world.brokers().get(registration.leader)
            if broker is None:
                continue
            try:
                transactions = list(broker.broker_services.transaction_coordinator.transactions())
            except KafkaError:
                continue
            if any(
                transaction.producer_id == producer_id and at not in transaction.partitions
                for transaction in transactions
            ):
                return True
        return False


def _batch_at(log: UnifiedLog, offset: int) -> Placed | None:
    """The batch that holds an offset; None when it is not in the local log."""
    end = log.log_end_offset
    if not max(log.log_start_offset, log.segments.first_base_offset) <= offset < end:
        return None
    for _, header in iter_batches(log.reader.read(offset, 1, up_to_offset=end, min_one_message=True).records):
        if header.next_offset > offset:
            return header.base_offset, Batch.of(header)
    return None
