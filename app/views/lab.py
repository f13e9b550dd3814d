"""Lab: show me, on the embedded cluster, what the flag of KIP-1023 saves when an empty replica joins.

A race lives in the backend, not in the database: this page asks the control API for it while it is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import streamlit as st

from app import state
from app.client import ApiError, ControlApi, Json
from app.components import bootstrap_race as pictures
from app.components import export, health_words, markup
from app.components import format as fmt
from app.components.export import Section
from app.components.page import Page, card_head, download, live, open_page
from app.person import READ_ONLY, Person
from app.theme import CONFIG, LIGHT
from app.views import lab_faults

SIZES: Final = {"64 MB": 64_000_000, "300 MB": 300_000_000, "1 GB": 1_000_000_000, "2 GB": 2_000_000_000}
SHARES: Final = {"50 %": 50, "70 %": 70, "85 %": 85, "95 %": 95}
ATTACHED: Final = "The lab makes and deletes topics, so it runs on an embedded cluster only."
_REFUSAL: Final = "lab_refusal"


def render() -> None:
    page = open_page("Lab", "bootstrap race on the embedded cluster")
    if page is None:
        return
    st.html(f"<style>{pictures.CSS}</style>")
    try:
        kind = page.view().cluster.kind
    except state.DatabaseAway:
        st.html(markup.empty("? The database is away, and this was not read before."))
        return
    if kind != "embedded":
        st.html(markup.empty(ATTACHED, "Start one with `ebbline up` in a folder of its own."))
        return
    _controls(page)
    live(page, "race", _race, page)
    lab_faults.draw(page)


def _controls(page: Page) -> None:
    st.html(
        markup.text(
            "An empty replica joins a topic whose beginning is in the remote tier only: first with"
            " follower.fetch.last.tiered.offset.enable off, then with it on. The topic is deleted afterwards."
        )
    )
    person = page.person
    with st.container(horizontal=True, key="race-controls", vertical_alignment="bottom"):
        size = st.selectbox("Local log of the leader", list(SIZES), index=1, key="race-size", width=170)
        share = st.selectbox("In the remote tier too", list(SHARES), index=2, key="race-share", width=170)
        block = health_words.lab_block(page.view(), person.may_write, READ_ONLY)
        st.button(
            "Start race",
            key="race-start",
            type="primary",
            disabled=block is not None,
            help=block,
            on_click=_start,
            args=(person, SIZES[size], SHARES[share]),
        )
        st.button(
            "Cancel race",
            key="race-cancel",
            disabled=block is not None,
            help=block,
            on_click=_cancel,
            args=(person,),
        )
    if refusal := st.session_state.get(_REFUSAL):
        st.html(markup.alert("warning", "Nothing was changed.", refusal))


# --- callbacks: each does its work once ---


def _start(person: Person, size_bytes: int, tiered_percent: int) -> None:
    _try(lambda: _api(person).start_bootstrap_race(size_bytes, tiered_percent))


def _cancel(person: Person) -> None:
    _try(lambda: _api(person).cancel_bootstrap_race())


def _try(call: Callable[[], object]) -> None:
    st.session_state.pop(_REFUSAL, None)
    try:
        call()
    except ApiError as error:
        st.session_state[_REFUSAL] = str(error)


def _api(person: Person) -> ControlApi:
    known = state.environment()
    return ControlApi(known.api_url, known.api_token_file, person)


# --- the race ---


def _race(page: Page) -> None:
    try:
        run = _api(page.person).bootstrap_race()
    except ApiError as error:
        st.html(markup.empty(f"? The race is not known: {error}"))
        return
    if run is None:
        st.html(markup.empty("No race was run since the backend's start.", "Start one above: 300 MB take a minute."))
        return
    words = f"<strong>{markup.text(pictures.progress_words(run))}</strong>"
    st.html(f"<div>{words} {markup.text(pictures.comparison(run) or '')}</div>")
    if run["races"]:
        download(
            "race", "Report of this race (HTML)", partial(_report, run), export.file_name("race", "html"), "text/html"
        )
    for column, flag in zip(st.columns(2), (False, True), strict=True):
        with column, st.container(key=f"card-race-{'on' if flag else 'off'}"):
            card_head(f"race-{flag}", pictures.NAMES[flag], f"topic {run['topic']}")
            st.html(pictures.pills_html(run, flag) + pictures.lanes_html(run, flag))
    if run["races"]:
        with st.container(key="card-race-lag"):
            clause = "both replicas start empty; dashed: flag off, solid: flag on"
            card_head("race-lag", "Offsets behind the leader", clause, rows=pictures.lag_rows(run))
            alt = "Offsets behind the leader of both new replicas over the seconds since they were asked for"
            st.plotly_chart(pictures.lag_figure(run, page.colours), config=CONFIG, key="race-lag-chart", alt=alt)
        with st.container(key="card-race-phases"):
            card_head("race-phases", "What happened", "as the new replica's broker told it")
            st.html(pictures.phase_table(run))


def _report(run: Json) -> bytes:
    """The race as one HTML file."""
    facts = [
        ("Topic", str(run["topic"])),
        ("Local log of the leader", fmt.size(run["size_bytes"])),
        ("In the remote tier too", f"{run['tiered_percent']} %"),
        ("Began", fmt.clock(run["started_ms"], 0) + " UTC"),
        ("Ended", pictures.progress_words(run)),
        ("Comparison", pictures.comparison(run) or "? not both replicas are there"),
    ]
    sections = [
        Section(pictures.NAMES[flag], html=pictures.pills_html(run, flag) + pictures.lanes_html(run, flag))
        for flag in (False, True)
    ]
    sections.append(Section("Offsets behind the leader", "as they were looked at", rows=pictures.lag_rows(run)))
    sections.append(Section("What happened", "as the new replica's broker told it", html=pictures.phase_table(run)))
    return export.report("Bootstrap race", facts, sections, LIGHT, pictures.CSS)
