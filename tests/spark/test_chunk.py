"""What is made ready before a transaction gives with the rest the same ledger as one event after the other."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from spark.decode import RawRecord, to_batch
from spark.ledger import Event, Ledger, PartitionRow
from spark.schemas import EVENT_COLUMNS
from spark.sinks.chunk import Row, chunk_of, event_row, follow, ledger_rows, partition_rows
from tests.spark.records import delete_partition, life, log, mixed

MINE = ("cluster-1",)


def table(records: Sequence[RawRecord]) -> pa.Table:
    return pa.Table.from_batches([to_batch(records)])


def events_of(records: Sequence[RawRecord]) -> list[Event]:
    rows = zip(*(column.to_pylist() for column in table(records).columns), strict=True)
    width = len(EVENT_COLUMNS)
    return [Event._make(row[:width]) for row in rows if row[width] is None]


def one_by_one(events: Sequence[Event]) -> tuple[list[Row], list[Row], list[Row], list[Row]]:
    ledger = Ledger()
    rows = [event_row(MINE, event, ledger.apply(event)) for event in events]
    return (rows, *ledger_rows(MINE, ledger), partition_rows(MINE, ledger))


@pytest.mark.parametrize("trusting", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_what_is_made_ready_and_the_rest_are_the_ledger(seed: int, trusting: bool) -> None:
    chance = random.Random(seed)
    records = mixed(400, seed=seed) + log(list(delete_partition()), partition=7)
    chance.shuffle(records)  # also updates before their segment's start
    events = events_of(records)
    followed = follow(MINE[0], events, trusting=trusting)
    assert (0 < len(followed.waiting) < len(events)) if trusting else len(followed.waiting) == len(events)
    ledger, rows = Ledger(), followed.rows.copy()
    for at in followed.waiting:
        rows[at] = event_row(MINE, events[at], ledger.apply(events[at]))
    for key, added in followed.begun.partitions.items():
        ledger.partitions.setdefault(key, PartitionRow(*key, added.topic)).add(added)
    segments, intervals = ledger_rows(MINE, ledger)
    found = (rows, sorted(segments + followed.segments), sorted(intervals + followed.intervals))
    expected = one_by_one(events)
    assert found == (expected[0], sorted(expected[1]), sorted(expected[2]))
    assert partition_rows(MINE, ledger) == expected[3]


def test_a_chunk_leaves_out_what_is_stored_and_what_comes_twice() -> None:
    records = log(list(life(1)), partition=0) + log(list(life(2, partition=1)), partition=1)
    chunk = chunk_of(MINE[0], table(sorted([*records, *records])), {0: 2}, trusting=True)
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
