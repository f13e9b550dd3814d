"""A call as its handler receives it, the result that it returns, and the endpoint: one row of the API's table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from pydantic import BaseModel

from backend.control.operations.audit_entries import Actor

JSON: Final = "application/json"


class Access(Enum):
    """Role that may call. OPEN: anyone who reaches the loopback address; the answer has no data of the cluster."""

    OPEN = "open"
    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Call:
    """One authenticated call with its checked arguments."""

    actor: Actor
    path: Any = None
    query: Any = None
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """A success that is not plain 200 JSON. A body that is an async iterator of bytes is sent as it comes."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = JSON


HandlerMethod = Callable[[Any, Call], Awaitable[Any]]
"""A method of one of the classes in `handlers`, not bound yet: the table is the same whatever runs behind it."""
BoundHandler = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """One row of the API. `response_type` is the type of a success, as pydantic describes it; `status` its usual
    status.
    """

    method: str
    path: str
    name: str
    summary: str
    access: Access
    handler: HandlerMethod
    response_type: Any
    status: int = 200
    other_successes: tuple[int, ...] = ()  # statuses of the same type of answer, each for a reason that `handler` gives
    path_model: type[BaseModel] | None = None
    query_model: type[BaseModel] | None = None
    body_model: type[BaseModel] | None = None
    header_names: tuple[str, ...] = ()  # required request headers
    optional_header_names: tuple[str, ...] = ()
    problems: tuple[int, ...] = ()  # statuses beyond those that every endpoint of its access can give
    media_type: str = JSON


@dataclass(frozen=True, slots=True)
class EndpointGroup:
    """The endpoints that methods of one class serve."""

    handlers: type
    endpoints: tuple[ApiEndpoint, ...]
