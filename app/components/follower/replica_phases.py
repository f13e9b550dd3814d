"""Each replica's state in words: its phase, since when, how that is known, how deep its local data reaches. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

import pandas as pd

from app.components.follower.local_depth import is_shallow
from app.components.partition.replica_ranges import PHASE_LABELS
from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.markup import Cell
from backend.store.queries.partitions import PartitionPoint, PartitionRow, ReplicaRow, SegmentRow
from backend.tiering.follower_phase import FollowerPhase
from backend.tiering.pending import pending_from

STATUS: Final = {
    FollowerPhase.IN_SYNC.value: "ok",
    FollowerPhase.FETCHING.value: "notice",
    FollowerPhase.TRUNCATING.value: "notice",
    FollowerPhase.BUILDING_REMOTE_AUX.value: "notice",
    FollowerPhase.WAITING_FOR_METADATA.value: "warning",
    FollowerPhase.DELAYED.value: "critical",
    FollowerPhase.FAILED.value: "critical",
}
STUCK_PHASES: Final = (FollowerPhase.DELAYED.value, FollowerPhase.FAILED.value)
_NOT_FACTS: Final = frozenset({"rule", "sentence", "confidence", "epochs", "epochs_cut", "reason"})


@dataclass(frozen=True, slots=True)
class ReplicaSummary:
    """The cells of one replica in the table; None: not known."""

    replica: ReplicaRow
    label: str
    status: str
    since_ms: int | None
    source: str  # exact, or inferred with its confidence; empty for the leader
    evidence: str
    behind: int | None
    depth_ms: int | None
    thin: bool

    @property
    def leads(self) -> bool:
        return self.replica.role == "leader"


def states(
    row: PartitionRow,
    replicas: Sequence[ReplicaRow],
    segments: Sequence[SegmentRow],
    points: Sequence[PartitionPoint],
    now_ms: int,
    last_seen: Mapping[int, str] = MappingProxyType({}),
) -> list[ReplicaSummary]:
    """All replicas in the order given. `last_seen`: when, by broker that does not answer."""
    depths = [local_depth_ms(replica, segments, points, now_ms) for replica in replicas]
    deepest = max((depth for depth in depths if depth is not None), default=0)
    summaries = []
    for replica, depth in zip(replicas, depths, strict=True):
        whole_log = replica.local_log_start_offset == replica.log_start_offset
        thin = is_shallow(depth, deepest) and not whole_log and replica.role != "leader"
        if (seen_text := last_seen.get(replica.broker_id)) is not None:
            evidence = f"Its broker does not answer, {seen_text}: what it has now is not known."
            summaries.append(
                ReplicaSummary(replica, "Broker down", "warning", None, "", evidence, None, None, thin=False)
            )
            continue
        summaries.append(_state(row, replica, depth, thin))
    return summaries


def local_depth_ms(
    replica: ReplicaRow, segments: Sequence[SegmentRow], points: Sequence[PartitionPoint], now_ms: int
) -> int | None:
    """The age of the first record on the replica's disk; None: not known.

    From the history of the leader's log end where that reaches back so far, else from the newest timestamps of the
    remote segment that holds the offset and of the one before, in proportion.
    """
    start, end = replica.local_log_start_offset, replica.log_end_offset
    if start is None or end is None:
        return None
    if end <= start:
        return 0
    written_ms = _passed_ms(start, points)
    if written_ms is None:
        written_ms = _in_segment_ms(start, segments)
    return None if written_ms is None else max(0, now_ms - written_ms)


def table_html(summaries: Sequence[ReplicaSummary], epoch: int, now_ms: int) -> str:
    """The replicas as a table."""
    columns = [
        ("Broker", "left"),
        ("State", "left"),
        ("For", "left"),
        ("Local depth", "right"),
        ("Behind", "right"),
        ("Local", "right"),
    ]
    body = [
        (
            Cell(
                f"{summary.replica.broker_id} leader" if summary.leads else f"{summary.replica.broker_id}",
                css="eb-nowrap",
            ),
            Cell(html=markup.pill(summary.label, summary.status)),
            Cell(html=_for(summary, epoch, now_ms), css="eb-nowrap"),
            _depth(summary),
            fmt.count(summary.behind),
            Cell(fmt.size(summary.replica.local_log_bytes), css="eb-nowrap"),
        )
        for summary in summaries
    ]
    return markup.table(columns, body, caption="Replicas with phase, local depth and bytes")


def evidence_html(summaries: Sequence[ReplicaSummary], now_ms: int) -> str:
    """Why a replica's state is what the table says: one entry for each that is not simply in sync."""
    inner = ""
    for summary in summaries:
        calm = summary.status == "ok" and not summary.thin and not summary.replica.error
        if calm:
            continue
        text = summary.evidence
        if summary.thin:
            text += " ◆ Thin: if it becomes leader, consumers behind its local start read from the remote tier."
        if not text:
            continue  # the table's line says all that is known
        source = f"{markup.text(summary.source)}" if summary.source else ""
        inner += (
            f'<div class="eb-evidence"><b>Broker {summary.replica.broker_id}</b>'
            f"<div>{markup.text(text.strip())} <span>{source}</span></div></div>"
        )
    return inner


