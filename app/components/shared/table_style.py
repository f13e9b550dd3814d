"""Numbers in sortable tables as the rest of the page writes them: cells show text, columns sort by the number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pandas as pd

from app.components.shared import format as fmt

# Above this many rows the browser's own number format stands: styling costs the server 15 µs a cell.
ROWS_MAX: Final = 2_000

# pandas gives each style a random one, by which a table without a change was another one, and sent again.
SAME_UUID: Final = "table"


def styled(frame: pd.DataFrame, formats: Mapping[str, Callable[[Any], str]]) -> Any:
    """The frame with these columns written by ``formats``; what is not known reads ``?``."""
    if len(frame) > ROWS_MAX:
        return frame
    return frame.style.set_uuid(SAME_UUID).format({name: _or_unknown(write) for name, write in formats.items()})


def number_format(count: int, otherwise: Any) -> Any:
    """The browser's format for a column of :func:`styled`; a format given there would hide the text."""
    return None if count <= ROWS_MAX else otherwise


def _or_unknown(write: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: fmt.UNKNOWN if pd.isna(value) else write(value)


def name_width(names: Iterable[str], least: int) -> int:
    """Pixels for the longest of these names, at most 280: a letter takes 7."""
    return min(280, max(least, 24 + 7 * max((len(name) for name in names), default=0)))


def whole(value: Any) -> str:
    return fmt.count(int(value))


def size(value: Any) -> str:
    return fmt.size(float(value))
