"""Settings against what a real Kafka 4.3.1 lists, and how values of several places combine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from backend.engine.config import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    WITHOUT_EFFECT,
    BrokerConfig,
    ConfigError,
    UpdateMode,
    format_properties,
    parse_properties,
    resolve_broker,
    resolve_topic,
    set_without_effect,
    topic_values,
)
from backend.engine.config.address_limits import check_address_limits
from backend.engine.config.listener_security import STORE_SETTINGS
from backend.engine.config.listeners import check, controller_addresses, inter_broker_listener_name, listeners
from backend.engine.config.without_effect import NOT_SERVED_DYNAMIC, NOT_SERVED_READ_ONLY
from backend.protocol.config_enums import ConfigSource

FIXTURE = Path(__file__).parents[3] / "fixtures" / "apache-kafka-4.3.1" / "configs.json"
# Ours, or hidden in Kafka.
NOT_LISTED_BY_KAFKA = {
    "ebbline.cluster.id",
    "ebbline.quorum.acknowledged.dir",
    "ebbline.leader.start.wait.ms",
    "ebbline.quorum.start.wait.ms",
    "ebbline.delete.vanished.topics",
    "ebbline.events.topic.replication.factor",
    "ebbline.remove.set.aside",
    "ebbline.metrics.listener",
    "follower.fetch.tiered.compat",
    "remote.log.index.file.cache.ttl.ms",
    "remote.log.manager.task.retry.backoff.max.ms",
    "remote.log.manager.task.retry.backoff.ms",
    "remote.log.manager.task.retry.jitter",
    "remote.log.metadata.overlap",
    "remote.partition.remover.task.interval.ms",
    "unclean.recovery.timeout.ms",
}

# Kafka changes these while it runs; here a listener is what it was at its start, except for its stores.
FIXED_HERE = {
    name
    for name in BROKER_SETTINGS.keys() - STORE_SETTINGS
    if name.startswith("ssl.") or name in ("sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol")
}


def kafka(kind: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(FIXTURE.read_text())[kind]}


def test_broker_settings_have_kafkas_types_defaults_and_scopes() -> None:
    theirs = kafka("all_broker")
    assert BROKER_SETTINGS.keys() - theirs.keys() == NOT_LISTED_BY_KAFKA
    for name, setting in BROKER_SETTINGS.items():
        if name in NOT_LISTED_BY_KAFKA:
            continue
        row = theirs[name]
        ours = (
            setting.type.name,
            setting.text(setting.default),
            setting.scope is UpdateMode.READ_ONLY,
            setting.sensitive,
        )
        read_only = True if name in FIXED_HERE else row["read_only"]
        assert ours == (row["type"], row["default"], read_only, row["sensitive"]), name


def test_every_setting_of_kafkas_brokers_is_served_or_said_not_to_be() -> None:
    theirs = {name: row for name, row in kafka("all_broker").items() if not name.startswith(("rsm.", "rlmm."))}
    assert theirs.keys() - BROKER_SETTINGS.keys() == NOT_SERVED_READ_ONLY | NOT_SERVED_DYNAMIC
    assert all(theirs[name]["read_only"] for name in NOT_SERVED_READ_ONLY)
    assert not any(theirs[name]["read_only"] for name in NOT_SERVED_DYNAMIC)


@pytest.mark.parametrize(
    ("limit", "overrides", "refusal"),
    [
        (0, "", "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."),
        (1, "127.0.0.9:x", 'For input string: "x"'),
        (1, "junk", "Error parsing configuration property 'max.connections.per.ip.overrides'"),
        (1, "bad_host!:3", "max.connections.per.ip.overrides contains invalid addresses : bad_host!"),
    ],
)
def test_limits_of_addresses_are_checked_as_by_kafka(limit: int, overrides: str, refusal: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(refusal)):
        check_address_limits(limit, overrides)
    check_address_limits(0, "127.0.0.9:-1, no.such.host.invalid:3")


def test_topic_settings_are_kafkas() -> None:
    theirs = kafka("all_topic")
    assert TOPIC_SETTINGS.keys() == theirs.keys()
    for name, setting in TOPIC_SETTINGS.items():
        row = theirs[name]
        assert setting.type.name == row["type"], name
        if row["default"] is not None:
            assert setting.text(setting.default) == row["default"], name


def test_every_synonym_of_a_topic_setting_is_a_broker_setting() -> None:
    for setting in TOPIC_SETTINGS.values():
        for name, _ in setting.synonyms:
            assert name in BROKER_SETTINGS


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("replica.lag.time.max.ms", "500", 500),
        ("auto.create.topics.enable", "False", False),
        ("log.dirs", "/a, /b,", ("/a", "/b")),
        ("log.cleaner.min.cleanable.ratio", "0.25", 0.25),
        ("broker.rack", "r 1", "r 1"),
        ("log.retention.ms", "-1", -1),
    ],
)
def test_values_are_read_by_type(name: str, text: str, value: object) -> None:
    assert BROKER_SETTINGS[name].parse(text) == value
    assert getattr(BrokerConfig.parse({name: text}), name.replace(".", "_")) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("replica.lag.time.max.ms", "soon", "Not a number of type LONG"),
        ("num.partitions", "0", "Value must be at least 1"),
        ("num.partitions", "99999999999", "Not a number of type INT"),
        ("auto.create.topics.enable", "maybe", "Expected value to be either true or false"),
        ("log.cleanup.policy", "delete,shrink", "String must be one of: compact, delete"),
        ("log.segment.bytes", "1000", "Value must be at least 1048576"),
        ("compression.lz4.level", "18", "Value must be no more than 17"),
    ],
)
def test_a_bad_value_names_setting_and_reason(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        BrokerConfig.parse({name: text})
    assert str(raised.value) == f"Invalid value {text} for configuration {name}: {message}"


def test_the_flag_of_kip_1023_resolves_per_broker_over_cluster_over_file_over_default() -> None:
    setting = BROKER_SETTINGS["follower.fetch.last.tiered.offset.enable"]
    name = setting.name
    broker = resolve_broker(setting, broker={name: "false"}, cluster={name: "true"}, static={name: "true"})
    assert (broker.value, broker.source) == ("false", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [place.source for place in broker.synonyms] == [
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
        ConfigSource.STATIC_BROKER_CONFIG,
        ConfigSource.DEFAULT_CONFIG,
    ]
    assert resolve_broker(setting, broker={}, cluster={name: "true"}, static={}).value == "true"
    untouched = resolve_broker(setting, broker={}, cluster={}, static={})
    assert (untouched.value, untouched.source) == ("false", ConfigSource.DEFAULT_CONFIG)


def test_a_topic_takes_its_brokers_default_in_its_own_unit() -> None:
    def retention(topic: dict[str, str], static: dict[str, str]) -> tuple[str | None, ConfigSource]:
        resolved_setting = resolve_topic(
            TOPIC_SETTINGS["retention.ms"],
            topic=topic, broker={}, cluster={}, static=static, broker_settings=BROKER_SETTINGS,
        )  # fmt: skip
        return resolved_setting.value, resolved_setting.source

    assert retention({}, {}) == ("604800000", ConfigSource.DEFAULT_CONFIG)
    # Kafka looks for a source under the main name, log.retention.ms, and finds none (ConfigHelper.configSynonyms).
    assert retention({}, {"log.retention.hours": "2"}) == ("7200000", ConfigSource.DEFAULT_CONFIG)
    assert retention({}, {"log.retention.hours": "2", "log.retention.minutes": "3"})[0] == "180000"
    assert retention({}, {"log.retention.hours": "-1"})[0] == "-1"
    assert retention({"retention.ms": "5"}, {"log.retention.hours": "2"}) == ("5", ConfigSource.DYNAMIC_TOPIC_CONFIG)


def test_a_topics_synonyms_go_on_from_the_main_one_as_they_were_written() -> None:
    topic = resolve_topic(
        TOPIC_SETTINGS["retention.ms"],
        topic={"retention.ms": "5"}, broker={}, cluster={"log.retention.ms": "100000"}, static={},
        broker_settings=BROKER_SETTINGS,
    )  # fmt: skip
    assert [(synonym.name, synonym.value, synonym.source) for synonym in topic.synonyms] == [
        ("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.retention.ms", "100000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    ]


def test_topic_rows_match_what_kafka_shows_for_a_tiered_topic() -> None:
    rows = {row["name"]: row for row in json.loads(FIXTURE.read_text())["topic_tiered"]}
    for name in ("local.retention.bytes", "local.retention.ms", "remote.log.copy.disable", "remote.storage.enable"):
        row = rows[name]
        own = {name: row["value"]} if row["source"] == "DYNAMIC_TOPIC_CONFIG" else {}
        topic = resolve_topic(
            TOPIC_SETTINGS[name], topic=own, broker={}, cluster={}, static={}, broker_settings=BROKER_SETTINGS
        )
        shown = [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source.name} for synonym in topic.synonyms
        ]
        assert (topic.value, topic.source.name, shown) == (row["value"], row["source"], row["synonyms"]), name


def test_a_topics_value_alone_is_the_one_that_is_found_with_its_synonyms() -> None:
    values = []
    nothing: dict[str, str] = {}
    for setting in TOPIC_SETTINGS.values():
        for given in (nothing, *({name: "7"} for name, _ in setting.synonyms)):
            for places in ((given, nothing, nothing), (nothing, given, nothing), (nothing, nothing, given)):
                where = dict(zip(("broker", "cluster", "static"), places, strict=True))
                for topic in (nothing, {setting.name: "9"}):
                    resolved = resolve_topic(setting, topic=topic, broker_settings=BROKER_SETTINGS, **where)
                    assert topic_values(topic, **where)[setting.name] == resolved.value, (setting.name, where)
                    values.append(resolved.value)
    assert {"7", "9"} < set(values)


def test_topic_values_cover_every_setting() -> None:
    values = topic_values({"segment.bytes": "2097152"}, broker={}, cluster={}, static={})
    assert values.keys() == TOPIC_SETTINGS.keys()
    assert values["segment.bytes"] == "2097152"
    assert values["cleanup.policy"] == "delete"


def test_dynamic_values_lie_over_static_ones_and_read_only_ones_do_not() -> None:
    config = BrokerConfig.parse({"remote.fetch.max.wait.ms": "100"})
    changed = config.overlay(
        {
            "remote.fetch.max.wait.ms": "7",
            "replica.lag.time.max.ms": "1",
            "no.such.setting": "1",
            "message.max.bytes": "x",
        }
    )
    assert changed.remote_fetch_max_wait_ms == 7
    assert changed.replica_lag_time_max_ms == 30_000
    assert changed.message_max_bytes == 1_048_588
    assert config.overlay({}) is config


def test_prefixed_settings_reach_the_plugins_without_their_prefix() -> None:
    config = BrokerConfig.parse({"rsm.config.dir": "/tier", "rlmm.config.remote.log.metadata.topic.min.isr": "1"})
    assert config.prefixed("rsm.config.") == {"dir": "/tier"}
    assert config.prefixed("rlmm.config.") == {"remote.log.metadata.topic.min.isr": "1"}


GOOD = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19192",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:19192",
    "log.dirs": "/data",
}


def test_a_combined_node_knows_its_listeners_and_controller() -> None:
    config = BrokerConfig.parse(GOOD)
    check(config)
    assert [(listener.name, listener.port) for listener in listeners(config)] == [
        ("PLAINTEXT", 19092),
        ("CONTROLLER", 19192),
    ]
    assert inter_broker_listener_name(config) == "PLAINTEXT"
    assert controller_addresses(config) == (("127.0.0.1", 19192),)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"node.id": None}, "node.id is not set"),
        ({"process.roles": None}, "process.roles is not set"),
        ({"controller.quorum.voters": None}, "No controller is named"),
        ({"controller.listener.names": None}, "A node with the controller role needs a listener"),
        ({"listeners": "PLAINTEXT://127.0.0.1"}, "is not of the form NAME://host:port"),
        ({"listeners": "CONTROLLER://127.0.0.1:1"}, "A node with the broker role needs a listener"),
        ({"listeners": "A://127.0.0.1:1,A://127.0.0.1:2,CONTROLLER://127.0.0.1:3"}, "names a listener twice"),
        ({"inter.broker.listener.name": "INTERNAL"}, "which is none of the listeners PLAINTEXT"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:1"}, "open to the network"),
        ({"listeners": "PLAINTEXT://127.evil.example:9092,CONTROLLER://127.0.0.1:1"}, "open to the network"),
        ({"listeners": "PLAINTEXT://127.0.0.1.evil.example:9092,CONTROLLER://127.0.0.1:1"}, "open to the network"),
        ({"listeners": "SSL://0.0.0.0:9092,CONTROLLER://127.0.0.1:1"}, "open to the network"),
        ({"listeners": "SASL_PLAINTEXT://10.0.0.1:9092,CONTROLLER://127.0.0.1:1"}, "open to the network"),
        ({"listeners": "SASL_SSL://:9092,CONTROLLER://127.0.0.1:1"}, "name its address in advertised.listeners"),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "gives PLAINTEXT the protocol 'TLS'"),
        ({"ebbline.metrics.listener": "9090"}, "is not of the form host:port"),
        ({"ebbline.metrics.listener": "0.0.0.0:9090"}, "open to the network"),
        ({"broker.session.timeout.ms": "3000"}, "at least twice"),
    ],
)
def test_settings_that_cannot_start_a_node_say_why(change: dict[str, str | None], words: str) -> None:
    values = {name: text for name, text in {**GOOD, **change}.items() if text is not None}
    with pytest.raises(ConfigError, match=words):
        check(BrokerConfig.parse(values))


def test_properties_files_are_read_as_java_reads_them() -> None:
    text = "# note\n! note\nnode.id = 1\nlog.dirs: /a,\\\n  /b\n\nrack=\nlisteners=PLAINTEXT://127.0.0.1:9092\n"
    assert parse_properties(text) == {
        "node.id": "1",
        "log.dirs": "/a,/b",
        "rack": "",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
    }
    assert parse_properties(format_properties(GOOD)) == GOOD


def test_values_with_line_ends_and_backslashes_survive_a_file() -> None:
    values = {"key": "-----BEGIN X-----\nabc\n-----END X-----\n", "jaas": 'a="b\\"c\\\\";', "path": "C:\\new\\"}
    assert parse_properties(format_properties(values)) == {**values, "key": values["key"]}
    assert parse_properties("a=one\\ntwo\\tthree\nb=x\\\\\nc=d\\\\\\\n  e") == {
        "a": "one\ntwo\tthree",
        "b": "x\\",
        "c": "d\\e",
    }


def test_settings_without_effect_are_named_once_they_differ_from_the_default() -> None:
    properties = {
        "num.replica.fetchers": "4",
        "queued.max.requests": "500",
        "num.recovery.threads.per.data.dir": "5",
        "num.network.threads": "3",
        "socket.send.buffer.bytes": "102400",
        "log.retention.ms": "5",
    }
    assert set_without_effect(BrokerConfig.parse(properties)) == [
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "socket.send.buffer.bytes",
    ]
    assert set_without_effect(BrokerConfig.parse({})) == []


def test_the_settings_said_to_have_no_effect_are_those_that_nothing_reads() -> None:
    folder = Path(__file__).parents[4] / "backend"
    declared = folder / "engine" / "config" / "broker_config.py"
    source = declared.read_text().split("def parse", 1)[1]
    source += "".join(path.read_text() for path in folder.rglob("*.py") if path != declared)
    read = set(re.findall(r"\w+", source))
    # A listener's settings are read by name, with a prefix or without.
    by_name = re.findall(r'"([a-z.]+)"', (declared.parent / "listener_security.py").read_text())
    read |= {name.replace(".", "_") for name in by_name}
    defaults_of_topics = {name for setting in TOPIC_SETTINGS.values() for name, _ in setting.synonyms}
    unread = {name for name in BROKER_SETTINGS.keys() - defaults_of_topics if name.replace(".", "_") not in read}
    # Kafka's brokers need it as soon as they tier, so everybody sets it; here the brokers' own listener serves.
    assert unread - {"remote.log.metadata.manager.listener.name"} == WITHOUT_EFFECT
