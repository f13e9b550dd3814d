"""The source topic as a Kafka client sees it: which partitions it has and which offsets they hold."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from spark.settings import SettingsError

log = logging.getLogger(__name__)

_NO_ID: Final = "A" * 22  # sixteen zero bytes

REQUEST_TIMEOUT_S: Final = 3.0
# A topic may be given more partitions: they are asked for again after this time, a request of 2 kB by each client.
PARTITIONS_AGE_S: Final = 10.0


class BrokersAway(Exception):
    """No answer, or not from every leader. Trying again can help; the message says what failed."""


class TopicMissing(Exception):
    """The brokers answer and do not have the topic (yet)."""


@dataclass(frozen=True, slots=True)
class OffsetsHeld:
    """Half-open range of offsets that a topic partition holds."""

    low: int
    high: int


def client_config(bootstrap_servers: str, properties: Mapping[str, str], name: str) -> dict[str, Any]:
    """Settings that every client of the pipeline shares, in librdkafka's names."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "client.id": f"ebbline-pipeline-{name}",
        "socket.connection.setup.timeout.ms": 3_000,
        "reconnect.backoff.max.ms": 1_000,
        # A broker that hangs loses its leadership after 9 s (`broker.session.timeout.ms`). An answer that is later ends
        # the connection, and another broker is asked: a minute by default.
        "socket.timeout.ms": 10_000,
        # Errors of connections reach us through the calls; librdkafka would write them to stderr too.
        "log_level": 0,
        "error_cb": _ignore,
        **properties,
    }


def new_consumer(config: Mapping[str, Any]) -> Consumer:
    """A consumer of a `client_config`. Raises SettingsError for what librdkafka does not take, as a missing file."""
    try:
        return Consumer(dict(config))
    except KafkaException as error:
        raise SettingsError(f"EBBLINE_CLIENT_PROPERTIES cannot be used: {_text(error)}.") from error


def _ignore(_error: object) -> None:
    """Connection errors show as BrokersAway of the next call."""


class TopicOffsets:
    """Asks for partitions and offsets of one topic. One per process; not for several threads."""

    def __init__(self, bootstrap_servers: str, topic: str, properties: Mapping[str, str], name: str) -> None:
        self.topic = topic
        config = client_config(bootstrap_servers, properties, name)
        # It asks for the topic's metadata, too, and must not make a topic that was deleted.
        self._config = {**config, "allow.auto.create.topics": False}
        # The log ends at its high watermark, whatever transaction a stranger may have begun in the topic.
        unused = {"group.id": "ebbline-unused", "isolation.level": "read_uncommitted"}
        self._consumer = new_consumer({**self._config, **unused})
        self._admin: AdminClient | None = None
        self._partitions: list[int] = []
        self._asked_s = 0.0

    def partitions(self) -> list[int]:
        """The topic's partitions. Raises TopicMissing or BrokersAway."""
        try:
            metadata = self._consumer.list_topics(self.topic, timeout=REQUEST_TIMEOUT_S).topics.get(self.topic)
        except KafkaException as error:
            raise BrokersAway(f"no broker answers: {error.args[0].str()}") from error
        if metadata is None or metadata.error is not None or not metadata.partitions:
            raise TopicMissing(f"the topic {self.topic} does not exist yet")
        self._partitions, self._asked_s = sorted(metadata.partitions), time.monotonic()
        return self._partitions

    def _current_partitions(self) -> list[int]:
        fresh = time.monotonic() - self._asked_s < PARTITIONS_AGE_S
        return self._partitions if self._partitions and fresh else self.partitions()

    def offsets_held(self) -> dict[int, OffsetsHeld]:
        """The offsets every partition holds. Raises TopicMissing or BrokersAway."""
        partitions = self._current_partitions()
        low = self._list(partitions, OFFSET_BEGINNING)
        high = self._list(partitions, OFFSET_END)
        return {partition: OffsetsHeld(low[partition], high[partition]) for partition in partitions}

    def high(self) -> dict[int, int]:
        """The offset that the next record of every partition will get. Raises TopicMissing or BrokersAway."""
        return self._list(self._current_partitions(), OFFSET_END)

    def topic_id(self) -> str | None:
        """The topic's id as Kafka writes it, None where brokers have none (before 2.8). Raises as `partitions`."""
        if self._admin is None:
            self._admin = self._new_admin()
        future = self._admin.describe_topics(TopicCollection([self.topic]), request_timeout=REQUEST_TIMEOUT_S)
        try:
            description = future[self.topic].result(timeout=2 * REQUEST_TIMEOUT_S)
        except (KafkaException, TimeoutError) as error:
            self._admin = None
            code = error.args[0].code() if isinstance(error, KafkaException) else None
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicMissing(f"the topic {self.topic} does not exist yet") from error
            raise BrokersAway(f"no description of {self.topic}: {_text(error)}") from error
        text = str(description.topic_id).replace("+", "-").replace("/", "_")
        return None if text == _NO_ID else text

    def _list(self, partitions: list[int], end: int) -> dict[int, int]:
        """ListOffsets of one end of each log, by the consumer.

        The admin client of librdkafka 2.16 asks a leader that is away again and again without a pause, with nine tenths
        of a core, until the controller fences it.
        """
        queries = [TopicPartition(self.topic, partition, end) for partition in partitions]
        try:
            listed = self._consumer.offsets_for_times(queries, timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            self._partitions = []
            raise BrokersAway(f"no offsets of {self.topic}: {_text(error)}") from error
        for tp in listed:
            if tp.error is not None or tp.offset < 0:
                # The topic may have been deleted or have got partitions meanwhile.
                self._partitions = []
                reason = "its leader did not tell them" if tp.error is None else tp.error.str()
                raise BrokersAway(f"no offsets of {self.topic}-{tp.partition}: {reason}")
        return {tp.partition: tp.offset for tp in listed}

    def _new_admin(self) -> AdminClient:
        """An admin client that has asked for metadata.

        librdkafka 2.16 drops its first connection at the first response, together with the requests that wait there. Of
        120 new clients that asked Apache Kafka 4.3.1 for offsets at once, 9 ran into their time-out. Of 120 that had
        asked for metadata first, none did.
        """
        admin = AdminClient(self._config)
        try:
            admin.list_topics(self.topic, timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise BrokersAway(f"no broker answers: {error.args[0].str()}") from error
        return admin

    def close(self) -> None:
        """Give the connections back."""
        self._consumer.close()


def _text(error: BaseException) -> str:
    first = error.args[0] if error.args else error
    return str(first.str() if hasattr(first, "str") else first) or type(error).__name__
