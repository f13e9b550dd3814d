"""Dynamic settings of topics and brokers."""

from functools import partial

import pytest

from backend.engine.controller.commands.config.configuration_control import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    alter_configs,
    incremental_alter_configs,
)
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from tests.unit.engine.controller.clusters import Play, broker_config

Resource = m.IncrementalAlterConfigsRequest.Resources
TOPIC = 2
BROKER = 4
CLIENT_METRICS = 16
GROUP = 32
FLAG = "follower.fetch.last.tiered.offset.enable"


def tiered_play() -> Play:
    play = Play(broker_config(remote_log_storage_system_enable="true")).start_brokers(1, 2)
    play.create("orders", [[1, 2]], remote_storage_enable="true")
    return play


def alter(
    play: Play, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> tuple[int, str]:
    configs = [Resource.Configs(name=key, config_operation=how, value=value) for key, how, value in changes]
    request = m.IncrementalAlterConfigsRequest(
        resources=[Resource(resource_type=kind, resource_name=name, configs=configs)], validate_only=validate_only
    )
    response = play.do(partial(incremental_alter_configs, request=request, config=play.config))
    return response.responses[0].error_code, response.responses[0].error_message or ""


def test_set_and_delete_a_topics_setting() -> None:
    play = tiered_play()
    assert alter(play, TOPIC, "orders", ("retention.ms", SET, "5000")) == (0, "")
    assert play.image.topic_config("orders")["retention.ms"] == "5000"
    assert alter(play, TOPIC, "orders", ("retention.ms", SET, "5000")) == (0, "")
    assert play.last == ()
    assert alter(play, TOPIC, "orders", ("retention.ms", DELETE, None)) == (0, "")
    assert "retention.ms" not in play.image.topic_config("orders")


def test_a_brokers_setting_is_written_again_even_when_it_stays() -> None:
    play = tiered_play()
    for _ in range(2):
        assert alter(play, BROKER, "", (FLAG, SET, "true")) == (0, "")
        assert len(play.last) == 1
    assert play.image.broker_config(2)[FLAG] == "true"
    assert alter(play, BROKER, "2", (FLAG, SET, "false")) == (0, "")
    assert play.image.broker_config(2)[FLAG] == "false"
    assert play.image.broker_config(1)[FLAG] == "true"


def test_lists_are_appended_to_and_subtracted_from() -> None:
    play = Play().start_brokers(1)
    play.create("orders", [[1]])
    assert alter(play, TOPIC, "orders", ("cleanup.policy", APPEND, "compact")) == (0, "")
    assert play.image.topic_config("orders")["cleanup.policy"] == "delete,compact"
    assert alter(play, TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete")) == (0, "")
    assert play.image.topic_config("orders")["cleanup.policy"] == "compact"
    code, message = alter(play, TOPIC, "orders", ("retention.ms", APPEND, "5"))
    assert (code, message) == (
        ErrorCode.INVALID_CONFIG, "Can't APPEND to key retention.ms because its type is not LIST.",
    )  # fmt: skip


SESSION, HEARTBEAT, ASSIGNMENT = (
    "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "consumer.assignment.interval.ms",
)  # fmt: skip
NO_INT = "Not a number of type INT"
OF_LISTENER = "listener.name.external.ssl.protocol"
BETWEEN = "interval must be between 100 and 3600000 (1 hour)"


@pytest.mark.parametrize(
    ("name", "value", "refusal"),
    [
        (SESSION, "44999", f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms"),
        (SESSION, "60001", f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms"),
        (SESSION, "abc", f"Invalid value abc for configuration {SESSION}: {NO_INT}"),
        (SESSION, "0", f"Invalid value 0 for configuration {SESSION}: Value must be at least 1"),
        (SESSION, "4294967296", f"Invalid value 4294967296 for configuration {SESSION}: {NO_INT}"),
        (HEARTBEAT, "4999", f"{HEARTBEAT} must be greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        (HEARTBEAT, "15001", f"{HEARTBEAT} must be less than or equal to group.consumer.max.heartbeat.interval.ms"),
        (ASSIGNMENT, "15001", f"{ASSIGNMENT} must be less than or equal to group.consumer.max.assignment.interval.ms"),
        ("nope", "1", "Unknown group config name: nope"),
    ],
)
def test_a_groups_settings_are_refused_in_kafkas_words(name: str, value: str, refusal: str) -> None:
    assert alter(Play().start_brokers(1), GROUP, "g", (name, SET, value)) == (ErrorCode.INVALID_CONFIG, refusal)


def test_a_group_has_settings_before_it_exists_and_loses_them_one_by_one() -> None:
    play = Play().start_brokers(1)
    assert alter(play, GROUP, "g", (SESSION, SET, "50000"), (HEARTBEAT, SET, "15000")) == (0, "")
    assert dict(play.image.config(GROUP, "g")) == {SESSION: "50000", HEARTBEAT: "15000"}
    assert alter(play, GROUP, "g", (SESSION, DELETE, None), ("nope", DELETE, None)) == (0, "")
    assert alter(play, GROUP, "g", (HEARTBEAT, DELETE, None)) == (0, "")
    assert (GROUP, "g") not in play.image.configs
    refusal = f"Can't APPEND to key {SESSION} because its type is not LIST."
    assert alter(play, GROUP, "g", (SESSION, APPEND, "1")) == (ErrorCode.INVALID_CONFIG, refusal)
    empty = (ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    assert alter(play, GROUP, "", (SESSION, SET, "50000")) == empty


def test_a_groups_session_is_longer_than_its_heartbeat() -> None:
    settings = {"group_consumer_min_session_timeout_ms": "1", "group_consumer_max_heartbeat_interval_ms": "60000"}
    play = Play(broker_config(**settings)).start_brokers(1)
    refusal = f"{SESSION} must be greater than {HEARTBEAT}"
    assert alter(play, GROUP, "g", (SESSION, SET, "5000")) == (ErrorCode.INVALID_CONFIG, refusal)


@pytest.mark.parametrize(
    ("name", "value", "code", "refusal"),
    [
        (
            "interval.ms",
            "99",
            42,
            "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        ("interval.ms", "x", 40, f"Invalid value x for configuration interval.ms: {NO_INT}"),
        ("interval.ms", "100", 0, ""),
        ("nope", "x", 42, "Unknown client metrics configuration: nope"),
        ("match", "foo=bar", 40, "Illegal client matching pattern: foo=bar"),
        ("match", "client_id", 40, "Illegal client matching pattern: client_id"),
        ("match", "client_id=((", 40, "Illegal client matching pattern: client_id=(("),
        ("match", "client_id=a=b", 40, "Illegal client matching pattern: client_id=a=b"),
        ("match", "client_id=a.*,client_software_name=java", 0, ""),
        ("match", "", 0, ""),
        ("metrics", "*,a", 0, ""),
        ("metrics", "", 0, ""),
        ("metrics", "a,,b", 40, "Configuration 'metrics' values must not be empty."),
    ],
)
def test_subscriptions_to_clients_metrics_as_kafka_takes_them(name: str, value: str, code: int, refusal: str) -> None:
    assert alter(Play().start_brokers(1), CLIENT_METRICS, "m", (name, SET, value)) == (code, refusal)


def test_a_subscription_needs_a_name_and_its_lists_are_set_whole() -> None:
    play = Play().start_brokers(1)
    empty = (ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    assert alter(play, CLIENT_METRICS, "", ("metrics", SET, "a")) == empty
    refusal = "Can't APPEND to key metrics because its type is not LIST."
    assert alter(play, CLIENT_METRICS, "m", ("metrics", APPEND, "a")) == (ErrorCode.INVALID_CONFIG, refusal)


def test_the_default_assignment_interval_stays_within_the_brokers_bounds() -> None:
    name = "group.consumer.assignment.interval.ms"
    refusal = f"{name} must be less than or equal to group.consumer.max.assignment.interval.ms"
    assert alter(Play().start_brokers(1), BROKER, "", (name, SET, "20000")) == (ErrorCode.INVALID_REQUEST, refusal)


def test_validate_only_writes_nothing() -> None:
    play = tiered_play()
    assert alter(play, TOPIC, "orders", ("retention.ms", SET, "5000"), validate_only=True) == (0, "")
    assert play.last == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([("no.such", SET, "1")], "Unknown topic config name"),
        ([("retention.ms", SET, "x")], "retention.ms"),
        ([("retention.ms", SET, "1000"), ("local.retention.ms", SET, "-1")], "must not be -1"),
        ([("retention.ms", SET, "1000"), ("local.retention.ms", SET, "1001")], "must not be more than"),
        ([("retention.bytes", SET, "1000"), ("local.retention.bytes", SET, "1001")], "must not be more than"),
        ([("retention.bytes", SET, "1000"), ("local.retention.bytes", SET, "-1")], "must not be -1"),
        ([("cleanup.policy", SET, "compact")], "unsupported for the compacted topics"),
        ([("cleanup.policy", SET, "compact,delete")], "unsupported for the compacted topics"),
        ([("remote.log.copy.disable", SET, "true"), ("local.retention.ms", SET, "1")], "identical value"),
        ([("remote.log.copy.disable", SET, "true"), ("local.retention.bytes", SET, "1")], "identical value"),
        ([("remote.storage.enable", SET, "false")], "without deleting remote data"),
        ([("remote.storage.enable", DELETE, None)], "without deleting remote data"),
        ([("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")], "conflict topic config"),
    ],
)
def test_topic_settings_that_cannot_stand_are_error_40(changes: list[tuple[str, int, str | None]], words: str) -> None:
    play = tiered_play()
    before = play.image
    code, message = alter(play, TOPIC, "orders", *changes)
    assert code == ErrorCode.INVALID_CONFIG
    assert words in message
    assert play.image is before


@pytest.mark.parametrize(
    "changes",
    [
        [("local.retention.ms", SET, "1000")],
        [("retention.ms", SET, "-1"), ("local.retention.ms", SET, "-1")],
        [("retention.bytes", SET, "1000"), ("local.retention.bytes", SET, "1000")],
        [("cleanup.policy", SET, "")],
        [("remote.log.copy.disable", SET, "true")],
        [("remote.log.copy.disable", SET, "true"), ("retention.ms", SET, "5"), ("local.retention.ms", SET, "5")],
        [("remote.storage.enable", SET, "false"), ("remote.log.delete.on.disable", SET, "true")],
    ],
)
def test_tiered_settings_that_agree_are_taken(changes: list[tuple[str, int, str | None]]) -> None:
    assert alter(tiered_play(), TOPIC, "orders", *changes) == (0, "")


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_cannot_be_tiered_later_either(policy: str) -> None:
    play = tiered_play()
    play.create("compacted", [[1]], cleanup_policy=policy)
    code, message = alter(play, TOPIC, "compacted", ("remote.storage.enable", SET, "true"))
    assert (code, "unsupported for the compacted topics" in message) == (ErrorCode.INVALID_CONFIG, True)
    both = (("remote.storage.enable", SET, "true"), ("cleanup.policy", SET, "delete"))
    assert alter(play, TOPIC, "compacted", *both) == (0, "")


@pytest.mark.parametrize(
    ("name", "change", "code", "words"),
    [
        ("", ("log.dirs", SET, "/x"), ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically"),
        ("", ("socket.send.buffer.bytes", SET, "7"), ErrorCode.INVALID_REQUEST, "Cannot update these configs dyn"),
        ("", ("max.connection.creation.rate", SET, "7"), ErrorCode.INVALID_REQUEST, "not supported: [max.connection"),
        ("1", ("max.connections", SET, "0"), ErrorCode.INVALID_REQUEST, "Invalid max.connections 0"),
        ("1", ("max.connections.per.ip", SET, "0"), ErrorCode.INVALID_REQUEST, "can be set to zero only if"),
        ("1", ("max.connections.per.ip.overrides", SET, "a!:3"), ErrorCode.INVALID_REQUEST, "invalid addresses : a!"),
        ("", ("max.connections.per.ip.overrides", SET, "a:b"), ErrorCode.INVALID_REQUEST, 'For input string: "b"'),
        ("", ("num.io.threads", SET, "17"), ErrorCode.INVALID_REQUEST, "value should not be"),
        ("1", (OF_LISTENER, SET, "/x"), ErrorCode.INVALID_REQUEST, f"these configs dynamically: [{OF_LISTENER}]"),
        ("1", (FLAG, SET, "maybe"), ErrorCode.INVALID_REQUEST, "either true or false"),
        ("", ("listeners", SET, "A://:1"), ErrorCode.INVALID_REQUEST, "default cluster level"),
        ("", ("remote.log.reader.threads", SET, "21"), ErrorCode.INVALID_REQUEST, "double the current value 10"),
        ("", ("remote.log.reader.threads", SET, "4"), ErrorCode.INVALID_REQUEST, "half the current value 10"),
        ("", ("log.cleaner.threads", SET, "3"), ErrorCode.INVALID_REQUEST, "more than double the current value 1"),
        ("7", (FLAG, SET, "true"), ErrorCode.BROKER_ID_NOT_REGISTERED, "No broker with id 7"),
        ("me", (FLAG, SET, "true"), ErrorCode.INVALID_REQUEST, "base 10"),
    ],
)
def test_broker_settings_that_cannot_be_changed_so(
    name: str, change: tuple[str, int, str | None], code: ErrorCode, words: str
) -> None:
    error_code, message = alter(tiered_play(), BROKER, name, change)
    assert error_code == code
    assert words in message


@pytest.mark.parametrize("name", ["", "1"], ids=["cluster default", "one broker"])
def test_the_defaults_of_local_and_total_retention_must_agree(name: str) -> None:
    def change(*settings: tuple[str, str]) -> tuple[int, str]:
        return alter(tiered_play(), BROKER, name, *((f"log.{key}", SET, value) for key, value in settings))

    total = ("retention.bytes", "1000")
    assert change(total, ("local.retention.bytes", "1000")) == (0, "")
    assert change(("local.retention.bytes", "5")) == (0, "")  # no limit of the whole
    code, message = change(total, ("local.retention.bytes", "1001"))
    assert (code, "must not be more than log.retention.bytes" in message) == (ErrorCode.INVALID_REQUEST, True)
    code, message = change(total, ("local.retention.bytes", "-1"))
    assert (code, "must not be -1 as log.retention.bytes" in message) == (ErrorCode.INVALID_REQUEST, True)
    assert change(("local.retention.ms", "604800001"))[0] == ErrorCode.INVALID_REQUEST  # a week and 1 ms
    assert change(("retention.ms", "-1"), ("local.retention.ms", "604800001")) == (0, "")


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_resources_that_do_not_exist(kind: int, name: str, code: ErrorCode) -> None:
    assert alter(tiered_play(), kind, name, ("retention.ms", SET, "1"))[0] == code


def test_malformed_changes_are_error_42() -> None:
    play = tiered_play()
    twice = alter(play, TOPIC, "orders", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert twice == (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys: retention.ms")
    assert alter(play, TOPIC, "orders", ("retention.ms", SET, None))[0] == ErrorCode.INVALID_REQUEST
    assert alter(play, TOPIC, "orders", ("retention.ms", 9, "1"))[0] == ErrorCode.INVALID_REQUEST


def test_the_older_request_deletes_what_it_does_not_name() -> None:
    play = tiered_play()
    alter(play, TOPIC, "orders", ("retention.ms", SET, "5000"))
    whole = m.AlterConfigsRequest.Resources
    request = m.AlterConfigsRequest(
        resources=[
            whole(
                resource_type=TOPIC,
                resource_name="orders",
                configs=[
                    whole.Configs(name="remote.storage.enable", value="true"),
                    whole.Configs(name="segment.bytes", value="2097152"),
                ],
            )
        ]
    )
    response = play.do(partial(alter_configs, request=request, config=play.config))
    assert response.responses[0].error_code == 0
    assert dict(play.image.topic_config("orders")) == {"remote.storage.enable": "true", "segment.bytes": "2097152"}


@pytest.mark.parametrize(
    ("kind", "resource", "name", "good", "bad"),
    [
        (2, "orders", "leader.replication.throttled.replicas", "0:1,1:2", "0:x"),
        (2, "orders", "follower.replication.throttled.replicas", "*", "1"),
        (4, "1", "leader.replication.throttled.rate", "1000", "fast"),
        (4, "1", "follower.replication.throttled.rate", "0", "-1"),
    ],
)
def test_throttles_are_numbers_and_lists_of_replicas(kind: int, resource: str, name: str, good: str, bad: str) -> None:
    play = tiered_play()
    refused = ErrorCode.INVALID_CONFIG if kind == TOPIC else ErrorCode.INVALID_REQUEST
    assert alter(play, kind, resource, (name, SET, good)) == (0, "")
    code, message = alter(play, kind, resource, (name, SET, bad))
    assert code == refused
    assert message.startswith(f"Invalid value {bad} for configuration {name}: ")
    assert play.image.config(kind, resource)[name] == good
