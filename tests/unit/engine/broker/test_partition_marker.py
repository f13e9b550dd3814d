"""The controller marks each deleted tiered partition on the metadata topic, once, whatever happens to it meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

from backend.engine.broker.partition_marker import PartitionMarker
from backend.engine.ports import tasks
from backend.engine.remote.metadata_scan import MetadataScan
from backend.engine.remote.metadata_topic import METADATA_TOPIC, MetadataTopicSettings
from backend.protocol import messages as m
from backend.protocol.remote_log_metadata import PartitionDelete, decode, metadata_partition
from backend.tiering.segment_state import PartitionDeleteState
from tests.conformance.memory_topic import MemoryMetadataTopic, unavailable
from tests.unit.engine.controller.controller_node import ControllerNode, HandlerChannel, cluster, run, until

PARTITIONS = 3


async def create(node: ControllerNode, name: str, partitions: int, **settings: str) -> None:
    topic = m.CreateTopicsRequest.Topics
    configs = [topic.Configs(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    wanted = topic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
    answer = await HandlerChannel(node).send(m.CreateTopicsRequest(topics=[wanted]), 7, timeout_ms=1000)
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
    found = []
    for target, values in enumerate(topic.log.partitions):
        for value in values:
            assert value is not None
            event = decode(value)
            assert isinstance(event, PartitionDelete)
            assert event.state is PartitionDeleteState.DELETE_PARTITION_MARKED
            tip = event.topic_id_partition
            assert target == metadata_partition(tip.topic_id, tip.partition, PARTITIONS)
            found.append((tip.topic_id, tip.partition))
    return sorted(found)


def waiting(node: ControllerNode) -> int:
    """Removed partitions that have yet to be told, whoever has applied their removal."""
    return len(node.controller.removed_topics.offline(node.controller.image, lambda broker: 2**62))


def marker_of(node: ControllerNode, topic: MemoryMetadataTopic) -> asyncio.Task[None]:
    marker = PartitionMarker(node.controller, topic, MetadataScan(topic), node_id=1, clock=node.ports.clock)
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
