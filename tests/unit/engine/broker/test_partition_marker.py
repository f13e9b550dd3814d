"""The controller marks each deleted tiered partition on the metadata topic, once, whatever happens to it meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backend.engine.broker.partition_marker import PartitionMarker
from backend.engine.ports import tasks
from backend.engine.remote.metadata.metadata_scan import MetadataScan
from backend.engine.remote.metadata.metadata_topic import METADATA_TOPIC, MetadataTopicSettings
from backend.protocol import messages as m
from backend.protocol.remote_log.metadata_serde import (
    PartitionDelete,
    SegmentMetadata,
    SegmentUpdate,
    decode,
    encode,
    metadata_partition,
)
from backend.tiering.ids import TopicIdPartition
from backend.tiering.segment_state import PartitionDeleteState, SegmentState
from tests.conformance.memory_topic import MemoryMetadataTopic, unavailable
from tests.unit.engine.controller.controller_node import ControllerNode, HandlerChannel, cluster, run, until

PARTITIONS = 3


async def create(node: ControllerNode, name: str, partitions: int, **settings: str) -> None:
    topic = m.CreateTopicsRequest.Topics
    configs = [topic.Configs(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    requested = topic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
    answer = await HandlerChannel(node).send(m.CreateTopicsRequest(topics=[requested]), 7, timeout_ms=1000)
    assert isinstance(answer, m.CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer


async def delete(node: ControllerNode, name: str) -> bytes:
    """The id of the topic that is gone."""
    topic_id = node.controller.image.topic_ids[name]
    request = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.Topics(name=name)])
    await HandlerChannel(node).send(request, 6, timeout_ms=1000)
    return topic_id


def marked(topic: MemoryMetadataTopic) -> list[tuple[bytes, int]]:
    """(topic id, partition) of every mark, each where the partitioner looks for it."""
    marks = []
    for target, values in enumerate(topic.log.partitions):
        for value in values:
            assert value is not None
            event = decode(value)
            assert isinstance(event, PartitionDelete)
            assert event.state is PartitionDeleteState.DELETE_PARTITION_MARKED
            tip = event.topic_id_partition
            assert target == metadata_partition(tip.topic_id, tip.partition, PARTITIONS)
            marks.append((tip.topic_id, tip.partition))
    return sorted(marks)


def waiting(node: ControllerNode) -> int:
    """The number of deleted partitions that have yet to be marked, on whatever brokers their deletion is applied."""
    return len(node.controller.topic_deletions.offline(node.controller.image, lambda broker: 2**62))


def marker_of(node: ControllerNode, topic: MemoryMetadataTopic, *, delete_vanished: bool = True) -> asyncio.Task[None]:
    marker = PartitionMarker(
        node.controller,
        topic,
        MetadataScan(topic),
        node_id=1,
        clock=node.ports.clock,
        delete_vanished=delete_vanished,
    )
    return tasks.start(marker.run(), name="marker")


def test_tiered_partitions_are_marked_once_over_failures_and_restarts(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 1, remote_log_storage_system_enable="true") as (node, _):
            topic = MemoryMetadataTopic()
            await topic.ensure_created(MetadataTopicSettings(partitions=PARTITIONS))
            await create(node, METADATA_TOPIC, PARTITIONS)
            await create(node, "tiered", 2, remote_storage_enable="true")
            await create(node, "plain", 2)
            topic.failures.append(unavailable())
            running = marker_of(node, topic)
            await delete(node, "plain")
            topic_id = await delete(node, "tiered")
            both = [(topic_id, 0), (topic_id, 1)]
            await until(lambda: marked(topic) == both)
            await tasks.cancel(running)
            # The next life finds the removal in its log, and the marks on the topic.
            await node.stop()
            await node.start()
            running = marker_of(node, topic)
            await create(node, "later", 1, remote_storage_enable="true")
            later = await delete(node, "later")
            await until(lambda: (later, 0) in marked(topic))
            await until(lambda: not waiting(node))
            assert marked(topic) == sorted([*both, (later, 0)])
            await tasks.cancel(running)

    run(play)


def segments_of(name: str, topic_id: bytes, partition: int) -> list[bytes]:
    """The metadata events of three copies, the first with two leader epochs."""
    tip, values = TopicIdPartition(name, topic_id, partition), []
    for number in range(3):
        key, start = bytes([number + 1]) * 16, 10 * number
        epochs = ((0, 0), (1, 5)) if number == 0 else ((1, start),)
        started = SegmentMetadata(tip, key, start, start + 9, 1, 0, 0, epochs, 1, None, SegmentState(0))
        values += [encode(started), encode(SegmentUpdate(tip, key, 1, 0, None, SegmentState(1)))]
    return values


@pytest.mark.parametrize("batch_sizes", [(), (1, 4)], ids=["bare records", "batches"])
def test_a_deletion_that_a_snapshot_has_swallowed_is_marked_at_the_next_start(
    tmp_path: Path, batch_sizes: tuple[int, ...]
) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 1, remote_log_storage_system_enable="true") as (node, _):
            topic = MemoryMetadataTopic()
            topic.batch_sizes = batch_sizes
            await topic.ensure_created(MetadataTopicSettings(partitions=PARTITIONS))
            await create(node, METADATA_TOPIC, PARTITIONS)
            ids = {}
            for name in ("kept", "gone", "told"):
                await create(node, name, 1, remote_storage_enable="true")
                ids[name] = node.controller.image.topic_ids[name]
                for value in segments_of(name, ids[name], 0):
                    topic.log.append(metadata_partition(ids[name], 0, PARTITIONS), value)
            topic_id_partition = TopicIdPartition("told", ids["told"], 0)
            for state in PartitionDeleteState:
                value = encode(PartitionDelete(topic_id_partition, 1, 0, state))
                topic.log.append(metadata_partition(topic_id_partition.topic_id, 0, PARTITIONS), value)
            before = sum(len(values) for values in topic.log.partitions)
            # These are not marked before the node stops, and its log forgets them.
            await delete(node, "gone")
            await delete(node, "told")
            await node.controller.snapshotter.write_snapshot()
            await node.stop()
            await node.start()
            assert node.controller.snapshots_loaded == 1
            topic.failures.append(unavailable())
            running = marker_of(node, topic)
            await until(lambda: sum(len(values) for values in topic.log.partitions) > before)
            await until(lambda: not waiting(node))
            published = [decode(values[-1]) for values in topic.log.partitions if values]
            marks = [event for event in published if getattr(event, "state", None) is PartitionDeleteState(0)]
            assert [
                (mark.topic_id_partition.topic_id, mark.state) for mark in marks if isinstance(mark, PartitionDelete)
            ] == [(ids["gone"], PartitionDeleteState.DELETE_PARTITION_MARKED)]
            assert sum(len(values) for values in topic.log.partitions) == before + 1
            await tasks.cancel(running)

    run(play)


def test_remote_data_of_topics_that_may_come_from_another_cluster_is_named_and_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 1, remote_log_storage_system_enable="true") as (node, _):
            topic = MemoryMetadataTopic()
            await topic.ensure_created(MetadataTopicSettings(partitions=PARTITIONS))
            await create(node, METADATA_TOPIC, PARTITIONS)
            stranger = bytes(range(16))
            for value in segments_of("stranger", stranger, 0):
                topic.log.append(metadata_partition(stranger, 0, PARTITIONS), value)
            before = sum(len(values) for values in topic.log.partitions)
            await node.controller.snapshotter.write_snapshot()
            await node.stop()
            await node.start()
            running = marker_of(node, topic, delete_vanished=False)
            await until(lambda: ":stranger-0, which has remote data" in caplog.text)
            assert not waiting(node)
            assert sum(len(values) for values in topic.log.partitions) == before
            await tasks.cancel(running)

    run(play)


def test_without_the_metadata_topic_nothing_was_ever_copied(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 1, remote_log_storage_system_enable="true") as (node, _):
            topic = MemoryMetadataTopic()
            running = marker_of(node, topic)
            await create(node, "tiered", 1, remote_storage_enable="true")
            await delete(node, "tiered")
            assert waiting(node) == 1
            await until(lambda: not waiting(node))
            assert topic.log.partitions == []
            await tasks.cancel(running)

    run(play)
