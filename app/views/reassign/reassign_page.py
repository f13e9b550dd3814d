"""Reassign: what a move costs with and without the flag; plan it, run it, watch it, stop it, put it back."""

from __future__ import annotations

from typing import Final

import streamlit as st

from app import state
from app.access.identity import READ_ONLY
from app.components.cluster import health_text
from app.components.plan import move_pictures, plan_dialog, plan_text
from app.components.shared import markup, style
from app.components.shared.cards import title_line
from app.components.shared.page import Page, live, open_page
from app.state import ClusterView, DatabaseUnreachable
from app.views.reassign.move_inputs import KIND, REVIEW, Review, choose, clone, no_clone
from app.views.reassign.move_review import review as draw_review
from app.views.reassign.running_card import left_limits, move_controls, progress, running_plan
from backend.store.queries import audit
from backend.store.queries.audit import OperationRow

PLANS_MAX: Final = 8


def render() -> None:
    page = open_page("Reassign", _fact)
    if page is None:
        return
    style.add("plan", "reassign")
    try:
        _page(page)
    except DatabaseUnreachable:
        st.html(markup.empty("? The database is away, and this was not read before."))


def _fact(view: ClusterView) -> str:
    linked = st.query_params.get("plan")
    return f"plan #{linked}" if linked and linked.isdecimal() else ""


def _page(page: Page) -> None:
    view = page.view()
    block = health_text.write_block(view, page.user.may_write, READ_ONLY)
    running = running_plan(page, view)
    plan_dialog.host(page)
    if running is not None:
        with st.container(key="card-running"):
            live(page, "running", progress, page)
            move_controls(page, running, block)
    left_limits(page, view, block, moves=running is not None)
    stored = _stored(page, view)
    if stored is not None:
        if stored.state in ("draft", "checked"):
            with st.container(key="card-steps"):
                st.html(move_pictures.steps_html(3))
        draw_review(page, view, _of_plan(stored), block, stored)
    else:
        inputs = choose(page, view)
        review = st.session_state.get(REVIEW)
        if isinstance(review, Review) and review.inputs == inputs:
            draw_review(page, view, review, block, None)
        elif isinstance(review, str):
            st.html(markup.alert("critical", "Nothing has been planned.", review))
    with st.container(key="card-plans"):
        _plans(page, view, block)
    live(page, "watch", _watch, page, _sign(page))


# --- a stored plan ---


def _stored(page: Page, view: ClusterView) -> OperationRow | None:
    """The plan of the link."""
    linked = st.query_params.get("plan")
    if linked is None:
        return None
    row = None
    if linked.isdecimal() and len(linked) < 19:
        row = state.read_cached(audit.operation, page.cluster_id, int(linked), version=view.read_ms)
    if row is None or row.kind != KIND:
        st.toast(f"There is no reassignment {linked!r:.30}; make a new one.")
        st.query_params.pop("plan", None)
        return None
    return row


def _of_plan(row: OperationRow) -> Review:
    return Review(
        row.inputs,
        row.diff or {},
        row.checks or [],
        row.cli or [],
        row.estimate or {},
        row.state == "refused",
        row.created_ms,
        row.id,
    )


# --- plans ---


def _recent(page: Page, view: ClusterView) -> list[OperationRow]:
    return state.read_cached(audit.operations, page.cluster_id, kinds=(KIND,), limit=PLANS_MAX, version=view.read_ms)


def _plans(page: Page, view: ClusterView, block: str | None) -> None:
    title_line("plans", "Plans", "newest first; a revert is a new plan")
    rows = _recent(page, view)
    if not rows:
        st.html(markup.empty("Nobody has planned a move yet.", "Choose above what is to move; Review changes nothing."))
        return
    for row in rows:
        line = plan_text.change_line(row)
        with st.container(horizontal=True, key=f"plan-row-{row.id}", vertical_alignment="center"):
            cells = (
                f"#{row.id}",
                page.clock(line.at_ms, view.now_ms),
                line.who,
                line.scope,
                str((row.diff or {}).get("words", {}).get("title", "")),
            )
            inner = "".join(f"<span>{markup.text(cell)}</span>" for cell in cells)
            result = markup.text((row.result or {}).get("sentence") or line.reason)
            st.html(
                f'<div class="eb-plan">{inner}<span>{plan_text.state_html(row.state)}</span><span>{result}</span></div>'
            )
            st.button("Open", key=f"open-{row.id}", type="tertiary", on_click=_open, args=(row.id,))
            st.button(
                "Clone",
                key=f"clone-{row.id}",
                type="tertiary",
                disabled=no_clone(row.inputs) is not None,
                help=no_clone(row.inputs) or "Ask for the same again, as the beginning of another plan",
                on_click=clone,
                args=(row.inputs,),
            )
            st.button(
                "Revert…",
                key=f"revert-{row.id}",
                type="tertiary",
                disabled=block is not None or not line.revertible,
                help=block or ("Plan the way back" if line.revertible else "It has changed nothing that stands."),
                on_click=plan_dialog.revert,
                args=(page.user, view.cluster.name, row.id),
            )


def _open(plan_id: int) -> None:
    st.query_params["plan"] = str(plan_id)


def _sign(page: Page) -> tuple[object, ...]:
    """Changes when the buttons outside of live parts must be drawn again."""
    view = page.view()
    block = health_text.write_block(view, page.user.may_write, READ_ONLY)
    running = running_plan(page, view)
    now = None if running is None else (running.id, running.state, running.intent, running.throttle_bytes_per_s)
    return (block, now, tuple((row.id, row.state) for row in _recent(page, view)))


def _watch(page: Page, drawn: tuple[object, ...]) -> None:
    """Draws the page again when its buttons no longer fit what is in the database."""
    if _sign(page) != drawn:
        st.rerun()
