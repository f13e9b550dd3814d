"""The form of a topic's tiering settings: what differs, and what Kafka would refuse."""

from __future__ import annotations

import pytest

from app.components.config import topic_form
from backend.store.queries.config import TopicRow

NOW = {
    "remote.storage.enable": "true",
    "remote.log.copy.disable": "false",
    "cleanup.policy": "delete",
    "local.retention.ms": "3600000",
    "retention.ms": "604800000",
    "local.retention.bytes": "-2",
    "retention.bytes": "-1",
}


def topic(**settings: str) -> TopicRow:
    config = NOW | {name.replace("_", "."): value for name, value in settings.items()}
    tiered = config["remote.storage.enable"] == "true"
    return TopicRow("orders", "id", 3, 3, False, tiered, dict(config), 0)


def test_only_what_differs_is_asked_for_and_spaces_between_digits_are_none() -> None:
    expected = {**NOW, "local.retention.ms": " 7 200\u202f000 "}
    expected.pop("cleanup.policy")
    assert topic_form.changed(topic(), expected) == {"local.retention.ms": "7200000"}
    assert topic_form.problem(topic(), {}) == "Nothing differs from what is in effect."


def test_tiering_goes_off_together_with_its_data() -> None:
    requested = topic_form.changed(topic(), {"remote.storage.enable": "false"})
    assert requested == {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
    assert topic_form.problem(topic(), requested) is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"retention.ms": "a week"}, "retention.ms is a whole number: -1 (no limit) or more."),
        ({"retention.ms": "-2"}, "retention.ms is a whole number: -1 (no limit) or more."),
        ({"local.retention.ms": "-3"}, "local.retention.ms is a whole number: -2 (as the total), -1 (no limit) or"),
        ({"retention.bytes": str(2**63)}, "retention.bytes is a whole number"),
        ({"retention.ms": "²"}, "retention.ms is a whole number"),
        ({"local.retention.ms": "604800001"}, "Kafka would refuse it: local retention by time is above the total."),
        ({"local.retention.ms": "-1"}, "Kafka would refuse it: local retention by time is above the total."),
        ({"remote.log.copy.disable": "true"}, "copying is paused, so local retention by time must be the total or −2"),
    ],
)
def test_what_kafka_would_refuse_is_said_while_typing(settings: dict[str, str], said: str) -> None:
    assert said in str(topic_form.problem(topic(), settings))


def test_a_compacted_topic_is_not_tiered() -> None:
    compacted = topic(remote_storage_enable="false", cleanup_policy="compact")
    refused = topic_form.problem(compacted, {"remote.storage.enable": "true"})
    assert refused == "Kafka would refuse it: compacted topics cannot be tiered."


def test_copying_pauses_when_local_retention_follows_the_total() -> None:
    assert topic_form.problem(topic(), {"remote.log.copy.disable": "true", "local.retention.ms": "-2"}) is None


def test_a_number_is_told_in_words() -> None:
    requested = {"retention.ms": "604800000", "local.retention.bytes": "-2", "retention.bytes": "5000000"}
    assert topic_form.lines(requested) == [
        "retention.ms = 604800000 (7 d)",
        "local.retention.bytes = -2 (as the total)",
        "retention.bytes = 5000000 (5.0 MB)",
    ]
