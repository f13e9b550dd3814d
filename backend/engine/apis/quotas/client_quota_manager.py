"""Quotas of one broker by user, client id and address (KIP-13, KIP-55, KIP-124, KIP-599, KIP-612).

The limits are in the metadata image (`AlterClientQuotas`); this module measures each client's recent use and returns
the time that a client above its limit must wait.
Kafka: `ClientQuotaManager`, `ClientQuotaManager.DefaultQuotaCallback`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from immutables import Map

from backend.engine.common.rates import TokenBucket, WindowedRate, Windows
from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.client_quota_control import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)
from backend.engine.controller.image.metadata_image import MetadataImage, QuotaEntity

ByteKind = Literal["producer_byte_rate", "consumer_byte_rate"]

# Clients whose use is remembered, least recently seen forgotten first: at some 500 bytes each 5 MB.
BUCKETS_MAX: Final = 10_000
# Kafka forgets a client that has been silent for so long.
FORGET_AFTER_MS: Final = 3_600_000

LimitByEntity = Mapping[QuotaEntity, float]


@dataclass(frozen=True, slots=True)
class QuotaWindows:
    """quota.window.* and controller.quota.window.*."""

    clients: Windows = field(default_factory=Windows)
    controller: Windows = field(default_factory=Windows)

    @staticmethod
    def of(config: BrokerConfig) -> QuotaWindows:
        return QuotaWindows(
            Windows(config.quota_window_num, config.quota_window_size_seconds * 1000),
            Windows(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000),
        )


class SharedLimit(NamedTuple):
    """A limit and the user and client id that share it; an empty name stands for all."""

    rate: float
    user: str
    client_id: str


def limit_for(limits: LimitByEntity, user: str, client_id: str) -> SharedLimit | None:
    """The most specific limit that is for this client, None when there is none (order of DefaultQuotaCallback)."""
    for user_name, client_name, sharing in (
        (user, client_id, (user, client_id)),
        (user, None, (user, client_id)),
        (user, "", (user, "")),
        (None, client_id, (user, client_id)),
        (None, None, (user, client_id)),
        (None, "", (user, "")),
        ("", client_id, ("", client_id)),
        ("", None, ("", client_id)),
    ):
        # The empty name: no such part in the entity. A client without an id is matched by default entities alone.
        parts: list[tuple[str, str | None]] = []
        if client_name != "":
            parts.append((CLIENT_ID, client_name))
        if user_name != "":
            parts.append((USER, user_name))
        limit = limits.get(tuple(parts)) if parts else None
        if limit is not None:
            return SharedLimit(limit, *sharing)
    return None


def address_limit(limits: LimitByEntity, host: str) -> float | None:
    """New connections a second that one address may make."""
    own = limits.get(((IP, host),))
    return limits.get(((IP, None),)) if own is None else own


@dataclass(slots=True)
class _ClientUsage:
    """One client's use of one kind of quota."""

    rate: WindowedRate
    seen_ms: float
    bucket: TokenBucket | None = None
    throttled_ms: int = 0


