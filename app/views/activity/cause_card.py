"""Activity: all findings that one finding explains, where the link names it as `cause`."""

from __future__ import annotations

from typing import Final

import streamlit as st

from app import observed
from app.components.cluster import alerts, explained_table, finding_rows
from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.cards import card_head
from app.components.shared.page import Page, live

KEY: Final = "cause"
CHARS_MAX: Final = 400


def render(page: Page) -> None:
    """Nothing without such a link."""
    linked = st.query_params.get(KEY, "")[:CHARS_MAX]
    cause = explained_table.parse_cause(linked)
    if cause is None:
        if linked:
            st.toast(f"A cause is a rule and an object, as broker-away:broker 3, not {linked!r:.40}.")
        return
    with st.container(key="card-cause"):
        live(page, "cause", _explained, page, cause)
        st.button("Close", key="cause-close", type="tertiary", on_click=_close)


def _close() -> None:
    st.query_params.pop(KEY, None)


def _explained(page: Page, cause: tuple[str, str]) -> None:
    view = page.view()
    findings = observed.open_findings(view)
    explained = alerts.explained_by(findings).get(cause, [])
    slug, object_ = cause
    title = next((row.sentence for row in findings if (row.slug, row.object) == cause), f"{slug} of {object_}")

    count = f"explains {fmt.count(len(explained))} finding{'' if len(explained) == 1 else 's'}"
    rows = finding_rows.frame(explained, page.moment) if explained else None
    card_head("cause", title, count, rows=rows)
    if not explained:
        st.html(markup.empty("It explains nothing now: what it explained is over, or stands for itself."))
        return
    st.html(explained_table.html(explained, view.now_ms))
    if len(explained) > explained_table.ROWS_MAX:
        st.html(
            f'<div class="eb-lines">{fmt.count(len(explained) - explained_table.ROWS_MAX)} more in the table.</div>'
        )
