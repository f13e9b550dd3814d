"""Remote segments of one or many partitions as a table with a small picture of each life cycle. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import pandas as pd
import streamlit as st

from app.components.partition.lineage_verdicts import JudgedSegment, LineageStanding
from app.components.partition.partition_ledger import STATE_LABELS
from app.components.shared import format as fmt
from app.components.shared.table_style import name_width, number_format, size, styled, whole
from app.theme import Palette
from backend.store.queries.partitions import SegmentRow
from backend.store.queries.remote_log import StoredEvent, Unfollowed
from backend.tiering.segment_state import PartitionDeleteState, SegmentState

STARTED, FINISHED, DELETING, DELETED = "Copy started", "Copy finished", "Deleting", "Deleted"
OUTSIDE, OVERLAPS, ORPHANED = "Outside lineage", "Overlaps", "Orphaned"
# The words are what the URL holds, too.
STATES: Final = (STARTED, FINISHED, DELETING, DELETED, OUTSIDE, OVERLAPS, ORPHANED)
_BY_STATE: Final = {
    STARTED: SegmentState.COPY_SEGMENT_STARTED,
    FINISHED: SegmentState.COPY_SEGMENT_FINISHED,
    DELETING: SegmentState.DELETE_SEGMENT_STARTED,
    DELETED: SegmentState.DELETE_SEGMENT_FINISHED,
}
PICTURE: Final = "copy, kept, delete"
# The table fits a picture to the height of a row: one that is wider than 6 : 1 would lose its ends.
WIDTH_PX, HEIGHT_PX = 150, 26
_PIECE_PX: Final = (4, 26)  # the shortest and the longest copy or deletion
_PARTITION_DELETE: Final = 2


def select(
    verdicts: Sequence[JudgedSegment], state: str | None, search: str = "", hung: Collection[str] = frozenset()
) -> list[JudgedSegment]:
    """Segments in a state (None: any) whose partition or id has ``search``: copies that hang, then the newest event."""
    needle = search.strip().lower()
    matching = [verdict for verdict in verdicts if _in_state(verdict, state) and needle in _haystack(verdict.segment)]
    return sorted(matching, key=lambda verdict: _rank(verdict.segment, hung))


def _rank(row: SegmentRow, hung: Collection[str]) -> tuple[bool, int, str, int]:
    return row.segment_id not in hung, -row.last_event_ms, row.topic, -row.start_offset


def _haystack(row: SegmentRow) -> str:
    return f"{row.topic}-{row.partition} {row.segment_id}".lower()


def _in_state(verdict: JudgedSegment, state: str | None) -> bool:
    if state == OUTSIDE:
        return verdict.lineage_standing is LineageStanding.OUTSIDE
    if state == OVERLAPS:
        return verdict.overlaps
    if state == ORPHANED:
        return verdict.orphaned
    return state not in _BY_STATE or verdict.segment.state is _BY_STATE[state]


def frame(
    verdicts: Sequence[JudgedSegment], hung: Collection[str], colours: Palette, clock: Callable[[int | None], str]
) -> pd.DataFrame:
    """One row a segment, in the order given. ``hung``: ids of copies that are."""
    rows = [verdict.segment for verdict in verdicts]
    longest = max([_took(r.copy_started_ms, r.copy_finished_ms) or 0 for r in rows], default=0)
    slowest = max([_took(r.delete_started_ms, r.delete_finished_ms) or 0 for r in rows], default=0)
    return pd.DataFrame(
        {
            "partition": [f"{row.topic}-{row.partition}" for row in rows],
            "offsets": [fmt.offset_range(row.start_offset, row.next_offset) for row in rows],
            "state": [STATE_LABELS[row.state] for row in rows],
            PICTURE: [picture(row, longest, slowest, colours, hung=row.segment_id in hung) for row in rows],
            "size": [row.segment_size_bytes for row in rows],
            "copy": [_duration_text(row.copy_started_ms, row.copy_finished_ms) for row in rows],
            "lineage": [_lineage(verdict) for verdict in verdicts],
            "broker": [row.copy_broker_id for row in rows],
            "epochs": [_epochs(row.leader_epochs) for row in rows],
            "kept": [_duration_text(row.copy_finished_ms, row.delete_started_ms) for row in rows],
            "delete": [_duration_text(row.delete_started_ms, row.delete_finished_ms) for row in rows],
            "copy started": [clock(row.copy_started_ms) for row in rows],
            "segment id": [row.segment_id for row in rows],
        }
    )


def shown(
    verdicts: Sequence[JudgedSegment], hung: Collection[str], colours: Palette, clock: Callable[[int | None], str]
) -> Any:
    """:func:`frame` with numbers written as on the rest of the page."""
    return styled(frame(verdicts, hung, colours, clock), {"size": size, "broker": whole})


def columns(verdicts: Sequence[JudgedSegment]) -> dict[str, Any]:
    """The column configuration for the table of :func:`shown`, for these rows."""
    count = len(verdicts)
    names = {f"{verdict.segment.topic}-{verdict.segment.partition}" for verdict in verdicts}
    return {
        "partition": st.column_config.TextColumn("partition", width=name_width(names, 104)),
        "offsets": st.column_config.TextColumn("offsets", help="First offset, and the one after the last", width=196),
        "state": st.column_config.TextColumn("state", width=104),
        PICTURE: st.column_config.ImageColumn(
            "copy → kept → delete", help="Copy and deletion by how long they took; hollow red: hung", width=168
        ),
        "size": st.column_config.NumberColumn(
            "size", format=number_format(count, "bytes"), help="The .log file only", width=76
        ),
        "copy": st.column_config.TextColumn("copy", help="How long the copy took", width=64),
        "broker": st.column_config.NumberColumn("broker", help="It started the copy", width=58),
        "epochs": st.column_config.TextColumn("epochs", help="Leader epochs of its records", width=64),
        "lineage": st.column_config.TextColumn("lineage", help="Is it part of the leader's epochs", width=112),
        "kept": st.column_config.TextColumn("kept", help="From the end of the copy to the start of the deletion"),
        "delete": st.column_config.TextColumn("delete", help="How long the deletion took"),
    }


def picture(row: SegmentRow, longest_ms: int, slowest_ms: int, colours: Palette, *, hung: bool) -> str:
    """A data URI: copy, kept, delete from left to right. Only fixed colours and numbers go into it."""
    parts = []
    if row.copy_finished_ms is None:
        edge = colours.critical if hung else colours.local
        gone = row.state is SegmentState.DELETE_SEGMENT_FINISHED
        parts.append(_rect(0.75, WIDTH_PX - 1.5, "none", colours.notice if gone else edge))
    else:
        copy = _piece(_took(row.copy_started_ms, row.copy_finished_ms), longest_ms)
        delete = 0.0
        if row.delete_started_ms is not None:
            delete = _piece(_took(row.delete_started_ms, row.delete_finished_ms), slowest_ms)
        parts.append(_rect(0, copy, colours.local))
        parts.append(_rect(copy + 1.5, WIDTH_PX - copy - 1.5 - (delete + 1.5 if delete else 0), colours.remote))
        if delete:
            ended = row.delete_finished_ms is not None
            left = WIDTH_PX - delete
            parts.append(
                _rect(left, delete, colours.notice)
                if ended
                else _rect(left + 0.75, delete - 1.5, "none", colours.notice)
            )
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH_PX}" height="{HEIGHT_PX}" '
        f'viewBox="0 0 {WIDTH_PX} {HEIGHT_PX}">{"".join(parts)}</svg>'
    )
    return "data:image/svg+xml;base64," + b64encode(svg.encode()).decode()


def _rect(left: float, width: float, fill: str, edge: str | None = None) -> str:
    line = f' stroke="{edge}" stroke-width="1.5"' if edge else ""
    return f'<rect x="{left:g}" y="8" width="{max(1.0, width):g}" height="10" rx="1.5" fill="{fill}"{line}/>'


def _piece(took_ms: int | None, longest_ms: int) -> float:
    share = 1.0 if took_ms is None else took_ms / max(1, longest_ms)
    return round(_PIECE_PX[0] + share * (_PIECE_PX[1] - _PIECE_PX[0]), 1)


def _took(start_ms: int | None, end_ms: int | None) -> int | None:
    return None if start_ms is None or end_ms is None else max(0, end_ms - start_ms)


def _duration_text(start_ms: int | None, end_ms: int | None) -> str:
    took = _took(start_ms, end_ms)
    return "" if took is None else fmt.duration(took / 1000)


def _lineage(verdict: JudgedSegment) -> str:
    text = (
        verdict.lineage_standing.value
        + (", overlaps" if verdict.overlaps else "")
        + (", orphaned" if verdict.orphaned else "")
    )
    return f"{text}: {verdict.why}" if verdict.why else text


def _epochs(chain: Sequence[Sequence[int]]) -> str:
    epochs = [entry[0] for entry in chain]
    if not epochs:
        return "none"
    return f"{epochs[0]}" if len(epochs) == 1 else f"{epochs[0]}–{epochs[-1]}"


# --- events ---


def event_text(event: StoredEvent) -> str:
    """The text of an event, and why the ledger did not apply it."""
    if event.kind == _PARTITION_DELETE:
        what = PartitionDeleteState(event.state).name.lower().replace("_", " ")
    else:
        what = STATE_LABELS[SegmentState(event.state)]
    return what if event.legal else f"{what}, not followed: {event.illegal_reason or 'against the life cycle'}"


def event_rows(events: Sequence[StoredEvent], clock: Callable[[int | None], str]) -> pd.DataFrame:
    """Events of a segment as a table, in the order of the metadata topic."""
    return pd.DataFrame(
        {
            "time": [clock(event.event_timestamp_ms) for event in events],
            "event": [event_text(event) for event in events],
            "broker": [event.broker_id for event in events],
            "metadata partition": [event.metadata_partition for event in events],
            "offset": [event.metadata_offset for event in events],
        }
    )


def unfollowed_rows(records: Sequence[Unfollowed], clock: Callable[[int | None], str]) -> pd.DataFrame:
    """Illegal and quarantined records as a table."""
    return pd.DataFrame(
        {
            "time": [clock(record.at_ms) for record in records],
            "kind": ["quarantined" if record.quarantined else "not followed" for record in records],
            "partition": [record.what for record in records],
            "segment id": [record.segment_id or "" for record in records],
            "broker": [record.broker_id for record in records],
            "why": [record.reason for record in records],
            "metadata partition": [record.metadata_partition for record in records],
            "offset": [record.metadata_offset for record in records],
        }
    )
