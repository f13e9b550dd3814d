"""The ledger's rows of segments that live one plain life, by columns of Arrow and NumPy.

A plain life is a copy's start, its end, the deletion's start and its end, or the first few of these, each once and in
this order, and nothing else about the segment. Nearly all segments live so, and by columns their events take a third
of the time (2 µs instead of 6). `spark.ledger` says what is right: it follows all other events, these functions give
the same rows. Pure functions over values.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backend.tiering.intervals import MOMENT_MAX, OPEN_NODE, fork_node
from backend.tiering.segment_state import SegmentState
from spark.ledger import SEGMENT_COLUMNS, PartitionKey, PartitionTotals
from spark.schemas import KIND_SEGMENT, KIND_UPDATE

Row = tuple[Any, ...]
_Places = npt.NDArray[np.int64]
_KEY: Final = ("topic_id", "partition", "segment_id")
# Fields that an event has in any case. A column of numbers with a null in it is not one of integers in NumPy.
_ALWAYS: Final = ("kind", "topic", "topic_id", "partition", "state", "broker_id", "event_timestamp_ms")
_FROM_START: Final[dict[str, Any]] = {  # and what a row holds where the start says nothing
    "start_offset": 0,
    "end_offset": 0,
    "segment_size_bytes": 0,
    "max_timestamp_ms": 0,
    "leader_epochs": "[]",
    "txn_index_empty": False,
}
_FROM_LAST: Final = ("state", "custom_metadata", "broker_id", "metadata_partition")


@dataclass(frozen=True, slots=True)
class Lives:
    """Plain lives among ``events``, in the order in which they begin.

    ``places[state]`` are those of the events that say ``state``, of lives that do not get so far their last events.
    ``lengths``: how many events each has. ``others``: the places of the events that belong to none.
    """

    events: pa.Table
    places: _Places
    lengths: _Places
    others: list[int]


def plain_lives(events: pa.Table) -> Lives:
    """The plain lives among ``events`` (`spark.schemas.EVENT_COLUMNS`, in log order)."""
    count = events.num_rows
    if not count or not _is_usual(events):
        none = np.empty((len(SegmentState), 0), np.int64)
        return Lives(events, none, none[0], list(range(count)))
    ids = _codes(events, "segment_id")
    order = np.argsort(ids, kind="stable")
    begins = np.flatnonzero(np.diff(ids[order], prepend=-2))  # -1 are events about no segment
    lengths = np.diff(begins, append=count)
    step = np.arange(count) - np.repeat(begins, lengths)
    first = np.repeat(order[begins], lengths)
    kind, state, partition = (events[name].to_numpy()[order] for name in ("kind", "state", "partition"))
    topic_id = _codes(events, "topic_id")
    # The numbers of the states are the steps of a life. The same id in two partitions is two segments.
    fits = (ids[order] >= 0) & (state == step) & (kind == np.where(step == 0, KIND_SEGMENT, KIND_UPDATE))
    fits &= (partition == events["partition"].to_numpy()[first]) & (topic_id[order] == topic_id[first])
    plain = np.logical_and.reduceat(fits, begins)
    others = np.sort(order[np.repeat(~plain, lengths)]).tolist()
    begins, lengths = begins[plain], lengths[plain]
    steps = np.arange(len(SegmentState))[:, np.newaxis]
    return Lives(events, order[begins + np.minimum(steps, lengths - 1)], lengths, others)


def segment_rows(cluster_id: str, lives: Lives) -> list[Row]:
    """The rows of table ``segment``, in the order of its key."""
    sort_keys = [(name, "ascending") for name in _KEY]
    by_key = pc.sort_indices(lives.events.select(_KEY).take(lives.places[0]), sort_keys=sort_keys).to_numpy()
    places, lengths = lives.places[:, by_key], lives.lengths[by_key]
    first, last = lives.events.take(places[0]), lives.events.take(places[-1])
    times_ms = lives.events["event_timestamp_ms"].to_numpy()[places]
    columns = {name: first[name] for name in (*_KEY, "topic")}
    columns |= {name: first[name].fill_null(default) for name, default in _FROM_START.items()}
    columns |= {name: last[name] for name in _FROM_LAST}
    columns |= {"copy_broker_id": first["broker_id"], "last_event_offset": last["metadata_offset"]}
    columns |= {"last_event_ms": last["event_timestamp_ms"]}
    names = ("copy_started_ms", "copy_finished_ms", "delete_started_ms", "delete_finished_ms")
    columns |= {name: pa.array(times_ms[step], mask=lengths <= step) for step, name in enumerate(names)}
    return list(zip(repeat(cluster_id), *(columns[name].to_pylist() for name in SEGMENT_COLUMNS), strict=False))


def interval_rows(cluster_id: str, lives: Lives) -> list[Row]:
    """The rows of table ``segment_interval``, as `spark.ledger.interval` makes them, as their segments begin."""
    finished = lives.lengths > SegmentState.COPY_SEGMENT_FINISHED
    places, lengths = lives.places[:, finished], lives.lengths[finished]
    moments = np.clip(lives.events["event_timestamp_ms"].to_numpy()[places], 1, MOMENT_MAX)
    from_ms = moments[SegmentState.COPY_SEGMENT_FINISHED]
    ends = np.maximum(from_ms, moments[SegmentState.DELETE_SEGMENT_STARTED])
    to_ms = pa.array(ends, mask=lengths <= SegmentState.DELETE_SEGMENT_STARTED).to_pylist()
    starts = from_ms.tolist()
    nodes = [OPEN_NODE if to is None else fork_node(at, to) for at, to in zip(starts, to_ms, strict=True)]
    first = lives.events.take(places[0])
    key = (first[name].to_pylist() for name in _KEY)
    size = (first[name].fill_null(0).to_pylist() for name in ("start_offset", "end_offset", "segment_size_bytes"))
    return list(zip(repeat(cluster_id), *key, starts, to_ms, nodes, *size, strict=False))


def partitions_added(lives: Lives) -> dict[PartitionKey, PartitionTotals]:
    """The sums that the lives add to their partitions."""
    first = lives.events.take(lives.places[0])
    numbers = first["partition"].to_numpy().astype(np.int64)
    keys, at, of = np.unique((_codes(first, "topic_id") << 32) + numbers, return_index=True, return_inverse=True)
    state, finished = lives.lengths - 1, lives.lengths > SegmentState.COPY_SEGMENT_FINISHED
    sizes, ends = (first[name].fill_null(0).to_numpy() for name in ("segment_size_bytes", "end_offset"))
    # Of each state in turn segments and bytes; in integers, which sums by `bincount` are not.
    counted = np.zeros((2 * len(SegmentState), len(keys)), np.int64)
    np.add.at(counted, (2 * state, of), 1)
    np.add.at(counted, (2 * state + 1, of), sizes)
    highest = np.full(len(keys), np.iinfo(np.int64).min)
    np.maximum.at(highest, of[finished], ends[finished])
    none_finished = np.bincount(of[finished], minlength=len(keys)) == 0
    latest_ms = np.zeros(len(keys), np.int64)
    for times_ms in lives.events["event_timestamp_ms"].to_numpy()[lives.places]:
        np.maximum.at(latest_ms, of, times_ms)
    names = (first[name].take(at).to_pylist() for name in ("topic_id", "partition", "topic"))
    highest_list = pa.array(highest, mask=none_finished).to_pylist()
    tail = (highest_list, repeat(0), repeat(None), repeat(None), latest_ms.tolist())
    rows = zip(*names, *counted.tolist(), *tail, strict=False)
    return {row[:2]: PartitionTotals(*row) for row in rows}


def _is_usual(events: pa.Table) -> bool:
    """Whether nothing is missing and each topic id has one name, as it has in Kafka."""
    if any(events[name].null_count for name in _ALWAYS):
        return False
    ids, names = _codes(events, "topic_id"), _codes(events, "topic")
    return len(np.unique(ids << 32 | names)) == len(np.unique(ids))


def _codes(table: pa.Table, name: str) -> _Places:
    """The same number for the same text, from 0 on as they first come; -1 for null."""
    codes = table[name].combine_chunks().dictionary_encode().indices
    return np.asarray(codes.fill_null(-1).to_numpy(), np.int64)
