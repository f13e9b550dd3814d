"""Plain lives are found, and by columns they make of the ledger what they make of it event by event."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from backend.protocol.remote_log.metadata_serde import RemoteLogMetadata
from backend.tiering.segment_state import SegmentState
from spark.ledger import Event, Ledger
from spark.schemas import EVENT_COLUMNS
from spark.sinks.chunk import ledger_rows
from spark.sinks.lives import interval_rows, partitions_added, plain_lives, segment_rows
from tests.spark.disorder import disorderly
from tests.spark.records import delete_partition, life, log, mixed, table

MINE = "cluster-1"


def events_of(events: list[RemoteLogMetadata]) -> pa.Table:
    return table(log(events)).select(EVENT_COLUMNS)


def ledger_of(events: pa.Table) -> Ledger:
    ledger = Ledger()
    for row in zip(*(column.to_pylist() for column in events.columns), strict=True):
        assert ledger.apply(Event._make(row)) is None
    return ledger


@pytest.mark.parametrize("until", SegmentState)
def test_a_life_makes_of_the_ledger_what_its_events_make_of_it(until: SegmentState) -> None:
    # Events alternate, in another order than that of their keys.
    turns = zip(*(life(number, partition=number % 2, until=until) for number in (3, 9, 1, 4)), strict=True)
    events = events_of([event for turn in turns for event in turn])
    lives, ledger = plain_lives(events), ledger_of(events)
    assert lives.others == []
    segments, intervals = ledger_rows(MINE, ledger)
    assert segment_rows(MINE, lives) == segments
    assert sorted(interval_rows(MINE, lives)) == sorted(intervals)
    assert partitions_added(lives) == ledger.partitions


def test_values_are_plain_ones_that_a_driver_takes() -> None:
    lives = plain_lives(events_of([event for number in range(3) for event in life(number, until=SegmentState(number))]))
    for rows in (segment_rows(MINE, lives), interval_rows(MINE, lives)):
        assert {type(value) for row in rows for value in row} <= {int, str, bytes, bool, type(None)}
    (added,) = partitions_added(lives).values()
    values = [getattr(added, name) for name in added.__slots__]
    assert {type(value) for value in values} == {int, str, type(None)}


@pytest.mark.parametrize("times_ms", [(5, 3, 2, 1), (-7, -7, -9, 0), (1, 1 << 50, 1 << 60, 2), (4, 4, 4, 4)])
def test_clocks_may_say_anything(times_ms: tuple[int, ...]) -> None:
    events = events_of(list(life(1)))
    at = events.schema.get_field_index("event_timestamp_ms")
    events = events.set_column(at, events.schema.field(at), pa.array(times_ms, pa.int64()))
    lives, ledger = plain_lives(events), ledger_of(events)
    assert interval_rows(MINE, lives) == ledger_rows(MINE, ledger)[1]
    assert partitions_added(lives) == ledger.partitions


def test_bytes_are_summed_exactly_beyond_what_a_size_can_be() -> None:
    events = events_of([event for number in range(5) for event in life(number)])
    at = events.schema.get_field_index("segment_size_bytes")
    sizes = [size and (1 << 31) - 1 for size in events.column(at).to_pylist()]
    events = events.set_column(at, events.schema.field(at), pa.array(sizes, pa.int32()))
    (added,) = partitions_added(plain_lives(events)).values()
    assert added.delete_finished_bytes == 5 * ((1 << 31) - 1)


def test_a_copy_that_never_finished_is_counted_apart_from_what_was_deleted() -> None:
    whole, failed = list(life(1)), list(life(2))
    (totals,) = ledger_of(events_of([*whole, failed[0], *failed[2:]])).partitions.values()
    assert (totals.delete_finished_segments, totals.failed_copy_segments) == (2, 1)
    assert totals.delete_finished_bytes == 2 * totals.failed_copy_bytes > 0
    (leftover,) = ledger_of(events_of([failed[0], failed[2]])).partitions.values()
    assert (leftover.delete_started_segments, leftover.failed_copy_segments) == (1, 0)


started, finished, deleting, deleted = life(1)


@pytest.mark.parametrize(
    "odd",
    [
        [finished],
        [finished, started],
        [started, started],
        [started, finished, finished],
        [started, deleting, deleted],
        [started, finished, deleting, deleted, deleted],
        [started, finished, *life(1, partition=1)],
        [started, list(life(1, partition=1))[1]],
        [started, list(life(1, topic="logs"))[1]],
        list(delete_partition()),
    ],
)
def test_all_events_of_a_life_that_is_not_plain_are_left_to_others(odd: list[RemoteLogMetadata]) -> None:
    before, after = life(2, until=SegmentState.COPY_SEGMENT_FINISHED)
    lives = plain_lives(events_of([before, *odd, after]))
    assert lives.others == list(range(1, 1 + len(odd)))
    assert lives.lengths.tolist() == [2]
    assert lives.places[:2].tolist() == [[0], [1 + len(odd)]]


def test_no_life_is_plain_where_a_topic_id_has_two_names_or_a_value_is_missing() -> None:
    events = events_of(list(life(1)))
    for name, values in (
        ("topic", ["a", "a", "b", "a"]),
        ("broker_id", [1, None, 1, 1]),
        ("segment_id", [None, None, None, None]),
    ):
        at = events.schema.get_field_index(name)
        odd = events.set_column(at, events.schema.field(at), pa.array(values, events.schema.field(at).type))
        assert plain_lives(odd).others == [0, 1, 2, 3]


def test_of_no_events_there_are_no_lives() -> None:
    lives = plain_lives(events_of([]))
    assert (lives.others, segment_rows(MINE, lives), interval_rows(MINE, lives), partitions_added(lives)) == (
        [], [], [], {},
    )  # fmt: skip


def test_each_event_is_one_of_a_life_or_one_of_the_others() -> None:
    chance = random.Random(11)
    tables = [table(mixed(400))] + [disorderly(chance) for _ in range(100)]
    for records in tables:
        events = records.filter(records["problem"].is_null()).select(EVENT_COLUMNS)
        lives = plain_lives(events)
        placed = [at for places, length in zip(lives.places.T, lives.lengths, strict=True) for at in places[:length]]
        assert sorted([*placed, *lives.others]) == list(range(events.num_rows))
