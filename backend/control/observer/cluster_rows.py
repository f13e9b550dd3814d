"""Rows of `cluster` and `broker`, and those of a reading of settings. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from backend.control.gateway.requests.config_requests import CLUSTER_DEFAULT
from backend.control.observer.sample_recorder import SampledSettings
from backend.control.observer.sampling.cluster_facts import BrokerFacts, ClusterFacts
from backend.control.observer.sampling.settings_sample import SettingsSample, by_resource
from backend.store.writes.observer_rows import Resource

# Set-aside folders of a directory that are stored with each reading of a broker, the oldest: some 200 bytes each.
SET_ASIDE_STORED_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class WatchedCluster:
    """The cluster to observe and how it is called; `kind` is embedded or attached."""

    cluster_id: str
    name: str
    kind: str
    bootstrap_servers: str
    interval_ms: int


def cluster_row(watched: WatchedCluster, facts: ClusterFacts) -> dict[str, Any]:
    """The row of `cluster`; the database keeps the first `first_seen_ms` it was given."""
    return {
        "cluster_id": watched.cluster_id,
        "name": watched.name,
        "kind": watched.kind,
        "bootstrap_servers": watched.bootstrap_servers,
        "controller_id": facts.controller_id,
        "features": dict(facts.features),
        "first_seen_ms": facts.at_ms,
        "seen_ms": facts.at_ms,
        "sample_interval_ms": watched.interval_ms,
    }


def broker_row(cluster_id: str, broker: BrokerFacts, at_ms: int, seen_ms: int) -> dict[str, Any]:
    """The row of `broker`; `seen_ms` is when it last answered."""
    return {
        "cluster_id": cluster_id,
        "broker_id": broker.view.broker_id,
        "host": broker.view.address.host,
        "port": broker.view.address.port,
        "rack": broker.view.rack,
        "epoch": None,  # no admin API gives it
        "fenced": broker.view.fenced,
        "reachable": broker.reachable,
        "error": broker.error,
        "log_dirs": _log_dirs(broker),
        "seen_ms": seen_ms,
        "sampled_ms": at_ms,
    }


def _log_dirs(broker: BrokerFacts) -> list[dict[str, Any]] | None:
    if broker.log_dirs is None:
        return None
    return [
        {
            "path": directory.path,
            "total_bytes": directory.total_bytes,
            "usable_bytes": directory.usable_bytes,
            "error": directory.error.name if directory.error else None,
            "set_aside_count": len(directory.set_aside),
            "set_aside_bytes": sum(replica.size_bytes for replica in directory.set_aside),
            "set_aside": [
                asdict(replica)
                for replica in sorted(directory.set_aside, key=lambda replica: replica.since_ms)[:SET_ASIDE_STORED_MAX]
            ],
        }
        for directory in broker.log_dirs
    ]


def settings_of(sample: SettingsSample, facts: ClusterFacts) -> SampledSettings:
    """The stored part of a settings sample. Of a resource that exists and is not in it all stays as it is."""
    resources: set[Resource] = {("broker", str(broker_id)) for broker_id in facts.brokers}
    resources |= {("topic", topic.topic) for topic in facts.topics}
    resources.add(("broker", CLUSTER_DEFAULT))
    set_entries = {
        resource: entries for resource, entries in by_resource(sample).items() if entries and resource in resources
    }
    if sample.cluster_default is not None and not sample.cluster_default:
        resources.discard(("broker", CLUSTER_DEFAULT))  # nothing is set for all brokers: no rows
    return SampledSettings(sample.at_ms, set_entries, frozenset(resources))
