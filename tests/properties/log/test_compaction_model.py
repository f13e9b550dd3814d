"""A compacted log against the list of its records, under random transactions, cleanings, cuts, stops and crashes.

What readers of committed data find below the cleaned offset is, for each key, at least its last value; offsets never
change and never lose their order; and whatever is left was written there.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from backend.engine.log.cleaner.log_cleaner import LogCleaner
from backend.engine.log.log_config import CleanerConfig, LogConfig
from backend.engine.log.producers.producer_entry import ProducerEntry
from backend.engine.log.recovery.log_loader import LoadOptions, open_log
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import Ports
from backend.engine.ports.disk import OsDisk
from backend.engine.ports.random import SystemRandom
from backend.engine.ports.socket_network import SocketNetwork
from backend.engine.ports.workers import ThreadWorkers
from backend.protocol.record_batches.control_records import end_txn_marker
from backend.protocol.record_batches.record_batch import (
    BatchHeader,
    Record,
    RecordData,
    build_batch,
    iter_batches,
    iter_records,
)
from backend.tiering.ids import TopicIdPartition
from tests.effort import effort

NOW_MS = 1_700_000_000_000
RETENTION_MS = 1000
TIP = TopicIdPartition("orders", bytes(range(1, 17)), 0)
CONFIG = LogConfig(
    cleanup_policy=("compact",),
    delete_retention_ms=RETENTION_MS,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.0,
    segment_bytes=900,
)
KEYS = [b"a", b"b", b"c", b"d", b"a key of more than sixteen bytes", b"another key of more than sixteen"]
PRODUCERS = (11, 12)
Row = tuple[int, bytes, bytes | None]


class Clock:
    """Time stands until a rule moves it."""

    now_ms = NOW_MS

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> float:
        return float(self.now_ms)


class Crash(BaseException):
    """The process ends here."""


class CrashingDisk(OsDisk):
    """Ends at the n-th rename; never when negative."""

    left = -1

    def rename(self, source: str, target: str) -> None:
        if self.left == 0:
            raise Crash(source)
        self.left -= 1
        super().rename(source, target)


class CompactionModel(RuleBasedStateMachine):
    """`rows` are all data records that were written and not cut off; `undecided` those of open transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.disk = CrashingDisk()
        self.rows: list[Row] = []
        self.aborted: set[int] = set()
        self.open_txns: dict[int, list[int]] = {}
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.serial = 0
        # No cleaning, finished or not, came further than this.
        self.touched = 0
        self.relied_on = 0
        self.log = self.open(clean=False, recovery_point=0)

    def open(self, *, clean: bool, recovery_point: int) -> UnifiedLog:
        self.disk.left = -1
        options = LoadOptions(recovery_point=recovery_point, clean_shutdown=clean, producer_id_expiration_ms=1 << 60)
        path = str(Path(self.folder.name) / "orders-0")
        return open_log(self.disk, SystemRandom(1), path, TIP, CONFIG, options, now_ms=NOW_MS)

    def teardown(self) -> None:
        self.log.close_files()
        self.folder.cleanup()

    # --- writing

    def _records(self, keys: list[int], tombstone: bool) -> list[RecordData]:
        records = []
        for key in keys:
            self.serial += 1
            records.append(RecordData(NOW_MS, KEYS[key], None if tombstone else str(self.serial).encode()))
        return records

    def _append(self, records: list[RecordData], **fields: int | bool) -> list[int]:
        data = build_batch(records, **fields)  # type: ignore[arg-type]  # names are build_batch's own
        info = self.log.append_as_leader(memoryview(data), 0, now_ms=NOW_MS)
        offsets = list(range(info.first_offset, info.last_offset + 1))
        self.rows += [
            (at, record_data.key or b"", record_data.value) for at, record_data in zip(offsets, records, strict=True)
        ]
        self.log.update_high_watermark(self.log.log_end_offset)
        return offsets

    keys = st.lists(st.integers(0, len(KEYS) - 1), min_size=1, max_size=5)

    @rule(keys=keys, tombstone=st.booleans(), codec=st.integers(0, 4))
    def write(self, keys: list[int], tombstone: bool, codec: int) -> None:
        self._append(self._records(keys, tombstone), compression=codec)

    @rule(keys=keys, tombstone=st.booleans(), producer=st.sampled_from(PRODUCERS))
    def write_in_transaction(self, keys: list[int], tombstone: bool, producer: int) -> None:
        fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": self.sequences[producer]}
        offsets = self._append(self._records(keys, tombstone), transactional=True, **fields)
        self.sequences[producer] += len(keys)
        self.open_txns.setdefault(producer, []).extend(offsets)

    @precondition(lambda self: self.open_txns)
    @rule(commit=st.booleans(), data=st.data())
    def end_transaction(self, commit: bool, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from(sorted(self.open_txns)))
        marker = end_txn_marker(
            commit=commit, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
        )
        self.log.append_as_leader(memoryview(marker), 0, now_ms=NOW_MS, origin="coordinator")
        self.log.update_high_watermark(self.log.log_end_offset)
        offsets = self.open_txns.pop(producer)
        if not commit:
            self.aborted.update(offsets)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    # --- cleaning

    def _clean(self, memory_entries: int = 1000) -> None:
        self.touched = max(self.touched, self.log.active_segment.base_offset)
        self.relied_on = max(self.relied_on, self.log.log_end_offset)
        ports = Ports(self.clock, SystemRandom(1), self.disk, SocketNetwork(), ThreadWorkers(1))

        async def stored(_: UnifiedLog) -> None:
            return

        config = CleanerConfig(dedupe_buffer_bytes=192 * memory_entries, load_factor=1.0, io_buffer_bytes=800)
        cleaner = LogCleaner(ports, config, lambda: [self.log], stored)
        try:
            asyncio.run(_once(cleaner))
        finally:
            ports.workers.close()
        assert not cleaner.uncleanable

    @rule(later_ms=st.sampled_from([0, RETENTION_MS // 2, RETENTION_MS]), memory_entries=st.sampled_from([6, 1000]))
    def clean(self, later_ms: int, memory_entries: int) -> None:
        self.clock.now_ms += later_ms
        self._clean(memory_entries)

    @rule(renames=st.integers(0, 14), clean_stop=st.booleans())
    def crash_while_cleaning(self, renames: int, clean_stop: bool) -> None:
        checkpoint = self.log.cleaning.checkpoint
        self.log.flush()
        self.log.active_segment.write_indexes()
        end = self.log.log_end_offset
        self.disk.left = renames
        try:
            self._clean()
        except Crash:
            self.log.health.offline_reason = None
        self.log.close_files()
        self.log = self.open(clean=clean_stop, recovery_point=end)
        self.log.cleaning.checkpoint = checkpoint
        self.log.update_high_watermark(end)
        assert self.log.log_end_offset == end

    @rule()
    def stop_cleanly(self) -> None:
        checkpoint = self.log.cleaning.checkpoint
        self.log.close()
        self.log = self.open(clean=True, recovery_point=self.log.log_end_offset)
        self.log.cleaning.checkpoint = checkpoint
        self.log.update_high_watermark(self.log.log_end_offset)

    @precondition(lambda self: not self.open_txns)
    @rule(share=st.floats(0.7, 1))
    def cut(self, share: float) -> None:
        # Records on which cleaning relies, also ends of transactions, were below the high watermark, and stay.
        target = max(self.relied_on, round(share * self.log.log_end_offset))
        self.log.truncate_to(target)
        end = self.log.log_end_offset
        self.rows = [row for row in self.rows if row[0] < end]
        self.aborted = {offset for offset in self.aborted if offset < end}
        for entry in self.log.producer_state.producers:
            if entry.txn_first_offset is not None:
                self.open_txns[entry.producer_id] = [
                    offset for offset, _, _ in self.rows if offset >= entry.txn_first_offset and self._of(entry, offset)
                ]
                self.aborted.difference_update(self.open_txns[entry.producer_id])
            self.sequences[entry.producer_id] = entry.last_sequence + 1
        for producer in set(PRODUCERS) - {entry.producer_id for entry in self.log.producer_state.producers}:
            self.sequences[producer] = 0

    def _of(self, entry: ProducerEntry, offset: int) -> bool:
        for header in self._headers():
            if header[0] <= offset <= header[1]:
                return header[2] == entry.producer_id
        return False

    def _headers(self) -> list[tuple[int, int, int]]:
        return [(h.base_offset, h.last_offset, h.producer_id) for h, _ in self._batches()]

    # --- reading

    def _batches(self) -> Iterator[tuple[BatchHeader, list[Record]]]:
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            info = self.log.reader.read(offset, 700, up_to_offset=self.log.log_end_offset, min_one_message=True)
            if not info.records:
                return
            for position, header in iter_batches(info.records):
                yield header, list(iter_records(info.records, position))
                assert header.next_offset > offset
                offset = header.next_offset

    @invariant()
    def readers_find_the_last_value_of_every_key(self) -> None:
        self.log.check()
        readable: list[Row] = []
        previous = -1
        for header, records in self._batches():
            assert header.base_offset > previous
            previous = header.last_offset
            for record in records:
                assert header.base_offset <= record.offset <= header.last_offset
                if not header.is_control:
                    readable.append((record.offset, record.key or b"", record.value))
        assert [row[0] for row in readable] == sorted({row[0] for row in readable})
        assert set(readable) <= set(self.rows)
        undecided = {offset for offsets in self.open_txns.values() for offset in offsets}
        committed = [row for row in self.rows if row[0] not in self.aborted]
        left = [row for row in readable if row[0] not in self.aborted]
        cleaned = self.touched
        # Nothing that has not been cleaned is missing.
        assert [row for row in left if row[0] >= cleaned] == [row for row in committed if row[0] >= cleaned]
        for key in KEYS:
            last = max((row for row in committed if row[1] == key and row[0] not in undecided), default=None)
            here = max((row for row in left if row[1] == key and row[0] not in undecided), default=None)
            if last != here:
                # A tombstone may go in time, with everything before it.
                assert last is not None
                assert last[2] is None
                assert here is None
                assert self.clock.now_ms >= NOW_MS + RETENTION_MS

    @invariant()
    def aborted_records_that_are_left_are_in_the_index(self) -> None:
        index = self.log.reader.aborted_transactions(0, self.log.log_end_offset)
        for header, records in self._batches():
            for record in records:
                if not header.is_control and record.offset in self.aborted:
                    assert any(
                        txn.producer_id == header.producer_id and txn.first_offset <= record.offset <= txn.last_offset
                        for txn in index
                    )

    @invariant()
    def producers_are_known(self) -> None:
        for producer in PRODUCERS:
            entry = self.log.producer_state.entry(producer)
            if self.sequences[producer]:
                assert entry is not None
                assert entry.last_sequence == self.sequences[producer] - 1


async def _once(cleaner: LogCleaner) -> bool:
    return await cleaner.clean_dirtiest()


TestCompaction = CompactionModel.TestCase
TestCompaction.settings = settings(
    max_examples=effort(20, 2000, check=5), stateful_step_count=30, deadline=None, database=None
)
