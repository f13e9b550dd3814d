"""A second, slow and plain reading of the same records: what the tables must hold in the end.

Written against the KIP's text with dictionaries, without the pipeline's fold, so that the two can disagree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, select

from backend.protocol.remote_log.metadata_serde import (
    PartitionDelete,
    SegmentMetadata,
    SegmentSnapshot,
    Unreadable,
    decode,
)
from backend.store import tables as t
from backend.tiering.ids import uuid_text
from spark.decode import RawRecord

FOLLOWS = {None: {0}, 0: {0, 1, 2}, 1: {1, 2}, 2: {2, 3}, 3: {3}}


def expected(records: Iterable[RawRecord]) -> dict[str, Any]:
    """Comparable content of the tables after exactly these records."""
    segments: dict[tuple[str, int, str], dict[str, Any]] = {}
    events: dict[tuple[int, int], tuple[Any, ...]] = {}
    quarantine: set[tuple[int, int]] = set()
    next_offsets: dict[int, int] = {}
    illegal: Counter[tuple[str, int]] = Counter()
    highest: dict[tuple[str, int], int] = {}
    for partition, offset, _, _, value in sorted(records, key=lambda record: record[:2]):
        next_offsets[partition] = offset + 1
        try:
            event = decode(value)
        except Unreadable:
            quarantine.add((partition, offset))
            continue
        assert not isinstance(event, SegmentSnapshot)
        tip, at_ms = event.topic_id_partition, event.event_timestamp_ms
        of = (uuid_text(tip.topic_id), tip.partition)
        if isinstance(event, PartitionDelete):
            events[partition, offset] = (True, 2, tip.topic, *of, None, int(event.state), event.broker_id, at_ms)
            continue
        key = (*of, uuid_text(event.segment_id))
        existing = segments.get(key)
        state, is_start = int(event.state), isinstance(event, SegmentMetadata)
        legal = state in FOLLOWS[None if existing is None else existing["state"]] and is_start == (state == 0)
        kind = 0 if is_start else 1
        events[partition, offset] = (legal, kind, tip.topic, *key, state, event.broker_id, at_ms)
        illegal[of] += not legal
        if legal:
            if isinstance(event, SegmentMetadata):
                times = {} if existing is None else existing["times"]
                segments[key] = {
                    "place": (event.start_offset, event.end_offset, event.segment_size_bytes, event.max_timestamp_ms),
                    "epochs": [list(pair) for pair in event.segment_leader_epochs],
                    "times": times,
                }
            segments[key]["state"], segments[key]["broker"], segments[key]["last"] = state, event.broker_id, offset
            segments[key]["times"].setdefault(state, at_ms)  # repeated, the first time stays
            if state == 1:
                highest[of] = max(highest.get(of, 0), segments[key]["place"][1])
    totals: Counter[tuple[str, int, int]] = Counter()
    for (topic_id, number, _), segment in segments.items():
        totals[topic_id, number, segment["state"]] += 1
    return {
        "segments": {
            key: (
                segment["state"],
                *segment["place"],
                segment["epochs"],
                segment["broker"],
                segment["last"],
                *steps(segment["times"]),
            )
            for key, segment in segments.items()
        },
        "intervals": {
            key: (times[1], max(times[1], times[2]) if 2 in times else None)
            for key, segment in segments.items()
            if 1 in (times := segment["times"])
        },
        "events": events,
        "quarantine": quarantine,
        "totals": dict(totals),
        "illegal": {of: count for of, count in illegal.items() if count},
        "highest": highest,
        "next_offsets": next_offsets,
    }


def steps(times: dict[int, int]) -> tuple[int | None, ...]:
    """When each state was said first."""
    return tuple(times.get(state) for state in range(4))


def stored(connection: Connection, cluster_id: str) -> dict[str, Any]:
    """The same content, read from the tables. Bytes are checked against the counts on the way."""
    segment, remote = t.segment.c, t.remote_partition.c
    segments = {}
    bytes_by_state: Counter[tuple[str, int, int]] = Counter()
    for row in connection.execute(select(t.segment).where(segment.cluster_id == cluster_id)):
        segments[row.topic_id, row.partition, row.segment_id] = (
            row.state, row.start_offset, row.end_offset, row.segment_size_bytes, row.max_timestamp_ms,
            row.leader_epochs, row.broker_id, row.last_event_offset,
            row.copy_started_ms, row.copy_finished_ms, row.delete_started_ms, row.delete_finished_ms,
        )  # fmt: skip
        bytes_by_state[row.topic_id, row.partition, row.state] += row.segment_size_bytes
    totals: dict[tuple[str, int, int], int] = {}
    illegal: dict[tuple[str, int], int] = {}
    highest: dict[tuple[str, int], int] = {}
    names = ("copy_started", "copy_finished", "delete_started", "delete_finished")
    for row in connection.execute(select(t.remote_partition).where(remote.cluster_id == cluster_id)):
        for state, name in enumerate(names):
            count = row._mapping[f"{name}_segments"]
            assert row._mapping[f"{name}_bytes"] == bytes_by_state[row.topic_id, row.partition, state]
            if count:
                totals[row.topic_id, row.partition, state] = count
        if row.highest_copied_offset is not None:
            highest[row.topic_id, row.partition] = row.highest_copied_offset
        if row.illegal_events:
            illegal[row.topic_id, row.partition] = row.illegal_events
    event, quarantine, offsets = t.segment_event.c, t.quarantine.c, t.source_offsets.c
    interval = t.segment_interval.c
    columns = (event.legal, event.kind, event.topic, event.topic_id, event.partition, event.segment_id, event.state,
               event.broker_id, event.event_timestamp_ms)  # fmt: skip
    places = select(event.metadata_partition, event.metadata_offset, *columns).where(event.cluster_id == cluster_id)
    return {
        "segments": segments,
        "intervals": {
            (row.topic_id, row.partition, row.segment_id): (row.from_ms, row.to_ms)
            for row in connection.execute(select(t.segment_interval).where(interval.cluster_id == cluster_id))
        },
        "events": {(row[0], row[1]): tuple(row[2:]) for row in connection.execute(places)},
        "quarantine": {
            (row.partition, row.offset)
            for row in connection.execute(select(t.quarantine).where(quarantine.cluster_id == cluster_id))
        },
        "totals": totals,
        "illegal": illegal,
        "highest": highest,
        "next_offsets": {
            row.partition: row.next_offset
            for row in connection.execute(select(t.source_offsets).where(offsets.cluster_id == cluster_id))
        },
    }
