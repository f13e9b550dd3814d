"""Errors as problem+json (RFC 9457): what happened, to what, what to do next; never a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import to_json
from starlette.responses import Response

from backend.control.formatting import describe_invalid

MEDIA_TYPE: Final = "application/problem+json"


class Problem(Exception):
    """An answer other than success."""

    def __init__(
        self, status: int, slug: str, detail: str, *, headers: Mapping[str, str] | None = None, **extra: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.slug = slug
        self.detail = detail
        self.headers = dict(headers or {})
        self.extra = extra

    def response(self) -> Response:
        body = {
            "type": f"urn:ebbline:problem:{self.slug}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            **self.extra,
        }
        return Response(to_json(body), self.status, self.headers, MEDIA_TYPE)


def invalid(error: ValidationError, where: str) -> Problem:
    """Invalid fields of a query or body, one by one; values are not repeated."""
    fields = [
        {"field": ".".join(str(part) for part in item["loc"]) or where, "problem": describe_invalid(item["msg"])}
        for item in error.errors(include_url=False, include_input=False, include_context=False)
    ][:20]
    first = fields[0]
    return Problem(
        422, "invalid-input", f"The {where} does not fit: {first['field']}: {first['problem']}.", errors=fields
    )
