"""The remote segments of one partition as a sortable table, and a partition's events in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st

from app.components.follower.stuck_follower import is_ordinary_retry
from app.components.partition.lineage_verdicts import JudgedSegment
from app.components.partition.replica_ranges import PHASE_LABELS
from app.components.shared import format as fmt
from app.components.shared.table_style import number_format, size, styled, whole
from backend.store.queries.partition_detail import EngineEventRow, SegmentEventRow
from backend.tiering.segment_state import PartitionDeleteState, SegmentState

STATE_LABELS: Final = {
    SegmentState.COPY_SEGMENT_STARTED: "copy started",
    SegmentState.COPY_SEGMENT_FINISHED: "copy finished",
    SegmentState.DELETE_SEGMENT_STARTED: "delete started",
    SegmentState.DELETE_SEGMENT_FINISHED: "delete finished",
}
_DELETE_LABELS: Final = {
    PartitionDeleteState.DELETE_PARTITION_MARKED: "deletion of the partition marked",
    PartitionDeleteState.DELETE_PARTITION_STARTED: "deletion of the partition started",
    PartitionDeleteState.DELETE_PARTITION_FINISHED: "deletion of the partition finished",
}
_KIND_PARTITION_DELETE: Final = 2


@dataclass(frozen=True, slots=True)
class ListedEvent:
    """One event: its time, the source that reported it, its broker, its text."""

    at_ms: int
    source: str
    broker_id: int
    what: str
    bad: bool = False


def frame(verdicts: Sequence[JudgedSegment], clock: Callable[[int | None], str]) -> pd.DataFrame:
    """The newest segment first. ``clock`` writes a time."""
    newest = [(verdict, verdict.segment) for verdict in reversed(verdicts)]
    return pd.DataFrame(
        {
            "first offset": [s.start_offset for _, s in newest],
            "next offset": [s.next_offset for _, s in newest],
            "state": [STATE_LABELS[s.state] for _, s in newest],
            "lineage": [_lineage(verdict) for verdict, _ in newest],
            "size": [s.segment_size_bytes for _, s in newest],
            "epochs": [_epochs(s.leader_epochs) for _, s in newest],
            "broker": [s.copy_broker_id for _, s in newest],
            "copy started": [clock(s.copy_started_ms) for _, s in newest],
            "took": [_took(s.copy_started_ms, s.copy_finished_ms) for _, s in newest],
            "newest record": [clock(s.max_timestamp_ms) for _, s in newest],
            "segment id": [s.segment_id for _, s in newest],
        }
    )


def shown(verdicts: Sequence[JudgedSegment], clock: Callable[[int | None], str]) -> Any:
    """:func:`frame` with numbers written as on the rest of the page."""
    return styled(frame(verdicts, clock), {"first offset": whole, "next offset": whole, "size": size})


def columns(count: int) -> dict[str, Any]:
    """The column configuration for the table of :func:`shown`, for that many rows."""
    offset, size_format = number_format(count, "localized"), number_format(count, "bytes")
    return {
        "first offset": st.column_config.NumberColumn("first offset", format=offset),
        "next offset": st.column_config.NumberColumn("next offset", format=offset, help="Exclusive end"),
        "size": st.column_config.NumberColumn("size", format=size_format, help="The .log file only"),
        "broker": st.column_config.NumberColumn("broker", help="It started the copy", width=60),
        "lineage": st.column_config.TextColumn("lineage", help="Is it part of the leader's epochs", width="medium"),
        "epochs": st.column_config.TextColumn("epochs", help="Leader epochs of its records"),
    }


def newest_events(
    engine: Iterable[EngineEventRow], remote: Iterable[SegmentEventRow], most: int = 200
) -> list[ListedEvent]:
    """Both sources, the newest first. A copy or deletion that both report is listed once, as the engine's."""
    engine_events = list(engine)
    exact = {(event.body.get("segment_id"), event.body.get("outcome"), event.type) for event in engine_events}
    listed = [ListedEvent(e.at_ms, "engine", e.broker_id, *engine_event_text(e.type, e.body)) for e in engine_events]
    for event in remote:
        kind = "delete" if event.state >= SegmentState.DELETE_SEGMENT_STARTED else "copy"
        outcome = "started" if event.state in (0, 2) else "finished"
        if event.legal and (event.segment_id, outcome, kind) in exact:
            continue
        at_ms, text = event.event_timestamp_ms, _segment_event_text(event)
        listed.append(ListedEvent(at_ms, "remote log metadata", event.broker_id, text, not event.legal))
    return sorted(listed, key=lambda happened: -happened.at_ms)[:most]


