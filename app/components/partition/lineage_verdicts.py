"""Verdicts on remote segments: retention counts and deletes only those of the leader's chain of epochs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from backend.store.queries.lineage import Chain, FinishedSegment
from backend.store.queries.partitions import ReplicaRow, SegmentRow
from backend.tiering.epoch_lineage import Copy, EpochEntry, Reason, replaced, segment_lineage
from backend.tiering.segment_state import SegmentState


class LineageStanding(StrEnum):
    """The relation of a segment of the ledger to the leader's chain of epochs."""

    IN_LINEAGE = "in lineage"
    BELOW_LOG_START = "below log start"
    OUTSIDE = "outside lineage"
    COPYING = "copying"
    DELETING = "deleting"
    DELETED = "deleted"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class JudgedSegment:
    """A segment with its standing, and why in words."""

    segment: SegmentRow
    lineage_standing: LineageStanding
    why: str = ""
    overlaps: bool = False  # shares offsets with an earlier segment of the lineage
    orphaned: bool = False  # replaced in the index of its epoch: retention never sees it


@dataclass(frozen=True, slots=True)
class LeaderChain:
    """The epochs and offsets that segments are compared with; ``truncated``: the chain's older end is not known."""

    entries: tuple[EpochEntry, ...]
    log_start: int
    log_end: int
    truncated: bool = False


def leader_chain(replicas: Iterable[ReplicaRow]) -> LeaderChain | None:
    """The leader's chain; None when it has not reported it."""
    leader = next((replica for replica in replicas if replica.role == "leader"), None)
    if leader is None or not leader.leader_epochs or leader.log_end_offset is None or leader.log_start_offset is None:
        return None
    truncated = isinstance(leader.evidence, dict) and bool(leader.evidence.get("epochs_cut"))
    return LeaderChain(entries(leader.leader_epochs), leader.log_start_offset, leader.log_end_offset, truncated)


def entries(chain: Sequence[Sequence[int]]) -> tuple[EpochEntry, ...]:
    """A stored chain as (epoch, first offset)."""
    return tuple((int(epoch), int(start)) for epoch, start in chain)


def judge(segments: Iterable[SegmentRow], chain: LeaderChain | None) -> list[JudgedSegment]:
    """The standing of each segment, in the order given (offset order is needed to see overlaps)."""
    verdicts, reached = [], -1
    for segment in segments:
        lineage_standing, why = _lineage_standing(segment, chain)
        overlaps = lineage_standing is LineageStanding.IN_LINEAGE and segment.start_offset < reached
        if lineage_standing is LineageStanding.IN_LINEAGE:
            reached = max(reached, segment.next_offset)
        verdicts.append(JudgedSegment(segment, lineage_standing, why, overlaps))
    return verdicts


def with_orphans(verdicts: Iterable[JudgedSegment]) -> list[JudgedSegment]:
    """The same segments of one partition, marked where Kafka's index of epochs has a later copy instead."""
    listed = list(verdicts)
    lost = replaced(
        Copy(
            verdict.segment.segment_id,
            entries(verdict.segment.leader_epochs),
            verdict.segment.next_offset,
            verdict.segment.copy_finished_ms or 0,
        )
        for verdict in listed
        if verdict.segment.state is SegmentState.COPY_SEGMENT_FINISHED
    )
    return [replace(verdict, orphaned=True) if verdict.segment.segment_id in lost else verdict for verdict in listed]


def _lineage_standing(segment: SegmentRow, chain: LeaderChain | None) -> tuple[LineageStanding, str]:
    if segment.state is SegmentState.COPY_SEGMENT_STARTED:
        return LineageStanding.COPYING, ""
    if segment.state is SegmentState.DELETE_SEGMENT_STARTED:
        return LineageStanding.DELETING, ""
    if segment.state is SegmentState.DELETE_SEGMENT_FINISHED:
        return LineageStanding.DELETED, ""
    if chain is None:
        return LineageStanding.NOT_CHECKED, "the leader's epochs are not known"
    own = entries(segment.leader_epochs)
    if segment.next_offset <= chain.log_start:
        return LineageStanding.BELOW_LOG_START, "all below log start: the next expiration deletes it"
    if chain.truncated and own and own[-1][0] < chain.entries[0][0]:
        return LineageStanding.NOT_CHECKED, f"older than epoch {chain.entries[0][0]}, the first that is known"
    verdict = segment_lineage(own, segment.next_offset - 1, chain.entries, chain.log_end)
    if verdict.within:
        return LineageStanding.IN_LINEAGE, ""
    if verdict.reason is Reason.EPOCH_UNKNOWN:
        return LineageStanding.OUTSIDE, _leader_went(own, chain.entries) or verdict.explanation
    return LineageStanding.OUTSIDE, verdict.explanation


def _leader_went(own: Sequence[EpochEntry], chain: Sequence[EpochEntry]) -> str:
    """``leader goes 12 → 14 here``: the epochs around the one that the leader does not have."""
    missing = next(epoch for epoch, _ in own if epoch not in dict(chain))
    below = [epoch for epoch, _ in chain if epoch < missing]
    above = [epoch for epoch, _ in chain if epoch > missing]
    return f"leader goes {below[-1]} → {above[0]} here" if below and above else ""


def counts(verdicts: Iterable[JudgedSegment]) -> Counter[LineageStanding]:
    """Segments by standing."""
    return Counter(verdict.lineage_standing for verdict in verdicts)


def outside_by_partition(
    segments: Iterable[FinishedSegment], chains: Mapping[tuple[str, int], tuple[Chain, int]]
) -> Counter[tuple[str, int]]:
    """The count of segments outside their leader's chain by partition; partitions without a chain are not judged."""
    outside: Counter[tuple[str, int]] = Counter()
    for segment in segments:
        key = (segment.topic, segment.partition)
        if key not in chains:
            continue
        chain, log_end = chains[key]
        verdict = segment_lineage(entries(segment.leader_epochs), segment.end_offset, entries(chain), log_end)
        below_start = bool(chain) and segment.end_offset < chain[0][1]
        if not verdict.within and not below_start:
            outside[key] += 1
    return outside
