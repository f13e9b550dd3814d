"""The review of a reassignment: its copies and changes, its checks, and the buttons that save or begin it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from app import links
from app.access.identity import User
from app.components.plan import move_pictures, plan_dialog, plan_text
from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.cards import card_head, source, title_line
from app.components.shared.page import Page, body_key
from app.control.api_client import ControlApiError
from app.control.user_api import control_api
from app.state import ClusterView
from app.views.reassign.move_inputs import KIND, REVIEW, Review
from backend.store.queries.audit import OperationRow

# The worst come first; what has passed is shown as far as it fits beside the lists.
CHECKS_SHOWN: Final = 6


def _save(user: User, inputs: Mapping[str, Any]) -> None:
    # The first press takes the review away; a second one of the same review finds nothing to save.
    if not isinstance(st.session_state.get(REVIEW), Review):
        return
    try:
        row = control_api(user).plan(KIND, inputs)
    except ControlApiError as error:
        st.session_state[REVIEW] = str(error)
        return
    st.session_state.pop(REVIEW, None)
    st.query_params["plan"] = str(row.id)


def _back() -> None:
    st.session_state.pop(REVIEW, None)
    st.query_params.pop("plan", None)


def review(page: Page, view: ClusterView, review: Review, block: str | None, stored: OperationRow | None) -> None:
    estimate, diff = review.estimate, review.diff
    dialog_texts = diff.get("words", {})
    age = fmt.duration(max(0, view.now_ms - review.at_ms) / 1000)
    copies = int(estimate.get("replicas") or 0)
    with st.container(key="grid-review-a"):
        with st.container(key="card-copy"):
            clause = f"{fmt.count(copies)} replica{'' if copies == 1 else 's'} · {move_pictures.verdicts(estimate)}"
            title_line("copy", "What has to be copied", clause)
            with st.container(key=body_key(view, "copy")):
                if copies:
                    st.html(move_pictures.estimate_html(estimate))
                    _flag_first(estimate)
                else:
                    st.html(markup.empty("Nothing is copied."))
        with st.container(key="card-load"):
            load = diff.get("load", [])
            rows = move_pictures.load_rows(load) if load else None
            card_head("load", "Broker load", "local bytes, now ○ and after ●", rows=rows)
            st.html(move_pictures.load_html(load) if load else markup.empty("No broker is known."))
    with st.container(key="grid-review-b"):
        with st.container(key="card-lists"):
            title_line("lists", "Plan", "replicas in preferred order; bold outline leads")
            st.html(move_pictures.lists_html(diff.get("changes", []), estimate))
        with st.container(key="card-checks"):
            made = f"plan #{review.plan_id}, {age} ago" if review.plan_id else f"dry run, {age} ago"
            title_line("checks", "Before you execute", made)
            checks = [(str(check["outcome"]), str(check["sentence"])) for check in review.checks]
            first = max(CHECKS_SHOWN, sum(outcome != "ok" for outcome, _ in checks))
            st.html(plan_text.checks_list_html(checks[:first]))
            if checks[first:]:
                with st.expander(f"{len(checks) - first} more passed"):
                    st.html(plan_text.checks_list_html(checks[first:]))
            st.code("\n".join(review.cli), language="bash", wrap_lines=True)
    with st.container(key="card-total"):
        _total(page, view, review, block, stored, str(dialog_texts.get("effect", "")))


def _flag_first(estimate: Mapping[str, Any]) -> None:
    """The way to the flag, where it is off and would spare bytes."""
    off = [str(broker["broker_id"]) for broker in estimate.get("brokers", []) if not broker["flag_on"]]
    if off and int(estimate.get("on_bytes") or 0) < int(estimate.get("off_bytes") or 0):
        label = f"Turn it on for broker {', '.join(off[:3])} first →"
        with st.container(key="flag-first"):
            links.link("config", label, section="bootstrap")


def _total(
    page: Page, view: ClusterView, review: Review, block: str | None, stored: OperationRow | None, effect: str
) -> None:
    dialog_texts = review.diff.get("words", {})
    user, name = page.user, view.cluster.name
    act = str(dialog_texts.get("act", "Move"))
    with st.container(horizontal=True, key="total", vertical_alignment="center"):
        summary = "Refused: the first check says why." if review.refused else effect
        nothing = (
            markup.pill("Nothing has been changed", "notice") if stored is None or stored.state == "checked" else ""
        )
        title = f"<strong>{markup.text(dialog_texts.get('title', ''))}</strong>"
        st.html(f"<div>{title} {markup.text(summary)} {nothing} {source('total')}</div>")
        st.button("Back", key="back", on_click=_back)
        if stored is None:
            st.button(
                "Save plan",
                key="save",
                disabled=block is not None,
                help=block,
                on_click=_save,
                args=(user, review.inputs),
            )
            st.button(
                f"{act}…",
                key="move",
                type="primary",
                disabled=block is not None or review.refused,
                help=block,
                on_click=plan_dialog.propose,
                args=(user, name, KIND, review.inputs),
            )
        elif stored.state == "checked":
            st.button(
                f"{act}…",
                key="move",
                type="primary",
                disabled=block is not None,
                help=block,
                on_click=plan_dialog.confirm,
                args=(name, stored),
            )
        else:
            st.html(plan_text.state_html(stored.state))