class ClientQuotaManager:
    """The use of one broker's clients. Everything on the loop's thread; gauges read copies."""

    def __init__(self, windows: QuotaWindows = QuotaWindows()) -> None:
        self._windows = windows
        self._source: Map[QuotaEntity, Map[str, float]] = Map()
        self._limits: dict[str, dict[QuotaEntity, float]] = {}
        self._used: OrderedDict[tuple[str, str, str], _ClientUsage] = OrderedDict()

    def _limits_of(self, image: MetadataImage, key: str) -> LimitByEntity:
        if image.client_quotas is not self._source:
            self._source = image.client_quotas
            self._limits = {}
            for entity, values in self._source.items():
                for name, value in values.items():
                    self._limits.setdefault(name, {})[entity] = value
        return self._limits.get(key, {})

    def _use(self, key: str, user: str, client_id: str, now_ms: float) -> _ClientUsage:
        name = (key, user, client_id)
        used = self._used.get(name)
        if used is None:
            used = self._used[name] = _ClientUsage(WindowedRate(self._windows.clients), now_ms)
            oldest = next(iter(self._used.values()))
            if len(self._used) > BUCKETS_MAX or now_ms - oldest.seen_ms > FORGET_AFTER_MS:
                self._used.popitem(last=False)
        else:
            self._used.move_to_end(name)
        used.seen_ms = now_ms
        return used

    # Bytes

    def record_bytes(
        self, image: MetadataImage, kind: ByteKind, user: str, client_id: str, size_bytes: int, now_ms: float
    ) -> int:
        """Counts bytes; returns the time in ms that the client must wait then."""
        limit = limit_for(self._limits_of(image, kind), user, client_id)
        if limit is None:
            return 0
        used = self._use(kind, limit.user, limit.client_id, now_ms)
        used.rate.record(size_bytes, now_ms)
        used.throttled_ms = used.rate.throttle_ms(limit.rate, now_ms)
        return used.throttled_ms

    def refund_bytes(
        self, image: MetadataImage, kind: ByteKind, user: str, client_id: str, size_bytes: int, now_ms: float
    ) -> None:
        """The bytes counted last were not sent after all."""
        limit = limit_for(self._limits_of(image, kind), user, client_id)
        if limit is not None:
            self._use(kind, limit.user, limit.client_id, now_ms).rate.record(-size_bytes, now_ms)

    def fetch_bytes_max(self, image: MetadataImage, user: str, client_id: str) -> int | None:
        """The bytes that fit into all but one windows, so that one answer alone never causes a wait; None: no limit."""
        limit = limit_for(self._limits_of(image, CONSUMER_BYTE_RATE), user, client_id)
        if limit is None:
            return None
        windows = self._windows.clients
        return int(limit.rate * max(1, windows.count - 1) * windows.size_ms / 1000)

    # Time

    def record_time(self, image: MetadataImage, user: str, client_id: str, spent_ms: float, now_ms: float) -> int:
        """Counts time on the loop's thread, of which 100 % is a second a second. Ms to wait, at most one window."""
        limit = limit_for(self._limits_of(image, REQUEST_PERCENTAGE), user, client_id)
        if limit is None:
            return 0
        used = self._use(REQUEST_PERCENTAGE, limit.user, limit.client_id, now_ms)
        used.rate.record(spent_ms / 10.0, now_ms)
        used.throttled_ms = min(used.rate.throttle_ms(limit.rate, now_ms), self._windows.clients.size_ms)
        return used.throttled_ms

    # Mutations of the controller

    def record_mutations(
        self, image: MetadataImage, user: str, client_id: str, partitions: int, now_ms: float, *, strict: bool
    ) -> int:
        """Takes permits for partitions to be made or deleted. Above 0: for how long there are too few.

        `strict` takes none then: the mutation must be refused (KIP-599); else it goes on and the client waits after it.
        """
        limit = limit_for(self._limits_of(image, CONTROLLER_MUTATION_RATE), user, client_id)
        if limit is None:
            return 0
        used = self._use(CONTROLLER_MUTATION_RATE, limit.user, limit.client_id, now_ms)
        bucket = used.bucket
        if bucket is None:
            bucket = used.bucket = TokenBucket(self._windows.controller, limit.rate, now_ms)
        bucket.set_rate(limit.rate, now_ms)
        used.throttled_ms = bucket.throttle_ms(now_ms) if strict else 0
        if not used.throttled_ms:
            used.rate.record(partitions, now_ms)
            bucket.take(partitions, now_ms)
            if not strict:
                used.throttled_ms = bucket.throttle_ms(now_ms)
        return used.throttled_ms

    # Connections

    def connected(self, image: MetadataImage, host: str, now_ms: float) -> int:
        """Counts a connection; above 0 it is one too many, is not counted, and should be closed after so long."""
        limit = address_limit(self._limits_of(image, CONNECTION_CREATION_RATE), host)
        if limit is None:
            return 0
        used = self._use(CONNECTION_CREATION_RATE, host, "", now_ms)
        used.rate.record(1, now_ms)
        used.throttled_ms = min(used.rate.throttle_ms(limit, now_ms), self._windows.clients.size_ms)
        if used.throttled_ms:
            used.rate.record(-1, now_ms)
        return used.throttled_ms

    # Metrics

    def rates(self, key: str, now_ms: float) -> list[tuple[dict[str, str], float]]:
        """The present use of clients under a limit of that kind, by their labels."""
        return [
            (_labels(user, client_id), used.rate.rate(now_ms))
            for (kind, user, client_id), used in list(self._used.items())
            if kind == key
        ]

    def throttle_times(self, key: str) -> list[tuple[dict[str, str], float]]:
        """The last throttle time of each client of that kind, in ms."""
        return [
            (_labels(user, client_id), float(used.throttled_ms))
            for (kind, user, client_id), used in list(self._used.items())
            if kind == key
        ]


def _labels(user: str, client_id: str) -> dict[str, str]:
    return {"user": user, "client_id": client_id}


# Kafka's MBean of each kind of quota and its attribute.
METRICS: Final = (
    (PRODUCER_BYTE_RATE, "produce", "byte_rate", "Bytes a second that clients under a produce quota send"),
    (CONSUMER_BYTE_RATE, "fetch", "byte_rate", "Bytes a second that clients under a fetch quota are sent"),
    (REQUEST_PERCENTAGE, "request", "request_time", "Per cent of the loop that clients under a request quota take"),
    (
        CONTROLLER_MUTATION_RATE,
        "controllermutation",
        "mutation_rate",
        "Partitions a second that clients make or delete",
    ),
)
