"""The way of every change: plan → diff → checks → reason and typed name → execute once → how it goes.

The dialog opens from the session's state, on a run of the whole page; the work is done once, in the callback of the
button, with an idempotency key made when the dialog was opened. Every refusal is a sentence on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import uuid4

import streamlit as st

from app import state
from app.access.identity import User
from app.components.plan import plan_text
from app.components.shared import markup
from app.components.shared.page import PENDING, Page, live
from app.control.api_client import ApiAway, ApiRefused, ControlApiError
from app.control.user_api import control_api, debounce
from backend.store.queries import audit

REASON_CHARS_MAX: Final = 500
_OUTCOME: Final = "plan_outcome"


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """The plan in the dialog. ``problem``: why its execution did not go; ``final``: trying again cannot help."""

    view: plan_text.PlanView
    key: str
    cluster_name: str
    problem: str = ""
    final: bool = False


@dataclass(frozen=True, slots=True)
class PlanControl:
    """A request to a running plan: `verb` as the API has it. ``limit_mb_s``: the dialog asks for a new limit."""

    plan_id: int
    verb: str
    title: str
    text: str
    keep: str
    act: str
    limit_mb_s: float | None = None


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of the last action: a plan to follow, or why there was none."""

    plan_id: int | None
    problem: str = ""


# --- callbacks: each does its work once ---


def propose(user: User, cluster_name: str, kind: str, inputs: Mapping[str, Any]) -> None:
    """Makes a plan and opens the dialog with it."""
    _open(cluster_name, f"plan {kind} {inputs}", lambda: plan_text.of_plan(control_api(user).plan(kind, inputs)))


def dry_run(user: User, cluster_name: str, kind: str, inputs: Mapping[str, Any]) -> None:
    """Opens the dialog with what the plan would be; a viewer may."""
    _open(cluster_name, f"try {kind} {inputs}", lambda: plan_text.of_dry_run(control_api(user).dry_run(kind, inputs)))


def confirm(cluster_name: str, row: audit.OperationRow) -> None:
    """Opens the dialog with a plan that is stored already."""
    _open(cluster_name, f"confirm {row.id}", lambda: plan_text.of_plan(row))


def ask(control: PlanControl) -> None:
    """Opens a dialog that asks about a plan that is being carried out."""
    st.session_state.pop(_OUTCOME, None)
    st.session_state[PENDING] = control


def revert(user: User, cluster_name: str, plan_id: int) -> None:
    """Plans the way back and opens the dialog with it."""
    _open(cluster_name, f"revert {plan_id}", lambda: plan_text.of_plan(control_api(user).revert(plan_id)))


def dismiss() -> None:
    """Takes the outcome off the page."""
    st.session_state.pop(_OUTCOME, None)


def _open(cluster_name: str, what: str, ask: Callable[[], plan_text.PlanView]) -> None:
    with debounce(what) as first:
        if not first:
            return
        st.session_state.pop(_OUTCOME, None)
        try:
            view = ask()
        except ControlApiError as error:
            st.session_state[_OUTCOME] = ActionResult(None, str(error))
            return
        st.session_state[PENDING] = OpenPlan(view, uuid4().hex, cluster_name)


def _cancel() -> None:
    st.session_state.pop(PENDING, None)


def _execute(user: User, pending: OpenPlan) -> None:
    plan_id = pending.view.plan_id
    if plan_id is None:
        return
    reason, typed = (str(st.session_state.get(f"{name}-{plan_id}") or "") for name in ("reason", "confirm"))
    try:
        control_api(user).execute(plan_id, key=pending.key, confirm=typed.strip(), reason=reason.strip())
    except ApiRefused as error:
        # A conflict is about the plan itself: it was executed, refused, or the cluster has changed.
        final = error.status in (403, 404, 409)
        st.session_state[PENDING] = replace(pending, problem=f"Nothing was changed. {error}", final=final)
    except ApiAway as error:
        st.session_state[PENDING] = replace(pending, problem=str(error))
    else:
        st.session_state.pop(PENDING, None)
        st.session_state[_OUTCOME] = ActionResult(plan_id)


# --- the dialog ---


def host(page: Page) -> None:
    """The dialog of a page with changes, and above the rest a container for the result of the last one.

    The container is always there, empty or not: the cards below keep their positions and are not drawn twice.
    """
    show(page)
    place = st.empty()
    if outcome_shown():
        with place.container(horizontal=True, key="outcome"):
            live(page, "outcome", outcome, page)
            st.button("Dismiss", on_click=dismiss, key="dismiss", type="tertiary")


