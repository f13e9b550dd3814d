"""Puts the table of endpoints on Starlette."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backend.control.http.call import ApiEndpoint
from backend.control.http.dispatch import endpoint_app
from backend.control.http.endpoints import ENDPOINTS
from backend.control.http.guard import RequestGuard
from backend.control.http.problems import Problem

if TYPE_CHECKING:
    from backend.control.control_plane import ControlPlane

Serve = Callable[[Request], Awaitable[Response]]


def create_app(control: ControlPlane) -> Starlette:
    """The control API of one control plane."""
    by_path: dict[str, dict[str, ApiEndpoint]] = defaultdict(dict)
    for endpoint in ENDPOINTS:
        by_path[endpoint.path][endpoint.method] = endpoint
    app = Starlette(
        routes=[Route(path, _by_method(control, found), methods=list(found)) for path, found in by_path.items()],
        middleware=[Middleware(RequestGuard)],
        exception_handlers={HTTPException: _http_problem},
    )
    # A redirect to the path without the slash at its end would name the host that the caller named.
    app.router.redirect_slashes = False
    return app


def _by_method(control: ControlPlane, endpoints: dict[str, ApiEndpoint]) -> Serve:
    serves = {method: endpoint_app(control, endpoint) for method, endpoint in endpoints.items()}

    async def serve(request: Request) -> Response:
        return await serves["GET" if request.method == "HEAD" else request.method](request)

    return serve


async def _http_problem(request: Request, error: Exception) -> Response:
    """What Starlette itself refuses: no such path, wrong method."""
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == 404:
        text = f"There is nothing at {request.url.path[:200]}; /openapi.json lists what there is."
        return Problem(404, "not-found", text).response()
    allow = dict(error.headers or {})
    text = f"{request.method} is not possible here; allowed is {allow.get('Allow', 'nothing')}."
    return Problem(error.status_code, "method-not-allowed", text, headers=allow).response()
