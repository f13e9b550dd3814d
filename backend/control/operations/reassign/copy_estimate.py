"""Estimate of bytes that a reassignment copies to each broker, with the bootstrap flag off and on, and of time. Pure.

Each joining replica copies what `tiering.estimate` says for its partition; which of the two numbers counts is decided
by the flag of the broker that it joins (KIP-1023 is read by the follower).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from backend.control.operations.reassign.partition_moves import PlannedMove
from backend.tiering.estimate import EstimateVerdict, PartitionEstimate
from backend.tiering.ids import TopicPartition

ROWS_SHOWN: Final = 50
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReplicaCopy:
    """One joining replica. Bytes None: not known, or it could not start with the flag like that."""

    topic: str
    partition: int
    broker_id: int
    source_id: int
    off_bytes: int | None
    on_bytes: int | None
    flag_on: bool
    verdict: str
    reason: str

    @property
    def in_effect_bytes(self) -> int | None:
        return self.on_bytes if self.flag_on else self.off_bytes


def copies(
    moves: Mapping[TopicPartition, PlannedMove],
    leaders: Mapping[TopicPartition, int],
    estimates: Mapping[TopicPartition, PartitionEstimate],
    flags: Mapping[int, bool],
) -> list[ReplicaCopy]:
    """One row per joining replica."""
    result = []
    for tp, move in moves.items():
        estimate = estimates.get(tp)
        for broker_id in move.adding:
            result.append(
                ReplicaCopy(
                    topic=tp.topic,
                    partition=tp.partition,
                    broker_id=broker_id,
                    source_id=leaders.get(tp, -1),
                    off_bytes=None if estimate is None else estimate.off_bytes,
                    on_bytes=None if estimate is None else estimate.on_bytes,
                    flag_on=flags.get(broker_id, False),
                    verdict=(EstimateVerdict.UNKNOWN if estimate is None else estimate.verdict).value,
                    reason="No sample of it yet." if estimate is None else estimate.reason,
                )
            )
    return result


def estimate_json(copies: list[ReplicaCopy], *, throttle_bytes_per_s: int | None, age: Json) -> Json:
    """The plan's `estimate`: totals, times at the limit, bytes per broker, the largest rows."""
    largest = sorted(copies, key=lambda copy: -(copy.off_bytes or 0))
    by_broker: dict[int, Json] = {}
    for broker_id in sorted({copy.broker_id for copy in copies}):
        own = [copy for copy in copies if copy.broker_id == broker_id]
        by_broker[broker_id] = {
            "broker_id": broker_id,
            "replicas": len(own),
            "flag_on": own[0].flag_on,
            "off_bytes": sum(copy.off_bytes or 0 for copy in own),
            "on_bytes": sum(_on(copy) for copy in own),
            "in_effect_bytes": sum(copy.in_effect_bytes or 0 for copy in own),
        }
    totals = {
        name: sum(broker[name] for broker in by_broker.values())
        for name in ("off_bytes", "on_bytes", "in_effect_bytes")
    }
    return {
        "replicas": len(copies),
        **{verdict.value: sum(copy.verdict == verdict.value for copy in copies) for verdict in EstimateVerdict},
        **totals,
        "throttle_bytes_per_s": throttle_bytes_per_s,
        "off_ms": duration_ms({copy: copy.off_bytes or 0 for copy in copies}, throttle_bytes_per_s),
        "on_ms": duration_ms({copy: _on(copy) for copy in copies}, throttle_bytes_per_s),
        "in_effect_ms": duration_ms({copy: copy.in_effect_bytes or 0 for copy in copies}, throttle_bytes_per_s),
        "brokers": list(by_broker.values()),
        "partitions": [asdict(copy) | {"in_effect_bytes": copy.in_effect_bytes} for copy in largest[:ROWS_SHOWN]],
        **age,
    }


def _on(copy: ReplicaCopy) -> int:
    """A replica that could not start with the flag on copies nothing then; it is counted as blocked."""
    return copy.on_bytes or 0


def duration_ms(sizes: Mapping[ReplicaCopy, int], bytes_per_s: int | None) -> int | None:
    """The busiest broker's bytes at the limit, which each broker has for what it sends and for what it takes."""
    if bytes_per_s is None:
        return None
    into: Counter[int] = Counter()
    out_of: Counter[int] = Counter()
    for copy, size_bytes in sizes.items():
        into[copy.broker_id] += size_bytes
        out_of[copy.source_id] += size_bytes
    busiest = max([*into.values(), *out_of.values()], default=0)
    return round(busiest * 1000 / bytes_per_s)
