"""Compaction of one log: what stays, what goes, what a crash, a cut or damage in between leaves."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from backend.engine.log.cleaner.log_cleaner import LogCleaner
from backend.engine.log.log_config import CleanerConfig, LogConfig
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
from tests.unit.engine.log.logs import NOW_MS, open_test_log, replicate

COMPACT = LogConfig(index_interval_bytes=1, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
DAY_MS = 86_400_000


class SetClock:
    """A clock that stands until it is set."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> float:
        return float(self.now_ms)


def cleaner_of(log: UnifiedLog, now_ms: int = NOW_MS, config: CleanerConfig | None = None,
               disk: OsDisk | None = None) -> LogCleaner:  # fmt: skip
    ports = Ports(SetClock(now_ms), SystemRandom(1), disk or OsDisk(), SocketNetwork(), ThreadWorkers(2))

    async def nothing(_: UnifiedLog) -> None:
        return

    return LogCleaner(ports, config or CleanerConfig(), lambda: [log], nothing)


def clean(log: UnifiedLog, now_ms: int = NOW_MS, config: CleanerConfig | None = None) -> LogCleaner:
    """One round of the cleaner; it ends with the log as it should be."""
    cleaner = cleaner_of(log, now_ms, config)
    asyncio.run(_once(cleaner))
    log.check()
    return cleaner


async def _once(cleaner: LogCleaner) -> bool:
    return await cleaner.clean_dirtiest()


def put(log: UnifiedLog, *pairs: tuple[str, str | None], **fields: int | bool) -> None:
    """One batch of these keys and values, acknowledged by all."""
    records = [RecordData(NOW_MS, key.encode(), None if value is None else value.encode()) for key, value in pairs]
    batch = build_batch(records, **fields)  # type: ignore[arg-type]  # names are build_batch's own
    log.append_as_leader(memoryview(batch), 0, now_ms=NOW_MS)
    replicate(log)


