"""A second, slow and plain reading of the same records: what the tables must hold in the end.

Written against the KIP's text with dictionaries, without the pipeline's fold, so that the two can disagree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, select

from backend.protocol.remote_log_metadata import PartitionDelete, SegmentMetadata, SegmentSnapshot, Unreadable, decode
from backend.store import tables as t
from backend.tiering.ids import uuid_text
from spark.decode import RawRecord

FOLLOWS = {None: {0}, 0: {0, 1, 2}, 1: {1, 2}, 2: {2, 3}, 3: {3}}


def expected(records: Iterable[RawRecord]) -> dict[str, Any]:
    """Comparable content of the tables after exactly these records."""
    segments: dict[tuple[str, int, str], dict[str, Any]] = {}
    events: dict[tuple[int, int], bool] = {}
    quarantine: set[tuple[int, int]] = set()
    next_offsets: dict[int, int] = {}
    for partition, offset, _, _, value in sorted(records, key=lambda record: record[:2]):
        next_offsets[partition] = offset + 1
        try:
            event = decode(value)
        except Unreadable:
            quarantine.add((partition, offset))
            continue
        if isinstance(event, PartitionDelete):
            events[partition, offset] = True
            continue
        assert not isinstance(event, SegmentSnapshot)
        tip = event.topic_id_partition
        key = (uuid_text(tip.topic_id), tip.partition, uuid_text(event.segment_id))
        known = segments.get(key)
        state = int(event.state)
        legal = state in FOLLOWS[None if known is None else known["state"]]
        legal = legal and isinstance(event, SegmentMetadata) == (state == 0)
        events[partition, offset] = legal
        if legal:
            if isinstance(event, SegmentMetadata):
                segments[key] = {"size": event.segment_size_bytes, "start": event.start_offset}
            segments[key]["state"] = state
    totals: Counter[tuple[str, int, int]] = Counter()
    for (topic_id, number, _), segment in segments.items():
        totals[topic_id, number, segment["state"]] += 1
    return {
        "segments": {key: (value["state"], value["size"], value["start"]) for key, value in segments.items()},
        "events": events,
        "quarantine": quarantine,
        "totals": dict(totals),
        "next_offsets": next_offsets,
    }


def stored(connection: Connection, cluster_id: str) -> dict[str, Any]:
    """The same content, read from the tables. Bytes are checked against the counts on the way."""
    segment, remote = t.segment.c, t.remote_partition.c
    segments = {}
    bytes_by_state: Counter[tuple[str, int, int]] = Counter()
    for row in connection.execute(select(t.segment).where(segment.cluster_id == cluster_id)):
        segments[row.topic_id, row.partition, row.segment_id] = (row.state, row.segment_size_bytes, row.start_offset)
        bytes_by_state[row.topic_id, row.partition, row.state] += row.segment_size_bytes
    totals: dict[tuple[str, int, int], int] = {}
    names = ("copy_started", "copy_finished", "delete_started", "delete_finished")
    for row in connection.execute(select(t.remote_partition).where(remote.cluster_id == cluster_id)):
        for state, name in enumerate(names):
            count = row._mapping[f"{name}_segments"]
            assert row._mapping[f"{name}_bytes"] == bytes_by_state[row.topic_id, row.partition, state]
            if count:
                totals[row.topic_id, row.partition, state] = count
    event, quarantine, offsets = t.segment_event.c, t.quarantine.c, t.source_offsets.c
    return {
        "segments": segments,
        "events": {
            (row.metadata_partition, row.metadata_offset): row.legal
            for row in connection.execute(select(t.segment_event).where(event.cluster_id == cluster_id))
        },
        "quarantine": {
            (row.partition, row.offset)
            for row in connection.execute(select(t.quarantine).where(quarantine.cluster_id == cluster_id))
        },
        "totals": totals,
        "next_offsets": {
            row.partition: row.next_offset
            for row in connection.execute(select(t.source_offsets).where(offsets.cluster_id == cluster_id))
        },
    }
