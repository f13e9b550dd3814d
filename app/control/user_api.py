"""The control API for what a person presses, as long as they are who the page was drawn for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import streamlit as st

from app import state
from app.access.identity import User, current_user
from app.control.api_client import ApiAway, ControlApi


def control_api(user: User) -> ControlApi:
    """Acts for ``user``, who was there when the control was drawn. Raises ApiAway when they are signed out."""
    now = current_user()
    if now.must_sign_in or now.name != user.name:
        raise ApiAway("You are not signed in any more; nothing was changed. Sign in and try again.", sent=False)
    environment = state.environment()
    # With the role of this moment: it may have been taken away since.
    return ControlApi(environment.api_url, environment.api_token_file, now)


def reading_api(user: User) -> ControlApi:
    """For a file that is made at its download: Streamlit does that outside of the page, where there is no user.

    It must only be read with; the API checks the role that the page was drawn for.
    """
    environment = state.environment()
    return ControlApi(environment.api_url, environment.api_token_file, user)


# Systems take two presses within half a second for a double click.
DOUBLE_CLICK_MS: Final = 1_000
_PRESSED: Final = "pressed"


@contextmanager
def debounce(what: str) -> Iterator[bool]:
    """True: act. False: this is the second press of a double click, whose first one has acted.

    ``what`` names the control and what it acts on. The time runs from the end of the first one's work: the second
    press waited for that.
    """
    last: tuple[str, int] | None = st.session_state.get(_PRESSED)
    first = last is None or last[0] != what or not 0 <= state.now_ms() - last[1] < DOUBLE_CLICK_MS
    try:
        yield first
    finally:
        if first:
            st.session_state[_PRESSED] = (what, state.now_ms())
