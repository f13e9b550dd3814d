"""Lab: show me, on the embedded cluster, what the flag of KIP-1023 saves when an empty replica joins.

A race is kept by the backend, not in the database: this page asks the control API for it while it is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import streamlit as st

from app import state
from app.access.identity import READ_ONLY, User
from app.components.cluster import health_text
from app.components.lab import bootstrap_race as pictures
from app.components.lab import race_replay
from app.components.shared import export, markup, style
from app.components.shared import format as fmt
from app.components.shared.cards import card_head, download
from app.components.shared.export import Section
from app.components.shared.page import Page, live, open_page
from app.control.api_client import ControlApiError, Json
from app.control.user_api import control_api, debounce
from app.theme import CONFIG, LIGHT
from app.views.lab import fault_section

SIZES: Final = {"64 MB": 64_000_000, "300 MB": 300_000_000, "1 GB": 1_000_000_000, "2 GB": 2_000_000_000}
SHARES: Final = {"50 %": 50, "70 %": 70, "85 %": 85, "95 %": 95}
ATTACHED: Final = "The lab makes and deletes topics, so it runs on an embedded cluster only."
STEP: Final = "step"
STEPS_SHOWN: Final = 8
STEPS_REPORTED: Final = 200
_SHOWN: Final = "race-step-shown"
_REFUSAL: Final = "lab_refusal"


def render() -> None:
    page = open_page("Lab", "bootstrap race on the embedded cluster")
    if page is None:
        return
    style.add("lab")
    try:
        kind = page.view().cluster.kind
    except state.DatabaseUnreachable:
        st.html(markup.empty("? The database is away, and this was not read before."))
        return
    if kind != "embedded":
        st.html(markup.empty(ATTACHED, "Start one with `ebbline up` in its own folder."))
        return
    _controls(page)
    live(page, "race", _race, page)
    fault_section.render(page)


def _controls(page: Page) -> None:
    user = page.user
    st.html(
        '<div class="eb-lines">An empty replica joins a topic whose beginning is in the remote tier only: first with'
        " follower.fetch.last.tiered.offset.enable off, then with it on. The topic is deleted afterwards.</div>"
    )
    with st.container(horizontal=True, key="race-controls", vertical_alignment="bottom"):
        size = st.selectbox("Local log of the leader", list(SIZES), index=1, key="race-size", width=170)
        share = st.selectbox("In the remote tier too", list(SHARES), index=2, key="race-share", width=170)
        block = health_text.lab_block(page.view(), user.may_write, READ_ONLY)
        st.button(
            "Start race",
            key="race-start",
            type="primary",
            disabled=block is not None,
            help=block,
            on_click=_start,
            args=(user, SIZES[size], SHARES[share]),
        )
        st.button(
            "Cancel race",
            key="race-cancel",
            disabled=block is not None,
            help=block,
            on_click=_cancel,
            args=(user,),
        )
    if refusal := st.session_state.get(_REFUSAL):
        st.html(markup.alert("warning", "Nothing was changed.", refusal))


# --- callbacks: each does its work once ---


def _start(user: User, size_bytes: int, tiered_percent: int) -> None:
    _try("start", lambda: control_api(user).start_bootstrap_race(size_bytes, tiered_percent))


def _cancel(user: User) -> None:
    _try("cancel", lambda: control_api(user).cancel_bootstrap_race())


def _try(what: str, call: Callable[[], object]) -> None:
    with debounce(f"race {what}") as first:
        if not first:
            return
        st.session_state.pop(_REFUSAL, None)
        try:
            call()
        except ControlApiError as error:
            st.session_state[_REFUSAL] = str(error)


# --- the race ---


def _race(page: Page) -> None:
    try:
        run = control_api(page.user).bootstrap_race()
    except ControlApiError as error:
        st.html(markup.empty(f"? The race is not known: {error}"))
        return
    if run is None:
        st.html(markup.empty("No race was run since the backend's start.", "Start one above: 300 MB take a minute."))
        return
    number = _step(run)
    shown = run if number is None else race_replay.until(run, number)
    with st.container(horizontal=True, key="race-head", vertical_alignment="center"):
        progress = f"<strong>{markup.text(pictures.progress_text(run))}</strong>"
        st.html(f'<div class="eb-prose">{progress} {markup.text(pictures.comparison(run) or "")}</div>')
        _replay(run, number)
        if run["races"]:
            download(
                "race",
                "Report of this race (HTML)",
                partial(_report, run),
                export.file_name("race", "html"),
                "text/html",
            )
    with st.container(key="grid-race-a"):
        for flag in (False, True):
            with st.container(key=f"card-race-{'on' if flag else 'off'}"):
                pills = pictures.pills_html(shown, flag)
                card_head(f"race-{flag}", pictures.NAMES[flag], f"topic {run['topic']}", html=pills)
                st.html(pictures.lanes_html(shown, flag))
    if race_replay.steps(run):
        with st.container(key="grid-race-b"):
            _trace(page, run, shown, number)


def _trace(page: Page, run: Json, shown: Json, number: int | None) -> None:
    """The lag of both replicas over time, and their steps."""
    with st.container(key="card-race-lag"):
        clause = "both replicas start empty; dashed: flag off, solid: flag on"
        card_head("race-lag", "Offsets behind the leader", clause, rows=pictures.lag_rows(shown))
        alt = "Offsets behind the leader of both new replicas over the seconds since they were asked for"
        figure = pictures.lag_figure(shown, page.colours)
        st.plotly_chart(figure, theme=None, config=CONFIG, key="race-lag-chart", alt=alt)
    with st.container(key="card-race-steps"):
        clause = "what both replicas' brokers told, newest last"
        card_head("race-steps", "What just happened", clause, rows=race_replay.rows(run))
        st.html(race_replay.steps_table(run, number, STEPS_SHOWN))


# --- the recorded trace: a step of the link, or all of it ---


def _replay(run: Json, number: int | None) -> None:
    """Reset, Step and Pause: they choose what is shown; the engine runs on. In a live part: none opens a dialog."""
    most = len(race_replay.steps(run))
    st.html(f'<span class="eb-lines">{markup.text(race_replay.step_text(run, number))}</span>', width="content")
    at_end = number is not None and number >= most
    st.button(
        "Step",
        key="race-step",
        icon=":material/skip_next:",
        disabled=not most or number is None or at_end,
        help="Reset or pause first" if number is None else "The last one" if at_end else "One step on",
        on_click=_show_step,
        args=((number or 0) + 1,),
    )
    following = number is None
    st.button(
        "Pause" if following else "Follow",
        key="race-pause",
        icon=":material/pause:" if following else ":material/play_arrow:",
        disabled=not most,
        help="Stay at this step; the engine runs on" if following else "Show everything as it comes",
        on_click=_show_step,
        args=(most if following else None,),
    )
    st.button(
        "Reset",
        key="race-reset",
        icon=":material/restart_alt:",
        disabled=not most,
        help="Back to the beginning of the recorded trace",
        on_click=_show_step,
        args=(0,),
    )


def _step(run: Json) -> int | None:
    """The step that is shown; None: everything."""
    if _SHOWN not in st.session_state:
        linked = st.query_params.get(STEP, "")
        valid = linked.isdecimal() and len(linked) < 6
        if linked and not valid:
            st.toast(f"There is no step {linked!r:.20}; this is all of the race.")
        st.session_state[_SHOWN] = int(linked) if valid else None
    number: int | None = st.session_state[_SHOWN]
    return None if number is None else min(number, len(race_replay.steps(run)))


def _show_step(number: int | None) -> None:
    st.session_state[_SHOWN] = number
    if number is None:
        st.query_params.pop(STEP, None)
    else:
        st.query_params[STEP] = str(number)


def _report(run: Json) -> bytes:
    """The race as one HTML file."""
    facts = [
        ("Topic", str(run["topic"])),
        ("Local log of the leader", fmt.size(run["size_bytes"])),
        ("In the remote tier too", f"{run['tiered_percent']} %"),
        ("Began", fmt.clock(run["started_ms"], 0) + " UTC"),
        ("Ended", pictures.progress_text(run)),
        ("Comparison", pictures.comparison(run) or "? not both replicas are there"),
    ]
    sections = [
        Section(pictures.NAMES[flag], html=pictures.pills_html(run, flag) + pictures.lanes_html(run, flag))
        for flag in (False, True)
    ]
    sections.append(Section("Offsets behind the leader", "as they were looked at", rows=pictures.lag_rows(run)))
    steps = race_replay.steps_table(run, None, STEPS_REPORTED)
    sections.append(Section("What happened", "what both replicas' brokers told", html=steps))
    return export.report("Bootstrap race", facts, sections, LIGHT, "lab")
