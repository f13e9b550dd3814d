"""The control API for what a person presses, as long as they are who the page was drawn for."""

from __future__ import annotations

from app import state
from app.client import ApiAway, ControlApi
from app.person import Person, current_person


def control_api(person: Person) -> ControlApi:
    """Acts for ``person``, who was there when the control was drawn. Raises ApiAway when they are signed out."""
    now = current_person()
    if now.must_sign_in or now.name != person.name:
        raise ApiAway("You are not signed in any more; nothing was changed. Sign in and try again.", sent=False)
    known = state.environment()
    # With the role of this moment: it may have been taken away since.
    return ControlApi(known.api_url, known.api_token_file, now)