def event_rows(events: Sequence[ListedEvent], clock: Callable[[int | None], str]) -> pd.DataFrame:
    """Events as a table."""
    return pd.DataFrame(
        {
            "time": [clock(event.at_ms) for event in events],
            "broker": [event.broker_id for event in events],
            "what": [event.what for event in events],
            "told by": [event.source for event in events],
        }
    )


def _epochs(chain: Sequence[Sequence[int]]) -> str:
    epochs = [entry[0] for entry in chain]
    if not epochs:
        return "none"
    return f"{epochs[0]}" if len(epochs) == 1 else f"{epochs[0]}–{epochs[-1]}"


def _lineage(verdict: JudgedSegment) -> str:
    text = verdict.lineage_standing.value + (", overlaps" if verdict.overlaps else "")
    return f"{text}: {verdict.why}" if verdict.why else text


def _took(started_ms: int, finished_ms: int | None) -> str:
    return "" if finished_ms is None else fmt.duration(max(0, finished_ms - started_ms) / 1000)


def engine_event_text(kind: str, body: dict[str, Any]) -> tuple[str, bool]:
    """The text of an event of the engine, and whether the event is bad news."""
    error = f": {body['error']}" if body.get("error") else ""
    if kind == "phase":
        phase = str(body.get("phase"))
        evidence = body.get("evidence") if isinstance(body.get("evidence"), dict) else {}
        reason = (evidence or {}).get("reason") or ""
        target = f" from offset {fmt.count(body['target_offset'])}" if body.get("target_offset") is not None else ""
        text = f"{PHASE_LABELS.get(phase, phase)}{target}" + (f": {reason}" if reason else "")
        if is_ordinary_retry(body):
            return f"asks again: {reason}; usual while a topic's creation or a leader change spreads", False
        return text, phase in ("DELAYED", "FAILED")
    if kind in ("copy", "delete"):
        outcome = str(body.get("outcome"))
        return f"{kind} {outcome}{_offsets(body)}{error}", outcome == "failed"
    if kind == "remote_read":
        failures = int(body.get("failures") or 1)
        times = f", {fmt.count(failures)} times" if failures > 1 else ""
        return f"remote read failed at offset {fmt.count(body.get('offset'))}{times}{error}", True
    if kind == "aux_state":
        step, outcome = str(body.get("step")).replace("_", " "), str(body.get("outcome"))
        at = f" at offset {fmt.count(body['offset'])}" if body.get("offset") is not None else ""
        return f"remote state, {step}: {outcome}{at}{error}", outcome == "failed"
    if kind == "rlmm_ready":
        ready = "read up to the end" if body.get("ready", True) else "being read again"
        return f"remote log metadata {ready}, partition {body.get('metadata_partition')}", False
    if kind == "leader":
        return f"leads from epoch {body.get('leader_epoch')} on", False
    if kind == "unclean_recovery":
        whole = "enough were compared" if body.get("complete") else "few were compared"
        return f"the best log leads, broker {body.get('leader')}: {whole}", not body.get("complete")
    return kind.replace("_", " "), False


def _offsets(body: dict[str, Any]) -> str:
    start, end, size = body.get("start"), body.get("end"), body.get("bytes")
    if start is None or end is None:
        return ""
    return f" {fmt.offset_range(start, end + 1)}" + (f", {fmt.size(size)}" if size is not None else "")


def _segment_event_text(event: SegmentEventRow) -> str:
    if event.kind == _KIND_PARTITION_DELETE:
        labels_by_state = {int(state): text for state, text in _DELETE_LABELS.items()}
        return labels_by_state.get(event.state, f"deletion of the partition, state {event.state}")
    offsets = ""
    if event.start_offset is not None and event.end_offset is not None:
        offsets = f" {fmt.offset_range(event.start_offset, event.end_offset + 1)}"
    refused = "" if event.legal else f", not followed: {event.illegal_reason or 'against the life cycle'}"
    what = {int(state): text for state, text in STATE_LABELS.items()}.get(event.state, f"state {event.state}")
    return f"{what}{offsets}, segment {event.segment_id}{refused}"
