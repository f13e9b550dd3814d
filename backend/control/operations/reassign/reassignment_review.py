"""Gathers what a reassignment is judged by: samples of the database, disks and settings of the brokers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.requests import config_requests
from backend.control.gateway.requests.config_requests import Entries
from backend.control.gateway.requests.log_dir_requests import LogDir, describe_log_dirs
from backend.control.operations.config.toggle_bootstrap import COMPAT_SETTING, SETTING
from backend.control.operations.lifecycle.plan_draft import Check, Json
from backend.control.operations.lifecycle.plan_states import OPEN
from backend.control.operations.operation_kind import Site
from backend.control.operations.reassign import copy_estimate, reassignment_checks
from backend.control.operations.reassign.partition_moves import Aim, Now
from backend.control.operations.reassign.reassignment_inputs import ReassignInputs
from backend.control.wall_clock import now_ms
from backend.protocol.errors import KafkaError
from backend.store.queries import operations, partitions
from backend.store.writes_operations import open_operation
from backend.tiering.estimate import PartitionEstimate
from backend.tiering.ids import TopicPartition

TIER_SETTING: Final = "remote.log.storage.system.enable"
MIN_ISR: Final = "min.insync.replicas"
REMOTE: Final = "remote.storage.enable"


@dataclass(frozen=True, slots=True)
class Judged:
    """What a plan shows beside its difference."""

    checks: list[Check]
    estimate: Json
    leaders_change: int
    load: list[Json]


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the database tells."""

    rows: list[partitions.PartitionRow]
    estimates: dict[TopicPartition, PartitionEstimate]
    age: Json
    local: dict[tuple[str, int, int], tuple[int | None, str | None]]
    produced: dict[str, int]
    running: int | None


async def gather(site: Site, inputs: ReassignInputs, snapshot: Json, aims: Mapping[TopicPartition, Aim]) -> Judged:
    """Checks, estimate and load of a plan. Raises GatewayError, KafkaError, DatabaseAway."""
    joining = sorted({b for aim in aims.values() for b in aim.adding})
    settings = dict(zip(joining, await asyncio.gather(*(_settings(site, b) for b in joining)), strict=True))
    disks = dict(zip(joining, await asyncio.gather(*(_disk(site, b) for b in joining)), strict=True))
    topics = sorted({tp.topic for tp in aims})
    described = await config_requests.describe_topics(site.gateway, topics, names=(MIN_ISR, REMOTE), lane=Lane.ACT)
    kafka_rules = not site.embedded or any(_value(found, COMPAT_SETTING) == "kafka" for found in settings.values())
    stored = await site.database.read(lambda c: _stored(c, site.cluster_id, aims, kafka_rules=kafka_rules))
    now = _now(snapshot, aims)
    flags = {b: _value(found, SETTING) == "true" for b, found in settings.items()}
    leaders = {tp: found.leader for tp, found in now.items()}
    copies = copy_estimate.copies(aims, leaders, stored.estimates, flags)
    estimate = copy_estimate.estimate_json(copies, throttle_bytes_per_s=inputs.throttle_bytes_per_s, age=stored.age)
    facts = reassignment_checks.Facts(
        now=now,
        registered=frozenset(b["broker_id"] for b in snapshot["seen"]["brokers"]),
        alive=frozenset(b["broker_id"] for b in snapshot["seen"]["brokers"] if b["alive"]),
        min_isr={topic: int(_value(found, MIN_ISR) or 1) for topic, found in described.items()},
        tiered=frozenset(topic for topic, found in described.items() if _value(found, REMOTE) == "true"),
        without_tier=frozenset(b for b, found in settings.items() if _value(found, TIER_SETTING) == "false"),
        usable_bytes=_space(disks, "usable_bytes"),
        total_bytes=_space(disks, "total_bytes"),
        local_bytes={
            (TopicPartition(topic, partition), broker): size
            for (topic, partition, broker), (size, _) in stored.local.items()
        },
        produced_bytes_per_s=_produced(aims, stored),
        rates_set=[int(b) for b, values in snapshot["throttles"]["brokers"].items() if any(values.values())],
        lists_set=[topic for topic, values in snapshot["throttles"]["topics"].items() if any(values.values())],
        running_plan=stored.running,
    )
    found = reassignment_checks.checks(
        aims,
        facts,
        copies,
        inputs.throttle_bytes_per_s,
        unthrottled=inputs.unthrottled,
        stale=bool(stored.age.get("stale")),
    )
    estimate["suggested_bytes_per_s"] = suggested(facts.produced_bytes_per_s)
    changing = sum(leaders[tp] not in aim.target or _elected(inputs, aim, leaders[tp]) for tp, aim in aims.items())
    return Judged(found, estimate, changing, _load(snapshot, stored.rows, aims, estimate))