def rows(summaries: Sequence[ReplicaSummary], now_ms: int) -> pd.DataFrame:
    """The same as a table, evidence included."""
    return pd.DataFrame(
        {
            "broker": [summary.replica.broker_id for summary in summaries],
            "role": [summary.replica.role for summary in summaries],
            "state": [summary.label for summary in summaries],
            "for": [
                "" if summary.since_ms is None else fmt.duration((now_ms - summary.since_ms) / 1000)
                for summary in summaries
            ],
            "known": [summary.source for summary in summaries],
            "evidence": [summary.evidence for summary in summaries],
            "local depth": [_duration(summary.depth_ms) for summary in summaries],
            "behind": [fmt.count(summary.behind) for summary in summaries],
            "local": [fmt.size(summary.replica.local_log_bytes) for summary in summaries],
            "log dir": [summary.replica.log_dir or fmt.UNKNOWN for summary in summaries],
        }
    )


def offsets_html(row: PartitionRow, replicas: Sequence[ReplicaRow], pending_note: str) -> str:
    """Every offset by name, of each replica; offsets that only the leader knows stand there once."""
    columns = [("Offset", "left"), *((_column(replica), "right") for replica in replicas), ("ListOffsets", "right")]
    each: tuple[tuple[str, str, str], ...] = (
        ("Log start", "log_start_offset", "-2"),
        ("Local start", "local_log_start_offset", "-4"),
        ("Latest tiered, incl.", "latest_tiered_offset", "-5"),
        ("Log end", "log_end_offset", "-1 as replica"),
    )
    body: list[tuple[Cell | str, ...]] = [
        (
            name,
            *(Cell(_offset(getattr(replica, field), field)) for replica in replicas),
            Cell(code, css="eb-quiet eb-nowrap"),
        )
        for name, field, code in each
    ]
    others = [Cell("", css="eb-quiet")] * max(0, len(replicas) - 1)
    first = pending_from(row)
    pending = Cell(
        pending_note or f"{fmt.count(first.offset)}{' · inferred' if first.inferred else ''}", css="eb-nowrap"
    )
    how = "-5 + 1" if first.inferred else "-6"
    watermark, stable = Cell(fmt.count(row.high_watermark)), Cell(fmt.count(row.last_stable_offset))
    if replicas:
        body.insert(3, ("Earliest pending upload", pending, *others, Cell(how, css="eb-quiet eb-nowrap")))
        body.insert(4, ("Last stable", stable, *others, Cell("-1, committed", css="eb-quiet eb-nowrap")))
        body.insert(5, ("High watermark", watermark, *others, Cell("-1", css="eb-quiet")))
    return markup.table(columns, body, caption="Offsets of each replica")


# --- details ---


