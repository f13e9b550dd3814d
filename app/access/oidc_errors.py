"""Errors of the sign-in by an OIDC provider, as a sentence; the sign-in itself is Streamlit's.

Streamlit answers "Authentication error" on an empty page, and its log gets a traceback for each try while the provider
is away.
"""

from __future__ import annotations

import logging
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access.login import refused_page
from backend.runtime.redact import printable

LOGIN: Final = "/auth/login"
NOT_BEGUN: Final = (
    "The sign-in could not begin: the provider did not answer as it should. Try again when it can be reached; the"
    " reason is in `logs/app.log`, its address is `server_metadata_url` in `.streamlit/secrets.toml`."
)
_STREAMLIT: Final = "streamlit.web.server.starlette.starlette_auth_routes"


class ProviderErrors:
    """Answers in place of Streamlit where that could not begin a sign-in."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        logging.getLogger(_STREAMLIT).addFilter(in_one_line)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != LOGIN:
            await self._app(scope, receive, send)
            return
        refused = False

        async def send_unless_refused(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and message["status"] >= 400:
                refused = True
            elif not refused:
                await send(message)
            elif not message.get("more_body", False):
                await refused_page(NOT_BEGUN, 503, root="../")(scope, receive, send)

        await self._app(scope, receive, send_unless_refused)


def in_one_line(record: logging.LogRecord) -> bool:
    """Lets a record through, with its error's own words in place of the traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        record.msg = printable(f"{record.getMessage()} {type(error).__name__}: {error}")
        record.args, record.exc_info, record.exc_text = (), None, None
    return True
