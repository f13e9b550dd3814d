"""The state of a partition's producers: the last five batches of each, and the transactions that are open (KIP-98).

`ProducerStateManager` and `ProducerAppendInfo` of Kafka. The append path asks `check` before it writes and calls
`update` after; followers and recovery only call `update`. State reaches the disk as snapshots, one at every roll and at
a clean stop.
"""

from __future__ import annotations

from bisect import insort
from typing import Final

from backend.engine.log.file_names import SNAPSHOT_SUFFIX, base_offset_of, file_name
from backend.engine.log.log_config import DAY_MS, INT16_MAX
from backend.engine.log.producers.producer_entry import (
    BatchMetadata,
    CompletedTxn,
    EndTxnMarker,
    ProducerEntry,
    last_sequence_of,
)
from backend.engine.log.producers.producer_snapshot import (
    NONE,
    CorruptSnapshot,
    SnapshotEntry,
    decode_snapshot,
    encode_snapshot,
    java_map_order,
)
from backend.engine.log.producers.transaction_verification import PendingVerifications
from backend.engine.ports.disk import Disk
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.record_batch import BatchHeader

# A producer may have five requests in flight (max.in.flight.requests.per.connection with idempotence), so that many
# batches must be recognised when they are sent again.
BATCHES_REMEMBERED: Final = 5


