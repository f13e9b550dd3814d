"""Incidents, events of brokers and actions of people on one time axis. Rows → figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Final

import pandas as pd
import plotly.graph_objects as go

from app.components.cluster.alerts import SEVERITIES
from app.components.partition.partition_ledger import engine_event_text
from app.components.shared import markup
from app.theme import Palette, layout, status_colour
from backend.store.queries.activity import BrokerEvent
from backend.store.queries.audit import AuditRow
from backend.store.queries.overview import FindingRow

INCIDENT_ROWS_MAX: Final = 5
TICKS_MAX: Final = 500
ROW_PX: Final = 26
LEADERS, FAILED, ACTIONS = "Leader changes", "Failed on brokers", "Operator actions"
TOPICS, OWN = "Partition count", "Ebbline itself"
RESULT_STATUS: Final = {"refused": "warning", "failed": "critical"}


@dataclass(frozen=True, slots=True)
class Bar:
    """An incident ``[start_ms, end_ms)``; open ones end now."""

    row: str
    start_ms: int
    end_ms: int
    severity: str
    text: str


@dataclass(frozen=True, slots=True)
class TimelineTick:
    """A moment: of a broker's event, of a user's attempt, of partitions that came or went, of the product itself."""

    row: str
    at_ms: int
    status: str | None
    text: str


def bars(findings: Sequence[FindingRow], since_ms: int, now_ms: int) -> list[Bar]:
    """Stored findings, clipped to the window."""
    made = []
    for finding in findings:
        start, end = max(finding.opened_ms, since_ms), min(finding.closed_ms or now_ms, now_ms)
        if end > start:
            severity = finding.severity if finding.severity in SEVERITIES else "warning"
            made.append(Bar(finding.slug.replace("-", " ").capitalize(), start, end, severity, finding.sentence))
    return made


def ticks(audit: Sequence[AuditRow], events: Sequence[BrokerEvent], since_ms: int) -> list[TimelineTick]:
    """The newest 500 of each kind."""
    acted = [
        TimelineTick(
            ACTIONS, row.at_ms, RESULT_STATUS.get(row.result), f"{row.actor}: {action_text(row)}, {row.result}"
        )
        for row in audit[:TICKS_MAX]
        if row.at_ms >= since_ms
    ]
    events_drawn = []
    for event in events[:TICKS_MAX]:
        text, bad = broker_event_text(event)
        if event.type == "leader" or bad:
            events_drawn.append(
                TimelineTick(FAILED if bad else LEADERS, event.at_ms, "critical" if bad else None, text)
            )
    return [*events_drawn, *acted]


def action_text(row: AuditRow) -> str:
    """``execute toggle bootstrap on broker 3``."""
    return f"{row.action.replace('_', ' ')} on {row.object}"


def broker_event_text(event: BrokerEvent) -> tuple[str, bool]:
    """The text of a broker's event with its partition, and whether the event is bad news."""
    text, bad = engine_event_text(event.type, event.body)
    where = f"{event.topic}-{event.partition}: " if event.topic is not None else ""
    return where + text, bad


