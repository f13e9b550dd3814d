"""The access to ``__remote_log_metadata`` that the topic-based remote log metadata manager needs.

``net`` implements it with the Kafka protocol over loopback, tests with a list in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from backend.engine.common.topic_names import REMOTE_LOG_METADATA_TOPIC
from backend.protocol.errors import ErrorCode
from backend.tiering.ids import OffsetRange

if TYPE_CHECKING:
    from backend.engine.remote.metadata.metadata_record import MetadataRecord
    from backend.engine.remote.metadata.record_runs import ApplyPlan

METADATA_TOPIC: Final = REMOTE_LOG_METADATA_TOPIC


@dataclass(frozen=True, slots=True)
class MetadataTopicSettings:
    """The settings with which the topic is created (KIP-405, KIP-1235; `TopicBasedRemoteLogMetadataManagerConfig`)."""

    partitions: int = 50
    replication_factor: int = 3
    min_insync_replicas: int = 2
    retention_ms: int = -1

    def topic_configs(self) -> dict[str, str]:
        """Topic settings by Kafka's names."""
        return {
            "cleanup.policy": "delete",
            "min.insync.replicas": str(self.min_insync_replicas),
            "remote.storage.enable": "false",
            "retention.ms": str(self.retention_ms),
        }


@dataclass(frozen=True, slots=True)
class MetadataClientSettings:
    """Settings of the clients that reach the topic, by the names of Kafka's own clients.

    ``remote.log.metadata.common.client.<name>`` holds for all of them, ``….producer.<name>``, ``….consumer.<name>`` and
    ``….admin.<name>`` for one. The producer stays idempotent with acks=all, the consumer without a group, whatever is
    set; `unused` names the settings without effect.
    """

    produce_timeout_ms: int = 30_000  # request.timeout.ms of the producer
    delivery_timeout_ms: int = 120_000
    fetch_timeout_ms: int = 30_000  # request.timeout.ms of the consumer
    # About 110 bytes an event: 10,000 events, 30 ms of parsing on a worker thread.
    fetch_max_bytes: int = 1 << 20
    partition_fetch_bytes: int = 1 << 20
    fetch_max_wait_ms: int = 500
    admin_timeout_ms: int = 30_000  # request.timeout.ms of the admin client
    unused: tuple[str, ...] = ()

    @classmethod
    def parse(cls, config: Mapping[str, str]) -> MetadataClientSettings:
        """From the settings under ``rlmm.config.``, without that prefix. ValueError names the one that is wrong."""
        values: dict[str, int] = {}
        unused = []
        common = {name.removeprefix(_COMMON): name for name in config if name.startswith(_COMMON)}
        for client, fields in _CLIENT_SETTINGS.items():
            own = f"remote.log.metadata.{client}."
            # The client's own settings come after the common ones and win.
            given = common | {name.removeprefix(own): name for name in config if name.startswith(own)}
            for name, full_name in given.items():
                if name in fields:
                    values[fields[name]] = _positive(full_name, config[full_name])
                elif full_name.startswith(own):
                    unused.append(full_name)
        used = {name for fields in _CLIENT_SETTINGS.values() for name in fields}
        unused += [full_name for name, full_name in common.items() if name not in used]
        return cls(**values, unused=tuple(sorted(unused)))


_COMMON: Final = "remote.log.metadata.common.client."
_CLIENT_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "producer": {"request.timeout.ms": "produce_timeout_ms", "delivery.timeout.ms": "delivery_timeout_ms"},
    "consumer": {
        "request.timeout.ms": "fetch_timeout_ms",
        "fetch.max.bytes": "fetch_max_bytes",
        "max.partition.fetch.bytes": "partition_fetch_bytes",
        "fetch.max.wait.ms": "fetch_max_wait_ms",
    },
    "admin": {"request.timeout.ms": "admin_timeout_ms"},
}


def _positive(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 31:
        raise ValueError(f"rlmm.config.{name} is {text!r}; it must be a whole number from 1 to 2147483647")
    return int(text)


class UnreadableBatch(NamedTuple):
    """Offsets of a batch whose records are none."""

    first_offset: int
    last_offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The result of a fetch for one partition of the topic.

    ``next_offset`` is the position to read on (past control batches and gaps too); with an error, the requested one.
    ``plan`` has the records grouped to be applied in bulk; None when they cannot be. ``unreadable`` batches were
    passed over.
    """

    partition: int
    next_offset: int
    records: Sequence[MetadataRecord] = field(default=())
    error: ErrorCode = ErrorCode.NONE
    plan: ApplyPlan | None = None
    unreadable: tuple[UnreadableBatch, ...] = ()


class MetadataTopic(Protocol):
    """Access to the partitions of the topic. Everything raises KafkaError (its `retriable` counts) or OSError."""

    async def ensure_created(self, settings: MetadataTopicSettings) -> int:
        """Creates the topic if it is absent ("exists already" is success) and returns how many partitions it has."""
        ...

    async def produce(self, partition: int, value: bytes) -> int:
        """Appends one record with a null key (acks=all, idempotent) and returns its offset once all in-sync replicas
        have it.
        """
        ...

    async def offsets(self, partitions: Iterable[int]) -> dict[int, OffsetRange]:
        """Log start and high watermark of each partition, as of now; a partition without an answer is left out."""
        ...

    async def fetch(self, positions: Mapping[int, int], *, max_wait_ms: int) -> Sequence[FetchedPartition]:
        """Committed records of several partitions from the given offsets.

        Returns as soon as any partition has records (or an error), else empty after about ``max_wait_ms``. Only one
        call runs at a time. A cancelled call may leave its requests running: the next call takes their responses where
        it asks for the same offsets, and asks those brokers again once they have answered.
        """
        ...

    async def close(self) -> None:
        """Ends connections and requests in flight."""
        ...
