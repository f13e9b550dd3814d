"""Puts the table of endpoints on Starlette."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backend.control.http.dispatch import Dispatcher
from backend.control.http.endpoints import GROUPS
from backend.control.http.guard import RequestGuard
from backend.control.http.problems import Problem

Serve = Callable[[Request], Awaitable[Response]]


def create_app(handlers: Iterable[object], dispatcher: Dispatcher) -> Starlette:
    """The control API of one control plane. `handlers`: one object of each class that `endpoints.GROUPS` names."""
    by_class = {type(part): part for part in handlers}
    by_path: dict[str, dict[str, Serve]] = defaultdict(dict)
    for group in GROUPS:
        for endpoint in group.endpoints:
            handler = partial(endpoint.handler, by_class[group.handlers])
            by_path[endpoint.path][endpoint.method] = dispatcher.endpoint_app(endpoint, handler)
    app = Starlette(
        routes=[Route(path, _by_method(serves), methods=list(serves)) for path, serves in by_path.items()],
        middleware=[Middleware(RequestGuard)],
        exception_handlers={HTTPException: _http_problem},
    )
    # A redirect to the path without the slash at its end would name the host that the caller named.
    app.router.redirect_slashes = False
    return app


def _by_method(serves: Mapping[str, Serve]) -> Serve:
    async def serve(request: Request) -> Response:
        return await serves["GET" if request.method == "HEAD" else request.method](request)

    return serve


async def _http_problem(request: Request, error: Exception) -> Response:
    """Refusals of Starlette itself: no such path, wrong method."""
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == 404:
        text = f"There is nothing at {request.url.path[:200]}; /openapi.json lists what there is."
        return Problem(404, "not-found", text).response()
    allow = dict(error.headers or {})
    text = f"{request.method} is not possible here; allowed is {allow.get('Allow', 'nothing')}."
    return Problem(error.status_code, "method-not-allowed", text, headers=allow).response()
