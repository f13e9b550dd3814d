"""Cleaning of one batch: it leaves nothing, the batch as it is, fewer records, or only the header.

The filter of `Cleaner.cleanInto` and `MemoryRecords.filterTo` of Kafka; KIP-280's offset strategy, KIP-534's horizon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from backend.engine.log.cleaner.cleaned_transactions import CleanedTransactions
from backend.engine.log.cleaner.offset_map import OffsetMap
from backend.engine.log.log_errors import CorruptLog
from backend.engine.log.segments.transaction_index import AbortedTxn
from backend.protocol.buffers import Buffer
from backend.protocol.errors import DecodeError
from backend.protocol.record_batches.control_records import control_type
from backend.protocol.record_batches.record_batch import (
    BatchHeader,
    Record,
    crc_valid,
    empty_batch,
    iter_records,
    rebuild_batch,
)


class LastRecord(NamedTuple):
    """The last thing that a live producer wrote: its last data offset, or (None) only a marker of this epoch."""

    data_offset: int | None
    epoch: int


@dataclass(slots=True)
class FilterStats:
    """Counts of one cleaning."""

    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0


@dataclass(slots=True)
class BatchFilter:
    """Keeps the last record of every key and what markers, tombstones and producers need for a time."""

    offsets: OffsetMap
    transactions: CleanedTransactions
    last_records: Mapping[int, LastRecord]
    now_ms: int
    delete_retention_ms: int
    upper_bound: int  # first offset that this cleaning does not touch
    stats: FilterStats = field(default_factory=FilterStats)

    def apply(self, header: BatchHeader, data: memoryview) -> tuple[Buffer | None, AbortedTxn | None]:
        """Returns the rest of a whole batch (None: nothing), and an aborted transaction for the index of its segment.

        Raises `CorruptLog`.
        """
        if not crc_valid(data, 0, header):
            raise CorruptLog(f"the CRC of the batch at offset {header.base_offset} does not match its bytes")
        discard, horizon_due, txn = self._discards(header, data)
        keep_empty = self._is_last_of_producer(header) or header.next_offset == self.upper_bound
        self.stats.records_read += header.record_count
        if discard:
            return (empty_batch(header) if keep_empty else None), txn
        try:
            records = list(iter_records(data))
        except DecodeError as error:
            raise CorruptLog(f"the batch at offset {header.base_offset} cannot be read: {error}") from None
        kept = records if header.is_control else [record for record in records if self._keeps(header, record)]
        self.stats.records_kept += len(kept)
        if not kept:
            return (empty_batch(header) if keep_empty else None), txn
        tombstones = not header.is_control and any(record.value is None for record in kept)
        set_horizon = (tombstones or horizon_due) and not header.has_delete_horizon
        if len(kept) == len(records) and not set_horizon:
            return data, txn
        if set_horizon:
            return rebuild_batch(header, kept, self.now_ms + self.delete_retention_ms), txn
        return rebuild_batch(header, kept, header.base_timestamp if header.has_delete_horizon else None), txn

    def _discards(self, header: BatchHeader, data: memoryview) -> tuple[bool, bool, AbortedTxn | None]:
        """Whether no record of the batch stays; whether a marker's time to go begins now; see `CleanedTransactions`."""
        if not header.is_control:
            return self.transactions.is_aborted(header), False, None
        try:
            kind = next((control_type(record.key) for record in iter_records(data)), None)
        except DecodeError as error:
            raise CorruptLog(f"the marker at offset {header.base_offset} cannot be read: {error}") from None
        unneeded, txn = self.transactions.end(header, kind)
        over = header.has_delete_horizon and header.base_timestamp <= self.now_ms
        return unneeded and (over or kind is None), unneeded, txn

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self.last_records.get(header.producer_id) if header.has_producer else None
        if last is None:
            return False
        if last.data_offset is None:
            return header.is_control and header.producer_epoch == last.epoch
        return header.last_offset == last.data_offset

    def _keeps(self, header: BatchHeader, record: Record) -> bool:
        if record.offset > self.offsets.latest_offset:
            return True
        if record.key is None:
            self.stats.records_without_key += 1
            return False
        if record.offset < self.offsets.get(record.key):
            return False
        return record.value is not None or not header.has_delete_horizon or self.now_ms < header.base_timestamp
