"""A partition log against a list of records, under random work, restarts and kills that lose what was not synced."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from backend.engine.log.leader_epoch_cache import LeaderEpochCache
from backend.engine.log.log_config import LogConfig
from backend.engine.log.recovery.log_loader import LoadOptions, open_log
from backend.engine.log.recovery.segment_recovery import DamagedFile, valid_batches
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports.disk import OsDisk
from backend.engine.ports.random import SystemRandom
from backend.protocol.record_batches.record_batch import RecordData, build_batch, iter_batches, iter_records
from backend.tiering.ids import TopicIdPartition
from tests.effort import effort

NOW_MS = 1_700_000_000_000
TIP = TopicIdPartition("orders", bytes(range(1, 17)), 0)
CONFIG = LogConfig(index_interval_bytes=150, segment_index_bytes=120, segment_bytes=4000, retention_ms=-1)
Row = tuple[int, int, bytes]  # offset, leader epoch, value


def local_rows(log: UnifiedLog, max_bytes: int) -> list[Row]:
    """Everything that readers can fetch from the local start."""
    rows: list[Row] = []
    offset = log.local_log_start_offset
    while offset < log.log_end_offset:
        info = log.reader.read(offset, max_bytes, up_to_offset=log.log_end_offset, min_one_message=True)
        assert info.records, (offset, log.describe())
        for position, header in iter_batches(info.records):
            for record in iter_records(info.records, position):
                if record.offset >= offset:
                    assert record.value is not None
                    rows.append((record.offset, header.leader_epoch, record.value))
            offset = header.next_offset
    return rows


class UnifiedLogModel(RuleBasedStateMachine):
    """`rows` is the whole truth; `start` is the log start."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.rows: list[Row] = []
        self.start = 0
        self.epoch = 0
        self.sequence = 0
        self.serial = 0
        self.log = self.open(clean=False, recovery_point=0)

    def open(self, *, clean: bool, recovery_point: int) -> UnifiedLog:
        options = LoadOptions(recovery_point=recovery_point, log_start_offset=self.start, clean_shutdown=clean)
        path = str(Path(self.folder.name) / "orders-0")
        return open_log(OsDisk(), SystemRandom(1), path, TIP, CONFIG, options, now_ms=NOW_MS)

    def teardown(self) -> None:
        self.log.close_files()
        self.folder.cleanup()

    @property
    def end(self) -> int:
        return self.log.log_end_offset

    @initialize()
    def begin(self) -> None:
        self.append(1, 0, False)

    @rule(count=st.integers(1, 12), size=st.integers(0, 300), idempotent=st.booleans())
    def append(self, count: int, size: int, idempotent: bool) -> None:
        first = self.end
        values = []
        for _ in range(count):
            self.serial += 1
            values.append(self.serial.to_bytes(4, "big") + bytes(size))
        records = [RecordData(NOW_MS + self.serial, None, value) for value in values]
        if idempotent:
            data = build_batch(records, producer_id=5, producer_epoch=0, base_sequence=self.sequence)
            self.sequence += count
        else:
            data = build_batch(records)
        info = self.log.append_as_leader(memoryview(data), self.epoch, now_ms=NOW_MS)
        assert (info.first_offset, info.last_offset) == (first, first + count - 1)
        self.rows += [(first + i, self.epoch, value) for i, value in enumerate(values)]

    @rule(count=st.integers(1, 40))
    def replicate(self, count: int) -> None:
        batches = b"".join(
            build_batch(
                [RecordData(NOW_MS, None, b"r%d" % (self.end + i))], base_offset=self.end + i, leader_epoch=self.epoch
            )
            for i in range(count)
        )
        self.rows += [(self.end + i, self.epoch, b"r%d" % (self.end + i)) for i in range(count)]
        self.log.append_as_follower(memoryview(batches + batches[:60]), self.epoch)

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1
        self.log.leader_epochs.begin(self.epoch, self.end)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        target = self.start + round(share * (self.end - self.start))
        self.log.truncate_to(target)
        # A batch that the target cuts goes as a whole.
        self.rows = [row for row in self.rows if row[0] < self.log.log_end_offset]
        assert self.end <= target
        self.settle()

    @rule(share=st.floats(0, 1))
    def raise_log_start(self, share: float) -> None:
        self.log.update_high_watermark(self.end)
        target = self.start + round(share * (self.end - self.start))
        self.log.maybe_increment_log_start_offset(target)
        self.start = max(self.start, target)
        self.rows = [row for row in self.rows if row[0] >= self.start]

    @rule()
    def delete_old_segments(self) -> None:
        self.log.update_high_watermark(self.end)
        self.log.delete_old_segments(NOW_MS)
        assert self.log.log_start_offset == self.start

    @rule()
    def start_afresh(self) -> None:
        self.log.truncate_fully_and_start_at(self.end + 3)
        self.rows = []
        self.settle()

    @rule()
    def stop_cleanly(self) -> None:
        self.log.close()
        self.log = self.open(clean=True, recovery_point=self.end)

    @rule(
        pick=st.floats(0, 1),
        cut=st.floats(0, 1),
        junk=st.sampled_from([b"", bytes(90), b"\xff" * 61]),
        drop_indexes=st.booleans(),
    )
    def kill(self, pick: float, cut: float, junk: bytes, drop_indexes: bool) -> None:
        """Any segment past the recovery point may have lost its tail."""
        flushed = self.log.recovery_point
        unflushed = [segment for segment in self.log.segments if segment.next_offset > flushed]
        hit = unflushed[int(pick * (len(unflushed) - 1))] if unflushed else self.log.active_segment
        sealed = hit is not self.log.active_segment
        synced = hit.position_of(flushed) if flushed > hit.base_offset else 0
        self.log.close_files()
        path = Path(hit.files.log_path)
        data = path.read_bytes()
        kept = synced + round(cut * (len(data) - synced))
        # A sealed segment that ends between two batches looks whole, to Kafka too.
        path.write_bytes(data[:kept] + (junk or b"\xff" * 61 * sealed))
        if drop_indexes:
            for index in path.parent.glob("*.*index"):
                index.unlink()
        self.log = self.open(clean=False, recovery_point=flushed)
        assert self.end >= min(flushed, len(self.rows) and self.rows[-1][0] + 1)
        self.rows = [row for row in self.rows if row[0] < self.end]
        self.settle()

    def settle(self) -> None:
        """After a loss: the producer goes on where the log says, and the log start cannot be past the end."""
        entry = self.log.producer_state.entry(5)
        self.sequence = 0 if entry is None else entry.last_sequence + 1
        self.start = self.log.log_start_offset

    @precondition(lambda self: self.rows)
    @rule(share=st.floats(0, 0.999))
    def find_by_time(self, share: float) -> None:
        row = self.rows[int(share * len(self.rows))]
        expected = self.log.reader.offset_by_timestamp(NOW_MS)
        assert expected is not None
        assert expected.offset == self.rows[0][0]
        assert self.log.leader_epochs.epoch_for_offset(row[0]) == row[1]

    @precondition(lambda self: self.rows)
    @rule(shares=st.lists(st.floats(0, 0.999), min_size=1, max_size=20))
    def read_from_any_offset(self, shares: list[float]) -> None:
        for share in shares:
            row = self.rows[int(share * len(self.rows))]
            info = self.log.reader.read(row[0], 1, up_to_offset=self.end, min_one_message=True)
            offsets = [record.offset for record in iter_records(info.records)]
            assert row[0] in offsets, (row[0], offsets, info.position)

    @invariant()
    def readers_see_the_rows(self) -> None:
        self.log.check()
        for max_bytes in (1, 700, 1 << 20):
            assert local_rows(self.log, max_bytes) == self.rows
        assert self.log.log_start_offset == self.start

    @invariant()
    def epochs_are_those_of_the_rows(self) -> None:
        lineage = LeaderEpochCache()
        for offset, epoch, _ in self.rows:
            lineage.assign(epoch, offset)
        # The cache may end with an epoch that has no records yet.
        kept = [entry for entry in self.log.leader_epochs.entries if entry[1] < self.end]
        assert kept == list(lineage.entries), self.log.leader_epochs.entries

    @invariant()
    def sealed_indexes_are_those_of_their_batches(self) -> None:
        for segment in self.log.segments:
            try:
                batches = list(valid_batches(segment, 0, segment.size_bytes, segment.base_offset))
            except DamagedFile as damaged:
                raise AssertionError(damaged) from None
            positions = {position: header.last_offset for position, header, _ in batches}
            assert all(positions[p] == o for o, p in segment.offset_index.entries())
            maximum = max((header.max_timestamp for _, header, _ in batches), default=-1)
            assert segment.max_timestamp == maximum


TestUnifiedLogModel = UnifiedLogModel.TestCase
TestUnifiedLogModel.settings = settings(max_examples=effort(25, 1_000, check=6), stateful_step_count=30, deadline=None)
