"""The source topic as a Kafka client sees it: which partitions it has and which offsets they hold."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from spark.settings import SettingsError

log = logging.getLogger(__name__)

_NO_ID: Final = "A" * 22  # sixteen zero bytes

REQUEST_TIMEOUT_S: Final = 3.0
# A topic may be given more partitions: they are asked for again after this time, a request of 2 kB by each client.
PARTITIONS_AGE_S: Final = 10.0
_EARLIEST: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the library left it out
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the library left it out


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
        self._metadata = new_consumer({**config, "group.id": "ebbline-unused", "allow.auto.create.topics": False})
        # It asks for the topic's metadata, too, and must not make a topic that was deleted.
        self._config = {**config, "allow.auto.create.topics": False}
        self._admin, self._knows_brokers = AdminClient(self._config), False
        self._partitions: list[int] = []
        self._asked_s = 0.0

    def partitions(self) -> list[int]:
        """The topic's partitions. Raises TopicMissing or BrokersAway."""
        try:
            metadata = self._metadata.list_topics(self.topic, timeout=REQUEST_TIMEOUT_S).topics.get(self.topic)
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
        low = self._list(partitions, _EARLIEST)
        high = self._list(partitions, _LATEST)
        return {partition: OffsetsHeld(low[partition], high[partition]) for partition in partitions}

    def high(self) -> dict[int, int]:
        """The offset that the next record of every partition will get. Raises TopicMissing or BrokersAway."""
        return self._list(self._current_partitions(), _LATEST)

    def topic_id(self) -> str | None:
        """The topic's id as Kafka writes it, None where brokers have none (before 2.8). Raises as `partitions`."""
        self._learn_brokers()
        future = self._admin.describe_topics(TopicCollection([self.topic]), request_timeout=REQUEST_TIMEOUT_S)
        try:
            description = future[self.topic].result(timeout=2 * REQUEST_TIMEOUT_S)
        except (KafkaException, TimeoutError) as error:
            self._forget()
            code = error.args[0].code() if isinstance(error, KafkaException) else None
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicMissing(f"the topic {self.topic} does not exist yet") from error
            raise BrokersAway(f"no description of {self.topic}: {_text(error)}") from error
        text = str(description.topic_id).replace("+", "-").replace("/", "_")
        return None if text == _NO_ID else text

    def _list(self, partitions: list[int], spec: OffsetSpec) -> dict[int, int]:
        self._learn_brokers()
        queries = {TopicPartition(self.topic, partition): spec for partition in partitions}
        offsets = {}
        for tp, future in self._admin.list_offsets(queries, request_timeout=REQUEST_TIMEOUT_S).items():
            try:
                offset = int(future.result(timeout=2 * REQUEST_TIMEOUT_S).offset)
            except (KafkaException, TimeoutError) as error:
                self._forget()
                raise BrokersAway(f"no offsets of {self.topic}-{tp.partition}: {_text(error)}") from error
            if offset < 0:
                # librdkafka's "not known" (-1001), without an error: the answer of a leader that was just found.
                self._forget()
                raise BrokersAway(f"no offsets of {self.topic}-{tp.partition}: its leader did not tell them")
            offsets[tp.partition] = offset
        return offsets

    def _learn_brokers(self) -> None:
        """Makes a new admin client ask for metadata first.

        librdkafka 2.16 drops its first connection at the first response, together with the requests that wait there. Of
        120 new clients that asked Apache Kafka 4.3.1 for offsets at once, 9 ran into their time-out. Of 120 that had
        asked for metadata first, none did.
        """
        if self._knows_brokers:
            return
        try:
            self._admin.list_topics(self.topic, timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise BrokersAway(f"no broker answers: {error.args[0].str()}") from error
        self._knows_brokers = True

    def _forget(self) -> None:
        """Look again: the topic may have been deleted or extended, or have new leaders and leader epochs.

        An admin client keeps what it learned of leaders for up to 15 minutes, also that there were none, and every
        broker refuses an old epoch: after an election only a new client is sure to be answered.
        """
        self._partitions = []
        self._admin, self._knows_brokers = AdminClient(self._config), False

    def close(self) -> None:
        """Give the connections back."""
        self._metadata.close()


def _text(error: BaseException) -> str:
    first = error.args[0] if error.args else error
    return str(first.str() if hasattr(first, "str") else first) or type(error).__name__
