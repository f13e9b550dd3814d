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
from backend.control.gateway.requests.log_dir_requests import LogDirDescription, describe_log_dirs
from backend.control.operations.config.toggle_bootstrap import COMPAT_SETTING, SETTING
from backend.control.operations.lifecycle.plan_draft import JsonObject, PlanCheck
from backend.control.operations.lifecycle.plan_states import OPEN
from backend.control.operations.operation_kind import OperationContext
from backend.control.operations.reassign import copy_estimate, reassignment_checks
from backend.control.operations.reassign.partition_moves import CurrentReplicas, PlannedMove
from backend.control.operations.reassign.reassignment_inputs import ReassignInputs
from backend.control.wall_clock import now_ms
from backend.protocol.errors import KafkaError
from backend.store.queries import operations, partitions
from backend.store.writes.operation_rows import open_operation
from backend.tiering.estimate import PartitionEstimate
from backend.tiering.ids import TopicPartition

TIER_SETTING: Final = "remote.log.storage.system.enable"
MIN_ISR: Final = "min.insync.replicas"
REMOTE: Final = "remote.storage.enable"


@dataclass(frozen=True, slots=True)
class ReassignmentReview:
    """Checks, estimate and load of a plan."""

    checks: list[PlanCheck]
    estimate: JsonObject
    leaders_change: int
    load: list[JsonObject]


@dataclass(frozen=True, slots=True)
class _Stored:
    """Values read from the database."""

    rows: list[partitions.PartitionRow]
    estimates: dict[TopicPartition, PartitionEstimate]
    age: JsonObject
    local: dict[tuple[str, int, int], tuple[int | None, str | None]]
    produced: dict[str, int]
    running: int | None


async def review(
    context: OperationContext, inputs: ReassignInputs, snapshot: JsonObject, moves: Mapping[TopicPartition, PlannedMove]
) -> ReassignmentReview:
    """Checks, estimate and load of a plan. Raises GatewayError, KafkaError, DatabaseAway."""
    joining = sorted({b for move in moves.values() for b in move.adding})
    settings = dict(zip(joining, await asyncio.gather(*(_settings(context, b) for b in joining)), strict=True))
    disks = dict(zip(joining, await asyncio.gather(*(_disk(context, b) for b in joining)), strict=True))
    topics = sorted({tp.topic for tp in moves})
    described = await config_requests.describe_topics(context.gateway, topics, names=(MIN_ISR, REMOTE), lane=Lane.ACT)
    kafka_rules = not context.embedded or any(_value(result, COMPAT_SETTING) == "kafka" for result in settings.values())
    stored = await context.database.read(lambda c: _stored(c, context.cluster_id, moves, kafka_rules=kafka_rules))
    now = _now(snapshot, moves)
    flags = {b: _value(result, SETTING) == "true" for b, result in settings.items()}
    leaders = {tp: result.leader for tp, result in now.items()}
    copies = copy_estimate.copies(moves, leaders, stored.estimates, flags)
    estimate = copy_estimate.estimate_json(copies, throttle_bytes_per_s=inputs.throttle_bytes_per_s, age=stored.age)
    facts = reassignment_checks.ReassignmentFacts(
        now=now,
        registered=frozenset(b["broker_id"] for b in snapshot["seen"]["brokers"]),
        alive=frozenset(b["broker_id"] for b in snapshot["seen"]["brokers"] if b["alive"]),
        min_isr={topic: int(_value(result, MIN_ISR) or 1) for topic, result in described.items()},
        tiered=frozenset(topic for topic, result in described.items() if _value(result, REMOTE) == "true"),
        without_tier=frozenset(b for b, result in settings.items() if _value(result, TIER_SETTING) == "false"),
        usable_bytes=_space(disks, "usable_bytes"),
        total_bytes=_space(disks, "total_bytes"),
        local_bytes={
            (TopicPartition(topic, partition), broker): size
            for (topic, partition, broker), (size, _) in stored.local.items()
        },
        produced_bytes_per_s=_produced(moves, stored),
        rates_set=[int(b) for b, values in snapshot["throttles"]["brokers"].items() if any(values.values())],
        lists_set=[topic for topic, values in snapshot["throttles"]["topics"].items() if any(values.values())],
        running_plan=stored.running,
    )
    result = reassignment_checks.checks(
        moves,
        facts,
        copies,
        inputs.throttle_bytes_per_s,
        unthrottled=inputs.unthrottled,
        stale=bool(stored.age.get("stale")),
    )
    estimate["suggested_bytes_per_s"] = suggested(facts.produced_bytes_per_s)
    changing = sum(leaders[tp] not in move.target or _elected(inputs, move, leaders[tp]) for tp, move in moves.items())
    return ReassignmentReview(result, estimate, changing, _load(snapshot, stored.rows, moves, estimate))


