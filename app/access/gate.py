"""In front of every route and of the WebSocket: the right address, the right page, a browser that has signed in.

Plain ASGI, so that nothing of Streamlit is reached before. Where Streamlit's secrets have an ``[auth]`` section, the
sign-in is that provider's, which every page asks for by itself; addresses are checked all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import links
from app.access.addresses import Addresses, refusal
from app.access.login import login_page
from backend.data_folder.dashboard_login import LOGIN_PATH, DashboardLogin

HEALTH: Final = "/_stcore/health"
# Fonts and pictures of the login page.
PICTURES: Final = "/app/static/"
PAGES: Final = frozenset({"/", *(f"/{name}" for name in links.NAMES)})
# No other site may frame the dashboard, keep a reference to a window of it (COOP), or get an address with a search as
# referrer.
HEADERS: Final = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
}
FRAMES: Final = "frame-ancestors 'none'"


class Gate:
    """Answers what must not reach Streamlit."""

    def __init__(
        self, app: ASGIApp, *, addresses: Addresses, login: DashboardLogin, has_provider: Callable[[], bool]
    ) -> None:
        """`has_provider`: whether the sign-in is an OIDC provider's; asked at each request, as secrets may change."""
        self._app = app
        self._addresses = addresses
        self._login = login
        self._has_provider = has_provider

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        response = self._refusal(scope)
        framed = _unframed(send)
        if response is None:
            await self._app(scope, receive, framed)
        elif scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {}):
            await response(scope, receive, framed)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _refusal(self, scope: Scope) -> Response | None:
        """The answer in place of the dashboard; None: it may be reached."""
        refused = refusal(scope["headers"], self._addresses)
        if refused is not None:
            return PlainTextResponse(refused.text, refused.status)
        path: str = scope["path"]
        if path in (HEALTH, f"/{LOGIN_PATH}") or path.startswith(PICTURES) or self._has_provider():
            return None
        headers = Headers(scope=scope)
        if is_signed_in(headers, self._login, self._addresses):
            return None
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and path in PAGES:
            query = scope["query_string"].decode("latin-1")
            return login_page(
                following=path.lstrip("/") + (f"?{query}" if query else ""),
                linked=headers.get("sec-fetch-site") == "cross-site",
            )
        return PlainTextResponse("Sign in first: run `ebbline login` and open what it prints.", 401)


def is_signed_in(headers: Headers, login: DashboardLogin, addresses: Addresses) -> bool:
    """Whether the request shows the cookie of a session."""
    session = cookie_parser(headers.get("cookie", "")).get(addresses.cookie)
    return session is not None and login.is_session(session, time.time())


def _unframed(send: Send) -> Send:
    """Every answer, a refused WebSocket's too, says that no page may frame it."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            policy = headers.get("content-security-policy")
            if policy is None or "frame-ancestors" not in policy:
                headers["Content-Security-Policy"] = FRAMES if policy is None else f"{policy}; {FRAMES}"
        await send(message)

    return send_with_headers
