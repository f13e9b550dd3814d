"""Progress of a reassignment: partitions by state, bytes that the joining replicas have, their phases."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final

from backend.control.control_database import DatabaseAway
from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import describe_failure
from backend.control.gateway.requests.log_dir_requests import describe_log_dirs
from backend.control.operations.lifecycle.plan_draft import JsonObject
from backend.control.operations.operation_kind import OperationContext
from backend.control.operations.reassign.partition_moves import CurrentReplicas, MoveState, PlannedMove
from backend.control.wall_clock import now_ms
from backend.protocol.errors import KafkaError
from backend.store.queries import operations
from backend.tiering.ids import TopicPartition

ROWS_SHOWN: Final = 50
Sizes = dict[tuple[TopicPartition, int], int]
_log = logging.getLogger(__name__)


async def measure_progress(
    context: OperationContext,
    moves: Mapping[TopicPartition, PlannedMove],
    now: Mapping[TopicPartition, CurrentReplicas],
    states: Mapping[TopicPartition, MoveState],
    before: Mapping[str, Any],
) -> JsonObject:
    """The stored `progress`. `copied_bytes` counts what joining replicas hold, those of finished partitions included.

    A broker that does not answer leaves its figures as they were.
    """
    moving = [tp for tp, state in states.items() if state is MoveState.MOVING]
    final: list[str] = list(before.get("final", []))
    # A partition that has just come to its end is measured again, so that the sum is the bytes really copied.
    ended = [
        tp
        for tp, state in states.items()
        if state is MoveState.DONE and moves[tp].adding and f"{tp.topic}-{tp.partition}" not in final
    ]
    sizes = await _sizes(context, moves, [tp for tp in moving if moves[tp].adding] + ended)
    phases = await _phases(context, moving)
    rows = []
    for tp in moving[:ROWS_SHOWN]:
        for broker_id in moves[tp].adding:
            rows.append(
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "broker_id": broker_id,
                    "local_bytes": sizes.get((tp, broker_id)),
                    "phase": phases.get((tp.topic, tp.partition, broker_id)),
                    "in_isr": broker_id in now[tp].isr,
                }
            )
    counts = Counter(state.value for state in states.values())
    kept: dict[str, int] = dict(before.get("bytes", {}))
    kept |= {f"{tp.topic}-{tp.partition}/{broker}": size for (tp, broker), size in sizes.items()}
    return {
        "began_ms": before.get("began_ms") or now_ms(),
        "partitions": len(states),
        "counts": {move_state.value: counts.get(move_state.value, 0) for move_state in MoveState},
        "bytes": kept,
        "final": [*final, *(f"{tp.topic}-{tp.partition}" for tp in ended)],
        "copied_bytes": sum(kept.values()),
        "moving": rows,
    }


async def _sizes(
    context: OperationContext, moves: Mapping[TopicPartition, PlannedMove], moving: list[TopicPartition]
) -> Sizes:
    by_broker: dict[int, list[TopicPartition]] = defaultdict(list)
    for tp in moving:
        for broker_id in moves[tp].adding:
            by_broker[broker_id].append(tp)

    async def broker_sizes(broker_id: int, partitions: list[TopicPartition]) -> Sizes:
        try:
            disk = await describe_log_dirs(context.gateway, broker_id, only=partitions, lane=Lane.ACT)
        except (GatewayError, KafkaError) as error:
            _log.info("Broker %d does not tell what it has copied: %s", broker_id, describe_failure(error))
            return {}
        return {(tp, broker_id): replica.size_bytes for tp, replica in disk.replicas.items()}

    result: Sizes = {}
    for sizes in await asyncio.gather(
        *(broker_sizes(broker_id, partitions) for broker_id, partitions in by_broker.items())
    ):
        result |= sizes
    return result


async def _phases(context: OperationContext, moving: list[TopicPartition]) -> dict[tuple[str, int, int], str | None]:
    topics = sorted({tp.topic for tp in moving[:ROWS_SHOWN]})
    if not topics:
        return {}
    try:
        result = await context.database.read(lambda c: operations.replicas_of(c, context.cluster_id, topics))
    except DatabaseAway:
        return {}
    return {key: phase for key, (_, phase) in result.items()}
