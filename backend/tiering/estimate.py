"""The bytes that one new replica of each tiered partition would copy, with the flag off and on (KIP-1023).

Off: everything the leader holds locally, `[local start, log end)`. On: `[s, log end)`, where s is the end of the remote
segment that holds the offset before the earliest pending upload. Bytes come from the leader's log size, less the
segments of the ledger that lie in `[local start, s)`: a remote copy is the local ``.log`` byte for byte. Where the
ledger does not cover that range, records are taken to be of one size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from backend.tiering.pending import PendingReason


class EstimateVerdict(StrEnum):
    """The effect of the flag on a new, empty replica of a partition."""

    QUALIFIES = "qualifies"
    NO_EFFECT = "no_effect"
    BLOCKED = "blocked"
    UNKNOWN = "unknown"


class RemoteSegment(NamedTuple):
    """A finished remote segment, `[start, next)`. A tuple: a plan may look at 200,000 of them."""

    start: int
    next: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Facts about a partition's leader; None: not known."""

    topic: str
    partition: int
    compacted: bool
    log_start: int | None
    local_start: int | None
    log_end: int | None
    pending: int | None
    pending_reason: str | None
    local_bytes: int | None
    tiered: bool = True


@dataclass(frozen=True, slots=True)
class PartitionEstimate:
    """Bytes and first offset of a new replica, off and on; None where it could not start or is not known."""

    topic: str
    partition: int
    verdict: EstimateVerdict
    reason: str
    off_start: int | None = None
    off_bytes: int | None = None
    on_start: int | None = None
    on_bytes: int | None = None
    method: str = ""


ALL_COPIED: Final = PendingReason.ALL_COPIED.value


def estimate_partition(
    state: PartitionState, segments: Sequence[RemoteSegment], *, kafka_rules: bool
) -> PartitionEstimate:
    """One partition. `kafka_rules`: as Apache Kafka 4.3 decides; else as the embedded engine does (KIP-1023's text)."""
    log_start, local_start, log_end = state.log_start, state.local_start, state.log_end
    if log_start is None or local_start is None or log_end is None or state.local_bytes is None:
        return PartitionEstimate(state.topic, state.partition, EstimateVerdict.UNKNOWN, "Its leader did not answer.")
    off: dict[str, Any] = {"off_start": local_start, "off_bytes": state.local_bytes}
    same = off | {"on_start": local_start, "on_bytes": state.local_bytes, "method": "log size"}

    def estimate(verdict: EstimateVerdict, reason: str, **numbers: Any) -> PartitionEstimate:
        return PartitionEstimate(state.topic, state.partition, verdict, reason, **numbers)

    if not state.tiered:
        return estimate(EstimateVerdict.NO_EFFECT, "The topic is not tiered.", **same)
    if state.compacted:
        return estimate(EstimateVerdict.NO_EFFECT, "The topic is compacted.", **same)
    if local_start == 0:
        return estimate(EstimateVerdict.NO_EFFECT, "The leader still holds offset 0 locally.", **same)
    pending = log_end if state.pending_reason == ALL_COPIED else state.pending
    if state.pending_reason == ALL_COPIED and kafka_rules:
        reason = "Everything is copied: the leader names no offset until one more record arrives."
        return estimate(EstimateVerdict.BLOCKED, reason, **off)
    if pending is None or (state.pending_reason is not None and state.pending_reason != ALL_COPIED):
        return estimate(EstimateVerdict.BLOCKED, "The leader does not know yet what is in the remote tier.", **off)
    if pending <= log_start:
        if kafka_rules:
            return estimate(EstimateVerdict.BLOCKED, "Nothing usable is in the remote tier.", **off)
        return estimate(EstimateVerdict.NO_EFFECT, "Nothing usable is in the remote tier.", **same)
    start = _segment_end(pending, segments)
    if start <= local_start:
        return estimate(EstimateVerdict.NO_EFFECT, "The remote tier ends where local data begins.", **same)
    on_bytes, method = _tail_bytes(local_start, start, log_end, state.local_bytes, segments)
    return estimate(EstimateVerdict.QUALIFIES, "", **off, on_start=start, on_bytes=on_bytes, method=method)


def _segment_end(pending: int, segments: Sequence[RemoteSegment]) -> int:
    """The start of a replica: after the segment that holds `pending` - 1, which may end beyond `pending`."""
    holding = [segment.next for segment in segments if segment.start < pending <= segment.next]
    return max(holding, default=pending)


def _tail_bytes(
    local_start: int, start: int, log_end: int, local_bytes: int, segments: Sequence[RemoteSegment]
) -> tuple[int, str]:
    """Bytes of `[start, log_end)` in the leader's local log, and how they were found."""
    covered, at = 0, local_start
    for segment in sorted(segments, key=lambda s: (s.start, -s.next)):
        if segment.start == at and segment.next <= start:
            covered, at = covered + segment.size_bytes, segment.next
    if at == start and covered <= local_bytes:
        return local_bytes - covered, "ledger"
    if log_end <= local_start:
        return 0, "proportional"
    share = max(0.0, min(1.0, (log_end - start) / (log_end - local_start)))
    return round(local_bytes * share), "proportional"


def summarize(estimates: Iterable[PartitionEstimate], *, largest: int = 50) -> dict[str, Any]:
    """The `estimate` of a plan: totals for one new replica of each partition, and where it matters most."""
    rows = list(estimates)
    counted = [row for row in rows if row.on_bytes is not None and row.off_bytes is not None]
    gain = sorted(counted, key=lambda row: (row.on_bytes or 0) - (row.off_bytes or 0))
    blocked = [row for row in rows if row.verdict in (EstimateVerdict.BLOCKED, EstimateVerdict.UNKNOWN)]
    return {
        "tiered_partitions": len(rows),
        **{verdict.value: sum(row.verdict is verdict for row in rows) for verdict in EstimateVerdict},
        "off_bytes": sum(row.off_bytes or 0 for row in counted),
        "on_bytes": sum(row.on_bytes or 0 for row in counted),
        "partitions": [_json(row) for row in gain[:largest]],
        "blocked_partitions": [_json(row) for row in blocked[:largest]],
    }


def _json(row: PartitionEstimate) -> dict[str, Any]:
    return asdict(row) | {"verdict": row.verdict.value}
