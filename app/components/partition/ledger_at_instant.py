"""The ledger of one partition as it stood at an instant, folded from the stored events of its segments. Pure.

Exact means: the segments shown are the state of the metadata topic up to one of its offsets. That holds when the events
with a timestamp until then are the first ones of the log; where brokers' clocks differ it may not; the text says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from app.components.shared import format as fmt
from backend.store.queries.partitions import SegmentRow
from backend.store.queries.remote_log import StoredEvent
from backend.tiering.segment_state import SegmentState, is_legal

_PARTITION_DELETE: Final = 2
_AGO: Final = re.compile(r"-?\s*(\d{1,5})\s*(s|m|h|d)(?:\s+ago)?")
_AGO_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
HINT: Final = "18:40:00, 2026-11-21 18:40, or 10m for ten minutes ago"


@dataclass(frozen=True, slots=True)
class Past:
    """Segments at ``at_ms``; of the stored events ``applied`` have a timestamp until then and ``later`` after it.

    ``out_of_order``: events until then that stand in the log after later ones. ``first_ms``: the oldest event.
    """

    at_ms: int
    segments: list[SegmentRow]
    applied: int
    later: int
    out_of_order: int
    refused: int
    first_ms: int | None
    last_ms: int | None
    metadata_partition: int | None
    last_offset: int | None

    @property
    def exact(self) -> bool:
        return self.out_of_order == 0


def parse_instant(typed: str, now_ms: int, zone: tzinfo | None) -> int | None:
    """Epoch ms of what was typed: a time of today (of yesterday when it is still to come), a date and time, ``10m``
    for ten minutes ago, or epoch ms as links carry it. None when it is none of these, or in the future."""
    text = typed.strip()
    if text.endswith(("Z", "UTC")):
        text, zone = text.removesuffix("Z").removesuffix("UTC").strip(), None
    if text.isascii() and text.isdigit() and len(text) == 13:
        return _not_after(int(text), now_ms)
    ago = _AGO.fullmatch(text.lower())
    if ago is not None:
        return max(0, now_ms - int(ago[1]) * _AGO_MS[ago[2]])
    now = datetime.fromtimestamp(now_ms / 1000, zone or UTC)
    clock = _CLOCK.fullmatch(text)
    try:
        if clock is not None:
            hour, minute, second = int(clock[1]), int(clock[2]), int(clock[3] or 0)
            today = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
            moment = today if today <= now else today - timedelta(days=1)
        else:
            moment = datetime.fromisoformat(text)
            moment = moment.replace(tzinfo=moment.tzinfo or zone or UTC)
        return _not_after(round(moment.timestamp() * 1000), now_ms)
    except (ValueError, OverflowError):
        return None


def link_text(at_ms: int) -> str:
    """An instant as a link carries it: the same for everybody, whatever their time zone."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds").removesuffix("+00:00") + "Z"


def _not_after(at_ms: int, now_ms: int) -> int | None:
    return at_ms if 0 <= at_ms <= now_ms else None


def past(events: Sequence[StoredEvent], at_ms: int) -> Past:
    """``events``: all stored ones of a partition, in log order. Events that the ledger did not follow count nowhere."""
    segments: dict[str, SegmentRow] = {}
    applied = later = out_of_order = refused = 0
    last: StoredEvent | None = None
    followed = [event for event in events if event.legal and event.segment_id is not None]
    for event in followed:
        if event.event_timestamp_ms > at_ms:
            later += 1
            continue
        out_of_order += later > 0
        before = segments.get(event.segment_id or "")
        after = _apply_event(before, event)
        if after is None:
            refused += 1
            continue
        applied += 1
        last = event
        segments[after.segment_id] = after
    times = [event.event_timestamp_ms for event in followed]
    return Past(
        at_ms=at_ms,
        segments=_with_superseded(segments.values()),
        applied=applied,
        later=later,
        out_of_order=out_of_order,
        refused=refused,
        first_ms=min(times, default=None),
        last_ms=max(times, default=None),
        metadata_partition=None if last is None else last.metadata_partition,
        last_offset=None if last is None else last.metadata_offset,
    )


def _with_superseded(segments: Iterable[SegmentRow]) -> list[SegmentRow]:
    """The segments in offset order; of open copies those are marked after which one of as far a range began."""
    latest_ms = -1
    rows = []
    for row in sorted(segments, key=lambda row: (row.start_offset, row.copy_started_ms), reverse=True):
        is_open = row.state is SegmentState.COPY_SEGMENT_STARTED
        rows.append(replace(row, superseded=True) if is_open and latest_ms > row.copy_started_ms else row)
        latest_ms = max(latest_ms, row.copy_started_ms)
    return rows[::-1]


def _apply_event(before: SegmentRow | None, event: StoredEvent) -> SegmentRow | None:
    """The segment after an event; None when it cannot follow, because the one before it has a later timestamp."""
    state = SegmentState(event.state)
    if not is_legal(None if before is None else before.state, state):
        return None
    at_ms = event.event_timestamp_ms
    if state is SegmentState.COPY_SEGMENT_STARTED:
        return _started(before, event)
    if before is None:
        return None
    changed = replace(before, state=state, broker_id=event.broker_id, last_event_ms=at_ms)
    if state is before.state:
        return changed  # repeated: the first time stays
    if state is SegmentState.COPY_SEGMENT_FINISHED:
        return replace(changed, copy_finished_ms=at_ms)
    if state is SegmentState.DELETE_SEGMENT_STARTED:
        return replace(changed, delete_started_ms=at_ms)
    return replace(changed, delete_finished_ms=at_ms)


def _started(before: SegmentRow | None, event: StoredEvent) -> SegmentRow | None:
    if event.start_offset is None or event.end_offset is None:
        return None
    return SegmentRow(
        topic=event.topic,
        partition=event.partition,
        topic_id=event.topic_id,
        segment_id=event.segment_id or "",
        start_offset=event.start_offset,
        next_offset=event.end_offset + 1,
        state=SegmentState.COPY_SEGMENT_STARTED,
        segment_size_bytes=event.segment_size_bytes or 0,
        max_timestamp_ms=event.max_timestamp_ms or 0,
        leader_epochs=event.leader_epochs or [],
        copy_broker_id=event.broker_id,
        broker_id=event.broker_id,
        copy_started_ms=event.event_timestamp_ms if before is None else before.copy_started_ms,
        copy_finished_ms=None,
        delete_started_ms=None,
        delete_finished_ms=None,
        last_event_ms=event.event_timestamp_ms,
    )


def origin_text(ledger: Past, clock: str, first: str) -> str:
    """One sentence on the events that were used; ``clock``: the instant as text, ``first``: the oldest event."""
    if ledger.first_ms is None:
        return "No event of this partition is stored."
    if ledger.applied == 0:
        return f"Nothing was told of this partition until {clock}: its first stored event is of {first}."
    every = fmt.count(ledger.applied + ledger.later + ledger.refused)
    text = (
        f"As of {clock}, computed from {fmt.count(ledger.applied)} of {every} stored events of __remote_log_metadata "
        f"partition {ledger.metadata_partition}, up to offset {fmt.count(ledger.last_offset)}."
    )
    if ledger.exact:
        return f"{text} Exact: these are the first events of the log."
    return (
        f"{text} Not exact: {fmt.count(ledger.out_of_order)} of them stand in the log after later ones, "
        "because the brokers' clocks differ."
    )
