"""Rows that are prepared before a transaction give, with the rest, the same ledger as one event after the other."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import pyarrow as pa
import pytest

from spark.decode import RawRecord
from spark.ledger import Event, Ledger
from spark.schemas import EVENT_COLUMNS
from spark.sinks.chunk import Chunk, chunk_of, complete, follow, ledger_rows, partition_rows, with_reasons
from spark.sinks.lives import Row
from tests.spark.disorder import disorderly
from tests.spark.records import delete_partition, life, log, mixed, table

MINE = "cluster-1"


def events_of(records: Sequence[RawRecord]) -> list[Event]:
    rows = zip(*(column.to_pylist() for column in table(records).columns), strict=True)
    width = len(EVENT_COLUMNS)
    return [Event._make(row[:width]) for row in rows if row[width] is None]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_made_ready_and_the_rest_are_the_ledger(seed: int) -> None:
    chance = random.Random(seed)
    records = mixed(400, seed=seed) + log(list(delete_partition()), partition=7)
    chance.shuffle(records)  # also updates before their segment's start
    events = events_of(records)
    # Segments of the first part are stored when the second comes, and a few of those begin again there.
    cut = chance.randrange(len(events) // 2)
    stored, one_by_one = Ledger(), Ledger()
    reasons = [one_by_one.apply(event) for event in events]
    for event in events[:cut]:
        stored.apply(event)
    begun = {(e.topic_id, e.partition, e.segment_id) for e in events[:cut]}
    new = [e for e in events[cut:] if (e.topic_id, e.partition, e.segment_id) not in begun]
    old = [e for e in events[cut:] if (e.topic_id, e.partition, e.segment_id) in begun]

    followed = follow(MINE, dict(enumerate(new)), trusting=True)
    assert 0 < len(followed.waiting) < len(new)
    reason_by_event = {new[at]: why for at, why in complete(followed, stored).items()}
    followed_later = follow(MINE, dict(enumerate(old)), trusting=False)
    reason_by_event |= {old[at]: why for at, why in complete(followed_later, stored).items()}

    assert [reason_by_event.get(event) for event in events[cut:]] == reasons[cut:]
    segments, intervals = ledger_rows(MINE, stored)
    expected_segments, expected_intervals = ledger_rows(MINE, one_by_one)
    assert sorted(segments + followed.segments) == expected_segments
    assert sorted(intervals + followed.intervals) == sorted(expected_intervals)
    assert partition_rows(MINE, stored) == partition_rows(MINE, one_by_one)


def test_a_chunk_leaves_out_what_is_stored_and_what_comes_twice() -> None:
    records = log(list(life(1)), partition=0) + log(list(life(2, partition=1)), partition=1)
    chunk = chunk_of(MINE, table(sorted([*records, *records])), {0: 2}, trusting=True)
    assert chunk.replayed == 2 * len(records) - 6
    assert [row[1:3] for row in chunk.rows] == [
        (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3),
    ]  # fmt: skip
    assert chunk.first_offsets == {0: 2, 1: 0}
    assert chunk.next_offsets == {0: 4, 1: 4}
    assert chunk.fits({})
    assert chunk.fits({0: 2, 5: 9})
    assert not chunk.fits({0: 3})
    assert not chunk.fits({1: 1})


def one_by_one(records: pa.Table, stored: dict[int, int], *, trusting: bool) -> Chunk:
    """The chunk as it is made record by record, and followed event by event."""
    first_offsets: dict[int, int] = {}
    next_offsets: dict[int, int] = {}
    events: list[Event] = []
    unreadable: list[Row] = []
    width = len(EVENT_COLUMNS)
    for row in zip(*(column.to_pylist() for column in records.columns), strict=True):
        partition, offset = row[:2]
        if offset < next_offsets.get(partition, stored.get(partition, 0)):
            continue
        first_offsets.setdefault(partition, offset)
        next_offsets[partition] = offset + 1
        if row[width] is None:
            events.append(Event._make(row[:width]))
        else:
            unreadable.append(row)
    replayed = records.num_rows - len(events) - len(unreadable)
    rows = [(MINE, *event, True, None) for event in events]
    times_ms = [event.event_timestamp_ms for event in events]
    followed = follow(MINE, dict(enumerate(events)), trusting=trusting)
    return Chunk(records, first_offsets, next_offsets, replayed, unreadable, rows, times_ms, followed)


def types_in(value: Any) -> list[Any]:
    """The types of all that is in a value, in its order."""
    if isinstance(value, dict):
        return [types_in(pair) for pair in sorted(value.items())]
    if isinstance(value, list | tuple):
        return [type(value), *map(types_in, value)]
    return [type(value)]


@pytest.mark.parametrize("trusting", [True, False])
def test_by_columns_a_chunk_is_what_it_is_record_by_record(trusting: bool) -> None:
    seen: Counter[str] = Counter()
    for seed in range(400):
        chance = random.Random(seed)
        records = disorderly(chance)
        stored = {0: chance.choice([0, 0, 5]), 1: chance.choice([0, 10**12 + 3]), 7: 1}
        made = chunk_of(MINE, records, stored, trusting=trusting)
        expected = one_by_one(records, stored, trusting=trusting)
        assert made == expected, seed
        given, expected_fields = (astuple(chunk)[1:] for chunk in (made, expected))  # without the table
        assert types_in(given) == types_in(expected_fields), seed
        followed = made.followed
        seen += Counter(empty=not made.rows, replayed=made.replayed, unreadable=len(made.unreadable))
        seen += Counter(segments=len(followed.segments), intervals=len(followed.intervals))
        seen += Counter(illegal=len(followed.illegal), waiting=len(followed.waiting))
    always = {"empty", "replayed", "unreadable", "waiting"}
    assert set(seen) == always | ({"segments", "intervals", "illegal"} if trusting else set())


def test_rows_say_why_their_events_may_not_follow_and_the_chunk_stays_as_it_is() -> None:
    rows: list[Row] = [(MINE, 1, True, None), (MINE, 2, True, None)]
    assert with_reasons(rows, {1: "late"}) == [rows[0], (MINE, 2, False, "late")]
    assert rows[1] == (MINE, 2, True, None)
