"""Settings of brokers and topics, as asked every few seconds, and what of them changed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import Gateway, describe_failure
from backend.control.gateway.requests.config_requests import (
    CLUSTER_DEFAULT,
    ConfigEntry,
    Entries,
    TopicSettings,
    describe_broker,
    describe_cluster_default,
)
from backend.control.observer.sampling.cluster_facts import TopicFacts
from backend.protocol.errors import KafkaError
from backend.store.writes.observer_rows import Resource

# Settings that pages show and operations change; all others would be rows without a reader.
TOPIC_SETTINGS: Final = (
    "cleanup.policy",
    "compression.type",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.message.bytes",
    "message.timestamp.type",
    "min.insync.replicas",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.ms",
    "unclean.leader.election.enable",
)
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class SettingsSample:
    """Settings in effect at a time. A resource that did not answer is missing; what is stored of it stays."""

    brokers: dict[int, Entries] = field(default_factory=dict)
    cluster_default: Entries | None = None
    topics: dict[str, Entries] = field(default_factory=dict)
    at_ms: int = 0

    def flags(self, name: str) -> dict[int, bool]:
        """A boolean broker setting by broker, for those that have it."""
        return {
            broker_id: entries[name].value == "true" for broker_id, entries in self.brokers.items() if name in entries
        }


async def sample_settings(
    gateway: Gateway, broker_ids: Iterable[int], topics: Iterable[str], topic_settings: TopicSettings
) -> SettingsSample:
    """Asks every broker for its settings, and any for the cluster default and, with `topic_settings`, for the topics.

    Never raises.
    """
    sample = SettingsSample()
    for broker_id in broker_ids:
        try:
            sample.brokers[broker_id] = await describe_broker(gateway, broker_id)
        except (GatewayError, KafkaError) as error:
            _log.debug("broker %d does not describe its settings: %s", broker_id, describe_failure(error))
    try:
        sample.cluster_default = await describe_cluster_default(gateway)
    except (GatewayError, KafkaError) as error:
        _log.debug("the brokers' cluster default cannot be described: %s", describe_failure(error))
    sample.topics = await sample_topic_settings(gateway, topics, topic_settings)
    return sample


async def sample_topic_settings(
    gateway: Gateway, topics: Iterable[str], topic_settings: TopicSettings
) -> dict[str, Entries]:
    """Settings of these topics; those that did not answer are missing. Never raises."""
    try:
        return await topic_settings.ask(gateway, sorted(topics))
    except (GatewayError, KafkaError) as error:
        _log.debug("topic settings cannot be described: %s", describe_failure(error))
        return {}


def by_resource(sample: SettingsSample) -> dict[Resource, Entries]:
    """Everything that answered."""
    result: dict[Resource, Entries] = {
        ("broker", str(broker_id)): entries for broker_id, entries in sample.brokers.items()
    }
    if sample.cluster_default:
        result["broker", CLUSTER_DEFAULT] = sample.cluster_default
    return result | {("topic", topic): entries for topic, entries in sample.topics.items()}


def config_rows(cluster_id: str, resource: Resource, entries: Entries, at_ms: int) -> list[dict[str, Any]]:
    """A resource's rows of `config_value`. A sensitive value is not in Kafka's answer, nor here."""
    return [_row(cluster_id, *resource, entry, at_ms) for entry in entries.values()]


def _row(cluster_id: str, kind: str, resource: str, entry: ConfigEntry, at_ms: int) -> dict[str, Any]:
    return {
        "cluster_id": cluster_id,
        "resource_type": kind,
        "resource": resource,
        "name": entry.name,
        "value": None if entry.sensitive else entry.value,
        "source": entry.source.name,
        "is_sensitive": entry.sensitive,
        "is_read_only": entry.read_only,
        "config_type": entry.config_type.name,
        "synonyms": [
            {"name": s.name, "value": None if entry.sensitive else s.value, "source": s.source.name}
            for s in entry.synonyms
        ],
        "sampled_ms": at_ms,
    }


def topic_config(entries: Entries | None) -> Mapping[str, str | None] | None:
    """Effective values by name; None for a topic that was not described yet."""
    return None if entries is None else {entry.name: entry.value for entry in entries.values()}


def topic_rows(
    cluster_id: str, topics: Iterable[TopicFacts], topic_ids: Mapping[str, str], at_ms: int
) -> list[dict[str, Any]]:
    """Rows of `topic`."""
    return [
        {
            "cluster_id": cluster_id,
            "topic": topic.topic,
            "topic_id": topic_ids[topic.topic],
            "partition_count": topic.partition_count,
            "replication_factor": topic.replication_factor,
            "internal": topic.internal,
            "tiered": topic.tiered,
            "config": None if topic.config is None else dict(topic.config),
            "sampled_ms": at_ms,
        }
        for topic in topics
    ]
