"""Answers of Apache Kafka 4.3.1 on the wire, given again from an image that says the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from immutables import Map

from backend.engine.controller.image.metadata_image import (
    EMPTY_IMAGE,
    BrokerRegistration,
    Endpoint,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from backend.protocol import codec, frames
from backend.protocol import messages as m
from backend.protocol.messages import Message
from tests.unit.engine.apis.admin_node import AdminNode
from tests.unit.protocol.kafka_fixtures import wire_rows


def recorded(api: str) -> list[Any]:
    rows = [row for row in wire_rows() if row["api"] == api and row["listener"] == "broker"]
    assert rows
    return [pytest.param(row, id=f"{row['client']}-{row['version']}-{number}") for number, row in enumerate(rows)]


def exchange(row: dict[str, Any]) -> tuple[Message, Any]:
    _, request = frames.decode_request(bytearray.fromhex(row["request"]))
    cls = frames.response_class(row["api_key"])
    _, response = frames.decode_response(cls, row["version"], bytearray.fromhex(row["response"]))
    return request, response


def image_of(brokers: list[Any], topics: list[Any], id_field: str) -> MetadataImage:
    """Returns an image of the topics and brokers in a response; topics without an id get one."""
    image = EMPTY_IMAGE
    for broker in brokers:
        node = int(getattr(broker, id_field))
        endpoint = Endpoint("PLAINTEXT", broker.host, broker.port)
        registration = BrokerRegistration(node, 1, bytes(16), (endpoint,), rack=broker.rack, fenced=False)
        image = replace(image, brokers=image.brokers.set(node, registration))
    for number, topic in enumerate(topics, 1):
        if topic.error_code:
            continue
        topic_id = bytes(topic.topic_id) if any(topic.topic_id) else number.to_bytes(16, "big")
        partitions = {
            partition.partition_index: PartitionRegistration(
                tuple(partition.replica_nodes),
                tuple(partition.isr_nodes),
                partition.leader_id,
                partition.leader_epoch,
                0,
            )
            for partition in topic.partitions
        }
        image = replace(
            image,
            topics=image.topics.set(topic_id, TopicImage(topic.name, topic_id, Map(partitions))),
            topic_ids=image.topic_ids.set(topic.name, topic_id),
        )
    return image


def as_sent(message: Message, version: int) -> Any:
    """Returns the response after a trip over the wire in this version, sorted where Kafka promises no order."""
    made, _ = codec.decode(type(message), version, codec.encode(message, version))
    for name in ("topics", "brokers"):
        if hasattr(made, name):
            getattr(made, name).sort(key=repr)
    for topic in getattr(made, "topics", ()):
        topic.partitions.sort(key=lambda partition: partition.partition_index)
    return made


@pytest.mark.parametrize("row", recorded("Metadata"))
def test_metadata(row: dict[str, Any]) -> None:
    request, expected = exchange(row)
    node = AdminNode(
        image_of(expected.brokers, expected.topics, "node_id"),
        cluster_id=expected.cluster_id or "c",
        auto_create_topics_enable="false",
    )
    answer = node.answer(request, row["version"])
    if row["version"] >= 1:
        assert answer.controller_id in {broker.node_id for broker in expected.brokers}
        answer.controller_id = expected.controller_id
    assert as_sent(answer, row["version"]) == as_sent(expected, row["version"])


@pytest.mark.parametrize("row", recorded("DescribeTopicPartitions"))
def test_describe_topic_partitions(row: dict[str, Any]) -> None:
    request, expected = exchange(row)
    metadata = next(frame for frame in map(exchange, plain_metadata()) if frame[1].brokers)[1]
    node = AdminNode(image_of(metadata.brokers, expected.topics, "node_id"))
    assert as_sent(node.answer(request, row["version"]), row["version"]) == as_sent(expected, row["version"])


def plain_metadata() -> list[dict[str, Any]]:
    return [row for row in wire_rows() if row["api"] == "Metadata" and row["client"] == "kafka-java"]


@pytest.mark.parametrize("row", recorded("DescribeCluster"))
def test_describe_cluster(row: dict[str, Any]) -> None:
    request, expected = exchange(row)
    node = AdminNode(image_of(expected.brokers, [], "broker_id"), cluster_id=expected.cluster_id)
    answer = node.answer(request, row["version"])
    assert answer.controller_id in {broker.broker_id for broker in expected.brokers}
    answer.controller_id = expected.controller_id
    assert as_sent(answer, row["version"]) == as_sent(expected, row["version"])


def test_describe_cluster_of_another_kind_of_node_is_refused() -> None:
    node = AdminNode(EMPTY_IMAGE)
    assert node.answer(m.DescribeClusterRequest(endpoint_type=2), 1).error_code == 114
    assert node.answer(m.DescribeClusterRequest(endpoint_type=9), 1).error_code == 115
