"""The demo goes on when its producer can no more: librdkafka has errors after which only another producer will do."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from backend.control.lab.demo import workload
from backend.control.lab.demo.topics import TOPICS


class ExistingTopics:
    """The admin client of a cluster that has the demo's topics."""

    def __init__(self, config: dict[str, Any]) -> None:
        pass

    def create_topics(self, topics: list[NewTopic]) -> dict[str, Future[None]]:
        answer: Future[None] = Future()
        answer.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)))
        return {topics[0].topic: answer}


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

    monkeypatch.setattr(workload, "AdminClient", ExistingTopics)
    monkeypatch.setattr(workload, "Producer", FatalFirst)
    monkeypatch.setattr(workload, "RETRY_S", 0.01)
    demo = workload.DemoWorkload("127.0.0.1:1", replication_factor=1)
    demo.start()
    try:
        assert all_written.wait(20.0)
        assert len(producers) == 2
    finally:
        demo.stop()
