"""The shared part of the forms that plan a change of settings: the text under the fields, and the button's state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from app.access.identity import READ_ONLY
from app.components.cluster import health_text
from app.components.shared import markup
from app.components.shared.page import Page


def changes_text(
    block: str | None,
    problem: str | None,
    settings: Mapping[str, str],
    lines: Callable[[Mapping[str, str]], Sequence[str]],
) -> str:
    """Why nothing may be changed, or what is wrong (red once something was entered), else the changes as `lines`."""
    if block is not None:
        return f"{markup.mark('notice')} {markup.text(block)}"
    if problem is not None:
        status = "critical" if settings else "notice"
        return f'<span class="eb-{status}">{markup.mark(status)} {markup.text(problem)}</span>'
    return "<br>".join(markup.text(line) for line in lines(settings))


def watch(page: Page, block: str | None) -> None:
    """Draws the page again when the button no longer fits what may be done."""
    if health_text.write_block(page.view(), page.user.may_write, READ_ONLY) != block:
        st.rerun()
