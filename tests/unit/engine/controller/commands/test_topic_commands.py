"""Creating, growing and deleting topics."""

import time
from functools import partial
from typing import Final

import pytest

from backend.engine.controller.commands.partition.more_partitions import create_partitions
from backend.engine.controller.commands.topic_commands import delete_topics
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from tests.unit.engine.controller.clusters import Play, broker_config, uuid_of

Topic = m.CreateTopicsRequest.Topics


def topic(name: str, partitions: int = 3, factor: int = 3, **settings: str | None) -> Topic:
    configs = [Topic.Configs(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    return Topic(name=name, num_partitions=partitions, replication_factor=factor, configs=configs)


def test_a_topic_becomes_a_topic_record_its_settings_and_its_partitions() -> None:
    play = Play().start_brokers(1, 2, 3)
    answer = play.create_topic(topic("orders", retention_ms="1000"))
    assert [type(record).__name__ for record in play.last] == [
        "TopicRecord", "ConfigRecord", "PartitionRecord", "PartitionRecord", "PartitionRecord",
    ]  # fmt: skip
    assert (answer.error_code, answer.error_message) == (0, None)
    assert (answer.num_partitions, answer.replication_factor) == (3, 3)
    assert answer.topic_id == play.image.topic_ids["orders"]
    settings = {config.name: (config.value, config.config_source) for config in answer.configs or ()}
    assert settings["retention.ms"] == ("1000", 1)
    assert settings["segment.bytes"] == ("1073741824", 5)
    leaders = {play.partition("orders", index).leader for index in range(3)}
    assert leaders == {1, 2, 3}
    for index in range(3):
        partition = play.partition("orders", index)
        assert sorted(partition.replicas) == [1, 2, 3]
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.directories == tuple(uuid_of(5000 + broker) for broker in partition.replicas)


def test_defaults_come_from_the_controllers_settings() -> None:
    play = Play(broker_config(num_partitions="5", default_replication_factor="2")).start_brokers(1, 2, 3)
    answer = play.create_topic(topic("orders", -1, -1))
    assert (answer.num_partitions, answer.replication_factor) == (5, 2)


def test_validate_only_answers_but_writes_nothing() -> None:
    play = Play().start_brokers(1, 2, 3)
    answer = play.create_topic(topic("orders"), validate_only=True)
    assert answer.error_code == 0
    assert answer.num_partitions == 3
    assert play.last == ()


@pytest.mark.parametrize(
    ("bad_topic", "code", "words"),
    [
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "the empty string is not allowed"),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "'..' is not allowed"),
        (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "other than ASCII alphanumerics"),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "max allowed length 249"),
        (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'there' already exists."),
        (topic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "collides with existing topic: a.b"),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST, "internal topic __cluster_metadata is prohibited."),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS, "non-positive"),
        (topic("t", -2), ErrorCode.INVALID_PARTITIONS, "non-positive"),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "larger than 0"),
        (topic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR, "only 3 broker(s) are registered"),
        (topic("t", 1, 1, retention_ms="soon"), ErrorCode.INVALID_CONFIG, "retention.ms"),
        (topic("t", 1, 1, no_such="1"), ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such"),
        (topic("t", 1, 1, retention_ms=None), ErrorCode.INVALID_CONFIG, "Null value not supported"),
        (topic("t", 1, 1, segment_bytes="1000"), ErrorCode.INVALID_CONFIG, "at least 1048576"),
        (topic("t", 1, 1, remote_storage_enable="true"), ErrorCode.INVALID_CONFIG, "Tiered Storage functionality"),
    ],
)
def test_what_is_wrong_with_a_topic_is_its_own_error(bad_topic: Topic, code: ErrorCode, words: str) -> None:
    play = Play().start_brokers(1, 2, 3)
    play.create("there", [[1]])
    play.create("a.b", [[1]])
    good = topic("good")
    first, second = play.create_topics(bad_topic, good).topics
    assert (first.error_code, first.name) == (code, bad_topic.name)
    assert words in (first.error_message or "")
    assert (second.name, second.error_code) == ("good", 0)


def test_a_topic_named_twice_is_created_by_neither() -> None:
    play = Play().start_brokers(1)
    response = play.create_topics(topic("a", 1, 1), topic("a", 2, 1), topic("b", 1, 1))
    assert {result.name: result.error_code for result in response.topics} == {"a": ErrorCode.INVALID_REQUEST, "b": 0}


def test_manual_assignments_are_taken_as_they_are() -> None:
    play = Play().start_brokers(1, 2, 3)
    answer = play.create("orders", [[2, 3], [3, 1]])
    assert answer.error_code == 0
    assert play.partition("orders", 0).replicas == (2, 3)
    assert play.partition("orders", 1).leader == 3


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        ([[]], "empty replica list"),
        ([[1, 1]], "the broker 1 more than once"),
        ([[1, 9]], "no such broker is registered"),
        ([[1, 2], [1]], "not consistent with previous partitions"),
    ],
)
def test_bad_assignments_are_error_39(assignments: list[list[int]], words: str) -> None:
    play = Play().start_brokers(1, 2, 3)
    answer = play.create("orders", assignments)
    assert answer.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert words in (answer.error_message or "")


