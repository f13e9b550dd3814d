"""All that one finding explains, as the table of a card. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.components.cluster import alerts
from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.markup import Cell
from backend.store.queries.overview import FindingRow

SEPARATOR: Final = ":"
# Of 500 characters each at most; the table twin and its files have all.
ROWS_MAX: Final = 100


def parse_cause(text: str) -> tuple[str, str] | None:
    """(slug, object) of `broker-away:broker 3`, as links and the API have it."""
    slug, separator, object_ = text.partition(SEPARATOR)
    return (slug, object_) if slug and separator and object_ else None


def cause_text(slug: str, object_: str) -> str:
    """The same the other way round."""
    return f"{slug}{SEPARATOR}{object_}"


def html(findings: Sequence[FindingRow], now_ms: int) -> str:
    """The first of them: how bad, what, since when."""
    body = []
    for line, finding in ((alerts.line_of(row), row) for row in findings[:ROWS_MAX]):
        text_html = f'{markup.text(line.title)}<div class="eb-clause">{markup.text(line.detail)}</div>'
        age = fmt.duration(max(1, round((now_ms - finding.opened_ms) / 1000)))
        body.append(
            (
                Cell(html=markup.status_word(line.severity), css="eb-nowrap"),
                Cell(finding.slug, css="eb-nowrap"),
                Cell(html=text_html, css="eb-event"),
                Cell(age, css="eb-nowrap"),
            )
        )
    columns = [("Severity", "left"), ("Rule", "left"), ("What", "left"), ("Since", "right")]
    return markup.table(columns, body, caption="Findings that this one explains")
