"""Admin requests at the broker that is asked: what it answers itself, what it refuses, what it sends on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from immutables import Map

from backend.engine.controller.commands.topic_commands import create_topics
from backend.engine.controller.image.metadata_image import EMPTY_IMAGE, MetadataImage, PartitionRegistration, TopicImage
from backend.protocol import frames
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.messages import Message
from tests.unit.engine.apis.admin_node import AdminNode, image_with, registered
from tests.unit.engine.controller.clusters import Play, broker_config
from tests.unit.protocol.kafka_fixtures import wire_rows

ORDERS = bytes(range(16))
FLAG = "follower.fetch.last.tiered.offset.enable"


def with_topic(image: MetadataImage, *, leader: int = 1, name: str = "orders", **settings: str) -> MetadataImage:
    partition = PartitionRegistration((1, 2), (1, 2), leader, 3, 5)
    image = replace(
        image,
        topics=image.topics.set(ORDERS, TopicImage(name, ORDERS, Map({0: partition}))),
        topic_ids=image.topic_ids.set(name, ORDERS),
    )
    return with_config(image, 2, name, **settings) if settings else image


def with_config(image: MetadataImage, kind: int, resource: str, **settings: str) -> MetadataImage:
    values = {name.replace("_", "."): value for name, value in settings.items()}
    return replace(image, configs=image.configs.set((kind, resource), Map(values)))


def metadata_of(*names: str | None, topic_id: bytes = bytes(16), **fields: bool) -> m.MetadataRequest:
    return m.MetadataRequest(
        topics=[m.MetadataRequest.Topics(name=name, topic_id=topic_id) for name in names], **fields
    )


def test_a_topic_is_found_by_id_from_version_12_on() -> None:
    node = AdminNode(with_topic(image_with(registered(1), registered(2))))
    (topic,) = node.answer(metadata_of(None, topic_id=ORDERS), 12).topics
    assert (topic.name, topic.error_code) == ("orders", 0)
    (unknown,) = node.answer(metadata_of(None, topic_id=bytes(15) + b"\x07"), 12).topics
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    (refused,) = node.answer(metadata_of(None, topic_id=ORDERS), 11).topics
    assert refused.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("image", "version", "leader", "error", "offline"),
    [
        (image_with(registered(1), registered(2)), 9, 1, 0, []),
        (image_with(registered(1), registered(2, fenced=True)), 9, 1, 0, [2]),
        (image_with(registered(2)), 9, -1, ErrorCode.LEADER_NOT_AVAILABLE, [1]),
        (image_with(replace(registered(1), endpoints=()), registered(2)), 9, -1, ErrorCode.LISTENER_NOT_FOUND, [1]),
        (image_with(replace(registered(1), endpoints=()), registered(2)), 5, -1, ErrorCode.LEADER_NOT_AVAILABLE, [1]),
        (image_with(registered(1)), 0, 1, ErrorCode.REPLICA_NOT_AVAILABLE, [2]),
    ],
)
def test_a_partition_tells_who_cannot_be_reached(
    image: MetadataImage, version: int, leader: int, error: int, offline: list[int]
) -> None:
    (topic,) = AdminNode(with_topic(image)).answer(metadata_of("orders"), version).topics
    (partition,) = topic.partitions
    assert (partition.leader_id, partition.error_code, partition.offline_replicas) == (leader, error, offline)
    assert partition.replica_nodes == ([1] if version == 0 else [1, 2])


def test_fenced_brokers_are_not_listed_and_authorized_operations_only_when_asked() -> None:
    node = AdminNode(with_topic(image_with(registered(1, rack="a"), registered(2, fenced=True))))
    answer = node.answer(metadata_of("orders"), 9)
    assert [(broker.node_id, broker.rack) for broker in answer.brokers] == [(1, "a")]
    assert answer.cluster_authorized_operations == answer.topics[0].topic_authorized_operations == -(2**31)
    answer = node.answer(
        metadata_of("orders", include_cluster_authorized_operations=True, include_topic_authorized_operations=True), 9
    )
    assert (answer.cluster_authorized_operations, answer.topics[0].topic_authorized_operations) == (8096, 3576)


def test_internal_topics_are_flagged_and_the_remote_log_metadata_is_none_of_them() -> None:
    for name, internal in (("__consumer_offsets", True), ("__remote_log_metadata", False), ("__ebbline_events", False)):
        node = AdminNode(with_topic(image_with(registered(1)), name=name))
        assert node.answer(metadata_of(name), 9).topics[0].is_internal is internal


async def settled(node: AdminNode) -> None:
    while node.services.metadata.topics_in_creation:
        await asyncio.sleep(0.001)


def test_a_missing_topic_is_created_in_the_background_once() -> None:
    node = AdminNode(image_with(registered(1)), num_partitions="4")
    node.channel.answer = lambda request: m.CreateTopicsResponse()

    async def play() -> None:
        for _ in range(3):
            answer = await node.ask(metadata_of("new", "bad name", "__consumer_offsets"), 9)
            codes = [topic.error_code for topic in answer.topics]
            assert codes == [
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
        await settled(node)

    asyncio.run(play())
    (sent,) = node.channel.sent
    assert isinstance(sent, m.CreateTopicsRequest)
    assert [(topic.name, topic.num_partitions) for topic in sent.topics] == [("new", 4), ("__consumer_offsets", 50)]


@pytest.mark.parametrize(
    ("version", "fields", "properties"),
    [(9, {"allow_auto_topic_creation": False}, {}), (9, {}, {"auto_create_topics_enable": "false"})],
)
def test_a_missing_topic_stays_missing_unless_client_and_broker_allow(
    version: int, fields: dict[str, Any], properties: dict[str, Any]
) -> None:
    node = AdminNode(image_with(registered(1)), **properties)
    assert node.answer(metadata_of("new", **fields), version).topics[0].error_code == 3
    assert node.channel.sent == []


def test_topics_are_described_page_by_page() -> None:
    partition = PartitionRegistration((1,), (1,), 1, 0, 0)
    image = image_with(registered(1))
    for number, name in enumerate("abc"):
        topic_id = bytes([number]) * 16
        topic = TopicImage(name, topic_id, Map(dict.fromkeys(range(3), partition)))
        image = replace(image, topics=image.topics.set(topic_id, topic), topic_ids=image.topic_ids.set(name, topic_id))
    node = AdminNode(image)
    request = m.DescribeTopicPartitionsRequest
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        answer = node.answer(request(topics=[], response_partition_limit=2, cursor=cursor), 0)
        page = [(topic.name, row.partition_index) for topic in answer.topics for row in topic.partitions]
        assert len(page) <= 2
        seen += page
        if answer.next_cursor is None:
            break
        following = answer.next_cursor
        cursor = request.Cursor(topic_name=following.topic_name, partition_index=following.partition_index)
    assert seen == [(name, index) for name in "abc" for index in range(3)]
    bad = request(
        topics=[request.Topics(name="a")],
        response_partition_limit=2,
        cursor=request.Cursor(topic_name="a", partition_index=-1),
    )
    assert node.answer(bad, 0).topics[0].error_code == ErrorCode.INVALID_REQUEST


def describe(node: AdminNode, kind: int, name: str, *keys: str, version: int = 4, **flags: bool) -> Any:
    request = m.DescribeConfigsRequest
    describe_request = request(
        resources=[request.Resources(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)],
        include_synonyms=flags.get("synonyms", True),
        include_documentation=flags.get("documentation", False),
    )
    return node.answer(describe_request, version).results[0]


def test_a_brokers_setting_lists_where_it_comes_from_strongest_first() -> None:
    image = image_with(registered(1))
    image = with_config(image, 4, "1", **{FLAG: "false"})
    image = with_config(image, 4, "", **{FLAG: "true"})
    (entry,) = describe(AdminNode(image), 4, "1", FLAG).configs
    assert [(synonym.value, synonym.source) for synonym in entry.synonyms] == [("false", 2), ("true", 3), ("false", 5)]
    assert (entry.value, entry.config_source, entry.read_only, entry.config_type) == ("false", 2, False, 1)
    (cluster,) = describe(AdminNode(image), 4, "").configs
    assert (cluster.name, cluster.value, cluster.config_source) == (FLAG, "true", 3)
    assert [synonym.source for synonym in cluster.synonyms] == [3]


def test_a_broker_tells_only_its_own_settings() -> None:
    node = AdminNode(image_with(registered(1), registered(2)))
    for name in ("2", "x"):
        answer = describe(node, 4, name)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.configs == []
    assert describe(node, 4, "2").error_message == ("Unexpected broker id, expected 1 or empty string, but received 2")


def test_read_only_static_and_unknown_settings() -> None:
    node = AdminNode(image_with(registered(1)), log_dirs="/data", rsm_config_secret="hidden")
    (log_dirs,) = describe(node, 4, "1", "log.dirs").configs
    assert (log_dirs.value, log_dirs.config_source, log_dirs.read_only) == ("/data", 4, True)
    (secret,) = describe(node, 4, "1", "rsm.config.secret").configs
    assert (secret.value, secret.is_sensitive, secret.config_type) == (None, True, 0)
    assert all(synonym.value is None for synonym in secret.synonyms)


def test_a_topics_settings_with_synonyms_and_documentation_only_when_asked() -> None:
    node = AdminNode(with_topic(image_with(registered(1)), local_retention_ms="1000"))
    (entry,) = describe(node, 2, "orders", "local.retention.ms").configs
    assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == [
        ("local.retention.ms", "1000", 1), ("log.local.retention.ms", "-2", 5),
    ]  # fmt: skip
    assert entry.documentation is None
    (plain,) = describe(node, 2, "orders", "local.retention.ms", synonyms=False, documentation=True).configs
    assert plain.synonyms == []
    assert plain.documentation
    assert describe(node, 2, "nope").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(node, 2, "a b").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert describe(node, 77, "x").error_code == ErrorCode.INVALID_REQUEST


def test_a_groups_settings_come_from_the_group_or_from_its_broker() -> None:
    session = "consumer.session.timeout.ms"
    image = with_config(image_with(registered(1)), 32, "g", **{session: "50000"})
    node = AdminNode(image)
    own, default = describe(node, 32, "g", session).configs[0], describe(node, 32, "other", session).configs[0]
    behind = ("group.consumer.session.timeout.ms", "45000", 5)
    assert (own.value, own.config_source, own.config_type, own.read_only) == ("50000", 8, 3, False)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in own.synonyms] == [
        (session, "50000", 8),
        behind,
    ]
    assert (default.value, default.config_source) == ("45000", 5)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in default.synonyms] == [behind]
    (documented,) = describe(node, 32, "g", session, documentation=True).configs
    assert documented.documentation == "The timeout to detect client failures when using the consumer group protocol."
    assert describe(node, 32, "").error_message == "Group name must not be empty"


def test_a_subscription_to_clients_metrics_shows_what_was_set_and_the_defaults() -> None:
    node = AdminNode(with_config(image_with(registered(1)), 16, "m", **{"interval.ms": "100"}))
    rows = [
        (config.name, config.value, config.config_source, len(config.synonyms))
        for config in describe(node, 16, "m").configs
    ]
    assert rows == [("interval.ms", "100", 7, 1), ("match", "", 5, 0), ("metrics", "", 5, 0)]
    assert describe(node, 16, "").error_message == "Client metrics subscription name must not be empty"
    listed = node.answer(m.ListConfigResourcesRequest(), 0).config_resources
    assert [(resource.resource_type, resource.resource_name) for resource in listed] == [(16, "m")]


@pytest.mark.parametrize(("kind", "name"), [(2, "orders"), (4, "1"), (16, "m"), (32, "g")])
def test_every_setting_has_its_documentation(kind: int, name: str) -> None:
    node = AdminNode(with_topic(image_with(registered(1))))
    configs = describe(node, kind, name, documentation=True).configs
    assert [config.name for config in configs if not config.documentation] == []


def alter_flag(*brokers: str) -> m.IncrementalAlterConfigsRequest:
    resource = m.IncrementalAlterConfigsRequest.Resources
    change = resource.Configs(name=FLAG, config_operation=0, value="true")
    return m.IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=4, resource_name=name, configs=[change]) for name in brokers]
    )


def test_changes_of_another_broker_are_refused_and_the_rest_is_sent_on() -> None:
    node = AdminNode(with_config(image_with(registered(1), registered(3)), 4, "1", **{FLAG: "true"}), node_id=1)

    def controller(request: Message) -> Message:
        assert isinstance(request, m.IncrementalAlterConfigsRequest)
        answer = m.IncrementalAlterConfigsResponse.Responses
        return m.IncrementalAlterConfigsResponse(
            responses=[
                answer(resource_type=4, resource_name=resource.resource_name, error_message=None)
                for resource in request.resources
            ]
        )

    node.channel.answer = controller
    answers = node.answer(alter_flag("3", "1", "x"), 1).responses
    assert [(resource.resource_name, resource.error_code) for resource in answers] == [
        ("3", ErrorCode.INVALID_REQUEST), ("1", 0), ("x", ErrorCode.INVALID_REQUEST),
    ]  # fmt: skip
    assert answers[0].error_message == "Unexpected broker id, expected 1, but received 3"
    (sent,) = node.channel.sent
    assert [resource.resource_name for resource in sent.resources] == ["1"]  # type: ignore[attr-defined]  # checked above
    node.channel.sent.clear()
    node.answer(alter_flag("3"), 1)
    assert node.channel.sent == []


def refuse(code: ErrorCode) -> Callable[[Message], Message]:
    def answer(request: Message) -> Message:
        raise KafkaError(code, "no")

    return answer


CREATE = m.CreateTopicsRequest(topics=[m.CreateTopicsRequest.Topics(name="t")])
DELETE = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.Topics(name="t")], topic_names=["t"])
GROW = m.CreatePartitionsRequest(topics=[m.CreatePartitionsRequest.Topics(name="t", count=3)])
ELECT = m.ElectLeadersRequest(topic_partitions=[m.ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])])
REASSIGN = m.AlterPartitionReassignmentsRequest()


@pytest.mark.parametrize(
    ("request_", "version", "codes"),
    [
        (CREATE, 7, lambda answer: [topic.error_code for topic in answer.topics]),
        (DELETE, 1, lambda answer: [response.error_code for response in answer.responses]),
        (DELETE, 6, lambda answer: [response.error_code for response in answer.responses]),
        (GROW, 3, lambda answer: [result.error_code for result in answer.results]),
        (alter_flag("1"), 1, lambda answer: [response.error_code for response in answer.responses]),
        (ELECT, 0, lambda answer: [answer.replica_election_results[0].partition_result[0].error_code]),
        (REASSIGN, 1, lambda answer: [answer.error_code]),
    ],
)
def test_an_error_on_the_way_is_told_where_the_response_has_room(
    request_: Message, version: int, codes: Callable[[Any], list[int]]
) -> None:
    node = AdminNode(image_with(registered(1)))
    node.channel.answer = refuse(ErrorCode.REQUEST_TIMED_OUT)
    assert codes(node.answer(request_, version)) == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_request_is_sent_again_while_no_controller_can_be_reached() -> None:
    node = AdminNode(image_with(registered(1)))
    answers: Iterator[Message | KafkaError] = iter(
        [
            KafkaError(ErrorCode.NETWORK_EXCEPTION),
            m.AlterPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER),
            m.AlterPartitionReassignmentsResponse(error_message="done"),
        ]
    )

    def answer(request: Message) -> Message:
        result = next(answers)
        if isinstance(result, KafkaError):
            raise result
        return result

    node.channel.answer = answer
    assert node.answer(REASSIGN, 1).error_message == "done"
    assert len(node.channel.sent) == 3


def test_a_created_topics_settings_are_those_that_kafka_tells() -> None:
    row = next(
        row
        for row in wire_rows()
        if row["api"] == "CreateTopics"
        and row["listener"] == "controller"
        and not row["errors"]
        and row["version"] == 7
    )
    _, request = frames.decode_request(bytearray.fromhex(row["request"]))
    assert isinstance(request, m.CreateTopicsRequest)
    _, expected = frames.decode_response(m.CreateTopicsResponse, 7, bytearray.fromhex(row["response"]))
    play = Play(broker_config(log_segment_delete_delay_ms="1000")).start_brokers(1, 2, 3)
    play.image = with_config(play.image, 4, "", min_insync_replicas="1")
    answer = play.do(
        partial(
            create_topics,
            request=request,
            config=play.config,
            new_topic_id=lambda: bytes(expected.topics[0].topic_id),
            choose=lambda stop: 0,
        )
    )
    assert answer.topics == expected.topics


def test_the_empty_image_answers() -> None:
    node = AdminNode(EMPTY_IMAGE)
    answer = node.answer(m.MetadataRequest(topics=None), 9)
    assert (answer.brokers, answer.topics, answer.controller_id) == ([], [], -1)
