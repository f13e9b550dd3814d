"""The age of the oldest record that each replica can serve from its own disk: one bar a replica. Values → HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from app.components.shared import format as fmt
from app.components.shared import markup

THIN_MS: Final = 3_600_000
THIN_SHARE: Final = 0.5  # of the deepest replica of its partition: less is not what retention leaves to all
ROWS_MAX: Final = 6


@dataclass(frozen=True, slots=True)
class Depth:
    """A replica's local depth; None: not known. ``whole``: it holds the log from its start, so nothing is missing.

    ``deepest_ms``: the depth of the deepest replica of its partition.
    """

    name: str
    broker_id: int
    leads: bool
    depth_ms: int | None
    whole: bool = False
    deepest_ms: int = 0

    @property
    def thin(self) -> bool:
        """A follower that would send consumers to the remote tier if it led, where another replica would not."""
        return not self.leads and not self.whole and is_shallow(self.depth_ms, self.deepest_ms)


def is_shallow(depth_ms: int | None, deepest_ms: int) -> bool:
    """Less than an hour, and less than half of what the deepest replica of the partition holds."""
    return depth_ms is not None and 0 < depth_ms < min(THIN_MS, THIN_SHARE * deepest_ms)


def html(depths: Sequence[Depth]) -> str:
    """Bars on one scale, from now back."""
    top = max((depth.depth_ms or 0 for depth in depths), default=0) or 1
    inner = ""
    for depth in depths:
        depth_text = (
            fmt.UNKNOWN
            if depth.depth_ms is None
            else "none"
            if not depth.depth_ms
            else fmt.duration(depth.depth_ms / 1000)
        )
        label = f"{markup.mark('warning')} {markup.text(depth_text)} thin" if depth.thin else markup.text(depth_text)
        if depth.whole:
            label += " · whole log"
        role = ", leader" if depth.leads else ""
        inner += (
            f'<span class="eb-depth-name">{markup.text(depth.name)} · b{depth.broker_id}{role}</span>'
            f'<div class="eb-depth-lane"><i class="{"eb-depth-thin" if depth.thin else ""}" '
            f'style="width:{60 * (depth.depth_ms or 0) / top:.1f}%"></i>'
            f'<span class="{"eb-warning" if depth.thin else ""}">{label}</span></div>'
        )
    return f'<div class="eb-depth">{inner}</div>'


def rows(depths: Sequence[Depth]) -> pd.DataFrame:
    """The same as a table."""
    return pd.DataFrame(
        {
            "partition": [depth.name for depth in depths],
            "broker": [depth.broker_id for depth in depths],
            "leads": [depth.leads for depth in depths],
            "local depth, s": pd.array(
                [None if depth.depth_ms is None else round(depth.depth_ms / 1000) for depth in depths], dtype="Int64"
            ),
            "thin": [depth.thin for depth in depths],
        }
    )
