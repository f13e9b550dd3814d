"""From a request to a handler and back: who asks, what with, and errors as problems."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from backend.control.control_database import DatabaseAway
from backend.control.http.api_tokens import KnownToken, TokenRole, hash_of
from backend.control.http.call import Access, ApiEndpoint, Call, HandlerResult
from backend.control.http.problems import Problem, invalid
from backend.control.operations.audit_entries import Actor, ActorRole
from backend.control.operations.operation_errors import OperationError
from backend.control.wall_clock import now_ms

if TYPE_CHECKING:
    from backend.control.control_plane import ControlPlane

PROBES: Final = frozenset({"/healthz", "/readyz"})
ACTOR_CHARS_MAX: Final = 100
NOBODY: Final = Actor("nobody", ActorRole.VIEWER)
_log = logging.getLogger(__name__)


def endpoint_app(control: ControlPlane, endpoint: ApiEndpoint) -> Callable[[Request], Awaitable[Response]]:
    """The function that serves an endpoint."""

    async def serve(request: Request) -> Response:
        began_s = time.monotonic()
        try:
            response = await _serve(control, endpoint, request)
        except Problem as problem:
            response = problem.response()
        except OperationError as error:
            response = Problem(error.status, error.slug, str(error)).response()
        except DatabaseAway as error:
            response = Problem(503, "unavailable", str(error)).response()
        except ClientDisconnect:
            response = Response(status_code=499)  # nobody reads it
        except Exception:
            number = secrets.token_hex(4)
            _log.exception("%s %s failed (error %s)", endpoint.method, endpoint.path, number)
            text = f"A fault of this program; the backend's log tells more under error {number}."
            response = Problem(500, "internal", text).response()
        control.metrics.count_call(endpoint, response.status_code, time.monotonic() - began_s)
        return response

    return serve


async def _serve(control: ControlPlane, endpoint: ApiEndpoint, request: Request) -> Response:
    actor = NOBODY if _is_open(endpoint, request) else await authenticate(control, request)
    if endpoint.access is Access.OPERATOR and actor.role is not ActorRole.OPERATOR:
        text = "Read-only: ask for the operator role."
        await control.operations.refused(actor, endpoint.name, request.url.path, text)
        raise Problem(403, "not-allowed", text)
    call = Call(
        control=control,
        actor=actor,
        path=_validated(endpoint.path_model, dict(request.path_params), "path"),
        query=_validated(endpoint.query_model, _query(request), "query"),
        body=await _body(endpoint, request),
        headers=_headers(endpoint, request),
    )
    result = await endpoint.handler(call)
    answer = result if isinstance(result, HandlerResult) else HandlerResult(result, endpoint.status)
    headers = {"Cache-Control": "no-store", **answer.headers}
    if isinstance(answer.body, AsyncIterator):
        return StreamingResponse(answer.body, answer.status, headers, answer.media_type)
    body = answer.body if isinstance(answer.body, bytes) else to_json(answer.body)
    return Response(body, answer.status, headers, answer.media_type)


def _is_open(endpoint: ApiEndpoint, request: Request) -> bool:
    """From other machines only the two probes are: numbers tell names of topics."""
    return endpoint.access is Access.OPEN and (request.url.scheme != "https" or endpoint.path in PROBES)


async def authenticate(control: ControlPlane, request: Request) -> Actor:
    """Who asks. Raises Problem 401 for no or a wrong token, 400 for an impossible person."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise _unauthenticated("Give a token: Authorization: Bearer …; the operator's is in run/operator.token.")
    known = await _looked_up(control, token.strip(), request.client.host if request.client is not None else "")
    if known.expires_ms is not None and known.expires_ms <= now_ms():
        end = datetime.fromtimestamp(known.expires_ms / 1000, UTC)
        raise _unauthenticated(
            f"The token {known.name} expired at {end:%Y-%m-%d %H:%M:%S} UTC: have one made with `ebbline token add`."
        )
    return _actor(known, request)


