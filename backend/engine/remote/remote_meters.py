"""Counters and gauges of the remote log manager, under Kafka's names (`RemoteStorageMetrics`, `BrokerTopicMetrics`).

Meters of a topic appear with its first event, gauges with its first partition. Written on the loop's thread, read by
the scraping one: integers and copies of dicts only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from backend.engine.metrics import BrokerMetrics
from backend.tiering.ids import TopicIdPartition

PREFIX: Final = "kafka_server_brokertopicmetrics_"
MANAGER_PREFIX: Final = "kafka_log_remote_remotelogmanager_"
# Kafka's reservoirs hold 1,028; 24 bytes each.
DURATIONS_KEPT: Final = 1028
QUANTILES: Final = (("0.50", 0.5), ("0.75", 0.75), ("0.95", 0.95), ("0.98", 0.98), ("0.99", 0.99), ("0.999", 0.999))
# Topics whose meters are kept apart; the rest counts in the totals only. About 200 bytes each.
TOPICS_MAX: Final = 5000

_DOCS: Final = {
    "remotefetchbytes": "bytes returned by reads of the remote tier",
    "remotefetchrequests": "reads of the remote tier",
    "remotefetcherrors": "reads of the remote tier that failed",
    "remotecopybytes": "log bytes copied to the remote tier",
    "remotecopyrequests": "attempts to copy a segment",
    "remotecopyerrors": "copies that failed for good",
    "remotedeleterequests": "attempts to delete a remote segment",
    "remotedeleteerrors": "deletions that failed for good",
    "buildremotelogauxstaterequests": "followers' attempts to rebuild their state from the remote tier",
    "buildremotelogauxstateerrors": "of these, those that failed",
}


@dataclass(slots=True)
class TierMeters:
    """Counts of one topic, or of all."""

    remotefetchbytes: int = 0
    remotefetchrequests: int = 0
    remotefetcherrors: int = 0
    remotecopybytes: int = 0
    remotecopyrequests: int = 0
    remotecopyerrors: int = 0
    remotedeleterequests: int = 0
    remotedeleteerrors: int = 0
    buildremotelogauxstaterequests: int = 0
    buildremotelogauxstateerrors: int = 0


@dataclass(slots=True)
class TierGauges:
    """State of one led partition after its last run; a topic shows the sum."""

    remotecopylagbytes: int = 0
    remotecopylagsegments: int = 0
    remotedeletelagbytes: int = 0
    remotedeletelagsegments: int = 0
    remotelogsizebytes: int = 0
    remotelogmetadatacount: int = 0
    remotelogsizecomputationtime: float = 0.0  # ms

    def clear_copy_lag(self) -> None:
        """Nothing waits to be copied where copying is off."""
        self.remotecopylagbytes = self.remotecopylagsegments = 0


@dataclass(slots=True)
class RetentionShares:
    """Sizes of one led partition in percent of its limits; 0 without a limit (KIP-1257)."""

    retentionsizeinpercent: int = 0
    localretentionsizeinpercent: int = 0


class Durations:
    """Kafka's Timer, as far as it is shown: a count, and quantiles of the latest durations (ms)."""

    def __init__(self) -> None:
        self.count = 0
        self._latest: deque[float] = deque(maxlen=DURATIONS_KEPT)

    def record(self, duration_ms: float) -> None:
        """One that has just ended."""
        self.count += 1
        self._latest.append(duration_ms)

    def quantiles(self) -> list[tuple[Mapping[str, str], float]]:
        """By the label `quantile`; all 0 before the first."""
        latest = sorted(self._latest.copy()) or [0.0]
        return [({"quantile": text}, latest[min(len(latest) - 1, int(q * len(latest)))]) for text, q in QUANTILES]


METERS: Final = tuple(meter.name for meter in fields(TierMeters))
GAUGES: Final = tuple(gauge.name for gauge in fields(TierGauges))


PERCENTS: Final = tuple(share.name for share in fields(RetentionShares))


