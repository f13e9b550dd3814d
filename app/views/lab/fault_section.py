"""Lab, break it: scenarios that break the embedded cluster, what to watch, and how it heals."""

from __future__ import annotations

from typing import Any, Final

import streamlit as st

from app import links, state
from app.access.identity import READ_ONLY, User
from app.components.cluster import health_text
from app.components.lab import fault_text as pictures
from app.components.shared import markup
from app.components.shared.cards import card_head
from app.components.shared.page import Page, live
from app.control.api_client import ControlApiError
from app.control.user_api import control_api, debounce

SCENARIO: Final = "scenario"
_SHOWN: Final = "scenario-shown"
_REFUSAL: Final = "fault_refusal"


def render(page: Page) -> None:
    """The whole card; the API's answer is asked for while it is drawn, as for the race."""
    with st.container(key="card-faults"):
        card_head("faults", "Break it", "one thing at a time, on the embedded brokers only; each is mended again")
        try:
            faults = control_api(page.user).faults()
        except ControlApiError as error:
            st.html(markup.empty(f"? What can be broken is not known: {error}"))
            return
        if faults["refusal"]:
            st.html(markup.empty(str(faults["refusal"])))
            return
        _choose(page, faults)
        if refusal := st.session_state.get(_REFUSAL):
            st.html(markup.alert("warning", "Nothing was changed.", str(refusal)))
        live(page, "fault", _run, page, {scenario["slug"]: scenario["name"] for scenario in faults["scenarios"]})
        live(page, "fault-watch", _watch, page, _sign(faults))


def _choose(page: Page, faults: Any) -> None:
    scenarios = {scenario["slug"]: scenario for scenario in faults["scenarios"]}
    chosen = _chosen(list(scenarios))
    st.pills(
        "Scenario",
        list(scenarios),
        format_func=lambda name: str(scenarios[name]["name"]),
        default=chosen,
        required=True,
        key=_SHOWN,
        label_visibility="collapsed",
    )
    scenario = scenarios[chosen]
    st.html(pictures.scenario_html(scenario))
    user, running = page.user, pictures.is_running(faults["run"])
    block = health_text.lab_block(page.view(), user.may_write, READ_ONLY)
    with st.container(horizontal=True, key="fault-buttons"):
        broker = None
        if scenario["slug"] in faults["takes_broker"]:
            brokers = faults["brokers"]
            broker = st.selectbox(
                "Broker", brokers, index=len(brokers) - 1 if brokers else None, key="fault-broker", width=120
            )
        st.button(
            "Break it",
            key="fault-break",
            type="primary",
            disabled=block is not None or running,
            help=block or ("Something is broken already: heal it first." if running else "It stands in the audit."),
            on_click=_break,
            args=(user, scenario["slug"], broker),
        )
        st.button(
            "Heal",
            key="fault-heal",
            disabled=block is not None or not running,
            help=block or (None if running else "Nothing is broken by the lab."),
            on_click=_clear_fault,
            args=(user,),
        )
        links.link(scenario["watch_page"], "Where to watch →")
        if scenario["runbook"]:
            links.link("activity", "Runbook →", runbook=scenario["runbook"])


def _chosen(slugs: list[str]) -> str:
    """The scenario of the control, at first that of the link. Not bound: a bound control's links hold its labels."""
    slug = st.session_state.get(_SHOWN) or st.query_params.get(SCENARIO) or slugs[0]
    if slug not in slugs:
        st.toast(f"There is no scenario {slug!r:.40}; this is the first.")
        slug = slugs[0]
    if SCENARIO in st.query_params or slug != slugs[0]:
        st.query_params[SCENARIO] = slug
    return str(slug)


# --- callbacks: each does its work once ---


def _break(user: User, scenario: str, broker: int | None) -> None:
    with debounce("break") as first:
        if not first:
            return
        st.session_state.pop(_REFUSAL, None)
        try:
            control_api(user).inject_fault(scenario, broker)
        except ControlApiError as error:
            st.session_state[_REFUSAL] = str(error)


def _clear_fault(user: User) -> None:
    with debounce("heal") as first:
        if not first:
            return
        st.session_state.pop(_REFUSAL, None)
        try:
            control_api(user).clear_fault()
        except ControlApiError as error:
            st.session_state[_REFUSAL] = str(error)


# --- what is broken ---


def _run(page: Page, names: dict[str, str]) -> None:
    try:
        run = control_api(page.user).faults()["run"]
    except ControlApiError as error:
        st.html(markup.empty(f"? What is broken is not known: {error}"))
        return
    if run is not None:
        now_ms = state.now_ms()
        st.html(pictures.run_html(run, names, now_ms, lambda at_ms: page.clock(at_ms, now_ms)))


def _sign(faults: Any) -> tuple[object, ...]:
    return (pictures.is_running(faults["run"]), faults["refusal"])


def _watch(page: Page, drawn: tuple[object, ...]) -> None:
    """Draws the page again when its buttons no longer fit what is broken."""
    try:
        faults = control_api(page.user).faults()
    except ControlApiError:
        return
    if _sign(faults) != drawn:
        st.rerun()
