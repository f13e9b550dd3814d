"""What is made ready before a transaction gives with the rest the same ledger as one event after the other."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from spark.decode import RawRecord, to_batch
from spark.ledger import Event, Ledger
from spark.schemas import EVENT_COLUMNS
from spark.sinks.chunk import chunk_of, complete, follow, ledger_rows, partition_rows
from tests.spark.records import delete_partition, life, log, mixed

MINE = "cluster-1"


def table(records: Sequence[RawRecord]) -> pa.Table:
    return pa.Table.from_batches([to_batch(records)])


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

    followed = follow(MINE, new, trusting=True)
    assert 0 < len(followed.waiting) < len(new)
    by_event = dict(zip(new, complete(MINE, followed, stored), strict=True))
    by_event |= dict(zip(old, complete(MINE, follow(MINE, old, trusting=False), stored), strict=True))

    assert [by_event[event][-2:] for event in events[cut:]] == [(why is None, why) for why in reasons[cut:]]
    segments, intervals = ledger_rows(MINE, stored)
    expected_segments, expected_intervals = ledger_rows(MINE, one_by_one)
    assert sorted(segments + followed.segments) == expected_segments
    assert sorted(intervals + followed.intervals) == expected_intervals
    assert partition_rows(MINE, stored) == partition_rows(MINE, one_by_one)


def test_a_chunk_leaves_out_what_is_stored_and_what_comes_twice() -> None:
    records = log(list(life(1)), partition=0) + log(list(life(2, partition=1)), partition=1)
    chunk = chunk_of(MINE, table(sorted([*records, *records])), {0: 2}, trusting=True)
    assert chunk.replayed == 2 * len(records) - 6
    assert [(event.metadata_partition, event.metadata_offset) for event in chunk.followed.events] == [
        (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3),
    ]  # fmt: skip
    assert chunk.first_offsets == {0: 2, 1: 0}
    assert chunk.next_offsets == {0: 4, 1: 4}
    assert chunk.fits({})
    assert chunk.fits({0: 2, 5: 9})
    assert not chunk.fits({0: 3})
    assert not chunk.fits({1: 1})