def test_assignments_with_holes_or_counts_are_refused() -> None:
    play = Play().start_brokers(1)
    hole = Topic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[Topic.Assignments(partition_index=1, broker_ids=[1])],
    )
    assert play.create_topic(hole).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    hole.num_partitions = 1
    assert play.create_topic(hole).error_code == ErrorCode.INVALID_REQUEST


def test_fenced_brokers_get_replicas_but_are_not_in_sync() -> None:
    play = Play().start_brokers(1, 2)
    play.register(3)
    assert play.create("by.hand", [[3, 1]]).error_code == 0
    assert play.partition("by.hand").isr == (1,)
    assert play.partition("by.hand").leader == 1
    assert play.create("lonely", [[3]]).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert play.create_topic(topic("placed", 4, 3)).error_code == 0
    assert {play.partition("placed", index).leader for index in range(4)} == {1, 2}


def test_without_live_brokers_nothing_is_created() -> None:
    play = Play()
    play.register(1)
    answer = play.create_topic(topic("orders", 1, 1))
    assert answer.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "All brokers are currently fenced" in (answer.error_message or "")


def test_replicas_of_a_partition_are_on_different_racks() -> None:
    play = Play()
    for broker in range(1, 7):
        play.register(broker, rack="abc"[broker % 3])
        play.heartbeat(broker)
    play.create_topic(topic("orders", 12, 3))
    for index in range(12):
        racks = {play.image.brokers[broker].rack for broker in play.partition("orders", index).replicas}
        assert racks == {"a", "b", "c"}
    leaders = [play.partition("orders", index).leader for index in range(12)]
    assert {broker: leaders.count(broker) for broker in range(1, 7)} == dict.fromkeys(range(1, 7), 2)


def delete(play: Play, version: int = 6, *names: str, ids: tuple[bytes, ...] = ()) -> dict[str | None, int]:
    request = m.DeleteTopicsRequest
    delete_request = request(
        topics=[request.Topics(name=name) for name in names]
        + [request.Topics(name=None, topic_id=topic_id) for topic_id in ids],
        topic_names=list(names),
    )
    response = play.do(partial(delete_topics, request=delete_request, config=play.config, version=version))
    return {result.name: result.error_code for result in response.responses}


def test_topics_are_deleted_by_name_and_by_id() -> None:
    play = Play().start_brokers(1)
    play.create("a", [[1]], retention_ms="1000")
    play.create("b", [[1]])
    b = play.image.topic_ids["b"]
    assert delete(play, 6, "a", "nope", ids=(b, uuid_of(99))) == {
        "a": 0, "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "b": 0, None: ErrorCode.UNKNOWN_TOPIC_ID,
    }  # fmt: skip
    assert not play.image.topics
    assert not play.image.topic_config("a")
    assert delete(play, 5, "a") == {"a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_one_topic_by_name_and_id_is_one_deletion() -> None:
    play = Play().start_brokers(1)
    play.create("a", [[1]])
    delete(play, 6, "a", ids=(play.image.topic_ids["a"],))
    assert len(play.last) == 1


def test_deletion_can_be_forbidden() -> None:
    play = Play(broker_config(delete_topic_enable="false")).start_brokers(1)
    play.create("a", [[1]])
    with pytest.raises(KafkaError) as refused:
        delete(play, 6, "a")
    assert refused.value.code == ErrorCode.TOPIC_DELETION_DISABLED
    with pytest.raises(KafkaError) as refused:
        delete(play, 2, "a")
    assert refused.value.code == ErrorCode.INVALID_REQUEST


def grow(play: Play, count: int, assignments: list[list[int]] | None = None, **fields: bool) -> tuple[int, str | None]:
    request = m.CreatePartitionsRequest
    given = None if assignments is None else [request.Topics.Assignments(broker_ids=ids) for ids in assignments]
    create_request = request(topics=[request.Topics(name="orders", count=count, assignments=given)], **fields)
    response = play.do(partial(create_partitions, request=create_request, choose=lambda stop: 0))
    return response.results[0].error_code, response.results[0].error_message


def test_a_topic_grows_with_its_own_replication_factor() -> None:
    play = Play().start_brokers(1, 2, 3)
    play.create("orders", [[1, 2]])
    assert grow(play, 4, validate_only=True) == (0, None)
    assert play.last == ()
    assert grow(play, 4) == (0, None)
    assert [len(play.partition("orders", index).replicas) for index in range(4)] == [2, 2, 2, 2]
    assert grow(play, 5, [[3, 1]]) == (0, None)
    assert play.partition("orders", 4).replicas == (3, 1)


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (4, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, 2, 3]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, 8]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_growth_that_is_none_is_refused(count: int, assignments: list[list[int]] | None, code: ErrorCode) -> None:
    play = Play().start_brokers(1, 2, 3)
    play.create("orders", [[1, 2], [2, 3]])
    assert grow(play, count, assignments)[0] == code


