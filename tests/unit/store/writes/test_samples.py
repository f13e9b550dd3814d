"""The rows that the observer writes of a round: the newest row of each key with its age, in few statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, select

from backend.store import tables as t
from backend.store.connection.database import create_engine, reading, writing
from backend.store.writes.samples import HISTORY_INTERVAL_MS, PartitionSample, SampleWriter
from tests.databases import new_sqlite
from tests.unit.store.history.test_sample_retention import row

SAMPLES = [
    PartitionSample(
        topic="orders", partition=n, topic_id="id", leader=1, leader_epoch=0, replicas=(1,), isr=(1,), tiered=False,
        log_end_offset=n,
    )
    for n in range(3)
]  # fmt: skip


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(new_sqlite(tmp_path / "ebbline.db"))
    with writing(made) as connection:
        connection.execute(t.cluster.insert(), [row(t.cluster, cluster_id="c")])
    yield made
    made.dispose()


def ages(engine: Engine) -> dict[int, int]:
    current = t.partition_current
    with reading(engine) as connection:
        return {stored.partition: stored.sampled_ms for stored in connection.execute(select(current))}


@contextmanager
def updates(engine: Engine) -> Iterator[list[Any]]:
    """Parameters of each update of the newest rows; several for one statement that runs for each of many rows."""
    seen: list[Any] = []

    def note(_connection: Any, _cursor: Any, statement: str, given: Any, _context: Any, _many: bool) -> None:
        if statement.startswith("UPDATE partition_current"):
            seen.extend(given if isinstance(given, list) else [given])

    event.listen(engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine, "before_cursor_execute", note)


def test_a_round_without_news_renews_all_rows_at_once(engine: Engine) -> None:
    writer = SampleWriter(engine, "c")
    writer.write(SAMPLES, [], 1_000)
    for at_ms in (2_000, 3_000):
        with updates(engine) as seen:
            writer.write(SAMPLES, [], at_ms)
        assert len(seen) == 1
        assert ages(engine) == dict.fromkeys(range(3), at_ms)


def test_a_change_beside_rows_without_news_keeps_all_ages_right(engine: Engine) -> None:
    writer = SampleWriter(engine, "c")
    writer.write(SAMPLES, [], 1_000)
    writer.write([replace(SAMPLES[0], log_end_offset=77), *SAMPLES[1:]], [], 2_000)
    assert ages(engine) == dict.fromkeys(range(3), 2_000)


def test_what_did_not_answer_or_is_not_in_the_round_keeps_its_age(engine: Engine) -> None:
    writer = SampleWriter(engine, "c")
    writer.write(SAMPLES, [], 1_000)
    writer.write([SAMPLES[0], replace(SAMPLES[1], answered_ms=1_000)], [], 2_000)
    assert ages(engine) == {0: 2_000, 1: 1_000, 2: 1_000}
    writer.write(SAMPLES[:1], [], 3_000)
    assert ages(engine) == {0: 3_000, 1: 1_000, 2: 1_000}
    writer.write(SAMPLES, [], 4_000)
    assert ages(engine) == dict.fromkeys(range(3), 4_000)


def test_rows_of_an_earlier_process_keep_their_age(engine: Engine) -> None:
    SampleWriter(engine, "c").write(SAMPLES, [], 1_000)
    writer = SampleWriter(engine, "c")
    for at_ms in (2_000, 3_000):
        writer.write(SAMPLES[:1], [], at_ms)
    assert ages(engine) == {0: 3_000, 1: 1_000, 2: 1_000}


def test_rows_that_were_not_listed_keep_their_age_until_they_are(engine: Engine) -> None:
    writer = SampleWriter(engine, "c")
    writer.write(SAMPLES, [], 1_000)
    moved = replace(SAMPLES[0], log_end_offset=77)
    writer.write([moved, *SAMPLES[1:]], [], 2_000, {("orders", 1): 1_000, ("orders", 2): 1_000})
    assert ages(engine) == {0: 2_000, 1: 1_000, 2: 1_000}
    with updates(engine) as seen:
        writer.write([moved, *SAMPLES[1:]], [], 3_000)
    assert len(seen) == 2  # a statement for each time, none for a row
    assert ages(engine) == dict.fromkeys(range(3), 3_000)


def test_rows_that_were_not_listed_have_the_age_of_then_in_a_new_process(engine: Engine) -> None:
    SampleWriter(engine, "c").write(SAMPLES, [], 2_000, {("orders", 1): 1_000})
    assert ages(engine) == {0: 2_000, 1: 1_000, 2: 2_000}


def test_a_change_takes_no_statement_for_each_other_row(engine: Engine) -> None:
    writer = SampleWriter(engine, "c")
    writer.write(SAMPLES, [], 1_000)
    with updates(engine) as seen:
        writer.write([replace(SAMPLES[0], log_end_offset=77), *SAMPLES[1:]], [], 2_000)
    assert len(seen) == 1


def history(engine: Engine) -> list[tuple[int, int, int | None]]:
    """(partition, time, log end offset), in the order of time."""
    table = t.partition_sample
    columns = (table.c.partition, table.c.sampled_ms, table.c.log_end_offset)
    with reading(engine) as connection:
        return [tuple(stored) for stored in connection.execute(select(*columns).order_by(table.c.sampled_ms, *columns))]


def test_the_history_gets_what_changed_and_everything_once_a_minute(engine: Engine) -> None:
    writer, moved = SampleWriter(engine, "c"), replace(SAMPLES[2], log_end_offset=99)
    assert writer.write(SAMPLES, [], 100_000) == 3
    assert writer.write(SAMPLES, [], 102_000) == 0
    assert writer.write([*SAMPLES[:2], moved], [], 104_000) == 1
    assert writer.write([*SAMPLES[:2], moved], [], 100_000 + HISTORY_INTERVAL_MS) == 3
    first, last = ([(n, 100_000 + after, n) for n in range(2)] for after in (0, HISTORY_INTERVAL_MS))
    assert history(engine) == [*first, (2, 100_000, 2), (2, 104_000, 99), *last, (2, 160_000, 99)]


def test_a_round_of_moving_partitions_is_not_the_whole_one_of_a_minute(engine: Engine) -> None:
    writer, moved = SampleWriter(engine, "c"), replace(SAMPLES[2], log_end_offset=99)
    writer.write(SAMPLES, [], 100_000)
    earlier_ms = {("orders", 0): 100_000, ("orders", 1): 100_000}
    assert writer.write([*SAMPLES[:2], moved], [], 170_000, earlier_ms) == 1
    assert writer.write([*SAMPLES[:2], moved], [], 190_000) == 3


def test_a_change_of_a_row_that_was_not_listed_comes_into_the_history_when_it_is(engine: Engine) -> None:
    writer, larger = SampleWriter(engine, "c"), replace(SAMPLES[2], remote_log_bytes=7)
    writer.write(SAMPLES, [], 100_000)
    assert writer.write([*SAMPLES[:2], larger], [], 101_000, {("orders", 2): 100_000}) == 0
    assert writer.write([*SAMPLES[:2], larger], [], 102_000) == 1
    assert writer.write([*SAMPLES[:2], larger], [], 103_000) == 0


def test_what_did_not_answer_gets_no_history_until_it_answers_again(engine: Engine) -> None:
    writer, silent = SampleWriter(engine, "c"), replace(SAMPLES[1], answered_ms=100_000)
    writer.write(SAMPLES[1:2], [], 100_000)
    for at_ms in (102_000, 100_000 + HISTORY_INTERVAL_MS):
        assert writer.write([silent], [], at_ms) == 0
    assert writer.write(SAMPLES[1:2], [], 162_000) == 1
    assert history(engine) == [(1, 100_000, 1), (1, 162_000, 1)]


def test_a_round_that_is_written_once_more_changes_nothing(engine: Engine) -> None:
    SampleWriter(engine, "c").write(SAMPLES, [], 100_000)
    SampleWriter(engine, "c").write(SAMPLES, [], 100_000)
    assert history(engine) == [(n, 100_000, n) for n in range(3)]


def test_rows_whose_commit_failed_only_in_our_eyes_get_their_time_again(engine: Engine) -> None:
    writer = SampleWriter(engine, "c")
    writer.write(SAMPLES, [], 100_000)
    current = t.partition_current
    with writing(engine) as connection:  # as a round that was committed before the connection broke
        connection.execute(current.update().values(sampled_ms=102_000))
    for at_ms in (104_000, 100_000 + HISTORY_INTERVAL_MS):
        writer.write(SAMPLES, [], at_ms)
        assert ages(engine) == dict.fromkeys(range(3), at_ms)
    assert [at_ms for _, at_ms, _ in history(engine)] == [100_000] * 3 + [160_000] * 3


def test_a_clock_that_is_set_back_ends_no_history(engine: Engine) -> None:
    writer = SampleWriter(engine, "c")
    writer.write(SAMPLES, [], 4_000_000)
    assert writer.write(SAMPLES, [], 100_000) == 3
