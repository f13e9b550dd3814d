"""Content of a page as a file: CSV and Parquet of a table, and a self-contained page of HTML. Pure."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pandas as pd

from app.components.shared import markup, style
from app.state import ClusterView
from app.theme import Palette

# Characters that not all file systems and mail programs accept; a topic's name may have 249 characters.
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
NAME_CHARS_MAX: Final = 120
# Spreadsheets take a cell that begins so for a formula, and a topic or a reason may begin with anything.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def file_title(view: ClusterView | None, *parts: str) -> str:
    """Cluster, moment and parts: a file that lies about says where it is from, and of when."""
    if view is None:
        return " ".join(part for part in parts if part)
    at = datetime.fromtimestamp(view.now_ms / 1000, UTC).strftime("%Y-%m-%dT%H%M%SZ")
    return " ".join(part for part in (view.cluster.name, at, *parts) if part)


def file_name(name: str, suffix: str) -> str:
    """``orders-7 offsets`` → ``ebbline-orders-7-offsets.csv``."""
    stem = _UNSAFE.sub("-", name).strip("-.")[:NAME_CHARS_MAX] or "table"
    return f"ebbline-{stem}.{suffix}"


def frame_of(rows: Any) -> pd.DataFrame:
    """The argument of `st.dataframe`, a Styler too, as a frame."""
    if callable(rows):
        rows = rows()
    data = getattr(rows, "data", rows)  # a Styler holds its frame
    return data if isinstance(data, pd.DataFrame) else pd.DataFrame(data)


def csv(rows: Any) -> bytes:
    """UTF-8 with a byte order mark, so that spreadsheets read names as they are; no cell is a formula."""
    return frame_of(rows).map(_harmless).to_csv(index=False).encode("utf-8-sig")


def _harmless(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def parquet(rows: Any) -> bytes:
    """Columns keep their types; a column of mixed ones becomes text."""
    frame = frame_of(rows).copy()
    frame.columns = [str(name) for name in frame.columns]
    for name in frame.columns:
        kinds = {type(value) for value in frame[name].dropna()}
        if len(kinds) > 1 and not kinds <= {int, float}:
            frame[name] = [None if pd.isna(value) else str(value) for value in frame[name]]
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report: markup that the pages draw too, or rows."""

    title: str
    clause: str = ""
    html: str = ""
    rows: Any = None


# Tables of a report: a partition's ledger has at most 2,000 segments. 200 bytes a row: 400 kB.
ROWS_MAX: Final = 2_000


def report(
    title: str, facts: Iterable[tuple[str, str]], sections: Iterable[Section], colours: Palette, *sheets: str
) -> bytes:
    """One HTML document without scripts and without anything to fetch; it may be mailed and printed."""
    rules = "".join(style.rules(name) for name in ("ranges", *sheets, "report"))
    body = "".join(_section(section) for section in sections)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        'img-src data:">'
        f"<title>{markup.text(title)}</title>{style.base(colours)}<style>{rules}</style></head>"
        f'<body class="stApp"><h1>{markup.text(title)}</h1>{markup.pairs(facts)}{body}</body></html>'
    ).encode()


def _section(section: Section) -> str:
    table = ""
    if section.rows is not None:
        frame = frame_of(section.rows)
        names = [(str(name), "left") for name in frame.columns]
        cells = [["" if pd.isna(value) else str(value) for value in row] for row in frame.values]
        table = markup.table(names, cells[:ROWS_MAX], caption=section.title)
        if len(cells) > ROWS_MAX:
            table += f'<p class="eb-note">The first {ROWS_MAX} of {len(cells)} rows.</p>'
    return f"<section>{markup.card_title(section.title, section.clause)}{section.html}{table}</section>"