def _state(row: PartitionRow, replica: ReplicaRow, depth: int | None, thin: bool) -> ReplicaSummary:
    evidence: dict[str, Any] = replica.evidence if isinstance(replica.evidence, dict) else {}
    leads = replica.role == "leader"
    label = PHASE_LABELS.get(replica.phase or "", "not known").capitalize()
    status = STATUS.get(replica.phase or "", "warning")
    if leads:
        label, status = ("Leads", "ok") if replica.error is None else ("Not known", "warning")
    elif replica.phase is None:
        label = "? not known"
    behind = None
    if row.log_end_offset is not None and replica.log_end_offset is not None:
        behind = max(0, row.log_end_offset - replica.log_end_offset)
    source = "" if leads else known_from(replica, evidence)
    return ReplicaSummary(
        replica, label, status, replica.phase_since_ms, source, describe_phase(replica, evidence), behind, depth, thin
    )


def known_from(replica: ReplicaRow, evidence: dict[str, Any]) -> str:
    """``exact``, or ``inferred`` with its confidence."""
    if replica.phase_source != "inferred":
        return replica.phase_source or ""
    confidence = evidence.get("confidence")
    return f"inferred, {confidence} confidence" if confidence else "inferred"


def describe_phase(replica: ReplicaRow, evidence: dict[str, Any]) -> str:
    """The evidence in words: what it was concluded from, then the facts that came with it."""
    text = str(evidence.get("reason") or evidence.get("sentence") or replica.error or "")
    if text and text[-1] not in ".!?":
        text += "."
    facts = [
        f"{name.replace('_', ' ')} {fmt.count(value) if isinstance(value, int) else value}"
        for name, value in evidence.items()
        # -1 is Kafka's way to say that there is none.
        if name not in _NOT_FACTS and isinstance(value, (int, str)) and not isinstance(value, bool)
        if value not in ("", -1)
    ]
    return f"{text[:1].upper()}{text[1:]} {', '.join(facts)}".strip()


def _passed_ms(offset: int, points: Sequence[PartitionPoint]) -> int | None:
    """When the log end passed an offset, from history; None when history does not reach back so far."""
    log_ends = [(p.sampled_ms, p.log_end_offset) for p in points if p.log_end_offset is not None]
    for (before_ms, before), (after_ms, after) in pairwise(log_ends):
        if before <= offset < after:
            return round(before_ms + (after_ms - before_ms) * (offset - before) / (after - before))
    return None


def _in_segment_ms(offset: int, segments: Sequence[SegmentRow]) -> int | None:
    holding = [s for s in segments if s.start_offset <= offset < s.next_offset]
    if not holding:
        return None
    segment = holding[-1]
    before = [s.max_timestamp_ms for s in segments if s.next_offset == segment.start_offset]
    if not before:
        return segment.max_timestamp_ms
    share = (offset - segment.start_offset) / (segment.next_offset - segment.start_offset)
    return round(before[-1] + (segment.max_timestamp_ms - before[-1]) * share)


def _for(summary: ReplicaSummary, epoch: int, now_ms: int) -> str:
    if summary.leads:
        return f'<span class="eb-quiet">epoch {epoch}</span>'
    lasting = fmt.UNKNOWN if summary.since_ms is None else fmt.duration(max(0, now_ms - summary.since_ms) / 1000)
    short = summary.source.partition(",")[0]
    return f'{lasting} <span class="eb-quiet" title="{markup.text(summary.source)}">{markup.text(short)}</span>'


def _depth(summary: ReplicaSummary) -> Cell:
    label = _duration(summary.depth_ms)
    if not summary.thin:
        return Cell(label, css="eb-nowrap")
    return Cell(html=f"{markup.mark('warning')} {markup.text(label)} thin", css="eb-warning eb-nowrap")


def _duration(depth_ms: int | None) -> str:
    if depth_ms is None:
        return fmt.UNKNOWN
    return "none" if depth_ms == 0 else fmt.duration(depth_ms / 1000)


def _column(replica: ReplicaRow) -> str:
    return f"Broker {replica.broker_id}" + (", leader" if replica.role == "leader" else "")


def _offset(value: int | None, field: str) -> str:
    if value == -1 and field == "latest_tiered_offset":
        return "none"
    return fmt.count(value)