TOO_MANY_PARTITIONS: Final = "Excessively large number of partitions per request."
TOO_MANY_RECORDS: Final = "Unable to perform excessively large batch operation."


def placed(*counts: int, name: str = "t") -> list[Topic]:
    return [topic(f"{name}{index}", count, 1) for index, count in enumerate(counts)]


def assigned(count: int, broker: int = 1) -> list[Topic]:
    rows = [Topic.Assignments(partition_index=index, broker_ids=[broker]) for index in range(count)]
    return [Topic(name="t0", num_partitions=-1, replication_factor=-1, assignments=rows)]


# Each answered so by an Apache Kafka 4.3.1.
@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize(
    ("topics", "words"),
    [
        (placed(10_001), TOO_MANY_PARTITIONS),
        (placed(8_388_607), TOO_MANY_PARTITIONS),
        (placed(2_147_483_647), TOO_MANY_PARTITIONS),
        (placed(5_000, 5_001), TOO_MANY_PARTITIONS),
        (placed(-5, 10_001), TOO_MANY_PARTITIONS),
        ([*placed(10_001), *placed(1, name="a b")], TOO_MANY_PARTITIONS),
        (placed(10_001, name="a b"), TOO_MANY_PARTITIONS),
        (assigned(10_001), TOO_MANY_PARTITIONS),
        (placed(*[1] * 10_001), TOO_MANY_PARTITIONS),
        (placed(10_000), TOO_MANY_RECORDS),
        (placed(5_000, 5_000), TOO_MANY_RECORDS),
        (assigned(10_000), TOO_MANY_RECORDS),
        (placed(*[1] * 5_001), TOO_MANY_RECORDS),
        ([topic(f"t{index}", 1, 1, retention_ms="5", segment_bytes="1048576") for index in range(2501)],
         TOO_MANY_RECORDS),
    ],
)  # fmt: skip
def test_a_request_for_too_much_is_refused_as_kafka_does(topics: list[Topic], words: str, validate_only: bool) -> None:
    play = Play().start_brokers(1)
    with pytest.raises(KafkaError) as refused:
        play.create_topics(*topics, validate_only=validate_only)
    assert (refused.value.code, refused.value.message) == (ErrorCode.POLICY_VIOLATION, words)


def test_a_request_for_as_much_as_kafka_takes_is_carried_out() -> None:
    play = Play().start_brokers(1)
    assert play.create_topics(*placed(9_999), validate_only=True).topics[0].error_code == 0
    twice = [topic("c", 8_000, 1), topic("c", 8_000, 1)]
    answer = play.create_topics(*placed(5_000, 4_998), *twice, validate_only=True)
    assert [(result.name, result.error_code) for result in answer.topics] == [("t0", 0), ("t1", 0), ("c", 42)]


@pytest.mark.parametrize(
    ("topics", "code"),
    [(placed(10_000), 38), (assigned(10_000, broker=9), 39)],
    ids=["replicas", "broker"],
)
def test_what_is_wrong_with_one_topic_is_told_before_the_number_of_records(topics: list[Topic], code: int) -> None:
    play = Play().start_brokers(1)
    if not topics[0].assignments:
        topics[0].replication_factor = 5
    assert play.create_topics(*topics, validate_only=True).topics[0].error_code == code


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize(
    ("count", "assignments"),
    [(10_004, None), (2_147_483_647, None), (10_004, [[1]] * 10_001)],
)
def test_growth_of_more_than_a_batch_operation_is_refused(
    count: int, assignments: list[list[int]] | None, validate_only: bool
) -> None:
    play = Play().start_brokers(1)
    play.create("orders", [[1], [1], [1]])
    refused = (ErrorCode.POLICY_VIOLATION, TOO_MANY_RECORDS)
    assert grow(play, count, assignments, validate_only=validate_only) == refused
    assert grow(play, 10_003, validate_only=True) == (0, None)


def test_the_topics_that_fit_a_batch_operation_grow() -> None:
    play = Play().start_brokers(1)
    for name in ("a", "b"):
        play.create(name, [[1]])
    grown = m.CreatePartitionsRequest.Topics
    request = m.CreatePartitionsRequest(topics=[grown(name=name, count=6_001, assignments=None) for name in ("a", "b")])
    response = play.do(partial(create_partitions, request=request, choose=lambda stop: 0))
    assert [result.error_code for result in response.results] == [0, ErrorCode.POLICY_VIOLATION]
    assert len(play.last) == 6_000


def test_deleting_many_names_takes_time_by_their_number() -> None:
    play = Play().start_brokers(1)
    names = [f"t{index}" for index in range(30_000)]
    began_s = time.process_time()
    assert set(delete(play, 5, *names, *names).values()) == {ErrorCode.INVALID_REQUEST}
    # 30,000 x 60,000 comparisons are a minute at least.
    assert time.process_time() - began_s < 5
