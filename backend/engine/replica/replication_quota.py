"""Throttled replication (KIP-73): how many bytes a second the replicas of a reassignment may move, at either end.

The topics' settings leader. and follower.replication.throttled.replicas name the replicas; the brokers' dynamic
settings leader. and follower.replication.throttled.rate limit the rate. Replicas in the ISR are never held back, or
they would leave it. Kafka: ReplicationQuotaManager, TopicConfigHandler, ReplicaManager.shouldLeaderThrottle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from immutables import Map

from backend.engine.common.rates import WindowedRate, Windows
from backend.engine.controller.image.metadata_image import TOPIC_RESOURCE, MetadataImage

Side = Literal["leader", "follower"]

EVERY_REPLICA: Final = "*"
_LONG_MAX: Final = float(2**63 - 1)
_NO_CONFIGS: Final[Map[tuple[int, str], Map[str, str]]] = Map()


def throttled_partitions(text: str, broker_id: int) -> frozenset[int] | None:
    """Partitions whose replica on this broker a setting names, as `partition:broker,…`; None for all of them (*)."""
    if text.strip() == EVERY_REPLICA:
        return None
    pairs = (pair.strip().partition(":") for pair in text.split(",") if pair.strip())
    # The controller lets nothing else than numbers in.
    return frozenset(int(partition) for partition, _, broker in pairs if broker == str(broker_id))


class ReplicationQuota:
    """One side's throttle on one broker."""

    def __init__(self, side: Side, broker_id: int, windows: Windows) -> None:
        self._rate_name = f"{side}.replication.throttled.rate"
        self._replicas_name = f"{side}.replication.throttled.replicas"
        self._broker_id = broker_id
        self._rate = WindowedRate(windows, simple=True)
        self._source = _NO_CONFIGS
        self._throttled: Mapping[str, frozenset[int] | None] = {}
        self.bound = _LONG_MAX

    def update(self, image: MetadataImage) -> None:
        """Takes over the settings."""
        if image.configs is self._source:
            return
        self._source = image.configs
        text = image.broker_config(self._broker_id).get(self._rate_name)
        # A text that is no number is refused by the controller.
        self.bound = float(text) if text is not None and text.isdecimal() else _LONG_MAX
        self._throttled = {
            topic: throttled_partitions(settings[self._replicas_name], self._broker_id)
            for (kind, topic), settings in image.configs.items()
            if kind == TOPIC_RESOURCE and settings.get(self._replicas_name)
        }

    @property
    def active(self) -> bool:
        """Whether any replica may be throttled."""
        return bool(self._throttled)

    def is_throttled(self, topic: str, partition: int) -> bool:
        """Whether this broker's replica of the partition counts."""
        if topic not in self._throttled:
            return False
        partitions = self._throttled[topic]
        return partitions is None or partition in partitions

    def record(self, size_bytes: int, now_ms: float) -> None:
        """Bytes of throttled replicas that were sent or taken over."""
        self._rate.record(size_bytes, now_ms)

    def exceeded(self, now_ms: float) -> bool:
        """Whether throttled replicas that are not in sync must wait."""
        return self._rate.rate(now_ms) > self.bound

    def throttles(self, topic: str, partition: int, now_ms: float) -> bool:
        """Whether this replica must wait, unless it is in sync."""
        return self.is_throttled(topic, partition) and self.exceeded(now_ms)

    def rate(self, now_ms: float) -> float:
        """Bytes a second of throttled replicas."""
        return self._rate.rate(now_ms)