def suggested(produced_bytes_per_s: int) -> int:
    """A limit that catches up: four times what comes meanwhile, at least 10 MB/s."""
    return max(10_000_000, 4 * produced_bytes_per_s)


def _elected(inputs: ReassignInputs, aim: Aim, leader: int) -> bool:
    return inputs.elect and leader != aim.target[0]


def _stored(
    connection: Connection, cluster_id: str, aims: Mapping[TopicPartition, Aim], *, kafka_rules: bool
) -> _Stored:
    at_ms = now_ms()
    rows = partitions.partitions(connection, cluster_id, tiered_only=False)
    own = [row for row in rows if TopicPartition(row.topic, row.partition) in aims]
    estimates = operations.partition_estimates(connection, cluster_id, own, kafka_rules=kafka_rules)
    topics = sorted({tp.topic for tp in aims})
    return _Stored(
        rows=rows,
        estimates={TopicPartition(found.topic, found.partition): found for found in estimates},
        age=operations.sample_age(connection, cluster_id, own, at_ms),
        local=operations.replicas_of(connection, cluster_id, topics),
        produced=operations.produced_bytes_per_s(connection, cluster_id, topics, at_ms),
        running=open_operation(connection, cluster_id, "reassign", {state.value for state in OPEN}),
    )


def _now(snapshot: Json, aims: Mapping[TopicPartition, Aim]) -> dict[TopicPartition, Now]:
    found = {}
    for tp, aim in aims.items():
        key = f"{tp.topic}-{tp.partition}"
        part, seen = snapshot["partitions"][key], snapshot["seen"]["partitions"][key]
        found[tp] = Now(
            aim.topic_id,
            tuple(part["replicas"]),
            tuple(part["adding"]),
            tuple(part["removing"]),
            tuple(seen["isr"]),
            int(seen["leader"]),
        )
    return found


async def _settings(site: Site, broker_id: int) -> Entries:
    """Empty for a broker that does not answer: another check says so."""
    try:
        names = [SETTING, COMPAT_SETTING, TIER_SETTING]
        return await config_requests.describe_broker(site.gateway, broker_id, names=names, lane=Lane.ACT)
    except (GatewayError, KafkaError):
        return {}


async def _disk(site: Site, broker_id: int) -> tuple[LogDir, ...]:
    try:
        return (await describe_log_dirs(site.gateway, broker_id, only=(), lane=Lane.ACT)).log_dirs
    except (GatewayError, KafkaError):
        return ()


def _space(disks: Mapping[int, tuple[LogDir, ...]], name: str) -> dict[int, int]:
    found = {}
    for broker_id, dirs in disks.items():
        values = [getattr(log_dir, name) for log_dir in dirs]
        if values and None not in values:
            found[broker_id] = sum(values)
    return found


def _value(entries: Entries, name: str) -> str | None:
    entry = entries.get(name)
    return None if entry is None else entry.value


def _produced(aims: Mapping[TopicPartition, Aim], stored: _Stored) -> int:
    """What the busiest joining broker has to take of the moved topics in any case."""
    partitions_of = Counter(row.topic for row in stored.rows)
    into: Counter[int] = Counter()
    for tp, aim in aims.items():
        share = stored.produced.get(tp.topic, 0) // max(1, partitions_of[tp.topic])
        for broker_id in aim.adding:
            into[broker_id] += share
    return max(into.values(), default=0)


def _load(
    snapshot: Json, rows: list[partitions.PartitionRow], aims: Mapping[TopicPartition, Aim], estimate: Json
) -> list[Json]:
    """Replicas, leaders and bytes of each broker now and after."""
    replicas = Counter(b for row in rows for b in row.replicas)
    leaders = Counter(row.leader for row in rows)
    size = Counter[int]()
    own: dict[TopicPartition, int] = {}
    for row in rows:
        own[TopicPartition(row.topic, row.partition)] = row.local_log_bytes or 0
        for b in row.replicas:
            size[b] += row.local_log_bytes or 0
    taken = {broker["broker_id"]: broker["in_effect_bytes"] for broker in estimate["brokers"]}
    joined = Counter(b for aim in aims.values() for b in aim.adding)
    left = Counter(b for aim in aims.values() for b in aim.removing)
    left_bytes: Counter[int] = Counter()
    for tp, aim in aims.items():
        for b in aim.removing:
            left_bytes[b] += own.get(tp, 0)
    return [
        {
            "broker_id": b,
            "replicas": replicas[b],
            "replicas_after": replicas[b] + joined[b] - left[b],
            "leaders": leaders[b],
            "local_bytes": size[b],
            "local_bytes_after": max(0, size[b] + taken.get(b, 0) - left_bytes[b]),
        }
        for b in sorted(entry["broker_id"] for entry in snapshot["seen"]["brokers"])
    ]
