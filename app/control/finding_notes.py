"""Decisions of a person about findings: mute, take over, maintenance windows. Callbacks of buttons; each acts once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import streamlit as st

from app import state
from app.access.identity import User
from app.components.cluster import maintenance_form
from app.components.cluster.maintenance_form import MaintenanceInput
from app.components.shared import markup
from app.control.api_client import ControlApiError
from app.control.user_api import control_api, debounce

_PROBLEM: Final = "finding-note-problem"


def mute(user: User, finding_id: int, minutes: int) -> None:
    """Keeps a finding silent for a while."""
    _act(f"mute {finding_id} {minutes}", lambda: control_api(user).mute_finding(finding_id, minutes))


def unmute(user: User, finding_id: int) -> None:
    """Ends the silence of a finding."""
    _act(f"unmute {finding_id}", lambda: control_api(user).mute_finding(finding_id, 0))


def acknowledge(user: User, finding_id: int) -> None:
    """Says that the user looks after a finding."""
    _act(f"acknowledge {finding_id}", lambda: control_api(user).acknowledge_finding(finding_id))


def add_maintenance(user: User, given: MaintenanceInput) -> None:
    """Begins or plans a window."""
    # Now, when it is pressed: the form was drawn before.
    body = maintenance_form.body(given, state.now_ms())
    _act(f"maintenance {given}", lambda: control_api(user).add_maintenance(body))


def end_maintenance(user: User, window_id: int) -> None:
    """Ends a window now."""
    _act(f"end maintenance {window_id}", lambda: control_api(user).end_maintenance(window_id))


def show_problem() -> None:
    """Why the last press changed nothing, until the next one."""
    problem = st.session_state.get(_PROBLEM)
    if problem:
        st.html(markup.alert("critical", "Nothing was changed.", str(problem)))


def _act(what: str, call: Callable[[], None]) -> None:
    with debounce(what) as first:
        if not first:
            return
        st.session_state.pop(_PROBLEM, None)
        try:
            call()
        except ControlApiError as error:
            st.session_state[_PROBLEM] = str(error)