def figure(
    incident_bars: Sequence[Bar],
    marks: Sequence[TimelineTick],
    since_ms: int,
    now_ms: int,
    colours: Palette,
    zone: tzinfo | None,
) -> go.Figure:
    """Incidents on top, 5 kinds in a row each and further ones in one together; below them, always there,
    events of brokers, actions of people, changes of the number of partitions, and of the product itself.
    """
    drawn, incidents = _in_rows(incident_bars, now_ms)
    kinds = {
        LEADERS: colours.notice,
        FAILED: colours.critical,
        ACTIONS: colours.local,
        TOPICS: colours.notice,
        OWN: colours.notice,
    }
    names = [*incidents, *kinds]
    fig = go.Figure()
    fig.add_bar(
        y=[names.index(bar.row) for bar in drawn],
        base=[_time(bar.start_ms, zone) for bar in drawn],
        x=[bar.end_ms - bar.start_ms for bar in drawn],
        width=0.5,
        orientation="h",
        marker={"color": [status_colour(colours, bar.severity) for bar in drawn], "line": {"width": 0}},
        customdata=[_escaped(bar.text[:120]) for bar in drawn],
        hovertemplate="%{customdata}<extra></extra>",
        name="incidents",
    )
    for row, colour in kinds.items():
        own = [mark for mark in marks if mark.row == row]
        fig.add_scatter(
            x=[_time(mark.at_ms, zone) for mark in own],
            y=[names.index(row)] * len(own),
            mode="markers",
            marker={
                "symbol": "line-ns",
                "size": 15,
                "line": {"width": 2, "color": [_tick_colour(mark, colour, colours) for mark in own]},
            },
            customdata=[_escaped(mark.text[:160]) for mark in own],
            hovertemplate="%{x|%H:%M:%S} %{customdata}<extra></extra>",
            name=row,
        )
    fig.update_layout(
        **layout(
            colours,
            height=ROW_PX * len(names) + 40,
            margin={"l": 136, "r": 18, "t": 6, "b": 26},
            uirevision="activity",
            barmode="overlay",
            hovermode="closest",
            xaxis={
                "type": "date",
                "range": [_time(since_ms, zone), _time(now_ms, zone)],
                "gridcolor": colours.grid,
                "zeroline": False,
                "fixedrange": True,
                "tickangle": 0,
                "nticks": 9,
                "tickformat": "%H:%M",
                "showline": True,
                "linecolor": colours.line,
            },
            yaxis={
                "range": [len(names) - 0.4, -0.6],
                "tickvals": list(range(len(names))),
                "ticktext": [_escaped(name[:22]) for name in names],
                "tickfont": {"color": colours.text, "size": 11.5},
                "gridcolor": colours.grid,
                "zeroline": False,
                "fixedrange": True,
                "showline": True,
                "linecolor": colours.line,
            },
        )
    )
    return fig


def _in_rows(incident_bars: Sequence[Bar], now_ms: int) -> tuple[list[Bar], list[str]]:
    """The bars and the names of their rows: open incidents first, then the worst; none is left out."""
    ordered = sorted(incident_bars, key=lambda b: (b.end_ms < now_ms, SEVERITIES.index(b.severity)))
    kinds = list(dict.fromkeys(bar.row for bar in ordered))
    named, further = kinds[:INCIDENT_ROWS_MAX], kinds[INCIDENT_ROWS_MAX:]
    if len(further) < 2:
        return list(incident_bars), kinds
    together = f"{len(further)} further kinds"
    drawn = [bar if bar.row in named else replace(bar, row=together) for bar in incident_bars]
    return drawn, [*named, together]


def rows(
    incident_bars: Sequence[Bar], marks: Sequence[TimelineTick], clock: Callable[[int | None], str]
) -> pd.DataFrame:
    """The same as a table, newest first."""
    lines = [(bar.start_ms, bar.end_ms, bar.row, bar.severity, bar.text) for bar in incident_bars]
    lines += [(mark.at_ms, 0, mark.row, mark.status or "", mark.text) for mark in marks]
    lines.sort(key=lambda line: -line[0])
    return pd.DataFrame(
        {
            "from": [clock(line[0]) for line in lines],
            "to": [clock(line[1]) if line[1] else "" for line in lines],
            "kind": [line[2] for line in lines],
            "status": [line[3] for line in lines],
            "what": [line[4] for line in lines],
        }
    )


def events_html(events: Sequence[BrokerEvent], clock: Callable[[int | None], str]) -> str:
    """Broker events as a table."""
    body = []
    for event in events:
        text, bad = broker_event_text(event)
        sign = markup.mark("warning") + " " if bad else ""
        body.append(
            (
                markup.Cell(clock(event.at_ms), css="eb-nowrap eb-quiet"),
                f"{event.broker_id}",
                markup.Cell(html=sign + markup.text(text[:240]), css="eb-event"),
            )
        )
    return markup.table([("Time", "left"), ("Broker", "left"), ("What", "left")], body, caption="Events of brokers")


def event_rows(events: Sequence[BrokerEvent], clock: Callable[[int | None], str]) -> pd.DataFrame:
    """Broker events as data."""
    return pd.DataFrame(
        {
            "time": [clock(event.at_ms) for event in events],
            "broker": [event.broker_id for event in events],
            "kind": [event.type for event in events],
            "what": [broker_event_text(event)[0] for event in events],
        }
    )


def _tick_colour(mark: TimelineTick, default_colour: str, colours: Palette) -> str:
    return default_colour if mark.status is None else status_colour(colours, mark.status)


def _escaped(text: str) -> str:
    """Plotly reads a little markup in texts."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _time(at_ms: int, zone: tzinfo | None) -> datetime:
    # Plotly draws the wall clock it is given.
    return datetime.fromtimestamp(at_ms / 1000, zone or UTC).replace(tzinfo=None)