def show(page: Page) -> None:
    """Opens the dialog when a plan is pending. Call it outside of live parts: a dialog opened in one goes dead."""
    pending = st.session_state.get(PENDING)
    if isinstance(pending, OpenPlan):
        st.dialog(pending.view.title, width="medium", on_dismiss=_cancel)(_body)(page.user, pending)
    if isinstance(pending, PlanControl):
        st.dialog(pending.title, on_dismiss=_cancel)(_control_body)(page.user, pending)


def _control_body(user: User, control: PlanControl) -> None:
    st.html(f'<div class="eb-prose">{markup.text(control.text)}</div>')
    if control.limit_mb_s is not None:
        st.number_input("MB/s on each broker", 0.001, 1e6, control.limit_mb_s, key=f"limit-{control.plan_id}")
    with st.container(horizontal=True, key="dialog-buttons"):
        if st.button(control.keep, on_click=_cancel, key="keep"):
            st.rerun()
        if st.button(control.act, type="primary", key="act", on_click=_send_control, args=(user, control)):
            st.rerun()


def _send_control(user: User, control: PlanControl) -> None:
    body: dict[str, int] = {}
    if control.limit_mb_s is not None:
        limit_mb_s = float(st.session_state.get(f"limit-{control.plan_id}") or control.limit_mb_s)
        body = {"throttle_bytes_per_s": round(limit_mb_s * 1_000_000)}
    st.session_state.pop(PENDING, None)
    send_control(user, control.plan_id, control.verb, body)


def send_control(user: User, plan_id: int, verb: str, body: Mapping[str, int]) -> None:
    """Sends the request once; a refusal is shown on the page."""
    # Not by the verb: the second press may find Resume where Pause was.
    with debounce(f"steer {plan_id}") as first:
        if not first:
            return
        try:
            control_api(user).send_control(plan_id, verb, body)
        except ControlApiError as error:
            st.session_state[_OUTCOME] = ActionResult(None, str(error))


def _body(user: User, pending: OpenPlan) -> None:
    view = pending.view
    st.html(plan_text.intro_html(view, pending.cluster_name))
    st.html(plan_text.diff_html(view))
    st.html(plan_text.facts_html(view))
    if view.blocked:
        with st.expander(f"{len(view.blocked)} partitions could not take a new replica"):
            st.html(
                markup.table([("Partition", "left"), ("Why", "left")], view.blocked, caption="Partitions and reasons")
            )
    if view.cli:
        st.code("\n".join(view.cli).replace(" --alter", " \\\n  --alter"), language="bash", wrap_lines=True)
    confirmable = view.plan_id is not None and not view.refused
    ready = _confirmation(pending) if confirmable else False
    if view.refused:
        st.html(markup.alert("critical", "There is nothing to confirm.", "The first check above says why."))
    if pending.problem:
        st.html(markup.alert("critical", pending.problem, ""))
    with st.container(horizontal=True, key="dialog-buttons"):
        if st.button(view.keep if confirmable else "Close", on_click=_cancel, key="keep"):
            st.rerun()
        if confirmable:
            blocked = not ready or pending.final
            act = st.button(
                view.act, type="primary", key="act", disabled=blocked, on_click=_execute, args=(user, pending)
            )
            # Without it the callback would run and the dialog stay open.
            if act:
                st.rerun()


def _confirmation(pending: OpenPlan) -> bool:
    """Reason and typed name; True when both are there."""
    plan_id, name = pending.view.plan_id, pending.cluster_name
    reason = st.text_input(
        "Reason", key=f"reason-{plan_id}", max_chars=REASON_CHARS_MAX, live=True, placeholder="It stands in the audit"
    )
    typed = st.text_input(f"Type {name} to confirm", key=f"confirm-{plan_id}", live=True)
    return bool((reason or "").strip()) and (typed or "").strip() == name


# --- how it ended ---


def outcome_shown() -> bool:
    """Something of the last action is on the page."""
    return isinstance(st.session_state.get(_OUTCOME), ActionResult)


def outcome(page: Page) -> None:
    """The state of the last executed plan as the database has it now, or why nothing was changed. For a live part."""
    result = st.session_state.get(_OUTCOME)
    if not isinstance(result, ActionResult):
        return
    if result.plan_id is None:
        st.html(markup.alert("critical", "Nothing was changed.", result.problem))
        return
    row = state.read_cached(audit.operation, page.cluster_id, result.plan_id, version=page.view().read_ms)
    if row is not None:
        st.html(plan_text.outcome_html(row))
