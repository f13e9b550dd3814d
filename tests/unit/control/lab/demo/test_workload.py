"""The demo's thread beside a cluster that is not there: which topics it writes, when it pauses one, and fatal errors.

librdkafka has errors after which only another producer will do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigEntry, ConfigResource, ConfigSource, NewTopic

from backend.control.lab.demo import workload
from backend.control.lab.demo.topics import CUSTOMER_PROFILES, INVOICES, ORDERS, PAYMENTS, TOPICS
from tests.waiting import wait_until

DEMO_TOPICS = {topic.name: topic.config for topic in TOPICS}
PAUSED = {**DEMO_TOPICS, INVOICES.name: {**INVOICES.config, **(INVOICES.paused_config or {})}}


def done(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future


class ClusterOfTopics:
    """The admin client of a cluster that has ``topics`` with these settings."""

    topics: ClassVar[Mapping[str, Mapping[str, str]]] = DEMO_TOPICS
    changed: ClassVar[list[str]] = []

    def __init__(self, config: dict[str, Any]) -> None:
        pass

    def create_topics(self, topics: list[NewTopic]) -> dict[str, Future[None]]:
        name = topics[0].topic
        if name not in self.topics:
            return {name: done(None)}
        exists: Future[None] = Future()
        exists.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)))
        return {name: exists}

    def describe_configs(self, resources: list[ConfigResource]) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        settings = self.topics[resources[0].name]
        chosen = ConfigSource.DYNAMIC_TOPIC_CONFIG
        entries = {name: ConfigEntry(name, value, source=chosen) for name, value in settings.items()}
        entries.setdefault("segment.bytes", ConfigEntry("segment.bytes", "1073741824", is_default=True))
        return {resources[0]: done(entries)}

    def incremental_alter_configs(self, resources: list[ConfigResource]) -> dict[ConfigResource, Future[None]]:
        self.changed.append(resources[0].name)
        return {resources[0]: done(None)}


class RecordingProducer:
    """A producer that notes the topic of each record."""

    written: ClassVar[list[str]] = []

    def __init__(self, config: dict[str, Any]) -> None:
        pass

    def produce(self, topic: str, **record: Any) -> None:
        self.written.append(topic)

    def poll(self, timeout: float) -> int:
        return 0

    def flush(self, timeout: float) -> int:
        return 0


class RecordingReader:
    """A reader that notes the topics read."""

    read_topics: ClassVar[set[str]] = set()

    def __init__(self, bootstrap_servers: str, group: Any) -> None:
        self.read_topics.update(topic.name for topic in group.topics)

    def read(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        pass


@contextmanager
def demo_beside(patch: pytest.MonkeyPatch, topics: Mapping[str, Mapping[str, str]]) -> Iterator[None]:
    """The demo at work beside a cluster of these topics; its histories are short and its pauses due at once."""
    at_once = tuple(replace(topic, history_bytes=1, pause_after_s=0.0) for topic in TOPICS)
    patch.setattr(ClusterOfTopics, "topics", topics)
    patch.setattr(ClusterOfTopics, "changed", [])
    patch.setattr(RecordingProducer, "written", [])
    patch.setattr(RecordingReader, "read_topics", set())
    patch.setattr(workload, "AdminClient", ClusterOfTopics)
    patch.setattr(workload, "Producer", RecordingProducer)
    patch.setattr(workload, "DemoReader", RecordingReader)
    patch.setattr(workload, "TOPICS", at_once)
    patch.setattr(workload, "TICKS_PER_S", 500)
    demo = workload.DemoWorkload("127.0.0.1:1", replication_factor=1)
    demo.start()
    try:
        yield
    finally:
        demo.stop()


def test_a_topic_that_the_user_made_is_neither_written_nor_read_nor_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {INVOICES.name: {"remote.storage.enable": "true"}, ORDERS.name: {}}
    with demo_beside(monkeypatch, theirs):
        wait_until("records are written", lambda: len(RecordingProducer.written) > 20)
    own = {CUSTOMER_PROFILES.name, PAYMENTS.name}
    assert set(RecordingProducer.written) == own == RecordingReader.read_topics
    assert ClusterOfTopics.changed == []


@pytest.mark.parametrize(
    ("settings", "paused"),
    [
        (DEMO_TOPICS, [INVOICES.name]),
        (PAUSED, []),
        # The pause was taken back by its user.
        ({**PAUSED, INVOICES.name: {**PAUSED[INVOICES.name], "remote.log.copy.disable": "false"}}, []),
        ({}, [INVOICES.name]),
    ],
)
def test_a_topic_is_paused_once_also_when_an_earlier_run_ended_before(
    monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, Mapping[str, str]], paused: list[str]
) -> None:
    with demo_beside(monkeypatch, settings):
        # The topic's traffic goes on past the turn in which the pause is due.
        wait_until("invoices are written", lambda: RecordingProducer.written.count(INVOICES.name) > 5)
        wait_until("the pause has come", lambda: ClusterOfTopics.changed == paused)
    assert ClusterOfTopics.changed == paused


def test_a_setting_that_its_user_changed_does_not_end_the_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {**DEMO_TOPICS, ORDERS.name: {**ORDERS.config, "retention.bytes": "1", "retention.ms": "5"}}
    with demo_beside(monkeypatch, changed):
        wait_until("orders are written", lambda: ORDERS.name in RecordingProducer.written)


def test_a_fatal_error_of_the_producer_is_passed_by_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    written: set[str] = set()
    producers: list[object] = []
    all_written = threading.Event()

    class FatalFirst:
        """A producer of librdkafka; the first one has lost records."""

        def __init__(self, config: dict[str, Any]) -> None:
            producers.append(self)

        def produce(self, topic: str, **record: Any) -> None:
            if len(producers) == 1:
                raise KafkaException(KafkaError(KafkaError._FATAL))
            written.add(topic)
            if len(written) == len(TOPICS):
                all_written.set()

        def poll(self, timeout: float) -> int:
            return 0

        def flush(self, timeout: float) -> int:
            return 0

    monkeypatch.setattr(workload, "AdminClient", ClusterOfTopics)
    monkeypatch.setattr(workload, "Producer", FatalFirst)
    monkeypatch.setattr(workload, "RETRY_S", 0.01)
    demo = workload.DemoWorkload("127.0.0.1:1", replication_factor=1)
    demo.start()
    try:
        assert all_written.wait(20.0)
        assert len(producers) == 2
    finally:
        demo.stop()
