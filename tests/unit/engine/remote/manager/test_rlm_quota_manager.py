"""The throttling of the copy and the fetch quota (KIP-956)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from backend.engine.common.rates import Windows
from backend.engine.remote.manager.copy_task import CopyTask
from backend.engine.remote.manager.rlm_quota_manager import RlmQuota, ThrottleTimes
from backend.engine.remote.storage.object_store_manager import EventType
from tests.unit.engine.remote.tiers import View, golden_tiered_log, tier_broker
from tests.unit.engine.virtual_time import run_virtual


@dataclass
class HandClock:
    """Time moved by hand."""

    now_ms: float = 1_000_000.0

    def time_ms(self) -> int:
        return int(self.now_ms)

    def monotonic_ms(self) -> float:
        return self.now_ms


def test_nothing_is_held_back_up_to_the_bound_and_more_until_the_rate_has_fallen_to_it() -> None:
    clock, bound = HandClock(), 100
    quota = RlmQuota(clock, Windows(11, 1000), lambda: bound)
    quota.record(100)
    assert (quota.bytes_per_second, quota.throttle_ms()) == (100, 0)
    quota.record(400)
    # 500 bytes in a window of 1 s: (500 - 100) / 100 of it.
    assert quota.throttle_ms() == 4000
    clock.now_ms += 4999
    assert quota.throttle_ms() > 0
    clock.now_ms += 1
    assert quota.throttle_ms() == 0


def test_a_bound_that_is_raised_counts_at_once_and_old_windows_are_forgotten() -> None:
    clock, bound = HandClock(), 1
    quota = RlmQuota(clock, Windows(11, 1000), lambda: bound)
    quota.record(1000)
    assert quota.throttle_ms() == 999_000
    bound = 1000
    assert quota.throttle_ms() == 0
    bound = 1
    clock.now_ms += 11_001
    assert (quota.bytes_per_second, quota.throttle_ms()) == (0, 0)


def test_throttle_times_are_those_of_the_last_minute() -> None:
    clock = HandClock()
    times = ThrottleTimes(clock)
    assert (times.average_ms, times.max_ms) == (0, 0)
    times.record(100)
    times.record(300)
    clock.now_ms += 31_000
    times.record(50)
    assert (times.average_ms, times.max_ms) == (150, 300)
    clock.now_ms += 30_000
    assert (times.average_ms, times.max_ms) == (50, 50)
    clock.now_ms += 60_000
    assert (times.average_ms, times.max_ms) == (0, 0)


def test_a_copy_waits_for_its_quota_and_goes_on_when_it_is_raised(tmp_path: Path) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        settings = {"remote.log.manager.copy.max.bytes.per.second": "216"}
        async with tier_broker(tmp_path, settings=settings) as broker:
            tier = broker.tier
            running = asyncio.ensure_future(CopyTask(View(log), tier).run())
            # The first segment fills the window of a second, the second one finds the rate at its bound and goes too.
            while len(broker.history(EventType.COPY_SEGMENT)) < 2:
                await asyncio.sleep(0.005)
            await running
            log.roll()
            running = asyncio.ensure_future(CopyTask(View(log), tier).run())
            while not tier.copy_quota.throttled.max_ms:
                await asyncio.sleep(0.005)
            assert len(broker.history(EventType.COPY_SEGMENT)) == 2
            raised = tier.config().overlay({"remote.log.manager.copy.max.bytes.per.second": "1000000"})
            tier.config = lambda: raised
            await running
            assert len(broker.history(EventType.COPY_SEGMENT)) == 3
            assert log.highest_remote_offset == 7

    run_virtual(play())


def test_reads_past_the_fetch_quota_are_held_back_and_counted(tmp_path: Path) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        settings = {"remote.log.manager.fetch.max.bytes.per.second": "100"}
        async with tier_broker(tmp_path, settings=settings) as broker:
            await CopyTask(View(log), broker.tier).run()
            manager = broker.manager
            assert not manager.throttle_fetch()
            remote_read = await manager.read(log, 0, 1 << 20, min_one_message=True, read_committed=False)
            assert len(remote_read.records) == 216
            assert manager.throttle_fetch()
            assert broker.tier.fetch_quota.throttled.max_ms > 0
            assert broker.tier.fetch_quota.bytes_per_second > 100
            assert broker.tier.meters.reads.count == 1

    run_virtual(play())