def end(log: UnifiedLog, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
    marker = end_txn_marker(
        commit=commit, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=0, timestamp_ms=NOW_MS
    )
    log.append_as_leader(memoryview(marker), 0, now_ms=NOW_MS, origin="coordinator")
    replicate(log)


def batches(log: UnifiedLog) -> list[tuple[BatchHeader, list[Record]]]:
    """Everything in the log."""
    read_batches: list[tuple[BatchHeader, list[Record]]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        info = log.reader.read(offset, 1 << 20, up_to_offset=log.log_end_offset, min_one_message=True)
        if not info.records:
            break
        for position, header in iter_batches(info.records):
            read_batches.append((header, list(iter_records(info.records, position))))
            offset = header.next_offset
    return read_batches


def content(log: UnifiedLog) -> list[tuple[int, str, str | None]]:
    return [
        (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
        for header, records in batches(log)
        for record in records
        if not header.is_control
    ]


def test_only_the_last_record_of_every_key_stays_at_its_offset(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, COMPACT)
    put(log, ("a", "1"), ("b", "1"), ("c", "1"))
    put(log, ("a", "2"))
    log.roll()
    put(log, ("b", "2"), ("d", "1"))
    log.roll()
    put(log, ("c", "2"))
    cleaner = clean(log)
    # The active segment is not cleaned and does not count.
    assert content(log) == [(2, "c", "1"), (3, "a", "2"), (4, "b", "2"), (5, "d", "1"), (6, "c", "2")]
    assert [segment.base_offset for segment in log.segments] == [0, 6]
    assert log.cleaning.checkpoint == 6
    assert cleaner.last_stats[0].records.records_kept == 4
    # Reads from an offset that is gone give the next record that is left.
    assert log.reader.read(0, 100, up_to_offset=7, min_one_message=True).records
    log.close_files()
    assert content(open_test_log(tmp_path, COMPACT))[0] == (2, "c", "1")


def test_a_second_cleaning_looks_at_new_keys_only_and_drops_what_they_replace(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, COMPACT)
    put(log, ("a", "1"), ("b", "1"))
    log.roll()
    clean(log)
    put(log, ("b", "2"))
    log.roll()
    put(log, ("x", "1"))
    clean(log)
    assert content(log) == [(0, "a", "1"), (2, "b", "2"), (3, "x", "1")]
    assert log.cleaning.checkpoint == 3


def test_a_tombstone_stays_for_delete_retention_from_its_first_cleaning_on(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, COMPACT)
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None))
    log.roll()
    put(log, ("x", "1"))
    clean(log)
    assert content(log) == [(1, "b", "1"), (2, "a", None), (3, "x", "1")]
    header, records = batches(log)[1]
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + DAY_MS
    assert records[0].timestamp == NOW_MS
    for number, (later_ms, expected) in enumerate(((DAY_MS - 1, True), (DAY_MS, False))):
        log.roll()
        put(log, (f"y{number}", "1"))
        clean(log, NOW_MS + later_ms)
        assert ((2, "a", None) in content(log)) == expected


def test_records_of_aborted_transactions_go_at_once_and_their_marker_when_nothing_is_left(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, COMPACT)
    transactional = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", "aborted"), base_sequence=0, **transactional)
    end(log, 7, commit=False)
    put(log, ("b", "committed"), base_sequence=1, **transactional)
    end(log, 7, commit=True)
    put(log, ("c", "1"), base_sequence=2, **transactional)
    end(log, 7, commit=True)
    log.roll()
    put(log, ("x", "1"))
    assert log.reader.aborted_transactions(0, log.log_end_offset)
    clean(log)
    assert content(log) == [(0, "a", "1"), (4, "b", "committed"), (6, "c", "1"), (8, "x", "1")]
    # The marker stays as long as the batches it speaks of were there, and so does the entry of the index.
    assert [header.base_offset for header, _ in batches(log) if header.is_control] == [3, 5, 7]
    assert [txn.first_offset for txn in log.reader.aborted_transactions(0, log.log_end_offset)] == [2]
    log.roll()
    put(log, ("y", "1"))
    clean(log)
    assert log.reader.aborted_transactions(0, log.log_end_offset) == []
    marker = next(header for header, _ in batches(log) if header.is_control)
    assert (marker.base_offset, marker.has_delete_horizon) == (3, True)
    log.roll()
    put(log, ("z", "1"))
    clean(log, NOW_MS + DAY_MS)
    assert [header.base_offset for header, _ in batches(log) if header.is_control] == [5, 7]


def test_an_open_transaction_bounds_what_is_cleaned(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, COMPACT)
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    log.roll()
    put(log, ("a", "3"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.roll()
    put(log, ("a", "4"))
    log.roll()
    clean(log)
    assert content(log) == [(1, "a", "2"), (2, "a", "3"), (3, "a", "4")]
    assert log.cleaning.checkpoint == 2


def test_the_last_batch_of_a_live_producer_stays_empty_so_that_its_sequence_is_known(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, COMPACT)
    for sequence in range(3):
        put(log, ("a", str(sequence)), producer_id=5, producer_epoch=0, base_sequence=sequence)
    put(log, ("a", "other"))
    log.roll()
    put(log, ("x", "1"))
    clean(log)
    assert content(log) == [(3, "a", "other"), (4, "x", "1")]
    kept, records = batches(log)[0]
    assert (kept.base_offset, kept.producer_id, kept.last_sequence, records) == (2, 5, 2, [])
    log.close_files()
    for snapshot in (tmp_path / "orders-0").glob("*.snapshot"):
        snapshot.unlink()
    again = open_test_log(tmp_path, COMPACT)
    put(again, ("a", "next"), producer_id=5, producer_epoch=0, base_sequence=3)
    assert content(again)[-1] == (5, "a", "next")


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_batch_that_loses_records_keeps_its_codec_epoch_and_offsets(tmp_path: Path, codec: int) -> None:
    log = open_test_log(tmp_path, COMPACT)
    put(log, ("a", "1"), ("b", "1"), ("a", "2"), ("b", "2"), ("c", "3"), compression=codec)
    log.roll()
    clean(log)
    header, records = batches(log)[0]
    assert (header.base_offset, header.last_offset, header.compression, header.leader_epoch) == (0, 4, codec, 0)
    assert [(record.offset, record.value) for record in records] == [(2, b"2"), (3, b"2"), (4, b"3")]


def test_segments_that_fit_together_become_one_and_their_files_are_given_up(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, replace(COMPACT, segment_bytes=300))
    for number in range(12):
        put(log, (f"k{number % 3}", str(number)))
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) == 3
    clean(log)
    # Sizes before the cleaning count, and two of these are too much for one.
    assert [segment.base_offset for segment in log.segments] == bases
    log.config = replace(log.config, segment_bytes=600)
    put(log, ("k0", "12"), ("k1", "13"), ("k2", "14"))
    log.roll()
    put(log, ("x", "1"))
    bases = [segment.base_offset for segment in log.segments]
    clean(log)
    assert [segment.base_offset for segment in log.segments] == [0, bases[-1]]
    assert all(path.endswith(".deleted") for path in log.take_deleted_paths())
    assert not list((tmp_path / "orders-0").glob("*.cleaned"))
    log.close_files()
    again = open_test_log(tmp_path, COMPACT)
    assert content(again) == [(12, "k0", "12"), (13, "k1", "13"), (14, "k2", "14"), (15, "x", "1")]


def test_a_map_that_is_full_cleans_what_it_holds_and_goes_on_next_time(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, COMPACT)
    for number in range(30):
        put(log, (f"k{number % 15}", str(number)))
    log.roll()
    small = CleanerConfig(dedupe_buffer_bytes=192 * 10, load_factor=1.0)
    clean(log, config=small)
    assert log.cleaning.checkpoint == 10
    clean(log, config=small)
    assert log.cleaning.checkpoint == 20
    clean(log, config=small)
    assert log.cleaning.checkpoint == 30
    assert [int(value or 0) for _, _, value in content(log)] == list(range(15, 30))


def test_a_batch_with_more_keys_than_memory_is_reported_and_left_alone(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, COMPACT)
    put(log, *((f"k{number}", "1") for number in range(5)))
    log.roll()
    cleaner = clean(log, config=CleanerConfig(dedupe_buffer_bytes=192 * 3, load_factor=1.0))
    assert "raise log.cleaner.dedupe.buffer.size" in next(iter(cleaner.uncleanable.values()))
    assert len(content(log)) == 5


def test_damage_makes_a_partition_uncleanable_and_changes_nothing(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, COMPACT)
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    log.roll()
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    cleaner = clean(log)
    assert "CRC" in next(iter(cleaner.uncleanable.values()))
    assert path.read_bytes() == data
    assert not list(path.parent.glob("*.cleaned"))
    assert asyncio.run(_once(cleaner)) is False


def test_what_waits_for_its_lag_is_left_and_what_waited_too_long_is_cleaned(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, replace(COMPACT, min_compaction_lag_ms=1000))
    put(log, ("a", "1"), ("a", "2"))
    log.roll()
    clean(log, NOW_MS + 999)
    assert len(content(log)) == 2
    clean(log, NOW_MS + 1000)
    assert len(content(log)) == 1
    put(log, ("a", "3"))
    log.roll()
    log.config = replace(COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=5000)
    assert clean(log, NOW_MS + 5000).overdue_ms_max == 0
    assert len(content(log)) == 2
    assert clean(log, NOW_MS + 5001).overdue_ms_max == 1
    assert len(content(log)) == 1


def test_a_log_that_is_cut_while_it_is_cleaned_keeps_everything_below_the_cut(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, COMPACT)
    put(log, ("a", "1"), ("b", "1"))
    log.roll()
    put(log, ("a", "2"))
    log.roll()

    class CutsWhenCleaned(OsDisk):
        """At the moment at which the first cleaned file is complete, another replica's history wins."""

        def set_modified_ms(self, path: str, time_ms: int) -> None:
            log.truncate_to(2)

    cleaner = cleaner_of(log, disk=CutsWhenCleaned())
    asyncio.run(_once(cleaner))
    log.check()
    assert content(log) == [(0, "a", "1"), (1, "b", "1")]
    assert log.cleaning.checkpoint is None
    assert not cleaner.uncleanable
    assert not list((tmp_path / "orders-0").glob("*.cleaned"))


def test_a_checkpoint_never_speaks_of_offsets_that_were_cut_off(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, COMPACT)
    put(log, ("a", "1"), ("b", "1"))
    log.roll()
    put(log, ("c", "1"))
    log.roll()
    clean(log)
    assert log.cleaning.checkpoint == 3
    log.truncate_to(2)
    assert log.cleaning.checkpoint == 2


def test_compact_and_delete_also_deletes_by_time(tmp_path: Path) -> None:
    config = replace(COMPACT, cleanup_policy=("compact", "delete"), retention_ms=1000)
    log = open_test_log(tmp_path, config)
    put(log, ("a", "1"))
    log.roll()
    put(log, ("b", "1"))
    clean(log, NOW_MS + 1000)
    assert len(content(log)) == 2
    clean(log, NOW_MS + 1001)
    assert content(log) == []
    assert log.log_start_offset == 2


def test_a_rate_makes_the_cleaner_wait(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, COMPACT)
    put(log, ("a", "1"), ("b", "1"))
    log.roll()
    waited: list[float] = []

    async def play() -> None:
        cleaner = cleaner_of(log, config=CleanerConfig(io_bytes_per_second_max=1e6))
        await cleaner._throttle(2000)
        waited.append(cleaner._io_free_ms - NOW_MS)

    asyncio.run(play())
    assert waited == [2.0]


def test_threads_are_added_and_taken_away_while_the_cleaner_runs(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, COMPACT)

    async def play() -> None:
        cleaner = cleaner_of(log, config=CleanerConfig(threads=1, backoff_ms=1))
        cleaner.start()
        assert len(cleaner._running) == 1
        cleaner.reconfigure(CleanerConfig(threads=2, backoff_ms=1))
        assert len(cleaner._running) == 2
        cleaner.reconfigure(CleanerConfig(threads=1, backoff_ms=1))
        for _ in range(500):
            await asyncio.sleep(0.01)
            if len(cleaner._running) == 1:
                break
        assert list(cleaner._running) == [0]
        # Records that were appended since are cleaned without a request.
        put(log, ("a", "1"), ("a", "2"))
        log.roll()
        for _ in range(500):
            await asyncio.sleep(0.01)
            if log.cleaning.checkpoint == 2:
                break
        assert content(log) == [(1, "a", "2")]
        assert cleaner.dead_threads == 0
        await cleaner.stop()

    asyncio.run(play())


# --- crashes


class Crash(BaseException):
    """The process ends here."""


class CrashingDisk(OsDisk):
    """Ends at the change of a name that comes after `left` others; goes on for ever while that is None."""

    left: int | None = None

    def rename(self, source: str, target: str) -> None:
        if self.left == 0:
            raise Crash(source)
        if self.left is not None:
            self.left -= 1
        super().rename(source, target)


def _history(log: UnifiedLog) -> None:
    transactional = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("c", "aborted"), base_sequence=0, **transactional)
    end(log, 7, commit=False)
    log.roll()
    put(log, ("a", "2"), ("d", "1"))
    log.roll()
    put(log, ("b", "2"))
    put(log, ("b", None))
    log.roll()
    put(log, ("e", "1"))


def _last_values(log: UnifiedLog) -> dict[str, str | None]:
    aborted = {
        offset
        for txn in log.reader.aborted_transactions(0, log.log_end_offset)
        for offset in range(txn.first_offset, txn.last_offset)
    }
    return {key: value for offset, key, value in content(log) if offset not in aborted}


@pytest.mark.parametrize("clean_stop", [True, False])
def test_a_crash_at_any_rename_loses_nothing_and_the_next_cleaning_ends_it(tmp_path: Path, clean_stop: bool) -> None:
    expected = {"a": "2", "b": None, "d": "1", "e": "1"}
    done = False
    for at in range(60):
        folder = tmp_path / str(at)
        disk = CrashingDisk()
        log = open_test_log(folder, COMPACT, disk=disk)
        _history(log)
        log.flush()
        disk.left = at
        log.active_segment.write_indexes()
        try:
            asyncio.run(_once(cleaner_of(log, disk=disk)))
            done = True
        except Crash:
            pass
        log.close_files()
        again = open_test_log(folder, COMPACT, clean=clean_stop, recovery_point=log.log_end_offset)
        again.check()
        replicate(again)
        assert _last_values(again) == expected, at
        assert not [p.name for p in (folder / "orders-0").iterdir() if p.suffix in (".swap", ".cleaned", ".deleted")]
        clean(again)
        assert _last_values(again) == expected, at
        assert [segment.base_offset for segment in again.segments] == [0, 8]
        if done:
            assert at > 12
            return
    raise AssertionError("the cleaning never came to its end")
