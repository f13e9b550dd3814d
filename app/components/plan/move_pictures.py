"""A reassignment in pictures: bytes with the flag off and on, broker load now and after, replica lists. Values → HTML.

HTML and not charts: a handful of bars that must fit any width and follow the theme by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, log10
from typing import Any, Final

import pandas as pd

from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.markup import Cell
from backend.store.queries.audit import OperationRow

ROWS: Final = 8
STEPS: Final = ("Select partitions", "Assign brokers", "Review and execute")


def steps_html(at: int) -> str:
    """The steps of a reassignment with the current one marked, `at` from 1."""
    parts = []
    for number, name in enumerate(STEPS, 1):
        sign = "✓" if number < at else str(number)
        here = ' class="eb-here" aria-current="step"' if number == at else ""
        parts.append(f"<span{here}><b>{sign}</b>{name}</span>")
    return '<div class="eb-steps">' + "<hr>".join(parts) + "</div>"


def estimate_html(estimate: Mapping[str, Any]) -> str:
    """Visual 5: off solid, on hollow, on one axis; which is in effect, time at the limit, the difference in words."""
    off, on = int(estimate["off_bytes"]), int(estimate["on_bytes"])
    top = max(off, on, 1)
    flagged = [str(b["broker_id"]) for b in estimate["brokers"] if b["flag_on"]]
    others = [str(b["broker_id"]) for b in estimate["brokers"] if not b["flag_on"]]
    rows = (
        ("From leader local start", "flag off", others, "eb-off", off, estimate["off_ms"]),
        ("From earliest pending", "flag on", flagged, "eb-on", on, estimate["on_ms"]),
    )
    inner = ""
    for number, (name, flag, brokers, css, size, time_ms) in enumerate(rows):
        where = f"{flag} · in effect on broker {', '.join(brokers)}" if brokers else f"if the {flag[5:]} were"
        clause = where if brokers else f"if the flag were {flag[5:]}"
        sooner = _sooner(estimate) if number == 1 else ""
        inner += (
            f'<div class="eb-name">{name}<small>{markup.text(clause)}</small></div><div class="eb-lane">'
            f'<div class="{css}" style="width:{_share(size, top, 55)}"></div>'
            f'<div class="eb-amount"><strong>{fmt.size(size)}</strong><small>{_time(time_ms, estimate)}</small></div>'
            f"{sooner}</div>"
        )
    return f'<div class="eb-copy" role="img" aria-label="{markup.text(estimate_text(estimate))}">{inner}</div>'


def estimate_text(estimate: Mapping[str, Any]) -> str:
    """The picture in one sentence."""
    return (
        f"{fmt.count(estimate['replicas'])} replicas copy {fmt.size(estimate['off_bytes'])} with the flag off and "
        f"{fmt.size(estimate['on_bytes'])} with it on; {fmt.size(estimate['in_effect_bytes'])} as it is now."
    )


def verdicts(estimate: Mapping[str, Any]) -> str:
    """``3 qualify · 1 no effect · 2 blocked``, and how old the samples are."""
    names = (("qualifies", "qualify"), ("no_effect", "no effect"), ("blocked", "blocked"), ("unknown", "not known"))
    parts = [f"{fmt.count(estimate[name])} {label}" for name, label in names if estimate.get(name)]
    age_ms = estimate.get("age_ms")
    if age_ms is not None:
        parts.append(f"samples {fmt.duration(age_ms / 1000)} old")
    return " · ".join(parts)


def _sooner(estimate: Mapping[str, Any]) -> str:
    off, on = int(estimate["off_bytes"]), int(estimate["on_bytes"])
    if not off or on >= off:
        return ""
    text = f"−{round(100 * (off - on) / off)}%"
    if estimate["off_ms"] is not None and estimate["on_ms"] is not None:
        text += f" and in sync {fmt.duration((estimate['off_ms'] - estimate['on_ms']) / 1000)} sooner"
    return f'<span class="eb-sooner">{text}</span>'


def _time(time_ms: int | None, estimate: Mapping[str, Any]) -> str:
    if time_ms is None or not estimate.get("throttle_bytes_per_s"):
        return "no limit"
    return f"{fmt.duration(time_ms / 1000)} at {fmt.size(estimate['throttle_bytes_per_s'])}/s"


def load_html(load: Sequence[Mapping[str, Any]]) -> str:
    """Local bytes of each broker now ○ and after ●."""
    top, ticks = _axis(max((max(b["local_bytes"], b["local_bytes_after"]) for b in load), default=1))
    inner = ""
    for broker in load:
        now, after = int(broker["local_bytes"]), int(broker["local_bytes_after"])
        left, right = sorted((now, after))
        change = after - now
        sign = "" if not change else f"{'+' if change > 0 else '−'}{fmt.size(abs(change))}"
        line = f'<span class="eb-line" style="left:{_share(left, top)};width:{_share(right - left, top)}"></span>'
        ring = f'<span class="eb-dot eb-now" style="left:{_share(now, top)}"></span>' if change else ""
        inner += (
            f'<span>Broker {broker["broker_id"]}</span><div class="eb-track">{line}{ring}'
            f'<span class="eb-dot" style="left:{_share(after, top)}"></span></div>'
            f'<span class="eb-change-size">{sign}</span>'
        )
    marks = "".join(f'<span style="left:{_share(tick, top)}">{fmt.size(tick)}</span>' for tick in ticks)
    return f'<div class="eb-load">{inner}<span></span><div class="eb-ticks">{marks}</div><span></span></div>'


def load_rows(load: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The same as a table."""
    return pd.DataFrame([dict(broker) for broker in load])


