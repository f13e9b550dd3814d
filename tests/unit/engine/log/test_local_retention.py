"""Local retention: which segments go, and what moves with them (semantics of KIP-405 and KIP-950)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.engine.log.local_retention import RetentionDecision, RetentionState, SegmentView, decide, idle_until_ms
from backend.engine.log.log_config import LogConfig
from backend.engine.log.unified_log import UnifiedLog
from tests.unit.engine.log.logs import NOW_MS, append, open_test_log, replicate

SEGMENT = 144
TWO_PER_SEGMENT = LogConfig(index_interval_bytes=1, segment_index_bytes=24, retention_ms=-1)
TIERED = replace(TWO_PER_SEGMENT, remote_storage_enable=True)
LATER_MS = NOW_MS + 1_000_000


def filled(folder: Path, config: LogConfig, *, remote: bool = False, records: int = 7) -> UnifiedLog:
    """Segments 0-1, 2-3, 4-5 and the active 6."""
    log = open_test_log(folder, config, remote=remote)
    append(log, *range(records))
    replicate(log)
    return log


def bases(log: UnifiedLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_size_retention_never_goes_below_its_limit(tmp_path: Path) -> None:
    log = filled(tmp_path, replace(TWO_PER_SEGMENT, retention_bytes=2 * SEGMENT))
    assert log.delete_old_segments(NOW_MS) == 1
    assert (bases(log), log.log_start_offset, log.local_log_start_offset) == ([2, 4, 6], 2, 2)
    assert log.leader_epochs.entries == ((0, 2),)
    log.check()
    assert log.delete_old_segments(NOW_MS) == 0


def test_time_retention_may_take_the_last_segment_too(tmp_path: Path) -> None:
    log = filled(tmp_path, replace(TWO_PER_SEGMENT, retention_ms=1000))
    assert log.delete_old_segments(NOW_MS) == 0
    assert log.delete_old_segments(LATER_MS) == 4
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([7], 7, 7)
    log.check()
    append(log, 7)
    assert log.log_end_offset == 8


def test_nothing_at_or_past_the_high_watermark_goes(tmp_path: Path) -> None:
    log = filled(tmp_path, replace(TWO_PER_SEGMENT, retention_ms=1000))
    log.update_high_watermark(3)
    assert log.delete_old_segments(LATER_MS) == 1
    assert bases(log) == [2, 4, 6]


def test_segments_below_log_start_go_on_every_topic(tmp_path: Path) -> None:
    for policy in (("delete",), ("compact",), ()):
        config = replace(TWO_PER_SEGMENT, cleanup_policy=policy, retention_ms=1000)
        log = filled(tmp_path / "-".join(policy), config)
        log.maybe_increment_log_start_offset(5)
        assert log.delete_old_segments(NOW_MS) == 2
        assert (bases(log), log.log_start_offset) == ([4, 6], 5)
        assert log.delete_old_segments(LATER_MS) == (2 if "delete" in policy else 0)


def test_snapshots_go_with_their_segments(tmp_path: Path) -> None:
    log = filled(tmp_path, replace(TWO_PER_SEGMENT, retention_bytes=2 * SEGMENT))
    assert list(log.producer_state.snapshots) == [2, 4, 6]
    log.delete_old_segments(NOW_MS)
    assert list(log.producer_state.snapshots) == [2, 4, 6]
    log.config = replace(TWO_PER_SEGMENT, retention_bytes=0)
    log.delete_old_segments(NOW_MS)
    assert list(log.producer_state.snapshots) == [7]


def test_a_tiered_segment_stays_until_it_is_in_the_remote_tier(tmp_path: Path) -> None:
    log = filled(tmp_path, replace(TIERED, local_retention_bytes=1), remote=True)
    assert log.delete_old_segments(NOW_MS) == 0
    log.update_highest_remote_offset(3)
    assert log.delete_old_segments(NOW_MS) == 2
    assert (log.log_start_offset, log.local_log_start_offset, bases(log)[:2]) == (0, 4, [4, 6])
    assert log.leader_epochs.entries == ((0, 0),)
    log.check()


def test_local_retention_falls_back_to_the_total_one(tmp_path: Path) -> None:
    log = filled(tmp_path, replace(TIERED, retention_bytes=2 * SEGMENT), remote=True)
    log.update_highest_remote_offset(5)
    assert log.delete_old_segments(NOW_MS) == 1
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 2)


def test_a_breaching_last_segment_of_a_tiered_topic_is_rolled_to_be_uploaded(tmp_path: Path) -> None:
    log = filled(tmp_path, replace(TIERED, local_retention_ms=1000), remote=True, records=1)
    assert log.delete_old_segments(LATER_MS) == 0
    assert bases(log) == [0, 1]
    log.update_highest_remote_offset(0)
    assert log.delete_old_segments(LATER_MS) == 1
    assert (log.local_log_start_offset, log.log_end_offset, log.log_start_offset) == (1, 1, 0)
    # Empty now: nothing more to roll.
    assert log.delete_old_segments(LATER_MS) == 0
    assert bases(log) == [1]


def test_a_segment_below_log_start_needs_no_upload(tmp_path: Path) -> None:
    log = filled(tmp_path, replace(TIERED, local_retention_bytes=1), remote=True)
    log.maybe_increment_log_start_offset(4)
    assert log.delete_old_segments(NOW_MS) == 2
    assert (log.log_start_offset, log.local_log_start_offset) == (4, 4)


def test_with_copying_disabled_the_plain_limits_count_and_no_upload_is_awaited(tmp_path: Path) -> None:
    config = replace(TIERED, remote_log_copy_disable=True, local_retention_bytes=1, retention_bytes=2 * SEGMENT)
    log = filled(tmp_path, config, remote=True)
    assert log.delete_old_segments(NOW_MS) == 1
    assert bases(log) == [2, 4, 6]


def test_without_the_brokers_switch_a_topic_is_not_tiered(tmp_path: Path) -> None:
    log = filled(tmp_path, replace(TIERED, retention_bytes=2 * SEGMENT), remote=False)
    assert not log.remote_enabled
    assert log.delete_old_segments(NOW_MS) == 1
    assert (log.log_start_offset, log.local_log_start_offset) == (2, 2)


def test_a_log_that_had_nothing_to_give_up_is_looked_at_again_when_something_has_changed(tmp_path: Path) -> None:
    log = filled(tmp_path, replace(TWO_PER_SEGMENT, retention_ms=60_000))
    assert log.delete_old_segments(NOW_MS) == log.delete_old_segments(NOW_MS) == 0
    assert log.delete_old_segments(LATER_MS) == 4
    log = filled(tmp_path / "settings", TWO_PER_SEGMENT)
    assert log.delete_old_segments(LATER_MS) == log.delete_old_segments(LATER_MS) == 0
    log.config = replace(TWO_PER_SEGMENT, retention_bytes=SEGMENT)
    assert log.delete_old_segments(LATER_MS) == 2
    log = filled(tmp_path / "start", TWO_PER_SEGMENT)
    assert log.delete_old_segments(LATER_MS) == 0
    log.maybe_increment_log_start_offset(4)
    assert log.delete_old_segments(LATER_MS) == 2


_VIEWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), min_size=1, max_size=4)


@given(
    _VIEWS,
    st.integers(0, 6),
    st.integers(0, 6),
    st.integers(-1, 6),
    st.booleans(),
    st.sampled_from([-1, 0, 2, 20]),
    st.sampled_from([-1, 0, 2]),
    st.integers(0, 60),
    st.integers(0, 60),
)
@settings(max_examples=60, deadline=None)
def test_until_the_moment_that_is_told_no_rule_wants_anything(
    sizes_and_times: list[tuple[int, int]],
    start: int,
    high_watermark: int,
    remote: int,
    tiered: bool,
    limit_ms: int,
    limit_bytes: int,
    now_ms: int,
    later_ms: int,
) -> None:
    last = len(sizes_and_times) - 1
    views = [
        SegmentView(base, base + 1, size, timestamp, is_last=base == last)
        for base, (size, timestamp) in enumerate(sizes_and_times)
    ]
    state = RetentionState(start, start, high_watermark, remote, tiered)
    config = LogConfig(retention_ms=limit_ms, retention_bytes=limit_bytes, remote_storage_enable=tiered)
    nothing = RetentionDecision(0, roll=False)
    if decide(views, state, config, now_ms=now_ms) != nothing:
        return
    until_ms = idle_until_ms(views[0], state, config, now_ms=now_ms)
    assert until_ms >= now_ms
    moment_ms = min(until_ms, now_ms + later_ms)
    assert decide(views, state, config, now_ms=moment_ms) == nothing
