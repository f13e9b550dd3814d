"""The sign-in of a browser: a link that works once, or its key typed into a page, gives a cookie.

The cookie is for this dashboard's scripts to send and for no script to read (HttpOnly), never sent by another site's
page (SameSite=Strict), and over https only where the address is https. No link that people share holds any of it: the
key is taken out of the address by a redirect.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from html import escape
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request, cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from app import links
from app.access.addresses import Addresses
from app.components.shared.style import rules
from app.theme import DARK, FONT, LIGHT, MONO, Palette
from backend.data_folder.dashboard_login import LOGIN_PATH, SESSION_S, DashboardLogin

# A key has 43 characters; the page that is to follow names a topic of at most 249 and some choices.
BODY_BYTES_MAX: Final = 8_192
NOT_TAKEN: Final = "This key was used before, has expired, or does not exist. Have a new one made with `ebbline login`."
_log = logging.getLogger(__name__)
# A browser that comes from another site's link shows no cookie at first (SameSite=Strict). The page asks a second time,
# as this page; the time keeps it from going round.
_ASK_AGAIN: Final = (
    "try{const k='ebbline-asked',t=Date.now();"
    "if(t-(+sessionStorage.getItem(k)||0)>5000){sessionStorage.setItem(k,t);location.replace(location.href)}}catch{}"
)
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; font-src 'self'; img-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def login_page(*, following: str = "", linked: bool = False, error: str | None = None) -> Response:
    """The page that asks for a key. `following`: our page that comes then; `linked`: it came by another site's link."""
    form = _FORM.format(
        action=LOGIN_PATH,
        fields=f'<input type="hidden" name="next" value="{escape(following)}">',
        trouble=_error_html(error) if error else "",
        invalid=' aria-invalid="true"' if error else "",
    )
    return _page(form, 401, script=f"<script>{_ASK_AGAIN}</script>" if linked else "")


def refused_page(sentence: str, status: int, *, root: str) -> Response:
    """The page of a sign-in that could not be done, with a way to try again; `root`: where the dashboard is."""
    again = f'<p class="again"><a href="{escape(root)}">Try again</a></p>'
    return _page(f"<h1>Sign in</h1>\n{_error_html(sentence)}\n{again}", status, root=root)


def _page(content: str, status: int, *, script: str = "", root: str = "") -> Response:
    style = _style().replace("url(app/", f"url({root}app/")
    markup = _PAGE.format(style=style, script=script, content=content, root=escape(root))
    return HTMLResponse(markup, status, {"Content-Security-Policy": _POLICY, "Cache-Control": "no-store"})


def _error_html(sentence: str) -> str:
    return f'<p class="error" role="alert">{_code(sentence)}</p>'


def login_endpoint(login: DashboardLogin, addresses: Addresses) -> Callable[[Request], Awaitable[Response]]:
    """Serves `/login`: GET with ``key`` in the query, as the printed link has it, and POST of the page's form."""

    async def serve(request: Request) -> Response:
        if request.method == "POST":
            body = await _bounded_body(request)
            if body is None:
                return PlainTextResponse("That is more than a key.", 413)
            given = parse_qs(body.decode("latin-1"))
        elif "prefetch" in request.headers.get("sec-purpose", ""):
            # A browser's guess at what a person will open must not use up the key.
            return PlainTextResponse("Open the link itself.", 503)
        else:
            given = parse_qs(request.url.query)
        following = _page_of_ours(given.get("next", [""])[0])
        key = given.get("key", [""])[0].strip()
        now_s = time.time()
        if request.method != "HEAD" and key and login.spend(key, now_s):
            return _signed_in(request, login, addresses, following, now_s)
        shown = cookie_parser(request.headers.get("cookie", "")).get(addresses.cookie, "")
        if login.is_session(shown, now_s):
            return RedirectResponse(f"./{following}", 303)
        if key:
            _log.warning("A sign-in with a key that is not good was refused")
        return login_page(following=following, error=NOT_TAKEN if key else None)

    return serve


def _signed_in(request: Request, login: DashboardLogin, addresses: Addresses, following: str, now_s: float) -> Response:
    # Relative, and the cookie without a path: a proxy may serve the dashboard below a path prefix.
    response = RedirectResponse(f"./{following}", 303, {"Cache-Control": "no-store"})
    secure = request.headers.get("host", "").lower() in addresses.secure_hosts
    response.set_cookie(
        addresses.cookie,
        login.new_session(now_s),
        max_age=SESSION_S,
        path=None,
        httponly=True,
        samesite="strict",
        secure=secure or request.headers.get("x-forwarded-proto") == "https",
    )
    return response


async def _bounded_body(request: Request) -> bytes | None:
    """The body; None for one that is too long."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            return None
    return body


def _page_of_ours(following: str) -> str:
    """`following` when it is a page of the dashboard with its choices, else the first page."""
    name = following.partition("?")[0]
    return following if name in links.NAMES or (not name and following.startswith("?")) else ""


def _code(text: str) -> str:
    """Text for people, what stands between backticks as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))


def _style() -> str:
    fonts = f"--font:{FONT};--mono:{MONO};"
    dark = f"@media(prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}"
    return f":root{{{fonts}{_variables(LIGHT)}}}{dark}{rules('login')}"


def _variables(colours: Palette) -> str:
    names = ("page", "card", "line", "text", "muted", "field", "local", "critical", "critical_fill")
    return "".join(f"--{name}:{getattr(colours, name)};" for name in names) + f"color-scheme:{colours.name};"


_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>Sign in · ebbline</title>
<link rel="icon" href="{root}app/static/mark.svg">
<style>{style}</style>
{script}
</head>
<body>
<main>
<img class="on-light" src="{root}app/static/logo.svg" alt="ebbline">
<img class="on-dark" src="{root}app/static/logo-dark.svg" alt="ebbline">
{content}
</main>
</body>
</html>
"""
_FORM: Final = """<h1>Sign in</h1>
<p>On the machine that runs ebbline, <code>ebbline login</code> prints a link. It signs one browser in, once.</p>
<form method="post" action="{action}">
{fields}
<label for="key">Or paste the key of that link</label>
<input type="password" id="key" name="key" required autocomplete="off" spellcheck="false" autofocus{invalid}>
<button type="submit">Sign in</button>
{trouble}
</form>"""
