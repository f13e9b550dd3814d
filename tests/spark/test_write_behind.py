"""One batch is stored while the next is read: order, at most one waiting, and no failure unnoticed. Without Spark."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from spark.write_behind import WriteBehind

NOTHING = pa.table({})


def as_it_is(records: pa.Table) -> pa.Table:
    return records


def test_batches_are_stored_in_order_and_a_close_waits_for_the_last() -> None:
    stored: list[int] = []
    behind = WriteBehind(as_it_is, lambda batch_id, _: stored.append(batch_id))
    for batch_id in range(50):
        behind.hand_over(batch_id, NOTHING)
    assert behind.close() is None
    assert stored == list(range(50))


def test_a_second_batch_is_taken_only_when_the_first_is_stored() -> None:
    go_on, stored = threading.Event(), []

    def store(batch_id: int, _: pa.Table) -> None:
        assert go_on.wait(60)
        stored.append(batch_id)

    behind = WriteBehind(as_it_is, store)
    behind.hand_over(0, NOTHING)
    seen: list[list[int]] = []

    def hand_over() -> None:
        behind.hand_over(1, NOTHING)
        seen.append(list(stored))

    second = threading.Thread(target=hand_over)
    second.start()
    assert stored == []
    go_on.set()
    second.join(60)
    assert seen[0][:1] == [0]
    assert behind.close() is None


def test_a_batch_is_made_ready_by_the_caller_while_the_one_before_is_stored() -> None:
    go_on, stored, made = threading.Event(), [], []

    def ready(records: pa.Table) -> tuple[int, int]:
        made.append(threading.get_ident())
        if len(made) == 2:
            go_on.set()  # the first one is stored only once the second is ready
        return records.num_rows, len(made)

    def store(batch_id: int, batch: tuple[int, int]) -> None:
        assert go_on.wait(60)
        stored.append((batch_id, *batch))

    behind = WriteBehind(ready, store)
    behind.hand_over(0, pa.table({"a": [1]}))
    behind.hand_over(1, pa.table({"a": [1, 2]}))
    assert behind.close() is None
    assert stored == [(0, 1, 1), (1, 2, 2)]
    assert set(made) == {threading.get_ident()}


def test_a_batch_that_cannot_be_stored_is_told_to_the_next_and_no_later_one_is_stored() -> None:
    stored: list[int] = []

    def store(batch_id: int, _: pa.Table) -> None:
        if batch_id == 1:
            raise OSError("disk full")
        stored.append(batch_id)

    behind = WriteBehind(as_it_is, store)
    behind.hand_over(0, NOTHING)
    behind.hand_over(1, NOTHING)
    for batch_id in (2, 3):
        with pytest.raises(OSError, match="disk full"):
            behind.hand_over(batch_id, NOTHING)
    assert behind.failed()
    assert str(behind.close()) == "disk full"
    assert stored == [0]