async def _looked_up(control: ControlPlane, token: str, address: str) -> KnownToken:
    """The token. Raises Problem 401 for an unknown one, 429 when its address has tried too many."""
    hashed = hash_of(token)
    wait_s = control.guesses.wait_s(hashed, address, time.monotonic())
    if wait_s:
        control.metrics.count_unknown_token(looked_up=False)
        retry = {"Retry-After": str(max(1, round(wait_s)))}
        text = "Too many tokens that are not known came from this address; wait a moment."
        raise Problem(429, "too-many-requests", text, headers=retry)
    known = await control.tokens.find(hashed)
    if known is None:
        control.guesses.unknown(hashed, address)
        control.metrics.count_unknown_token(looked_up=True)
        raise _unauthenticated("This token is not known to this cluster, or was withdrawn.")
    control.guesses.known(hashed, address)
    return known


def _actor(known: KnownToken, request: Request) -> Actor:
    if known.role is not TokenRole.APP:
        return Actor(known.name, ActorRole(known.role.value))
    name, role = request.headers.get("x-ebbline-actor"), request.headers.get("x-ebbline-role")
    if name is None and role is None:
        return Actor(known.name, ActorRole.VIEWER)  # the dashboard for nobody: it may look
    if not name or len(name) > ACTOR_CHARS_MAX or not name.isprintable():
        raise Problem(400, "bad-actor", "X-Ebbline-Actor names a person with 1 to 100 printable characters.")
    if role not in tuple(ActorRole):
        raise Problem(400, "bad-actor", "X-Ebbline-Role is viewer or operator.")
    return Actor(name, ActorRole(role))


def _unauthenticated(text: str) -> Problem:
    return Problem(401, "unauthenticated", text, headers={"WWW-Authenticate": 'Bearer realm="ebbline"'})


def _query(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        if len(values) > 1:
            raise Problem(422, "invalid-input", f"The query names {name[:60]} more than once.")
        found[name] = values[0]
    return found


def _validated(model: type[BaseModel] | None, values: dict[str, Any], where: str) -> Any:
    if model is None:
        if values and where == "query":
            raise Problem(422, "invalid-input", f"This call takes no query; {next(iter(values))[:60]} was given.")
        return None
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise invalid(error, where) from error


async def _body(endpoint: ApiEndpoint, request: Request) -> Any:
    if endpoint.body_model is None:
        return None
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    data = await request.body()
    if media_type != "application/json" and data:
        raise Problem(415, "wrong-media-type", "Send the body as application/json.")
    try:
        body = endpoint.body_model.model_validate_json(data or b"{}")
    except ValidationError as error:
        raise invalid(error, "body") from error
    twice = _named_twice(data)
    if twice is not None:
        raise Problem(422, "invalid-input", f"The body names {twice[:60]!r} more than once.")
    return body


def _named_twice(data: bytes) -> str | None:
    """A key that stands twice in an object: readers do not agree which of them counts. Raises Problem for no JSON."""
    found: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            found.append(next(name for name, count in Counter(names).items() if count > 1))

    try:
        # Numbers are not of interest, and those of thousands of digits are no numbers to Python.
        json.loads(data or b"{}", object_pairs_hook=note, parse_int=len)
    except (ValueError, RecursionError):
        raise Problem(422, "invalid-input", "The body is no JSON that every reader takes.") from None
    return found[0] if found else None


def _headers(endpoint: ApiEndpoint, request: Request) -> dict[str, str]:
    found = {}
    for name in endpoint.header_names:
        value = request.headers.get(name, "").strip()
        if not value:
            raise Problem(400, "missing-header", f"Give the header {name}.")
        found[name] = value
    given = ((name, request.headers.get(name, "").strip()) for name in endpoint.optional_header_names)
    return found | {name: value for name, value in given if value}