@dataclass(slots=True)
class RemoteMeters:
    """All of one broker."""

    all_topics: TierMeters = field(default_factory=TierMeters)
    topics: dict[str, TierMeters] = field(default_factory=dict)
    partitions: dict[TopicIdPartition, TierGauges] = field(default_factory=dict)
    # Look-ups by time that failed; Kafka does not count them.
    look_up_errors: int = 0
    shares: dict[TopicIdPartition, RetentionShares] = field(default_factory=dict)
    reads: Durations = field(default_factory=Durations)
    # Runs of tasks that failed for the moment, by kind of task; Kafka counts none of them.
    retries: dict[str, int] = field(default_factory=dict)
    partitions_removed: int = 0
    partitions_to_remove: int = 0

    def mark(self, topic: str, meter: str, count: int = 1) -> None:
        """Adds to a topic's meter and to the total."""
        own = self.topics.get(topic)
        if own is None and len(self.topics) < TOPICS_MAX:
            own = self.topics[topic] = TierMeters()
        for meters in (self.all_topics, own):
            if meters is not None:
                setattr(meters, meter, getattr(meters, meter) + count)

    def gauges(self, partition: TopicIdPartition) -> TierGauges:
        """The gauges of a led partition."""
        gauges = self.partitions.get(partition)
        if gauges is None:
            gauges = self.partitions[partition] = TierGauges()
        return gauges

    def forget(self, partition: TopicIdPartition) -> None:
        """This broker does not lead the partition any more."""
        self.partitions.pop(partition, None)
        self.shares.pop(partition, None)

    def retried(self, kind: str) -> None:
        """A task's run failed for the moment."""
        self.retries[kind] = self.retries.get(kind, 0) + 1

    def register(self, metrics: BrokerMetrics) -> None:
        """Makes the values part of the broker's metrics."""
        for name in METERS:
            metrics.add_counter(PREFIX + name, _DOCS[name], self._reader(self._meter_readings, name))
        for name in GAUGES:
            metrics.add_gauge(PREFIX + name, f"sum of {name} over led partitions", self._reader(self._sums, name))
        doc = "look-ups by time in the remote tier that failed"
        metrics.add_counter("ebbline_remote_look_up_errors", doc, lambda: float(self.look_up_errors))
        for name in PERCENTS:
            doc = f"{name} of a led tiered partition (KIP-1257)"
            metrics.add_gauge(MANAGER_PREFIX + name, doc, self._reader(self._percents, name))
        timer = MANAGER_PREFIX + "remotelogreaderfetchrateandtimems"
        metrics.add_gauge(timer, "duration of reads of the remote tier, ms", self.reads.quantiles)
        metrics.add_gauge(f"{timer}_count", "reads of the remote tier that have ended", lambda: float(self.reads.count))
        metrics.add_counter(
            "ebbline_remote_task_retries",
            "runs of the remote log manager's tasks that failed for the moment and are done again",
            lambda: [({"task": kind.lower()}, float(count)) for kind, count in self.retries.copy().items()],
        )
        metrics.add_counter(
            "ebbline_remote_partitions_removed",
            "deleted partitions whose remote data this broker has removed",
            lambda: float(self.partitions_removed),
        )
        metrics.add_gauge(
            "ebbline_remote_partitions_to_remove",
            "deleted partitions whose remote data waits for this broker",
            lambda: float(self.partitions_to_remove),
        )

    @staticmethod
    def _reader(
        read: Callable[[str], list[tuple[Mapping[str, str], float]]], name: str
    ) -> Callable[[], list[tuple[Mapping[str, str], float]]]:
        return lambda: read(name)

    def _meter_readings(self, name: str) -> list[tuple[Mapping[str, str], float]]:
        per_topic = [({"topic": topic}, getattr(meters, name)) for topic, meters in self.topics.copy().items()]
        return [({"topic": ""}, getattr(self.all_topics, name)), *per_topic]

    def _percents(self, name: str) -> list[tuple[Mapping[str, str], float]]:
        return [
            (
                {"topic": topic_partition.topic, "partition": str(topic_partition.partition)},
                float(getattr(shares, name)),
            )
            for topic_partition, shares in self.shares.copy().items()
        ]

    def _sums(self, name: str) -> list[tuple[Mapping[str, str], float]]:
        sums: dict[str, float] = {}
        for partition, gauges in self.partitions.copy().items():
            sums[partition.topic] = sums.get(partition.topic, 0.0) + getattr(gauges, name)
        return [({"topic": ""}, sum(sums.values())), *(({"topic": topic}, value) for topic, value in sums.items())]
