"""The source without Spark: admission, dealing out work, and reading from a Kafka."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.cimpl import NewPartitions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from spark import kafka, reading, source
from spark.decode import RawRecord
from spark.kafka import BrokersAway, TopicMissing, TopicOffsets
from spark.packed import PACKED_SCHEMA
from spark.reading import MetadataGap, OffsetsWentBack
from spark.schemas import RECORD_SCHEMA
from spark.source import OffsetRanges, RemoteLogMetadataReader, admit, spread
from tests.spark.kafka_peer import admin, create_topic, produce
from tests.spark.records import life, log, mixed
from tests.waiting import wait_until

counts = st.dictionaries(
    st.integers(0, 49).map(str), st.tuples(st.integers(0, 1000), st.integers(0, 5000)), max_size=50
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine makes 50 partitions slowly
@given(counts, st.integers(1, 20_000))
def test_admission_takes_no_more_than_the_limit_and_leaves_nobody_out(
    waiting: dict[str, tuple[int, int]], limit: int
) -> None:
    start = {p: low for p, (low, _) in waiting.items()}
    high = {p: low + count for p, (low, count) in waiting.items()}
    end = admit(start, high, limit)
    assert all(start[p] <= end[p] <= high[p] for p in waiting)
    taken = sum(end[p] - start[p] for p in waiting)
    assert taken <= max(limit, 0) + len(waiting)
    assert all(end[p] > start[p] for p in waiting if high[p] > start[p])
    if sum(high.values()) - sum(start.values()) <= limit:
        assert end == high


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 500), st.integers(1, 500)), max_size=60), st.integers(1, 4)
)
def test_work_is_dealt_once_and_evenly(parts: list[tuple[int, int, int]], tasks: int) -> None:
    ranges = [(partition, start, start + count) for partition, start, count in parts]
    dealt = spread(ranges, tasks)
    assert sorted(offset_range for part in dealt for offset_range in part) == sorted(ranges)
    assert len(dealt) == min(tasks, len(ranges))
    loads = [sum(end - start for _, start, end in part) for part in dealt]
    if len(dealt) == tasks and ranges:
        assert max(loads) - min(loads) <= max(count for _, _, count in parts)


def test_rows_are_records_or_packed_and_nothing_else() -> None:
    def columns(**options: str) -> list[str]:
        return source.RemoteLogMetadataSource({"bootstrap.servers": "", **options}).schema().names

    assert columns() == columns(packed="false") == RECORD_SCHEMA.names
    assert columns(packed="TRUE") == PACKED_SCHEMA.names
    with pytest.raises(ValueError, match="is 'yes': set it to true or false"):
        columns(packed="yes")


# --- with a Kafka ---


@pytest.fixture(autouse=True)
def _no_clients_left() -> Iterator[None]:
    yield
    source.close_clients()


@pytest.fixture
def topic(kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(kafka, "REQUEST_TIMEOUT_S", 30.0)  # the broker shares a busy machine with the tests
    name = f"rlm-{uuid4().hex}"
    create_topic(kafka_bootstrap, name)
    return name


def reader(bootstrap: str, topic: str, **options: str) -> RemoteLogMetadataReader:
    made = RemoteLogMetadataReader({"bootstrap.servers": bootstrap, "topic": topic, **options})
    return pickle.loads(pickle.dumps(made))  # type: ignore[no-any-return]  # as Spark does before every task


def read_all(
    metadata_reader: RemoteLogMetadataReader, start: dict[str, int], end: dict[str, int]
) -> list[tuple[int, int]]:
    return [
        (row["metadata_partition"], row["metadata_offset"])
        for part in metadata_reader.partitions(start, end)
        for batch in metadata_reader.read(part)
        for row in batch.to_pylist()
    ]


def places(records: list[RawRecord]) -> list[tuple[int, int]]:
    return sorted((partition, offset) for partition, offset, *_ in records)


def test_batches_of_any_size_read_every_record_once(kafka_bootstrap: str, topic: str) -> None:
    records = mixed(3_000)
    produce(kafka_bootstrap, topic, records)
    metadata_reader = reader(kafka_bootstrap, topic)
    position, read = metadata_reader.initialOffset(), []
    for limit in (1, 7, 100, 1_000, 100_000):
        end = metadata_reader.latestOffset(position, ReadMaxRows(limit))
        read += read_all(metadata_reader, position, end)
        position = end
    assert sorted(read) == places(records)
    assert metadata_reader.latestOffset(position, ReadAllAvailable()) == position
    assert metadata_reader.partitions(position, position) == []


def test_reading_starts_where_the_options_say(kafka_bootstrap: str, topic: str) -> None:
    records = mixed(500)
    produce(kafka_bootstrap, topic, records)
    metadata_reader = reader(kafka_bootstrap, topic, startingOffsets=json.dumps({"1": 40, "3": 100}))
    start = metadata_reader.initialOffset()
    assert start == {"0": 0, "1": 40, "2": 0, "3": 100, "4": 0}
    read = read_all(metadata_reader, start, metadata_reader.latestOffset(start, ReadAllAvailable()))
    expected = [(p, o) for p, o in places(records) if not (p == 1 and o < 40) and p != 3]
    assert sorted(read) == expected


def test_records_that_were_deleted_before_they_were_read_end_in_a_loud_gap(kafka_bootstrap: str, topic: str) -> None:
    produce(kafka_bootstrap, topic, mixed(500))
    client = admin(kafka_bootstrap)  # must live until the answer is there
    deletion = client.delete_records([TopicPartition(topic, 2, 50)])
    next(iter(deletion.values())).result(timeout=10)
    assert reader(kafka_bootstrap, topic).initialOffset()["2"] == 50
    with pytest.raises(MetadataGap, match=f"{topic}-2 begins at offset 50, 20 was to be next"):
        reader(kafka_bootstrap, topic, startingOffsets='{"2": 20}').initialOffset()
    with pytest.raises(MetadataGap, match=f"{topic}-2"):
        list(reader(kafka_bootstrap, topic).read(OffsetRanges(((2, 20, 60),))))


def test_a_topic_that_ends_before_what_was_read_is_noticed(kafka_bootstrap: str, topic: str) -> None:
    produce(kafka_bootstrap, topic, mixed(100))
    with pytest.raises(OffsetsWentBack, match="was read up to 999"):
        reader(kafka_bootstrap, topic, startingOffsets='{"4": 999}').initialOffset()
    with pytest.raises(OffsetsWentBack, match=f"{topic}-7 ends at offset 0 and was read up to 3"):
        reader(kafka_bootstrap, topic, startingOffsets='{"7": 3}').initialOffset()
    metadata_reader = reader(kafka_bootstrap, topic)
    with pytest.raises(OffsetsWentBack):
        metadata_reader.latestOffset({"4": 999}, ReadAllAvailable())


def test_partitions_that_a_topic_is_given_later_are_read_too(
    kafka_bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "PARTITIONS_AGE_S", 0.1)
    metadata_reader = reader(kafka_bootstrap, topic)
    start = metadata_reader.initialOffset()
    client = admin(kafka_bootstrap)  # must live until the answer is there
    client.create_partitions([NewPartitions(topic, 7)])[topic].result(timeout=30)
    records = log(life(1), partition=6)
    produce(kafka_bootstrap, topic, records)
    wait_until(
        "they are seen", lambda: metadata_reader.latestOffset(start, ReadAllAvailable()).get("6") == len(records), 60
    )
    assert read_all(metadata_reader, start, metadata_reader.latestOffset(start, ReadAllAvailable())) == places(records)


def test_a_batch_of_large_records_has_few(kafka_bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SAMPLE_TIMEOUT_S", 30.0)  # it ends with the records that it wants
    large, size = 800, 2_000
    produce(kafka_bootstrap, topic, [(0, offset, 1, None, bytes(size)) for offset in range(large)])
    metadata_reader = reader(kafka_bootstrap, topic, maxBytes=str(100 * size))
    start = metadata_reader.initialOffset()
    taken = metadata_reader.latestOffset(start, metadata_reader.getDefaultReadLimit())
    assert 90 <= taken["0"] <= 100
    assert len(read_all(metadata_reader, start, taken)) == taken["0"]


def test_a_missing_topic_is_missing_and_is_not_created(kafka_bootstrap: str) -> None:
    name = f"none-{uuid4().hex}"
    offsets = TopicOffsets(kafka_bootstrap, name, {}, "test")
    with pytest.raises(TopicMissing):
        offsets.offsets_held()
    assert name not in admin(kafka_bootstrap).list_topics(timeout=10).topics
    offsets.close()


def test_asking_about_a_topic_that_was_deleted_does_not_make_it_again() -> None:
    """Brokers make what a client asks for (auto.create.topics.enable), unless it says that they must not."""
    maker = Producer({"test.mock.num.brokers": 1})  # librdkafka's own broker, which makes topics
    servers = ",".join(f"{broker.host}:{broker.port}" for broker in maker.list_topics(timeout=10).brokers.values())
    maker.list_topics("made", timeout=10)
    assert "made" in maker.list_topics(timeout=10).topics
    offsets = TopicOffsets(servers, "deleted", {}, "test")
    for _ in range(2):  # the second time by a new admin client
        with pytest.raises((TopicMissing, BrokersAway)):
            offsets.topic_id()
    offsets.close()
    assert "deleted" not in maker.list_topics(timeout=10).topics


def test_brokers_that_are_away_give_no_new_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "REQUEST_TIMEOUT_S", 0.2)  # nobody answers, however long it waits
    metadata_reader = reader("127.0.0.1:1", "any")
    with pytest.raises(BrokersAway):
        metadata_reader.initialOffset()
    assert metadata_reader.latestOffset({"0": 5}, ReadAllAvailable()) == {"0": 5}
    assert metadata_reader.reportLatestOffset() is None
