"""Small pieces of HTML: marks, pills, tables, pairs. Every text from outside is escaped here, once.

Functions named ``*_html`` in other modules return what these return; a parameter named ``html`` is markup already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from app.theme import STATUS_MARKS

STATUS_LABELS = {"critical": "Critical", "warning": "Warning", "ok": "OK", "notice": "Notice"}


# They would turn round what stands beside a name, not only the name.
_TURNING: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def text(value: object) -> str:
    """``value`` as text of an element or an attribute; marks of writing direction are seen, not obeyed."""
    return escape(_TURNING.sub("\ufffd", str(value)), quote=True)


def mark(status: str) -> str:
    """The sign of a status in its colour; screen readers get the word beside it, not the sign."""
    return f'<span class="eb-mark eb-{status}" aria-hidden="true">{STATUS_MARKS[status]}</span>'


def status_word(status: str) -> str:
    """Sign and word: ``▲ Critical``."""
    return f'<span class="eb-status eb-{status}">{mark(status)} {STATUS_LABELS[status]}</span>'


def pill(label: str, status: str | None = None, *, title: str = "", html: str = "") -> str:
    """A bordered label; ``html`` is put before it."""
    sign = mark(status) + " " if status else ""
    hint = f' title="{text(title)}"' if title else ""
    return f'<span class="eb-pill"{hint}>{sign}{html}{text(label)}</span>'


def swatch(kind: str) -> str:
    """``remote``, ``local`` or ``pending``: that range as a chart draws it."""
    return f'<span class="eb-swatch eb-swatch-{kind}" aria-hidden="true"></span>'


def legend() -> str:
    """The three kinds of ranges."""
    entries = (("remote", "remote"), ("local", "local, already copied"), ("pending", "local, pending upload"))
    inner = "".join(f'<span class="eb-legend-entry">{swatch(kind)}{label}</span>' for kind, label in entries)
    return f'<div class="eb-legend">{inner}</div>'


def card_title(title: str, clause: str = "", *, html: str = "") -> str:
    """A card's name, what it holds in a muted clause, and ``html`` after it."""
    muted = f'<span class="eb-clause">{text(clause)}</span>' if clause else ""
    return f'<div class="eb-card-title"><h2>{text(title)}</h2>{muted}{html}</div>'


@dataclass(frozen=True, slots=True)
class Cell:
    """A table cell: plain text, or markup when ``html`` is given."""

    label: str = ""
    html: str = ""
    css: str = ""

    def render(self, align: str) -> str:
        return f'<td class="eb-{align} {self.css}">{self.html or text(self.label)}</td>'


def table(columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[Cell | str]], *, caption: str) -> str:
    """A quiet table. ``columns`` are (name, ``left`` | ``right`` | ``center``); ``caption`` is for screen readers.

    It takes the focus, so that the arrow keys scroll it where it is wider than its card.
    """
    head = "".join(f'<th scope="col" class="eb-{align}">{text(name)}</th>' for name, align in columns)
    body = "".join(
        "<tr>"
        + "".join(
            (cell if isinstance(cell, Cell) else Cell(cell)).render(align)
            for cell, (_, align) in zip(row, columns, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="eb-scroll" tabindex="0" role="group" aria-label="{text(caption)}"><table class="eb-table">'
        f'<caption class="eb-hidden">{text(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def pairs(rows: Iterable[tuple[str, str | Cell]]) -> str:
    """Names at the left, values at the right."""
    inner = ""
    for name, value in rows:
        cell = value if isinstance(value, Cell) else Cell(value)
        inner += f'<dt>{text(name)}</dt><dd class="{cell.css}">{cell.html or text(cell.label)}</dd>'
    return f'<dl class="eb-pairs">{inner}</dl>'


def with_commands(sentence: str) -> str:
    """A sentence as text, its `commands` in the type of commands."""
    return re.sub(r"`([^`]+)`", r'<code class="eb-code">\1</code>', text(sentence))


def empty(meaning: str, next_step: str = "") -> str:
    """The text of an empty card: what that means, then what to do."""
    then = f"<p>{with_commands(next_step)}</p>" if next_step else ""
    return f'<div class="eb-empty"><p>{with_commands(meaning)}</p>{then}</div>'


def alert(status: str, title: str, sentence: str, note: str = "") -> str:
    """A box across the page."""
    more = f'<span class="eb-clause">{text(note)}</span>' if note else ""
    return (
        f'<div class="eb-alert eb-alert-{status}" role="alert">{status_word(status)}'
        f"<div><strong>{text(title)}</strong> {with_commands(sentence)} {more}</div></div>"
    )
