"""Faults of the object store in copying and deletion: no record is lost, each is logged, and work resumes after it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, cast

import pytest

from backend.engine.log.unified_log import UnifiedLog
from backend.engine.remote.storage.object_store_manager import object_key
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.record_batch import iter_records
from backend.tiering.ids import uuid_text
from backend.tiering.segment_state import SegmentState
from tests.unit.engine.log.logs import NOW_MS, TIP, append, open_test_log, replicate
from tests.unit.engine.remote.tiers import TIERED, Broker, View, tier_broker
from tests.unit.engine.virtual_time import FaultyStore, InlineWorkers, run_virtual

MINUTE_MS: Final = 60_000
HOUR_MIN: Final = 60
SETTINGS: Final = {"remote.log.manager.task.interval.ms": "30000", "remote.log.manager.task.retry.backoff.ms": "500"}
SEGMENT_RECORDS: Final = 10
# Records are stamped with virtual time, appends get the time at which the log was made.
UNLIMITED: Final = replace(TIERED, retention_ms=-1, message_timestamp_after_max_ms=2**62)


@dataclass
class Day:
    """A led partition that gets a record a minute, a segment every ten, and local retention every minute."""

    log: UnifiedLog
    broker: Broker
    store: FaultyStore
    lost: list[int] = field(default_factory=list)
    # Returns a value that distinguishes the record of each offset from all others.
    timestamps: list[int] = field(default_factory=list)

    async def minutes(self, count: int) -> None:
        log = self.log
        for _ in range(count):
            offset = log.log_end_offset
            if offset % SEGMENT_RECORDS == 0 and offset:
                log.roll()
            append(log, self._index())
            self.timestamps.append(NOW_MS + self._index())
            replicate(log)
            log.delete_old_segments(NOW_MS + self._index())
            # All records of a segment are in one place.
            firsts = range(log.log_start_offset // SEGMENT_RECORDS * SEGMENT_RECORDS, offset + 1, SEGMENT_RECORDS)
            self.lost.extend(first for first in firsts if not self.readable(max(first, log.log_start_offset)))
            await asyncio.sleep(MINUTE_MS / 1000)

    def _index(self) -> int:
        """Test records are stamped NOW_MS plus this."""
        return self.broker.tier.ports.clock.time_ms() - NOW_MS

    def readable(self, offset: int) -> bool:
        """Whether the record is local, or in a finished segment whose objects are there."""
        if offset >= self.log.segments.first_base_offset:
            return True
        metadata = self.broker.metadata.lookup(TIP, 0, offset)
        return metadata is not None and object_key(metadata, "log") in self.store.objects

    async def read(self, offset: int) -> int:
        """Timestamp of the record, which a read of the remote tier begins with. KafkaError."""
        remote_read = await self.broker.manager.read(self.log, offset, 1, min_one_message=True, read_committed=False)
        [record] = [
            candidate for candidate in iter_records(memoryview(remote_read.records)) if candidate.offset == offset
        ]
        return record.timestamp

    async def check_every_record(self) -> None:
        """Of a healthy store: what was written is there, wherever it is."""
        log = self.log
        for offset in range(log.log_start_offset, log.segments.first_base_offset):
            assert await self.read(offset) == self.timestamps[offset], offset
        await self.check_every_local_record()

    async def check_every_local_record(self) -> None:
        log = self.log
        for offset in range(max(log.log_start_offset, log.segments.first_base_offset), log.log_end_offset):
            result = log.reader.read(offset, 1, up_to_offset=log.log_end_offset, min_one_message=True)
            [local] = [record for record in iter_records(memoryview(result.records)) if record.offset == offset]
            assert local.timestamp == self.timestamps[offset], offset

    @property
    def copied(self) -> int:
        return self.log.highest_remote_offset

    @property
    def sealed(self) -> int:
        """The last offset that could be copied."""
        return self.log.active_segment.base_offset - 1

    def segments(self) -> list[bytes]:
        """Ids of what the metadata know."""
        return [segment.segment_id for segment in self.broker.metadata.segments(TIP)]

    def states(self) -> list[SegmentState]:
        return [segment.state for segment in self.broker.metadata.segments(TIP)]


def play(folder: Path, work: Callable[[Day], Awaitable[None]]) -> None:
    """Runs a story on a fresh partition; in the end nothing may have been lost at any minute."""

    async def run() -> None:
        store = FaultyStore()
        log = open_test_log(folder, UNLIMITED, remote=True)
        async with tier_broker(folder, settings=SETTINGS, store=store) as broker:
            broker.topic.idle_wait_ms = MINUTE_MS
            broker.manager.on_leadership_change([View(log)], [])
            day = Day(log, broker, store)
            await work(day)
            assert day.lost == []
            await day.check_every_record()

    run_virtual(run())


def told_of_copies(day: Day, caplog: pytest.LogCaptureFixture) -> int:
    """Returns the number of log lines that announce a retry of a copy; each names a segment of the metadata."""
    named = {uuid_text(segment.segment_id) for segment in day.broker.metadata.segments(TIP)}
    lines = [record.getMessage() for record in caplog.records if "will be tried again" in record.getMessage()]
    assert all(any(name in line for name in named) for line in lines), lines
    return len(lines)


def copies_told(caplog: pytest.LogCaptureFixture, ending: str) -> set[str]:
    """Segments of which a log line says that their copy is done."""
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Copied segment")]
    assert all(line.endswith(ending) for line in lines), lines
    return {line.rpartition(" as ")[2].split()[0] for line in lines}


def away(call: str, key: str) -> None:
    raise ConnectionError(f"{call} {key}: connection refused")


def nothing(call: str, key: str) -> None:
    return None


def test_six_hours_without_the_store_lose_nothing_and_are_caught_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(day: Day) -> None:
        await day.minutes(HOUR_MIN)
        assert day.copied == day.sealed == 49
        assert day.log.segments.first_base_offset == 50
        day.store.before = away
        with caplog.at_level(logging.INFO, "backend.engine.remote"):
            await day.minutes(6 * HOUR_MIN)
        # Produce and local reads went on; what is not copied is all still local.
        assert day.log.log_end_offset == 7 * HOUR_MIN
        assert (day.copied, day.log.segments.first_base_offset) == (49, 50)
        gauges = day.broker.tier.meters.gauges(TIP)
        assert gauges.remotecopylagsegments == 36
        # Back-off of at most half a minute: 720 tries and a few early ones, and so many dangling entries.
        tries = day.broker.tier.meters.retries["Copy"]
        assert 600 <= tries <= 900
        dangling = [
            metadata
            for metadata in day.broker.metadata.segments(TIP)
            if metadata.state is SegmentState.COPY_SEGMENT_STARTED
        ]
        assert len(dangling) == tries
        named = {uuid_text(metadata.segment_id) for metadata in dangling}
        messages = [record.getMessage() for record in caplog.records if "will be tried again" in record.getMessage()]
        assert len(messages) == tries
        assert all(any(name in line for name in named) for line in messages[:20])
        began_ms = day.broker.tier.ports.clock.monotonic_ms()
        with pytest.raises(KafkaError) as refused:
            await day.read(0)
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert day.broker.tier.ports.clock.monotonic_ms() == began_ms, "no retry that a reader waits for"
        assert day.broker.tier.meters.all_topics.remotefetcherrors == 1
        await day.check_every_local_record()
        day.store.before = nothing
        await day.minutes(5)
        assert day.copied == day.sealed
        assert day.log.segments.first_base_offset == day.sealed + 1
        assert gauges.remotecopylagsegments == 0
        assert await day.read(55) == day.timestamps[55]
        # Dangling entries go with retention, and leave no object.
        day.log.config = replace(day.log.config, retention_ms=MINUTE_MS)
        await day.minutes(3)
        assert len(day.states()) <= 1
        assert len(day.store.objects) <= 5

    play(tmp_path, story)


def test_a_store_that_takes_two_seconds_a_call_delays_copies_and_reads_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(day: Day) -> None:
        workers = cast(InlineWorkers, day.broker.tier.ports.workers)
        workers.slow_s = 2.0
        with caplog.at_level(logging.INFO, "backend.engine.remote"):
            await day.minutes(2 * HOUR_MIN + 2)
        assert day.copied == day.sealed == 119
        # Each line tells how long its segment took.
        assert copies_told(caplog, "in 2000 ms") == {uuid_text(segment) for segment in day.segments()}
        assert await day.read(5) == day.timestamps[5]
        meters = day.broker.tier.meters
        assert meters.retries == {}
        assert (meters.all_topics.remotecopyerrors, meters.all_topics.remotefetcherrors) == (0, 0)
        # That reads are slow is to be seen, and passes.
        assert min(value for _, value in meters.reads.quantiles()) >= 2000
        workers.slow_s = 0.0
        before_ms = day.broker.tier.ports.clock.monotonic_ms()
        assert await day.read(15) == day.timestamps[15]
        assert day.broker.tier.ports.clock.monotonic_ms() == before_ms

    play(tmp_path, story)


def test_bursts_of_503_delay_copies_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(day: Day) -> None:
        calls = 0

        def bursts(call: str, key: str) -> None:
            nonlocal calls
            calls += 1
            if calls // 3 % 2:
                raise OSError(f"{call} {key}: 503 Slow Down")

        day.store.before = bursts
        with caplog.at_level(logging.INFO, "backend.engine.remote"):
            await day.minutes(3 * HOUR_MIN)
        day.store.before = nothing
        await day.minutes(2)
        assert day.broker.tier.meters.retries["Copy"] == told_of_copies(day, caplog) > 0
        assert day.copied == day.sealed

    play(tmp_path, story)


def test_a_put_that_times_out_but_lands_leaves_no_object_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(day: Day) -> None:
        def late(call: str, key: str) -> None:
            raise TimeoutError(f"{call} {key}: no answer within 30 s")

        def only_deletes_fail(call: str, key: str) -> None:
            if call == "delete":
                raise TimeoutError(f"{call} {key}: no answer within 30 s")

        day.store.after, day.store.before = late, only_deletes_fail
        with caplog.at_level(logging.INFO, "backend.engine.remote"):
            await day.minutes(15)
        assert day.copied == -1
        assert day.broker.tier.meters.retries["Copy"] == told_of_copies(day, caplog) > 0
        landed = set(day.store.objects)
        assert landed
        day.store.after = day.store.before = nothing
        await day.minutes(HOUR_MIN)
        assert day.copied == day.sealed
        # The entry that dangles names what landed: retention takes it along.
        assert landed & set(day.store.objects)
        day.log.config = replace(day.log.config, retention_ms=MINUTE_MS)
        await day.minutes(3)
        assert not landed & set(day.store.objects)

    play(tmp_path, story)


def test_objects_that_a_listing_does_not_show_yet_are_copied_read_and_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(day: Day) -> None:
        day.store.after = lambda call, key: day.store.unlisted.add(key)
        with caplog.at_level(logging.INFO, "backend.engine.remote"):
            await day.minutes(35)
        assert day.store.list("kafka-tiered-storage") == []
        assert day.copied == day.sealed == 29
        meters = day.broker.tier.meters
        assert (meters.retries, meters.all_topics.remotecopyrequests, meters.all_topics.remotecopyerrors) == ({}, 3, 0)
        assert copies_told(caplog, " ms") == {uuid_text(segment) for segment in day.segments()}
        await day.check_every_record()
        day.log.config = replace(day.log.config, retention_ms=MINUTE_MS)
        await day.minutes(3)
        assert day.store.objects == {}

    play(tmp_path, story)


def test_deletion_goes_on_where_the_store_stopped_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(day: Day) -> None:
        await day.minutes(65)
        objects = len(day.store.objects)

        def no_deletes(call: str, key: str) -> None:
            if call == "delete":
                raise OSError(f"{call} {key}: 503 Slow Down")

        day.store.before = no_deletes
        day.log.config = replace(day.log.config, retention_ms=10 * MINUTE_MS, local_retention_ms=10 * MINUTE_MS)
        with caplog.at_level(logging.INFO, "backend.engine.remote"):
            await day.minutes(HOUR_MIN)
        gauges = day.broker.tier.meters.gauges(TIP)
        assert gauges.remotedeletelagsegments > 0
        assert len(day.store.objects) > objects
        assert SegmentState.DELETE_SEGMENT_STARTED in day.states()
        [stuck] = [
            segment for segment in day.broker.metadata.segments(TIP) if segment.state.name == "DELETE_SEGMENT_STARTED"
        ]
        assert uuid_text(stuck.segment_id) in caplog.text
        day.store.before = nothing
        await day.minutes(5)
        assert gauges.remotedeletelagsegments == 0
        assert SegmentState.DELETE_SEGMENT_STARTED not in day.states()
        assert len(day.store.objects) < objects

    play(tmp_path, story)


def test_an_object_that_somebody_deleted_fails_its_reads_and_no_others_and_goes_by_retention(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(day: Day) -> None:
        await day.minutes(35)
        gone = day.broker.metadata.lookup(TIP, 0, 12)
        assert gone is not None
        kept = day.store.objects.pop(object_key(gone, "log"))
        with pytest.raises(KafkaError) as refused:
            await day.read(12)
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert uuid_text(gone.segment_id) in caplog.text
        assert day.broker.tier.meters.all_topics.remotefetcherrors == 1
        for offset in (5, 25):
            assert await day.read(offset) == day.timestamps[offset]
        day.store.objects[object_key(gone, "log")] = kept
        await day.check_every_record()
        day.store.objects.pop(object_key(gone, "log"))
        day.log.config = replace(day.log.config, retention_ms=MINUTE_MS)
        await day.minutes(3)
        assert day.store.objects == {}
        assert day.states() == []
        assert set(day.lost) <= set(range(10, 20))
        day.lost.clear()

    play(tmp_path, story)
