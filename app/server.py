"""The server of the dashboard: Streamlit's own behind a gate, and two scripts of ours in its first document.

One says where the server is: Streamlit's script in the browser otherwise asks below every deep link first
(`/lab/_stcore/health`), gets 404, and the browser's console calls that an error. The pages' paths are of one level, as
the paths of the script's own files. The other, `static/js/history.js`, keeps one entry of the history for one act.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import streamlit as st
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from streamlit.auth_util import get_secrets_auth_section
from streamlit.runtime import Runtime

from app import links
from app.access.addresses import Addresses
from app.access.gate import Gate
from app.access.login import login_endpoint
from app.access.oidc_errors import ProviderErrors
from app.media_files import keep_downloads
from app.theme import STATIC
from backend.data_folder.dashboard_login import LOGIN_PATH, DashboardLogin

MAIN: Final = Path(__file__).resolve().parent / "main.py"
INDEX: Final = Path(st.__file__).resolve().parent / "static" / "index.html"
# Relative to the page, so a proxy may put the dashboard below any path.
_WHERE: Final = '<script>window.__streamlit = { BACKEND_BASE_URL: new URL("./", window.location.href).href };</script>'


def document() -> str:
    """Streamlit's first document, with our scripts before every other one.

    One that is made otherwise than this Streamlit's is served as it is: its script finds the server by asking.
    """
    page = INDEX.read_text(encoding="utf-8")
    history = (STATIC / "js" / "history.js").read_text(encoding="utf-8")
    return page.replace("<head>", f"<head>\n    {_WHERE}\n    <script>{history}</script>", 1)


class Dashboard(st.App):
    """Streamlit's application with a storage of files that waits for slow browsers."""

    def _create_runtime(self) -> Runtime:
        return keep_downloads(super()._create_runtime())


def application(login: DashboardLogin, addresses: Addresses) -> st.App:
    """The dashboard, to be run once in a process."""
    page = document()

    async def first(_: Request) -> Response:
        # As Streamlit serves it: the names of the scripts in it change with every version.
        return HTMLResponse(page, headers={"Cache-Control": "no-cache"})

    async def home(request: Request) -> Response:
        # Streamlit knows its first page by no name: under one it says that there is no such page.
        query = request.url.query
        return RedirectResponse(f"./?{query}" if query else "./", 307)

    paths = ("/", *(f"/{name}" for name in links.NAMES if name != links.FIRST))
    return Dashboard(
        MAIN,
        routes=[
            *(Route(path, first) for path in paths),
            Route(f"/{links.FIRST}", home),
            Route(f"/{LOGIN_PATH}", login_endpoint(login, addresses), methods=["GET", "POST"]),
        ],
        middleware=[
            Middleware(Gate, addresses=addresses, login=login, has_provider=has_provider),
            Middleware(ProviderErrors),
        ],
    )


def has_provider() -> bool:
    """Whether people sign in with an OIDC provider: `[auth]` in Streamlit's secrets."""
    return bool(get_secrets_auth_section())
