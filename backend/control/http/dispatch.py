"""From a request to a handler and back: the role, the checked arguments, and errors as problems."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from backend.control.control_database import DatabaseAway
from backend.control.http.authentication import Authenticator
from backend.control.http.call import Access, ApiEndpoint, BoundHandler, Call, HandlerResult
from backend.control.http.problems import Problem, invalid
from backend.control.http.product_metrics import ProductMetrics
from backend.control.operations.audit_entries import ActorRole
from backend.control.operations.operation_errors import OperationError
from backend.control.operations.service import OperationService

_log = logging.getLogger(__name__)


class Dispatcher:
    """Serves endpoints: authenticates, checks the role and the arguments, calls the handler."""

    def __init__(self, authenticator: Authenticator, operations: OperationService, metrics: ProductMetrics) -> None:
        """`operations` audits the calls that a viewer may not make, `metrics` counts all calls."""
        self._authenticator = authenticator
        self._operations = operations
        self._metrics = metrics

    def endpoint_app(self, endpoint: ApiEndpoint, handler: BoundHandler) -> Callable[[Request], Awaitable[Response]]:
        """The function that serves an endpoint."""

        async def serve(request: Request) -> Response:
            began_s = time.monotonic()
            try:
                response = await self._serve(endpoint, handler, request)
            except Problem as problem:
                response = problem.response()
            except OperationError as error:
                response = Problem(error.status, error.slug, str(error)).response()
            except DatabaseAway as error:
                response = Problem(503, "unavailable", str(error)).response()
            except ClientDisconnect:
                response = Response(status_code=499)  # nobody reads it
            except Exception:
                # The log has the traceback, the response its number.
                number = secrets.token_hex(4)
                _log.exception("%s %s failed (error %s)", endpoint.method, endpoint.path, number)
                text = f"A fault of this program; the backend's log tells more under error {number}."
                response = Problem(500, "internal", text).response()
            self._metrics.count_call(endpoint, response.status_code, time.monotonic() - began_s)
            return response

        return serve

    async def _serve(self, endpoint: ApiEndpoint, handler: BoundHandler, request: Request) -> Response:
        actor = await self._authenticator.actor_of(endpoint, request)
        if endpoint.access is Access.OPERATOR and actor.role is not ActorRole.OPERATOR:
            text = "Read-only: ask for the operator role."
            await self._operations.refused(actor, endpoint.name, request.url.path, text)
            raise Problem(403, "not-allowed", text)
        call = Call(
            actor=actor,
            path=_validated(endpoint.path_model, dict(request.path_params), "path"),
            query=_validated(endpoint.query_model, _query(request), "query"),
            body=await _body(endpoint, request),
            headers=_headers(endpoint, request),
        )
        result = await handler(call)
        handled = result if isinstance(result, HandlerResult) else HandlerResult(result, endpoint.status)
        headers = {"Cache-Control": "no-store", **handled.headers}
        if isinstance(handled.body, AsyncIterator):
            return StreamingResponse(handled.body, handled.status, headers, handled.media_type)
        body = handled.body if isinstance(handled.body, bytes) else to_json(handled.body)
        return Response(body, handled.status, headers, handled.media_type)


def _query(request: Request) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        if len(values) > 1:
            raise Problem(422, "invalid-input", f"The query names {name[:60]} more than once.")
        result[name] = values[0]
    return result


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
    result: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            result.append(next(name for name, count in Counter(names).items() if count > 1))

    try:
        # Numbers are not of interest, and those of thousands of digits are no numbers to Python.
        json.loads(data or b"{}", object_pairs_hook=note, parse_int=len)
    except (ValueError, RecursionError):
        raise Problem(422, "invalid-input", "The body is no JSON that every reader takes.") from None
    return result[0] if result else None


def _headers(endpoint: ApiEndpoint, request: Request) -> dict[str, str]:
    result = {}
    for name in endpoint.header_names:
        value = request.headers.get(name, "").strip()
        if not value:
            raise Problem(400, "missing-header", f"Give the header {name}.")
        result[name] = value
    given = ((name, request.headers.get(name, "").strip()) for name in endpoint.optional_header_names)
    return result | {name: value for name, value in given if value}
