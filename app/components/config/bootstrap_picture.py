"""The start offset of a new, empty follower with the flag off and on: a sketch, and the bytes to copy. Values → HTML.

HTML and not a chart: both are a handful of positions, must fit any width and follow the theme by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log10
from typing import Any, Final

import pandas as pd

from app.components.shared import format as fmt
from app.components.shared import markup

ROWS: Final = 7
LEGEND: Final = (
    '<span class="eb-clause">bytes one new replica would copy · '
    '<span class="eb-ring" aria-hidden="true"></span> flag on '
    '<span class="eb-ring eb-ring-off" aria-hidden="true"></span> flag off</span>'
)
_NO_RATE: Final = ' title="Not known: no growth was sampled in this range"'
_LABEL_SHARE: Final = 0.12  # markers closer than this leave no room for a size between them
_LOCAL_AT, _PENDING_AT = 62, 82


def sketch_html() -> str:
    """The two starting points; always the same picture, not data."""
    alt = "With the flag off a new follower starts at the leader's local start, with the flag on where copying stands."
    off = f'<span class="eb-marker-name eb-marker-off" style="right:{100 - _LOCAL_AT}%">off: local start</span>'
    # At its line, and where that leaves too little room, as far right as it fits.
    on = (
        f'<span class="eb-marker-name" style="left:min({_PENDING_AT}%, calc(100% - 114px))">on: earliest pending</span>'
    )
    parts = (
        ("eb-bar eb-bar-remote", f"left:0;width:{_PENDING_AT}%;top:14px"),
        ("eb-bar eb-bar-local", f"left:{_LOCAL_AT}%;width:{_PENDING_AT - _LOCAL_AT}%;top:56px"),
        ("eb-bar eb-bar-pending", f"left:{_PENDING_AT}%;width:{100 - _PENDING_AT}%;top:56px"),
        ("eb-marker", f"left:{_LOCAL_AT}%"),
        ("eb-marker", f"left:{_PENDING_AT}%"),
    )
    lanes = "".join(f'<div class="{css}" style="{place}"></div>' for css, place in parts)
    names = "".join(
        f'<span class="eb-lane-name" style="top:calc({top_px}px + var(--down))">{name}</span>'
        for name, top_px in (("remote", 36), ("leader", 78))
    )
    inner = f'{names}<div class="eb-lanes">{lanes}{off}{on}</div>'
    return f'<div class="eb-sketch" role="img" aria-label="{alt}">{inner}</div>'


@dataclass(frozen=True, slots=True)
class Gain:
    """The bytes that the flag saves one new replica of a partition; depths are None where the rate is not known."""

    partition: str
    off_bytes: int
    on_bytes: int
    off_depth_s: float | None
    on_depth_s: float | None


def gains(
    estimate: Mapping[str, Any], log_ends: Mapping[tuple[str, int], int | None], rates: Mapping[tuple[str, int], float]
) -> list[Gain]:
    """The partitions that qualify, the largest saving first. ``rates``: records a second."""
    per_partition = []
    for row in largest(estimate):
        key = (row["topic"], row["partition"])
        end, rate = log_ends.get(key), rates.get(key)
        per_partition.append(
            Gain(
                f"{key[0]}-{key[1]}",
                row["off_bytes"],
                row["on_bytes"],
                _depth_s(row["off_start"], end, rate),
                _depth_s(row["on_start"], end, rate),
            )
        )
    return per_partition


def largest(estimate: Mapping[str, Any]) -> list[Any]:
    """The partitions that the flag saves most for: at most :data:`ROWS` of the estimate."""
    return [row for row in estimate["partitions"] if row["verdict"] == "qualifies"][:ROWS]


def _depth_s(start: int | None, end: int | None, rate: float | None) -> float | None:
    return None if start is None or end is None or not rate else max(0, end - start) / rate


def why_none(estimate: Mapping[str, Any]) -> str:
    """Why no partition qualifies, in one sentence."""
    if not estimate["tiered_partitions"]:
        return "No topic has remote.storage.enable=true, so no follower can start from the remote tier."
    rows = [*estimate["blocked_partitions"], *(r for r in estimate["partitions"] if r["verdict"] == "no_effect")]
    reasons = list(dict.fromkeys(str(row["reason"]) for row in rows))[:2]
    return f"No tiered partition would start elsewhere now. {' '.join(reasons)}"


def dumbbells_html(rows: Sequence[Gain]) -> str:
    """One line a partition on one axis from 0; sizes are written beside the marks."""
    top, ticks = _axis(max(row.off_bytes for row in rows))
    body = "".join(
        f'<div class="eb-name">{markup.text(row.partition)}</div>{_track_html(row, top)}'
        f'<div class="eb-depth"{_NO_RATE if row.off_depth_s is None else ""}>{depth_text(row)}</div>'
        for row in rows
    )
    marks = "".join(f'<span style="left:{_percent(tick, top)}">{markup.text(_tick(tick))}</span>' for tick in ticks)
    head = '<div class="eb-head"></div><div class="eb-head"></div><div class="eb-head">local depth, off → on</div>'
    axis = f'<div></div><div class="eb-ticks" aria-hidden="true">{marks}</div><div></div>'
    alt = "Bytes one new replica would copy, by partition"
    return f'<div class="eb-dumbbells" role="group" aria-label="{alt}">{head}{body}{axis}</div>'


def depth_text(gain: Gain) -> str:
    """``4 h 10 m → 52 m``."""
    return f"{fmt.duration(gain.off_depth_s)} → {fmt.duration(gain.on_depth_s)}"


def rows(all_gains: Sequence[Gain]) -> pd.DataFrame:
    """The same as a table."""
    return pd.DataFrame(
        {
            "partition": [gain.partition for gain in all_gains],
            "bytes, flag off": [gain.off_bytes for gain in all_gains],
            "bytes, flag on": [gain.on_bytes for gain in all_gains],
            "local depth, off": [fmt.duration(gain.off_depth_s) for gain in all_gains],
            "local depth, on": [fmt.duration(gain.on_depth_s) for gain in all_gains],
        }
    )


def _track_html(row: Gain, top: float) -> str:
    on, off = _percent(row.on_bytes, top), _percent(row.off_bytes, top)
    width = _percent(row.off_bytes - row.on_bytes, top)
    close = (row.off_bytes - row.on_bytes) / top < _LABEL_SHARE
    fits_left = row.on_bytes / top > _LABEL_SHARE
    label = f'<span class="eb-size{" eb-size-left" if close else ""}" style="left:{on}">{fmt.size(row.on_bytes)}</span>'
    if close and not fits_left:
        # No room on either side: both sizes go behind the last mark.
        both = f"{fmt.size(row.on_bytes)} · {fmt.size(row.off_bytes)}"
        label = f'<span class="eb-size eb-size-off" style="left:{off}">{both}</span>'
    else:
        label += f'<span class="eb-size eb-size-off" style="left:{off}">{fmt.size(row.off_bytes)}</span>'
    line = f'<span class="eb-line" style="left:{on};width:{width}"></span>'
    dots = f'<span class="eb-dot" style="left:{on}"></span><span class="eb-dot eb-dot-off" style="left:{off}"></span>'
    return f'<div class="eb-track">{line}{label}{dots}</div>'


def _axis(highest: int) -> tuple[float, list[float]]:
    """End of the axis and four to six round ticks from 0."""
    size = float(max(highest, 1))
    unit = 10.0 ** ceil(log10(size) - 1)
    step = next(unit * factor for factor in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0) if size / (unit * factor) <= 5)
    return size, [step * number for number in range(int(size / step) + 1)]


def _tick(size: float) -> str:
    return "0" if not size else fmt.size(size).replace(".0 ", " ")


def _percent(value: float, top: float) -> str:
    return f"{100 * value / top:.2f}%"