def _axis(highest: int) -> tuple[float, list[float]]:
    size = float(max(highest, 1))
    unit = 10.0 ** ceil(log10(size) - 1)
    step = next(unit * factor for factor in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0) if size / (unit * factor) <= 4)
    return size, [step * number for number in range(int(size / step) + 1)]


def _share(value: float, top: float, of_percent: float = 100) -> str:
    return f"{of_percent * value / top:.2f}%"


def lists_html(changes: Sequence[Mapping[str, Any]], estimate: Mapping[str, Any]) -> str:
    """Replica lists now and after, the first of them, with what each partition copies."""
    sizes: dict[str, list[int | None]] = {}
    for row in estimate.get("partitions", []):
        totals = sizes.setdefault(f"{row['topic']}-{row['partition']}", [0, 0])
        for at, name in enumerate(("off_bytes", "on_bytes")):
            value = row[name]
            totals[at] = None if totals[at] is None or value is None else int(totals[at] or 0) + int(value)
    rows: list[list[Cell | str]] = []
    for change in changes[:ROWS]:
        before, after = _ids(change["before"]), _ids(change["after"])
        off, on = sizes.get(change["object"], [0, 0])
        rows.append(
            [
                str(change["object"]),
                Cell(html=_chips(before, goes=set(before) - set(after))),
                Cell(html=_chips(after, comes=set(after) - set(before))),
                fmt.size(off),
                fmt.size(on),
            ]
        )
    columns = [("Partition", "left"), ("Now", "left"), ("After", "left"), ("flag off", "right"), ("flag on", "right")]
    more = len(changes) - ROWS
    note = f'<div class="eb-lines">{fmt.count(more)} more</div>' if more > 0 else ""
    return markup.table(columns, rows, caption="Replica lists before and after") + note


def _ids(text: object) -> list[str]:
    return [part.strip() for part in str(text or "").split(",") if part.strip()]


def _chips(brokers: Sequence[str], goes: set[str] | None = None, comes: set[str] | None = None) -> str:
    chips = ""
    for at, broker in enumerate(brokers):
        css = "eb-rep" + (" eb-rep-first" if at == 0 else "")
        label = broker
        if goes and broker in goes:
            css += " eb-rep-goes"
        if comes and broker in comes:
            css, label = css + " eb-rep-comes", f"+ {broker}"
        chips += f'<span class="{css}">{markup.text(label)}</span>'
    return f'<span class="eb-nowrap">{chips}</span>'


def running_html(row: OperationRow) -> str:
    """The progress of a plan: bar, counts, bytes, the owner of the limit."""
    progress: Mapping[str, Any] = row.progress or {}
    total = int((row.estimate or {}).get("in_effect_bytes") or 0)
    copied = min(int(progress.get("copied_bytes") or 0), total) if total else 0
    counts = progress.get("counts", {})
    parts = int(progress.get("partitions") or 0)
    done = int(counts.get("done") or 0)
    share = copied / total if total else done / parts if parts else 0.0
    share_text = f"{fmt.count(done)} of {fmt.count(parts)} partitions" if parts else "begins"
    if total:
        share_text += f" · {fmt.size(copied)} of {fmt.size(total)}"
    state = "stopping" if row.intent == "stop" else row.state
    name = markup.text(f"Plan #{row.id} · {(row.diff or {}).get('object', '')}")
    limit = row.throttle_bytes_per_s or (row.inputs or {}).get("throttle_bytes_per_s")
    pill = markup.pill(f"limit {fmt.size(limit)}/s owned by #{row.id}" if limit else "no limit", "notice")
    problem = progress.get("problem")
    note = f'<span class="eb-warning">{markup.mark("warning")} {markup.text(problem)}</span>' if problem else ""
    return (
        f'<div class="eb-progress"><strong>{markup.text(state.capitalize())}</strong><span>{name}</span>'
        f'<div class="eb-rail" role="progressbar" aria-valuemin="0" aria-valuemax="100" '
        f'aria-label="Bytes copied" aria-valuenow="{round(100 * share)}">'
        f'<div style="width:{_share(share, 1)}"></div></div><span>{share_text}</span>{pill}{note}</div>'
    )


def moving_rows(row: OperationRow) -> list[list[str]]:
    """The replicas that are filled now: partition, broker, phase, bytes."""
    return [
        [
            f"{part['topic']}-{part['partition']}",
            f"broker {part['broker_id']}",
            str(part["phase"] or "?").replace("_", " "),
            fmt.size(part["local_bytes"]),
        ]
        for part in (row.progress or {}).get("moving", [])[:ROWS]
    ]
