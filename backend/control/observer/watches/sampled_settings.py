"""Sampled settings that rules need: throttles that are set, waits for the store, the rule of remote overlaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from backend.control.findings.copy_times import COPY_LIMIT
from backend.control.findings.finding_context import ThrottleSetting
from backend.control.findings.rules.last_leader_rules import ELECTION_TRIES
from backend.control.findings.rules.remote_read_rules import WAIT
from backend.control.gateway.requests.config_requests import ConfigEntry
from backend.control.observer.sampling.settings_sample import SettingsSample

THROTTLED_REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
HIDDEN: Final = "set (Kafka does not tell to what)"
THROTTLE_RATES: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
TASK_INTERVAL: Final = "remote.log.manager.task.interval.ms"
# Kafka's default of it: no limit.
NO_LIMIT: Final = 2**63 - 1
OVERLAP: Final = "remote.log.metadata.overlap"


def throttles(settings: SettingsSample, topics: Sequence[Mapping[str, Any]]) -> list[ThrottleSetting]:
    """Every replication throttle that is set."""
    result = []
    for topic in topics:
        for name in THROTTLED_REPLICAS:
            value = (topic["config"] or {}).get(name)
            if value:
                result.append(ThrottleSetting(name, value, topic=topic["topic"]))
    for broker_id, entries in sorted(settings.brokers.items()):
        for name in THROTTLE_RATES:
            entry = entries.get(name)
            if entry is not None and _is_set(entry) and entry.source.name == "DYNAMIC_BROKER_CONFIG":
                result.append(ThrottleSetting(name, entry.value or HIDDEN, broker_id=broker_id))
    for name in THROTTLE_RATES:
        entry = (settings.cluster_default or {}).get(name)
        if entry is not None and _is_set(entry):
            result.append(ThrottleSetting(name, entry.value or HIDDEN, broker_id=-1))
    return result


def remote_wait_ms(settings: SettingsSample) -> dict[int, int]:
    """How long each broker waits for the store with a fetch, of those that tell it."""
    return _numbers(settings, WAIT)


def task_intervals_ms(settings: SettingsSample) -> dict[int, int]:
    """How often each broker looks for segments to copy, of those that tell it."""
    return _numbers(settings, TASK_INTERVAL)


def copy_limits(settings: SettingsSample) -> dict[int, int]:
    """How many bytes a second each broker copies at most, of those that have a limit."""
    return {broker_id: limit for broker_id, limit in _numbers(settings, COPY_LIMIT).items() if limit < NO_LIMIT}


def election_try_ms(settings: SettingsSample) -> int | None:
    """How long the controller waits at most before it tries to elect a leader once more, where a broker tells; as any
    of them may be the controller, the shortest time counts.
    """
    return min(
        (value * unit_ms for name, unit_ms in ELECTION_TRIES for value in _numbers(settings, name).values()),
        default=None,
    )


def _numbers(settings: SettingsSample, name: str) -> dict[int, int]:
    entries = {broker_id: of_broker.get(name) for broker_id, of_broker in settings.brokers.items()}
    values = {broker_id: entry.value for broker_id, entry in entries.items() if entry is not None and entry.value}
    return {broker_id: int(value) for broker_id, value in values.items() if value.isdigit()}


def _is_set(entry: ConfigEntry) -> bool:
    """Kafka treats the rates as secrets: it reports that they are set, not their value."""
    return bool(entry.value) or entry.sensitive


def keeps_kafka_overlap(settings: SettingsSample) -> bool:
    """Whether the embedded engine is configured to keep one segment per epoch and first offset, as Kafka 4.3.1 does."""
    return any(
        entry.value == "kafka" for entries in settings.brokers.values() if (entry := entries.get(OVERLAP)) is not None
    )