def suggested(produced_bytes_per_s: int) -> int:
    """A limit that catches up: four times what comes meanwhile, at least 10 MB/s."""
    return max(10_000_000, 4 * produced_bytes_per_s)


def _elected(inputs: ReassignInputs, move: PlannedMove, leader: int) -> bool:
    return inputs.elect and leader != move.target[0]


def _stored(
    connection: Connection, cluster_id: str, moves: Mapping[TopicPartition, PlannedMove], *, kafka_rules: bool
) -> _Stored:
    at_ms = now_ms()
    rows = partitions.partitions(connection, cluster_id, tiered_only=False)
    own = [row for row in rows if TopicPartition(row.topic, row.partition) in moves]
    estimates = operations.partition_estimates(connection, cluster_id, own, kafka_rules=kafka_rules)
    topics = sorted({tp.topic for tp in moves})
    return _Stored(
        rows=rows,
        estimates={TopicPartition(estimate.topic, estimate.partition): estimate for estimate in estimates},
        age=operations.sample_age(connection, cluster_id, own, at_ms),
        local=operations.replicas_of(connection, cluster_id, topics),
        produced=operations.produced_bytes_per_s(connection, cluster_id, topics, at_ms),
        running=open_operation(connection, cluster_id, "reassign", {state.value for state in OPEN}),
    )


def _now(snapshot: JsonObject, moves: Mapping[TopicPartition, PlannedMove]) -> dict[TopicPartition, CurrentReplicas]:
    result = {}
    for tp, move in moves.items():
        key = f"{tp.topic}-{tp.partition}"
        part, seen = snapshot["partitions"][key], snapshot["seen"]["partitions"][key]
        result[tp] = CurrentReplicas(
            move.topic_id,
            tuple(part["replicas"]),
            tuple(part["adding"]),
            tuple(part["removing"]),
            tuple(seen["isr"]),
            int(seen["leader"]),
        )
    return result


async def _settings(context: OperationContext, broker_id: int) -> Entries:
    """Empty for a broker that does not answer: another check says so."""
    try:
        names = [SETTING, COMPAT_SETTING, TIER_SETTING]
        return await config_requests.describe_broker(context.gateway, broker_id, names=names, lane=Lane.ACT)
    except (GatewayError, KafkaError):
        return {}


async def _disk(context: OperationContext, broker_id: int) -> tuple[LogDirDescription, ...]:
    try:
        return (await describe_log_dirs(context.gateway, broker_id, only=(), lane=Lane.ACT)).log_dirs
    except (GatewayError, KafkaError):
        return ()


def _space(disks: Mapping[int, tuple[LogDirDescription, ...]], name: str) -> dict[int, int]:
    result = {}
    for broker_id, dirs in disks.items():
        values = [getattr(log_dir, name) for log_dir in dirs]
        if values and None not in values:
            result[broker_id] = sum(values)
    return result


def _value(entries: Entries, name: str) -> str | None:
    entry = entries.get(name)
    return None if entry is None else entry.value


def _produced(moves: Mapping[TopicPartition, PlannedMove], stored: _Stored) -> int:
    """Bytes per second of the moved topics that the busiest joining broker has to take in any case."""
    partitions_of = Counter(row.topic for row in stored.rows)
    into: Counter[int] = Counter()
    for tp, move in moves.items():
        share = stored.produced.get(tp.topic, 0) // max(1, partitions_of[tp.topic])
        for broker_id in move.adding:
            into[broker_id] += share
    return max(into.values(), default=0)


def _load(
    snapshot: JsonObject,
    rows: list[partitions.PartitionRow],
    moves: Mapping[TopicPartition, PlannedMove],
    estimate: JsonObject,
) -> list[JsonObject]:
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
    joined = Counter(b for move in moves.values() for b in move.adding)
    left = Counter(b for move in moves.values() for b in move.removing)
    left_bytes: Counter[int] = Counter()
    for tp, move in moves.items():
        for b in move.removing:
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
