"""The server of the dashboard: Streamlit's own, but its first document says where that server is.

Streamlit's script in the browser otherwise asks below every deep link first (`/lab/_stcore/health`), is told 404, and
the browser's console calls that an error. The pages' paths are of one level, as the paths of the script's own files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import streamlit as st
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from app import links

MAIN: Final = Path(__file__).resolve().parent / "main.py"
INDEX: Final = Path(st.__file__).resolve().parent / "static" / "index.html"
# Relative to the page, so a proxy may put the dashboard below a path of its own.
_WHERE: Final = '<script>window.__streamlit = { BACKEND_BASE_URL: new URL("./", window.location.href).href };</script>'


def document() -> str:
    """Streamlit's first document, with the server's address before every other script.

    One that is made otherwise than this Streamlit's is served as it is: its script finds the server by asking.
    """
    page = INDEX.read_text(encoding="utf-8")
    return page.replace("<head>", f"<head>\n    {_WHERE}", 1)


def application() -> st.App:
    """The dashboard, to be run once in a process."""
    page = document()

    async def first(_: Request) -> Response:
        # As Streamlit serves it: the names of the scripts in it change with every version.
        return HTMLResponse(page, headers={"Cache-Control": "no-cache"})

    return st.App(MAIN, routes=[Route(path, first) for path in ("/", *(f"/{name}" for name in links.NAMES))])