class ProducerStateManager:
    """Producers of one partition. `map_end_offset` is the offset below which all records are accounted for."""

    def __init__(self, disk: Disk, log_dir: str, *, expiration_ms: int = DAY_MS) -> None:
        self._disk = disk
        self._dir = log_dir
        self.expiration_ms = expiration_ms
        self._producers: dict[int, ProducerEntry] = {}
        self.verifications = PendingVerifications()
        # First offset → producer of open transactions; first offset → marker offset of those whose end is not
        # replicated yet.
        self._ongoing: dict[int, int] = {}
        self._unreplicated: dict[int, int] = {}
        self.map_end_offset = 0
        self._last_snapshot_offset = 0
        self._snapshots: list[int] = []

    def moved_to(self, log_dir: str) -> None:
        """The snapshots lie in another folder from now on."""
        self._dir = log_dir

    def take_over(self, other: ProducerStateManager) -> None:
        """Takes over the state from another manager of the same log; stored snapshots stay as they are."""
        self._producers, self._ongoing, self._unreplicated = other._producers, other._ongoing, other._unreplicated
        self.map_end_offset = other.map_end_offset

    # --- queries

    @property
    def producers(self) -> list[ProducerEntry]:
        """State of every producer known."""
        return list(self._producers.values())

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.get(producer_id)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has records here in a transaction of this epoch that has not ended."""
        entry = self._producers.get(producer_id)
        return entry is not None and entry.txn_first_offset is not None and entry.epoch == epoch

    @property
    def is_empty(self) -> bool:
        return not self._producers

    @property
    def first_unstable_offset(self) -> int | None:
        """Start of the earliest transaction that is open or whose marker is not below the high watermark."""
        if not self._ongoing and not self._unreplicated:
            return None
        return min(min(self._ongoing, default=1 << 63), min(self._unreplicated, default=1 << 63))

    def stable_offset_after(self, completed: CompletedTxn) -> int:
        """The last stable offset right after a transaction ends: the start of the next, else past its marker."""
        others = [first for first, producer_id in self._ongoing.items() if producer_id != completed.producer_id]
        return min(others) if others else completed.last_offset + 1

    # --- appends

    def duplicate_of(self, batch: BatchHeader) -> BatchMetadata | None:
        """The earlier copy of a batch that a producer sends again."""
        entry = self._producers.get(batch.producer_id)
        if entry is None or entry.epoch != batch.producer_epoch:
            return None
        base, last = batch.base_sequence, batch.last_sequence
        for appended in entry.batches:
            if appended.last_sequence == last and appended.first_sequence == base:
                return appended
        return None

    def check(self, batch: BatchHeader) -> None:
        """Refuses a client's data batch that does not follow its producer's last one.

        Raises INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE. The first batch of an unknown
        producer is accepted with any sequence, because its earlier state may have expired.
        """
        entry = self.check_epoch(batch)
        if entry is None:
            return
        if batch.producer_epoch != entry.epoch:
            if batch.base_sequence != 0 and entry.epoch != NONE:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {batch.producer_id}: "
                    f"{batch.producer_epoch} (request epoch), {batch.base_sequence} (seq. number), "
                    f"{entry.epoch} (current producer epoch)",
                )
        else:
            expected = last_sequence_of(entry.last_sequence, 1)
            if batch.base_sequence != expected:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Out of order sequence number for producer {batch.producer_id}: {batch.base_sequence} "
                    f"(incoming seq. number), {entry.last_sequence} (current end sequence number)",
                )
        if entry.txn_first_offset is not None and not batch.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {batch.producer_id}, "
                f"which has an open transaction from offset {entry.txn_first_offset}",
            )

    def check_epoch(self, batch: BatchHeader) -> ProducerEntry | None:
        """The producer's state; raises INVALID_PRODUCER_EPOCH for a batch of an older epoch."""
        entry = self._producers.get(batch.producer_id)
        last_epoch = NONE if entry is None else entry.epoch
        if batch.producer_epoch < last_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {batch.producer_id} is {batch.producer_epoch}, "
                f"which is smaller than the last seen epoch {last_epoch}",
            )
        return entry

    def check_bumped_epoch(self, producer_id: int, epoch: int) -> None:
        """Refuses a marker that should have a later epoch than the records (transaction.version 2, KIP-1228).

        One with the same epoch is let through when it is a repetition: the transaction has ended. Raises
        INVALID_PRODUCER_EPOCH.
        """
        entry = self._producers.get(producer_id)
        if entry is None or epoch > entry.epoch:
            return
        if epoch == entry.epoch and (entry.txn_first_offset is None or epoch == INT16_MAX):
            return
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"The marker of producer {producer_id} has epoch {epoch}, which is not past the last seen {entry.epoch}",
        )

    def check_marker(self, batch: BatchHeader, marker: EndTxnMarker) -> None:
        """Refuses a transaction marker of a deposed producer or coordinator."""
        entry = self.check_epoch(batch)
        if entry is None:
            return
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {marker.coordinator_epoch} for producer {batch.producer_id} "
                f"is smaller than {entry.coordinator_epoch}",
            )

    def update(self, batch: BatchHeader) -> None:
        """Takes in a data batch that has a producer id and is in the log."""
        entry = self._producers.get(batch.producer_id)
        if entry is None:
            entry = self._producers[batch.producer_id] = ProducerEntry(batch.producer_id)
        entry.set_epoch(batch.producer_epoch)
        last_offset = batch.last_offset
        entry.batches.append(
            BatchMetadata(batch.last_sequence, last_offset, last_offset - batch.base_offset, batch.max_timestamp)
        )
        if len(entry.batches) > BATCHES_REMEMBERED:
            del entry.batches[0]
        entry.last_timestamp_ms = batch.max_timestamp
        if batch.is_transactional and entry.txn_first_offset is None:
            self.verifications.begun(batch.producer_id)
            entry.txn_first_offset = batch.base_offset
            self._ongoing[batch.base_offset] = batch.producer_id

    def update_marker(self, batch: BatchHeader, marker: EndTxnMarker) -> CompletedTxn | None:
        """Takes in a marker that is in the log; the transaction it ended, if one was open.

        Follow with :meth:`complete`.
        """
        self.verifications.ended(batch.producer_id, batch.producer_epoch)
        entry = self._producers.get(batch.producer_id)
        if entry is None:
            entry = self._producers[batch.producer_id] = ProducerEntry(batch.producer_id)
        entry.set_epoch(batch.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = batch.max_timestamp
        if entry.txn_first_offset is None:
            return None
        completed = CompletedTxn(batch.producer_id, entry.txn_first_offset, batch.base_offset, marker.aborted)
        entry.txn_first_offset = None
        return completed

    def complete(self, completed: CompletedTxn) -> None:
        """The transaction stays unstable until its marker is below the high watermark."""
        self._ongoing.pop(completed.first_offset, None)
        self._unreplicated[completed.first_offset] = completed.last_offset

    def on_high_watermark(self, high_watermark: int) -> None:
        """Transactions whose marker is replicated become stable."""
        if not self._unreplicated:
            return
        for first, last in list(self._unreplicated.items()):
            if last < high_watermark:
                del self._unreplicated[first]

    def on_log_start(self, log_start_offset: int) -> None:
        """Forgets transactions that ended below the new log start."""
        for first, last in list(self._unreplicated.items()):
            if last < log_start_offset:
                del self._unreplicated[first]
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        self._last_snapshot_offset = self._snapshots[-1] if self._snapshots else log_start_offset

    def remove_expired(self, now_ms: int) -> int:
        """Forgets producers that have been silent too long and have no open transaction; how many."""
        if not self._producers and not self.verifications:
            return 0
        expired = [p for p, entry in self._producers.items() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        self.verifications.remove_expired(now_ms, self.expiration_ms)
        return len(expired)

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return entry.txn_first_offset is None and now_ms - entry.last_timestamp_ms >= self.expiration_ms

    # --- snapshots

    @property
    def snapshots(self) -> tuple[int, ...]:
        """Offsets of the snapshot files, ascending."""
        return tuple(self._snapshots)

    def path(self, offset: int) -> str:
        """The path of an offset's snapshot, whether it exists or not."""
        return f"{self._dir}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def snapshot_bytes(self, offset: int) -> bytes | None:
        """The stored snapshot file of an offset; None when there is none."""
        return self._disk.read(self.path(offset)) if offset in self._snapshots else None

    def encode(self) -> bytes:
        """A snapshot of the present state."""
        order = java_map_order(self._producers)
        return encode_snapshot([self._producers[producer_id].snapshot() for producer_id in order])

    def take_snapshot(self) -> None:
        """Writes the state at `map_end_offset` unless a snapshot that late exists."""
        if self.map_end_offset <= self._last_snapshot_offset:
            return
        self._store(self.map_end_offset, self.encode())

    def _store(self, offset: int, data: bytes) -> None:
        self._disk.write_atomic(self.path(offset), data, sync=False)
        if offset not in self._snapshots:
            insort(self._snapshots, offset)
        self._last_snapshot_offset = offset

    def load_snapshot(self, offset: int, data: bytes, *, now_ms: int | None = None) -> None:
        """Replaces state and stored snapshots by one received from the remote tier.

        Raises `CorruptSnapshot` and changes nothing.
        """
        entries = decode_snapshot(data)
        self.truncate_fully(offset)
        self._store(offset, data)
        self._install(entries, offset, now_ms)

    def _install(self, entries: list[SnapshotEntry], offset: int, now_ms: int | None) -> None:
        for item in entries:
            entry = ProducerEntry(item.producer_id, item.epoch)
            entry.last_timestamp_ms, entry.coordinator_epoch = item.timestamp_ms, item.coordinator_epoch
            if item.last_offset >= 0:
                entry.batches.append(
                    BatchMetadata(item.last_sequence, item.last_offset, item.offset_delta, item.timestamp_ms)
                )
            if item.current_txn_first_offset >= 0:
                entry.txn_first_offset = item.current_txn_first_offset
                self._ongoing[item.current_txn_first_offset] = item.producer_id
            if now_ms is None or not self._is_expired(entry, now_ms):
                self._producers[item.producer_id] = entry
        self.map_end_offset = offset

    def is_intact(self, offset: int) -> bool:
        """Whether the snapshot of an offset is there and makes sense."""
        if offset not in self._snapshots:
            return False
        try:
            decode_snapshot(self._disk.read(self.path(offset)))
        except (CorruptSnapshot, FileNotFoundError):
            return False
        return True

    def stored_before(self, offset: int) -> ProducerStateManager:
        """An empty state beside the stored snapshots below an offset."""
        other = ProducerStateManager(self._disk, self._dir, expiration_ms=self.expiration_ms)
        other.load_stored(
            [
                file_name(snapshot_offset, SNAPSHOT_SUFFIX)
                for snapshot_offset in self._snapshots
                if snapshot_offset < offset
            ]
        )
        return other

    def find_stored(self) -> None:
        """Registers the snapshot files that lie in the folder."""
        self.load_stored(self._disk.list_dir(self._dir))

    def load_stored(self, names: list[str]) -> None:
        """Registers the snapshot files among the names of the partition's folder."""
        offsets = (base_offset_of(name) for name in names if name.endswith(SNAPSHOT_SUFFIX))
        self._snapshots = sorted(offset for offset in offsets if offset is not None)
        self._last_snapshot_offset = self._snapshots[-1] if self._snapshots else 0

    def keep_only(self, offsets: set[int]) -> None:
        """Removes snapshots that belong to no segment, except the latest (`removeStraySnapshots`)."""
        latest = self._snapshots[-1] if self._snapshots else None
        for offset in [o for o in self._snapshots if o not in offsets and o != latest]:
            self.remove_snapshot(offset)

    def remove_snapshot(self, offset: int) -> None:
        """Deletes one stored snapshot; missing is fine."""
        if offset in self._snapshots:
            self._snapshots.remove(offset)
            self._disk.remove(self.path(offset))
            self._last_snapshot_offset = self._snapshots[-1] if self._snapshots else 0

    def truncate_fully(self, offset: int) -> None:
        """Forgets all state and all snapshots; the log starts again at `offset`."""
        self._clear()
        for snapshot in list(self._snapshots):
            self.remove_snapshot(snapshot)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def truncate_and_reload(self, log_end_offset: int, *, default_offset: int, now_ms: int | None = None) -> None:
        """State of the latest usable snapshot at or below `log_end_offset`; later snapshots are removed.

        Without one the state is empty at `default_offset`, the start of the log. The caller feeds the records from
        `map_end_offset` to the log end.
        """
        for snapshot in [s for s in self._snapshots if s > log_end_offset]:
            self.remove_snapshot(snapshot)
        if log_end_offset == self.map_end_offset:
            return
        self._clear()
        self.map_end_offset = default_offset
        while self._snapshots:
            offset = self._snapshots[-1]
            try:
                entries = decode_snapshot(self._disk.read(self.path(offset)))
            except (CorruptSnapshot, FileNotFoundError):
                # An older snapshot and more records give the same state.
                self.remove_snapshot(offset)
                continue
            self._install(entries, offset, now_ms)
            self._last_snapshot_offset = offset
            return
        self._last_snapshot_offset = default_offset

    def _clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self.map_end_offset = 0
