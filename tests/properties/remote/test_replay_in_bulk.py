"""Replay in bulk: whole batches decoded in columns and applied as runs leave what one record after the other leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from backend.engine.common.event_sink import EventSink
from backend.engine.net.metadata_topic_client import records_of
from backend.engine.ports import system_ports, tasks
from backend.engine.remote.metadata.metadata_consumer import MetadataConsumer
from backend.engine.remote.metadata.metadata_topic import MetadataTopicSettings
from backend.engine.remote.metadata.record_runs import read_canonical
from backend.engine.remote.metadata.remote_log_metadata_cache import Overlap, RemoteLogMetadataCache
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from backend.protocol.remote_log.metadata_serde import (
    PartitionDelete,
    SegmentMetadata,
    SegmentSnapshot,
    SegmentUpdate,
    decode,
    encode,
)
from backend.tiering.ids import TopicIdPartition
from backend.tiering.segment_state import PartitionDeleteState, SegmentState
from tests.conformance.memory_topic import MemoryMetadataTopic
from tests.effort import effort
from tests.properties.remote.test_rlmm_cache_model import FlatList, histories
from tests.unit.engine.remote.tiers import RecordingSink

STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = SegmentState
HOSTED = [TopicIdPartition("orders", bytes(range(1, 17)), 0), TopicIdPartition("ä", bytes(range(2, 18)), 7)]
ELSEWHERE = TopicIdPartition("orders", bytes(range(1, 17)), 1)
Event = SegmentMetadata | SegmentUpdate


def copied(number: int, start: int, end: int, epoch: int = 0, *, partition: TopicIdPartition) -> list[Event]:
    """The events that a leader publishes of one copy."""
    key = number.to_bytes(4, "little") * 4
    begun = SegmentMetadata(partition, key, start, end, 1, 5, 6, ((epoch, start),), 9, None, STARTED, number % 2 == 0)
    return [begun, SegmentUpdate(partition, key, 2, 7, None, FINISHED)]


@st.composite
def leaders_histories(draw: st.DrawFn, partition: TopicIdPartition) -> list[Event]:
    """Copies one behind the other as usual, among them what is not: forks, repeated and lost events, deletions."""
    events: list[Event] = []
    number = start = epoch = 0
    for step in draw(st.lists(st.sampled_from("cccccccreEosdxlj"), min_size=1, max_size=30)):
        if step == "r" and events:  # delivered twice
            events.append(events[-1])
        elif step == "o":  # a fork: offsets go back
            start = max(0, start - 15)
        elif step == "s":  # another leader copied more in one segment
            start = max(0, start - 25)
            number += 1
            events += copied(number, start, start + 39, epoch, partition=partition)
            start += 40
        elif step == "e":
            epoch += 1
        elif step == "d" and number:  # a deletion of any segment
            key = draw(st.integers(1, number)).to_bytes(4, "little") * 4
            events += [SegmentUpdate(partition, key, 1, 8, None, state) for state in (DELETE_STARTED, DELETE_FINISHED)]
        elif step == "x" and number:  # a known id again
            events += copied(draw(st.integers(1, number)), start, start + 9, epoch, partition=partition)
        else:
            number += 1
            made = copied(number, start, start + draw(st.integers(0, 19)), epoch, partition=partition)
            begun = made[0]
            assert isinstance(begun, SegmentMetadata)
            if step == "E" and begun.end_offset > start:  # two leader epochs and custom metadata
                made[0] = begun._replace(segment_leader_epochs=((epoch, start), (epoch + 1, start + 1)))
                made[1] = made[1]._replace(custom_metadata=b"where")
                epoch += 1
            if step == "j":  # the first epoch begins elsewhere than the segment
                made[0] = begun._replace(segment_leader_epochs=((epoch, start + 1),))
            events += made[:1] if step == "l" else made
            start = begun.end_offset + 1
    return events


@st.composite
def values(draw: st.DrawFn) -> list[bytes | None]:
    """Values of one partition of the metadata topic: histories of several user partitions, mixed."""
    queues: list[list[bytes | None]] = [
        [encode(event) for event in draw(leaders_histories(partition))] for partition in (*HOSTED, ELSEWHERE)
    ]
    queues.append([encode(event) for event in draw(st.one_of(st.just([]), histories()))])
    mixed: list[bytes | None] = []
    while any(queues):
        queue = draw(st.sampled_from([queue for queue in queues if queue]))
        taken = draw(st.integers(1, 12))
        mixed += queue[:taken]
        del queue[:taken]
    snapshot = SegmentSnapshot(b"s" * 16, 0, 9, 1, 0, 0, ((0, 0),), 1, None, FINISHED)
    gone = PartitionDelete(HOSTED[1], 1, 0, PartitionDeleteState.DELETE_PARTITION_FINISHED)
    odd = [None, b"", b"\x01\x00\x00", b"\x07what", b"\x01\x00\x00\x03", encode(snapshot), encode(gone)]
    for value in draw(st.lists(st.sampled_from(odd), max_size=2)):
        mixed.insert(draw(st.integers(0, len(mixed))), value)
    return mixed


class _Caches:
    """The state of a reader of the topic."""

    def __init__(self) -> None:
        self.caches: list[RemoteLogMetadataCache] = []
        self.skipped = 0


async def _read(log_values: Sequence[bytes | None], batch_sizes: Sequence[int], overlap: Overlap) -> _Caches:
    ports, sink = system_ports(), RecordingSink()
    topic = MemoryMetadataTopic()
    topic.batch_sizes = batch_sizes
    topic.records_max = 40
    await topic.ensure_created(MetadataTopicSettings(partitions=1))
    for value in log_values:
        topic.log.append(0, value)
    events: EventSink = sink
    consumer = MetadataConsumer(topic, 1, ports, events, overlap)
    consumer.assign(HOSTED)
    running = tasks.start(consumer.run(), name="reader")
    made = _Caches()
    for partition in HOSTED:
        assert await consumer.wait_ready(partition, 10_000)
        cache = consumer.ready_cache(partition)
        assert cache is not None
        made.caches.append(cache)
    made.skipped = consumer.records_skipped
    consumer.close()
    await tasks.cancel(running)
    ports.workers.close()
    return made


def everything(cache: RemoteLogMetadataCache) -> object:
    """All that a cache holds, the order in its maps and its row numbers included."""
    segments, epochs = cache.numbered()
    maps = {
        epoch: (
            list(epoch_map.starts),
            list(epoch_map.rows),
            sorted(epoch_map.unreferenced),
            epoch_map.highest,
            epoch_map.nested,
        )
        for epoch, epoch_map in epochs.items()
    }
    lookups = [cache.lookup(epoch, offset) for epoch in maps for offset in range(0, 60, 3)]
    return segments, maps, lookups


@settings(max_examples=effort(50, 5_000, check=12), deadline=None)
@given(values(), st.lists(st.integers(1, 20), min_size=1, max_size=4), st.sampled_from(Overlap))
def test_bulk_replay_is_replay(history: list[bytes | None], batch_sizes: list[int], overlap: Overlap) -> None:
    async def both() -> tuple[_Caches, _Caches]:
        return await _read(history, (), overlap), await _read(history, batch_sizes, overlap)

    one_by_one, bulk = asyncio.run(both())
    assert [everything(cache) for cache in bulk.caches] == [everything(cache) for cache in one_by_one.caches]
    assert bulk.skipped == one_by_one.skipped
    model = FlatList()
    for value in history:
        event = None
        try:
            event = decode(value)
        except ValueError:
            continue
        if not isinstance(event, SegmentSnapshot) and event.topic_id_partition == HOSTED[0]:
            assert not isinstance(event, PartitionDelete)
            model.apply(event)
    assert sorted(bulk.caches[0].segments()) == sorted(model.segments.values())


def test_copies_one_behind_the_other_are_one_run_of_each_partition() -> None:
    events = [
        encode(event)
        for number in range(1, 51)
        for partition in HOSTED
        for event in copied(number, number * 10, number * 10 + 9, partition=partition)
    ]
    data = bytes(build_batch([RecordData(0, None, value) for value in events], base_offset=1000))
    fetched = read_canonical(data, 1000)
    assert fetched is not None
    next_offset, records, plan = fetched
    assert next_offset == 1200
    assert len(records) == 200
    assert plan is not None
    assert [(span.partition, len(span.indices), span.run is not None) for span in plan.spans] == [
        (partition, 100, True) for partition in HOSTED
    ]
    for partition, span in zip(HOSTED, plan.spans, strict=True):
        cache, slow = RemoteLogMetadataCache(partition), RemoteLogMetadataCache(partition)
        assert span.run is not None
        assert cache.apply_run(span.run) == 50
        for index in span.indices:
            event = decode(records[index].value)
            assert isinstance(event, Event)
            slow.apply(event)
        assert everything(cache) == everything(slow)


RECORDS = st.builds(
    RecordData,
    st.integers(0, 1 << 40) | st.integers(1000, 1100),
    st.none() | st.just(b"key"),
    st.none() | st.binary(max_size=300),
    st.just(()) | st.just((("name", b"x"),)),
)


@settings(max_examples=effort(50, 10_000, check=12), deadline=None)
@given(
    st.lists(st.tuples(st.lists(RECORDS, min_size=1, max_size=5), st.integers(0, 4), st.booleans()), max_size=5),
    st.integers(0, 25),
    st.data(),
)
@example([([RecordData(0, None, b"v" * 9000)], 0, False)], 0, None)
def test_framing_in_columns_reads_what_the_careful_reader_reads(
    batches: list[tuple[list[RecordData], int, bool]], position: int, data: st.DataObject | None
) -> None:
    buffer, offset = bytearray(), 0
    for records, codec, append_time in batches:
        buffer += build_batch(records, base_offset=offset, compression=codec, log_append_time=append_time)
        offset += len(records)
    if data is not None and data.draw(st.booleans()):
        del buffer[data.draw(st.integers(0, len(buffer))) :]
    fetched = read_canonical(bytes(buffer), position)
    if fetched is not None:
        partition = records_of(0, memoryview(buffer), position)
        assert (fetched[0], list(fetched[1])) == (partition.next_offset, list(partition.records))


@settings(max_examples=effort(50, 10_000, check=12), deadline=None)
@given(st.data())
def test_damage_never_reads_as_something_else(data: st.DataObject) -> None:
    events = [
        event for number in range(3) for event in copied(number, number * 10, number * 10 + 9, partition=ELSEWHERE)
    ]
    buffer = build_batch([RecordData(0, None, encode(event)) for event in events])
    buffer[data.draw(st.integers(0, len(buffer) - 1))] ^= data.draw(st.integers(1, 255))
    fetched = read_canonical(bytes(buffer), 0)
    if fetched is not None:
        next_offset, records, plan = fetched
        partition = records_of(0, memoryview(buffer), 0)
        assert (next_offset, list(records), ()) == (partition.next_offset, partition.records, partition.unreadable)
        for span in plan.spans if plan is not None else ():
            cache, slow = RemoteLogMetadataCache(span.partition), RemoteLogMetadataCache(span.partition)
            if span.run is not None and cache.apply_run(span.run) == len(span.run.starts):
                for index in span.indices:
                    event = decode(records[index].value)
                    assert isinstance(event, Event)
                    assert event.topic_id_partition == span.partition
                    slow.apply(event)
                assert everything(cache) == everything(slow)
