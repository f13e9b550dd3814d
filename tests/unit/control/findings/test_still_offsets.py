"""Since when a partition waits at an offset: the first pending one, and the last stable one."""

from __future__ import annotations

from typing import Any

import pytest

from backend.control.findings.still_offsets import (
    PartitionKey,
    PartitionStill,
    StillOffset,
    remember_still,
    unseen_ms,
    with_jump,
)
from tests.unit.control.findings.sights import partition

KEY = ("orders", 0)


def after(*rounds: dict[str, Any]) -> PartitionStill | None:
    """The memory of the partition after rounds a second apart, the first at 0."""
    memory: dict[PartitionKey, PartitionStill] = {}
    for number, row in enumerate(rounds):
        memory = remember_still(memory, [partition(**row)], number * 1_000)
    return memory.get(KEY)


def test_an_offset_that_stays_keeps_its_time_and_one_that_moves_begins_again() -> None:
    at_800, at_900 = {"earliest_pending_upload_offset": 800}, {"earliest_pending_upload_offset": 900}
    stays, moves = after(at_800, at_800, at_800), after(at_800, at_900)
    assert stays is not None
    assert moves is not None
    assert (stays.pending, moves.pending) == (StillOffset(800, 0), StillOffset(900, 1_000))


def test_records_that_come_while_nothing_is_copied_change_nothing() -> None:
    waits = after({"log_end_offset": 1_000}, {"log_end_offset": 2_000})
    assert waits is not None
    assert waits.pending == StillOffset(800, 0)


def test_what_waits_for_nothing_is_forgotten() -> None:
    nothing = {"earliest_pending_upload_offset": -1, "pending_reason": "all_copied"}
    assert after(nothing) is None
    waits = after({}, nothing, {})
    assert waits is not None
    assert waits.pending == StillOffset(800, 2_000)


def test_an_open_transaction_is_a_last_stable_offset_below_the_high_watermark() -> None:
    held, none = {"last_stable_offset": 900}, {"last_stable_offset": 1_000}
    still = after(held, held)
    assert still is not None
    assert still.stable == StillOffset(900, 0)
    ended = after(held, none)
    assert ended is not None
    assert ended.stable is None
    plain = after({"tiered": False, **held})
    assert plain is not None
    assert (plain.pending, plain.stable) == (None, StillOffset(900, 0))


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
def test_a_clock_that_was_set_makes_no_wait_longer_or_shorter(jump_ms: int) -> None:
    held = partition(last_stable_offset=900)
    memory = remember_still(remember_still({}, [held], 5_000), [held], 7_000)
    still = remember_still(with_jump(memory, jump_ms), [held], 9_000 + jump_ms)[KEY]
    assert (still.pending, still.stable) == (StillOffset(800, 5_000 + jump_ms), StillOffset(900, 5_000 + jump_ms))
    assert still.end == StillOffset(1_000, 5_000 + jump_ms)


def test_a_topic_that_was_made_again_and_a_clock_that_was_set_back_begin_again() -> None:
    again = after({}, {"topic_id": "other"})
    assert again is not None
    assert again.pending == StillOffset(800, 1_000)
    memory = remember_still({}, [partition()], 5_000)
    assert remember_still(memory, [partition()], 1_000)[KEY].pending == StillOffset(800, 1_000)


def test_a_time_without_rounds_is_no_time_in_which_an_offset_stood_still() -> None:
    assert unseen_ms(30_000, 2_000) == 0
    assert unseen_ms(120_000, 2_000) == 120_000
    assert unseen_ms(160_000, 150_000) == 0, "a round of a large cluster takes so long"


def test_the_log_end_of_the_beginning_and_the_last_append_are_remembered() -> None:
    waits = after({"log_end_offset": 1_000}, {"log_end_offset": 2_000}, {"log_end_offset": 2_000})
    assert waits is not None
    assert (waits.pending_to, waits.end) == (1_000, StillOffset(2_000, 1_000))
    moves = after({}, {"log_end_offset": 2_000, "earliest_pending_upload_offset": 900})
    assert moves is not None
    assert moves.pending_to == 2_000
