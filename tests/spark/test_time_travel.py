"""The remote segments at a moment: the interval table against a replay of the events up to that moment."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from sqlalchemy import Engine

from backend.protocol.remote_log.metadata_serde import (
    PartitionDelete,
    SegmentMetadata,
    SegmentSnapshot,
    SegmentUpdate,
    Unreadable,
    decode,
)
from backend.store.connection.database import create_engine, reading
from backend.store.queries.time_travel import RemoteTotalsThen, partitions_at, remote_at, remote_totals_at
from backend.tiering.ids import uuid_text
from spark.decode import RawRecord, to_batch
from spark.sinks.ledger_sink import LedgerSink
from tests.effort import effort
from tests.spark.records import captured, life, log, mixed, raw
from tests.spark.replay import FOLLOWS

CLUSTER = "cluster-1"
INSTANTS = 1_000
Told = SegmentMetadata | SegmentUpdate
Key = tuple[bytes, int, bytes]
Remote = dict[tuple[str, int], dict[str, tuple[int, int, int]]]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_engine(database_url)
    yield engine
    engine.dispose()


def store(engine: Engine, records: Sequence[RawRecord]) -> None:
    sink = LedgerSink(engine, cluster_id=CLUSTER, job="ledger", source_topic="t")
    for at in range(0, len(records), 500):  # several batches, so that intervals are closed in a later one
        sink.write(at, pa.Table.from_batches([to_batch(records[at : at + 500])]))


def readable_events(records: Sequence[RawRecord]) -> list[Told]:
    """The readable events of the records, in log order."""
    events: list[Told] = []
    for _, _, _, _, value in sorted(records, key=lambda record: record[:2]):
        try:
            event = decode(value)
        except Unreadable:
            continue
        if not isinstance(event, PartitionDelete | SegmentSnapshot):
            events.append(event)
    return events


def replayed(events: Sequence[Told], at_ms: int) -> Remote:
    """The remote segments after the events that say ``at_ms`` or earlier, applied one by one."""
    states: dict[Key, int] = {}
    facts: dict[Key, tuple[int, int, int]] = {}
    for event in events:
        if event.event_timestamp_ms > at_ms:
            continue
        tip = event.topic_id_partition
        key = (tip.topic_id, tip.partition, event.segment_id)
        state = int(event.state)
        if state in FOLLOWS[states.get(key)] and isinstance(event, SegmentMetadata) == (state == 0):
            states[key] = state
            if isinstance(event, SegmentMetadata):
                facts[key] = (event.start_offset, event.end_offset, event.segment_size_bytes)
    remote: Remote = {}
    for (topic_id, partition, segment_id), state in states.items():
        held = remote.setdefault((uuid_text(topic_id), partition), {})
        if state == 1:
            held[uuid_text(segment_id)] = facts[topic_id, partition, segment_id]
    return remote


def test_at_random_moments_the_intervals_equal_a_replay_of_the_events(engine: Engine) -> None:
    records = mixed(effort(800, 20_000), seed=11)
    store(engine, records)
    events = readable_events(records)
    said = [event.event_timestamp_ms for event in events]
    chance = random.Random(5)
    most = 0
    with reading(engine) as connection:
        for _ in range(INSTANTS):
            at_ms = chance.randrange(min(said), max(said) + 50)
            then = replayed(events, at_ms)
            (topic_id, partition), held = chance.choice(sorted(then.items()))
            result = remote_at(connection, CLUSTER, topic_id, partition, at_ms)
            assert {s.segment_id: (s.start_offset, s.end_offset, s.segment_size_bytes) for s in result} == held
            assert [s.start_offset for s in result] == sorted(s.start_offset for s in result)
            most = max(most, len(held))
        totals = remote_totals_at(connection, CLUSTER, topic_id, partition, at_ms)
    assert (totals.segments, totals.bytes) == (len(held), sum(size for _, _, size in held.values()))
    assert most > 5


def test_the_past_of_a_real_kafka_is_told_at_each_of_its_moments(engine: Engine) -> None:
    records = raw(captured("metadata-records.jsonl"))
    store(engine, records)
    events, remote = readable_events(records), 0
    with reading(engine) as connection:
        for at_ms in {event.event_timestamp_ms + shift for event in events for shift in (-1, 0)}:
            for (topic_id, partition), held in replayed(events, at_ms).items():
                result = remote_at(connection, CLUSTER, topic_id, partition, at_ms)
                assert {s.segment_id for s in result} == set(held)
                remote = max(remote, len(held))
    assert remote > 1


def test_a_deletion_that_says_an_earlier_time_than_the_copy_ends_it_at_once(engine: Engine) -> None:
    started, finished, deleting, _ = life(1)
    store(engine, log([started, finished, deleting._replace(event_timestamp_ms=5)]))
    assert isinstance(started, SegmentMetadata)
    topic_id = uuid_text(started.topic_id_partition.topic_id)
    with reading(engine) as connection:
        for at_ms in (0, 5, 11_001, 11_002, 20_000):
            totals = remote_totals_at(connection, CLUSTER, topic_id, 0, at_ms)
            assert totals == RemoteTotalsThen(0, 0, None, None)


def test_the_whole_cluster_at_a_moment_is_the_sum_of_its_partitions(engine: Engine) -> None:
    records = mixed(600, seed=6)
    store(engine, records)
    events = readable_events(records)
    at_ms = sorted(event.event_timestamp_ms for event in events)[len(events) // 2]
    with reading(engine) as connection:
        counts = {(p.topic_id, p.partition): p.remote.segments for p in partitions_at(connection, CLUSTER, at_ms)}
        of_topic = partitions_at(connection, CLUSTER, at_ms, "orders")
        assert partitions_at(connection, CLUSTER, at_ms, "no such topic") == []
    assert counts == {key: len(held) for key, held in replayed(events, at_ms).items() if held}
    assert {(p.topic_id, p.partition): p.remote.segments for p in of_topic} == counts
    assert counts
