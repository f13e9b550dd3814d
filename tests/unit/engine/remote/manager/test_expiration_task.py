"""The remote segments that retention deletes (cases of `RemoteLogManagerTest`), and an expiration run on a real log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from backend.engine.log.log_errors import NoSpace, OffsetOutOfRange
from backend.engine.remote.manager.copy_task import CopyTask
from backend.engine.remote.manager.expiration_task import (
    ExpirationTask,
    Expired,
    RetentionView,
    choose_expired,
    percent_of,
)
from backend.engine.remote.metadata.remote_log_metadata_cache import RemoteLogMetadataCache
from backend.engine.remote.metadata.remote_segment_index import RemoteSegmentIndex
from backend.engine.remote.storage.object_store_manager import EventType
from backend.engine.remote.storage.remote_storage_manager import RemoteStorageError
from backend.protocol.remote_log.metadata_serde import SegmentMetadata, SegmentUpdate
from backend.tiering.segment_state import SegmentState
from tests.unit.engine.log.logs import NOW_MS, TIP, append, open_test_log, replicate
from tests.unit.engine.log.test_full_disk import files_of_at_most
from tests.unit.engine.remote.tiers import TIERED, View, golden_tiered_log, tier_broker
from tests.unit.engine.virtual_time import run_virtual

STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = SegmentState
SIZE: Final = 1024
T0: Final = 1_000_000


def segment(
    number: int, start: int, end: int, epochs: Sequence[tuple[int, int]] = ((0, 0),), *, max_ms: int = T0
) -> SegmentMetadata:
    own = tuple((epoch, max(offset, start)) for epoch, offset in epochs)
    return SegmentMetadata(TIP, bytes([number]) * 16, start, end, 1, max_ms, 0, own, SIZE, None, STARTED)


def decide(
    segments: Sequence[SegmentMetadata],
    *,
    states: dict[int, SegmentState] | None = None,
    copying: Sequence[int] = (),
    **view: Any,
) -> Expired:
    """Segments are finished unless `states` says otherwise, by number."""
    cache = RemoteLogMetadataCache(TIP)
    for metadata in segments:
        cache.apply(metadata)
        segment_state = (states or {}).get(metadata.segment_id[0], FINISHED)
        for state in (FINISHED, DELETE_STARTED):
            if segment_state >= state:
                cache.apply(SegmentUpdate(TIP, metadata.segment_id, 1, 0, None, state))
    given = {
        "epochs": ((0, 0),),
        "log_start": 0,
        "log_end": 1000,
        "only_local_bytes": 0,
        "retention_bytes": -1,
        "retention_ms": -1,
        "now_ms": T0,
        **view,
    }
    return choose_expired(
        RetentionView(**given),
        RemoteSegmentIndex(cache.summary(), cache.segments, cache.oldest_of),
        frozenset(bytes([number]) * 16 for number in copying),
    )


@pytest.mark.parametrize(("expired", "looked_at"), [(0, 0), (3, 4), (40, 41)])
def test_a_run_looks_at_what_goes_and_at_one_more_segment(expired: int, looked_at: int) -> None:
    cache = RemoteLogMetadataCache(TIP)
    for number in range(2600):
        start, key = number * 10, number.to_bytes(4, "little") * 4
        cache.apply(SegmentMetadata(TIP, key, start, start + 9, 1, number, 0, ((0, start),), SIZE, None, STARTED))
        cache.apply(SegmentUpdate(TIP, key, 1, 0, None, FINISHED))
    taken = []

    def of_epoch(epoch: int) -> Iterator[SegmentMetadata]:
        for metadata in cache.oldest_of(epoch):
            taken.append(metadata)
            yield metadata

    def segments() -> Iterator[SegmentMetadata]:
        raise AssertionError("all segments are listed")

    view = RetentionView(((0, 0),), 0, 30_000, 0, 3000 * SIZE, 10_000, now_ms=10_000 + expired)
    result = choose_expired(view, RemoteSegmentIndex(cache.summary(), segments, of_epoch))
    assert (len(result.segments), len(taken)) == (expired, looked_at)


def numbers(expired: Expired) -> list[int]:
    return [metadata.segment_id[0] for metadata in expired.segments]


TEN: Final = [segment(number, 100 * number, 100 * number + 99) for number in range(10)]


@pytest.mark.parametrize(
    ("retention_bytes", "only_local_bytes", "expected", "log_start"),
    [
        (10 * SIZE, 0, [], None),
        (10 * SIZE - 1, 0, [], None),  # one segment less would be below the limit
        (9 * SIZE, 0, [0], 100),
        (5 * SIZE, SIZE, [0, 1, 2, 3, 4, 5], 600),
        (0, 0, list(range(10)), 1000),
    ],
)
def test_size_keeps_the_segment_that_crosses_the_limit(
    retention_bytes: int, only_local_bytes: int, expected: list[int], log_start: int | None
) -> None:
    expired = decide(TEN, retention_bytes=retention_bytes, only_local_bytes=only_local_bytes, log_end=1001)
    assert (numbers(expired), expired.log_start) == (expected, log_start)


@pytest.mark.parametrize(
    ("retention_ms", "now_ms", "expected"),
    [(100, T0 + 100, []), (100, T0 + 101, [0, 1, 2]), (0, T0, []), (T0 + 1, T0, []), (-1, T0 * 2, [])],
    ids=["just kept", "over", "same moment", "longer than time has lasted", "unlimited"],
)
def test_time_counts_from_the_largest_timestamp(retention_ms: int, now_ms: int, expected: list[int]) -> None:
    expired = decide(TEN[:3], retention_ms=retention_ms, now_ms=now_ms)
    assert numbers(expired) == expected
    assert expired.log_start == (300 if expected else None)


def test_the_first_segment_that_stays_ends_the_search() -> None:
    old_last = [segment(0, 0, 99), segment(1, 100, 199, max_ms=T0 + 50), segment(2, 200, 299)]
    assert numbers(decide(old_last, retention_ms=10, now_ms=T0 + 20)) == [0]


def test_overlapping_segments_move_log_start_behind_the_longest() -> None:
    overlapping = [segment(0, 0, 150), segment(1, 100, 120), segment(2, 100, 199)]
    expired = decide(overlapping, retention_ms=0, now_ms=T0 + 1)
    assert (sorted(numbers(expired)), expired.log_start) == ([0, 1, 2], 200)


def test_below_log_start_segments_go_and_log_start_stays() -> None:
    expired = decide(TEN, log_start=250, epochs=((0, 250),))
    assert (numbers(expired), expired.log_start) == ([0, 1], None)


def test_a_segment_that_spans_a_later_epoch_does_not_go_by_log_start_alone() -> None:
    spans = [segment(0, 0, 99, ((0, 0), (1, 50)))]
    assert numbers(decide(spans, log_start=120, epochs=((0, 0), (1, 50)))) == []
    assert numbers(decide(spans, log_start=120, epochs=((1, 120),))) == [0]


def test_what_is_being_copied_and_all_behind_it_waits() -> None:
    expired = decide(TEN, retention_ms=0, now_ms=T0 + 1, copying=[2], states={2: STARTED})
    assert (numbers(expired), expired.log_start) == ([0, 1], 200)


def test_a_dangling_copy_goes_when_retention_says_so_and_not_before() -> None:
    dangling = [*TEN[:3], segment(20, 300, 399)]
    states = {20: STARTED}
    assert numbers(decide(dangling, states=states)) == []
    assert numbers(decide(dangling, states=states, retention_ms=0, now_ms=T0 + 1)) == [0, 1, 2, 20]
    # It has no size: three finished ones are all there is.
    assert numbers(decide(dangling, states=states, retention_bytes=3 * SIZE)) == []


@pytest.mark.parametrize("retention_ms", [10, -1])
def test_what_goes_with_an_unfinished_copy_of_it_is_no_surplus_any_more(retention_ms: int) -> None:
    """The failed copy has no size: without that of the finished one, the limit took a segment more than it asks for."""
    dangling, first, rest = segment(20, 0, 99), segment(0, 10, 99), [segment(n, 100 * n, 100 * n + 99) for n in (1, 2)]
    young = [metadata._replace(max_timestamp_ms=T0 + 50) for metadata in rest]
    failed = dangling._replace(segment_size_bytes=SIZE // 2)
    expired = decide(
        [failed, first, *young],
        states={20: STARTED},
        log_start=10,
        epochs=((0, 10),),
        retention_bytes=SIZE + SIZE // 4,
        retention_ms=retention_ms,
        now_ms=T0 + 20,
    )
    assert (sorted(numbers(expired)), expired.log_start) == ([0, 20], 100)


def test_a_deletion_that_failed_is_taken_up_again_at_once() -> None:
    expired = decide(TEN[:3], states={0: DELETE_STARTED})
    assert (numbers(expired), expired.log_start) == ([0], None)


def test_segments_outside_the_leaders_history_stay_out_of_sums_and_do_not_end_the_search() -> None:
    # Epoch 1 of a deposed leader went on to 250; ours ended it at 150.
    foreign = segment(9, 150, 250, ((1, 150),))
    ours = [segment(0, 0, 99), segment(1, 100, 149, ((0, 0), (1, 140))), foreign, segment(2, 150, 249, ((2, 150),))]
    lineage = ((0, 0), (1, 140), (2, 150))
    assert numbers(decide(ours, epochs=lineage, retention_bytes=2 * SIZE)) == [0]
    assert numbers(decide(ours, epochs=lineage, retention_ms=0, now_ms=T0 + 1)) == [0, 1, 2]


def test_segments_of_epochs_that_nobody_remembers_go_once_they_are_below_log_start() -> None:
    segments = [segment(0, 0, 99, ((1, 0),)), segment(1, 0, 99, ((1, 0), (2, 50))), segment(2, 100, 199, ((3, 100),))]
    expired = decide(segments, epochs=((3, 100),), log_start=100)
    assert numbers(expired) == [0, 1]
    assert numbers(decide(segments, epochs=((2, 50), (3, 100)), log_start=0)) == []


@pytest.mark.parametrize("chain", [((5, 0),), ((5, 700),)], ids=["empty log", "shorter chain"])
def test_a_leader_that_lacks_the_epochs_of_what_is_remote_deletes_nothing_before_its_time(chain: Any) -> None:
    assert numbers(decide(TEN, epochs=chain, log_end=700)) == []
    assert numbers(decide(TEN, epochs=chain, log_end=700, retention_ms=100, now_ms=T0 + 100)) == []
    assert numbers(decide(TEN, epochs=chain, log_end=700, retention_bytes=10 * SIZE)) == []


def test_what_an_ended_lineage_left_goes_by_time_and_by_its_own_size() -> None:
    chain = ((5, 0),)
    expired = decide(TEN, epochs=chain, retention_ms=100, now_ms=T0 + 101)
    assert (numbers(expired), expired.log_start) == (list(range(10)), None)
    expired = decide(TEN, epochs=chain, retention_bytes=7 * SIZE)
    assert (numbers(expired), expired.log_start) == ([0, 1, 2], None)
    mixed = [
        metadata._replace(max_timestamp_ms=T0 + 500) if metadata.segment_id[0] % 2 else metadata for metadata in TEN
    ]
    expired = decide(mixed, epochs=chain, retention_ms=100, now_ms=T0 + 200, retention_bytes=5 * SIZE)
    assert numbers(expired) == [0, 2, 4, 6, 8]
    expired = decide(mixed, epochs=chain, retention_ms=100, now_ms=T0 + 200, retention_bytes=3 * SIZE)
    assert numbers(expired) == [0, 1, 2, 3, 4, 6, 8]


@pytest.mark.parametrize(("size", "limit", "percent"), [(360, 216, 166), (72, 72, 100), (73, 1, 7300), (5, -1, 0)])
def test_shares_are_whole_percents(size: int, limit: int, percent: int) -> None:
    assert percent_of(size, limit) == percent


def log_of_five(folder: Path, **config: Any) -> Any:
    """Five one-record segments of 72 bytes; four are sealed."""
    log = open_test_log(folder, replace(TIERED, retention_ms=-1, **config), remote=True)
    for index in range(5):
        if index:
            log.roll()
        append(log, index)
    replicate(log)
    return log


def play(work: Callable[[], Any]) -> None:
    run_virtual(work())


def test_kafkas_example_of_size_retention_and_its_shares(tmp_path: Path) -> None:
    async def run() -> None:
        log = log_of_five(tmp_path, retention_bytes=216, local_retention_bytes=72)
        async with tier_broker(tmp_path) as broker:
            await CopyTask(View(log), broker.tier).run()
            log.delete_old_segments(NOW_MS)
            assert [log_segment.base_offset for log_segment in log.segments] == [4]
            await ExpirationTask(View(log), broker.tier).run()
            assert [start for _, start, _ in broker.history(EventType.DELETE_SEGMENT)] == [0, 1]
            assert log.log_start_offset == 2
            shares = broker.tier.meters.shares[TIP]
            assert (shares.retentionsizeinpercent, shares.localretentionsizeinpercent) == (166, 100)
            gauges = broker.tier.meters.gauges(TIP)
            assert (gauges.remotedeletelagbytes, gauges.remotedeletelagsegments) == (0, 0)
            await ExpirationTask(View(log), broker.tier).run()
            assert (gauges.remotelogmetadatacount, gauges.remotelogsizebytes) == (2, 144)

    play(run)


def test_a_fresh_leader_counts_no_record_twice(tmp_path: Path) -> None:
    async def run() -> None:
        log = log_of_five(tmp_path, retention_bytes=432, local_retention_bytes=-1)
        async with tier_broker(tmp_path) as broker:
            await CopyTask(View(log), broker.tier).run()
            # After a restart only metadata knows what is copied, and all of it is still local.
            log.forget_highest_remote_offset()
            await ExpirationTask(View(log), broker.tier).run()
            assert broker.history(EventType.DELETE_SEGMENT) == []
            assert (log.log_start_offset, log.highest_remote_offset) == (0, 3)

    play(run)


def test_log_start_rises_before_the_first_object_goes(tmp_path: Path) -> None:
    async def run() -> None:
        log = golden_tiered_log(tmp_path, replace(TIERED, retention_ms=0))
        async with tier_broker(tmp_path) as broker:
            await CopyTask(View(log), broker.tier).run()
            real, starts = broker.storage.delete_log_segment_data, list[int]()

            def delete(metadata: SegmentMetadata) -> None:
                starts.append(log.log_start_offset)
                if len(starts) == 1:
                    raise RemoteStorageError("no")
                real(metadata)

            broker.storage.delete_log_segment_data = delete  # type: ignore[method-assign]  # to look in at that moment
            task = ExpirationTask(View(log), broker.tier)
            with pytest.raises(RemoteStorageError):
                await task.run()
            gauges = broker.tier.meters.gauges(TIP)
            assert gauges.remotedeletelagsegments == 2
            assert broker.tier.meters.all_topics.remotedeleteerrors == 1
            await task.run()
            assert starts == [6, 6, 6]
            assert gauges.remotedeletelagsegments == 0
            assert list(broker.metadata.segments(TIP)) == []

    asyncio.run(run())


def test_nothing_goes_while_a_full_disk_would_make_a_restart_look_for_it(tmp_path: Path) -> None:
    async def run() -> None:
        log = golden_tiered_log(tmp_path, replace(TIERED, retention_ms=0))
        async with tier_broker(tmp_path) as broker:
            await CopyTask(View(log), broker.tier).run()
            task = ExpirationTask(View(log), broker.tier)
            with files_of_at_most(0):
                for _ in range(2):
                    with pytest.raises(NoSpace, match="free some space"):
                        await task.run()
            assert (log.log_start_offset, log.offline_reason) == (6, None)
            assert broker.history(EventType.DELETE_SEGMENT) == []
            await task.run()
            assert len(broker.history(EventType.DELETE_SEGMENT)) == 2
            log.close_files()
            assert open_test_log(tmp_path, TIERED, remote=True).log_start_offset == 6

    asyncio.run(run())


def test_a_log_start_past_the_high_watermark_deletes_nothing_yet(tmp_path: Path) -> None:
    async def run() -> None:
        log = golden_tiered_log(tmp_path, replace(TIERED, retention_ms=0))
        async with tier_broker(tmp_path) as broker:
            await CopyTask(View(log), broker.tier).run()
            log.update_high_watermark(2)  # as after a restart that lost its checkpoint
            with pytest.raises(OffsetOutOfRange):
                await ExpirationTask(View(log), broker.tier).run()
            assert broker.history(EventType.DELETE_SEGMENT) == []
            replicate(log)
            await ExpirationTask(View(log), broker.tier).run()
            assert len(broker.history(EventType.DELETE_SEGMENT)) == 2

    asyncio.run(run())


def test_a_deposed_leader_deletes_no_further_segment(tmp_path: Path) -> None:
    async def run() -> None:
        log = golden_tiered_log(tmp_path, replace(TIERED, retention_ms=0))
        async with tier_broker(tmp_path) as broker:
            await CopyTask(View(log), broker.tier).run()
            task = ExpirationTask(View(log), broker.tier)
            real = broker.storage.delete_log_segment_data

            def delete(metadata: SegmentMetadata) -> None:
                task.cancelled = True
                real(metadata)

            broker.storage.delete_log_segment_data = delete  # type: ignore[method-assign]  # deposed at that moment
            await task.run()
            assert [start for _, start, _ in broker.history(EventType.DELETE_SEGMENT)] == [0]

    asyncio.run(run())
