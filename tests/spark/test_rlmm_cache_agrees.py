"""The ledger in the database and the cache that a broker keeps tell the same of the same records."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Engine, func, not_, select

from backend.engine.remote.metadata.remote_log_metadata_cache import ApplyOutcome, RemoteLogMetadataCache
from backend.protocol.remote_log.metadata_serde import SegmentMetadata, SegmentUpdate, Unreadable, decode
from backend.store import tables as t
from backend.store.connection.database import create_engine, reading
from backend.tiering.ids import TopicIdPartition, uuid_text
from backend.tiering.segment_state import SegmentState
from spark.decode import RawRecord, to_batch
from spark.sinks.ledger_sink import LedgerSink
from tests.databases import new_sqlite
from tests.spark.records import CAPTURED, captured, mixed, raw

Segments = dict[str, dict[str, Any]]
NAMES = (
    "topic", "partition", "start_offset", "end_offset", "state", "segment_size_bytes", "leader_epochs",
    "custom_metadata", "broker_id", "last_event_ms", "max_timestamp_ms", "txn_index_empty",
)  # fmt: skip


def by_cache(records: Sequence[RawRecord]) -> tuple[Segments, int]:
    """The segments that the caches of all partitions list, and how many events they refused."""
    caches: dict[TopicIdPartition, RemoteLogMetadataCache] = {}
    refused = 0
    for record in sorted(records, key=lambda raw_record: raw_record[:2]):
        try:
            event = decode(record[4])
        except Unreadable:
            continue
        if isinstance(event, SegmentMetadata | SegmentUpdate):
            tip = event.topic_id_partition
            cache = caches.setdefault(tip, RemoteLogMetadataCache(tip))
            refused += cache.apply(event) is not ApplyOutcome.APPLIED
    segments: Segments = {}
    for cache in caches.values():
        for segment in cache.segments():
            segments[uuid_text(segment.segment_id)] = {
                "topic": segment.topic_id_partition.topic,
                "partition": segment.topic_id_partition.partition,
                "start_offset": segment.start_offset,
                "end_offset": segment.end_offset,
                "state": int(segment.state),
                "segment_size_bytes": segment.segment_size_bytes,
                "leader_epochs": [list(epoch) for epoch in segment.segment_leader_epochs],
                "custom_metadata": segment.custom_metadata,
                "broker_id": segment.broker_id,
                "last_event_ms": segment.event_timestamp_ms,
                "max_timestamp_ms": segment.max_timestamp_ms,
                "txn_index_empty": segment.txn_index_empty,
            }
    return segments, refused


def by_ledger(records: Sequence[RawRecord], folder: Path) -> tuple[Segments, set[str], int]:
    """The ledger's segments that are not deleted, those that are, and the number of events it did not apply."""
    engine = create_engine(new_sqlite(folder / "ebbline.db"))
    sink = LedgerSink(engine, cluster_id="c", job="j", source_topic="t")
    sink.write(0, pa.Table.from_batches([to_batch(records)]))
    segments = segments_of(engine)
    engine.dispose()
    return segments


def segments_of(engine: Engine) -> tuple[Segments, set[str], int]:
    """As `by_ledger`, of a ledger that is there."""
    with reading(engine) as connection:
        rows = connection.execute(select(t.segment)).all()
        illegal = connection.scalar(select(func.count()).where(not_(t.segment_event.c.legal))) or 0
    deleted = {row.segment_id for row in rows if row.state == int(SegmentState.DELETE_SEGMENT_FINISHED)}
    there = {row.segment_id: {name: row._mapping[name] for name in NAMES} for row in rows}
    return {key: value for key, value in there.items() if key not in deleted}, deleted, illegal


@pytest.mark.parametrize("file", CAPTURED)
def test_they_agree_on_the_topic_of_a_real_kafka(file: str, tmp_path: Path) -> None:
    records = raw(captured(file))
    cached, refused = by_cache(records)
    ledger, deleted, illegal = by_ledger(records, tmp_path)
    assert ledger == cached
    assert (refused, illegal) == (0, 0)
    assert ledger or deleted


def test_they_agree_on_repeated_cut_and_illegal_events(tmp_path: Path) -> None:
    records = mixed(3_000, seed=23)
    chance = random.Random(2)
    shuffled: list[RawRecord] = []
    for partition in sorted({record[0] for record in records}):
        values = [record[4] for record in records if record[0] == partition]
        for _ in range(len(values) // 20):  # some events out of their order
            index, other_index = chance.randrange(len(values)), chance.randrange(len(values))
            values[index], values[other_index] = values[other_index], values[index]
        shuffled += [(partition, offset, 1, None, value) for offset, value in enumerate(values)]
    cached, refused = by_cache(shuffled)
    ledger, deleted, illegal = by_ledger(shuffled, tmp_path)
    # A cache forgets a deleted segment, and takes what begins it once more for a new one; the ledger knows better.
    assert ledger == {segment_id: segment for segment_id, segment in cached.items() if segment_id not in deleted}
    assert len(ledger) > 100
    assert min(refused, illegal) > 50
