"""Changes of rules by a person. Callbacks of buttons; each acts once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import streamlit as st

from app.access.identity import User
from app.components.shared import markup
from app.control.api_client import ControlApiError
from app.control.user_api import control_api, debounce

_PROBLEM: Final = "rule-problem"


def change(
    user: User, slug: str, values: Mapping[str, float | str | bool | None], topics: str | None, reason: str
) -> None:
    """Sets names of a rule's table in the alerts file; None: as the rule itself says."""
    with debounce(f"rule {slug} {values} {topics}") as first:
        if not first:
            return
        st.session_state.pop(_PROBLEM, None)
        try:
            control_api(user).change_rule(slug, values, topics, reason)
        except ControlApiError as error:
            st.session_state[_PROBLEM] = str(error)


def show_problem() -> None:
    """Why the last press changed nothing, until the next one."""
    problem = st.session_state.get(_PROBLEM)
    if problem:
        st.html(markup.alert("critical", "Nothing was changed.", str(problem)))
