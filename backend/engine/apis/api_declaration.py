"""The form in which a module declares its APIs, and the context that a handler is given beside the request.

A handler names the parts of the node that it uses in a Protocol of its module (`SyncGroupServices`); the class that has
all parts, `services.Services`, fits every one of them. So an API module knows neither that class nor the table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from backend.engine.ports import tasks
from backend.engine.ports.time_slices import Steps
from backend.protocol.buffers import Chunk
from backend.protocol.frames import RequestHeader
from backend.protocol.messages import Message

# The Protocol of the parts that a handler uses.
S = TypeVar("S", contravariant=True)

ListenerKind = Literal["broker", "controller"]

BROKER: Final[frozenset[ListenerKind]] = frozenset({"broker"})
CONTROLLER: Final[frozenset[ListenerKind]] = frozenset({"controller"})
BOTH: Final[frozenset[ListenerKind]] = BROKER | CONTROLLER
ANONYMOUS: Final = "ANONYMOUS"


class RequestContext(NamedTuple):
    """The client of a request and the listener that it came through. A tuple, because one is made for every request.

    Kafka: `RequestContext`.
    """

    header: RequestHeader
    connection_id: int
    client_host: str
    listener_name: str
    listener_kind: ListenerKind
    # Name of KafkaPrincipal "User:..."; ANONYMOUS on a listener without authentication.
    user: str = ANONYMOUS

    @property
    def api_version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str:
        """Empty when the client gave none."""
        return self.header.client_id or ""


class NoAnswer(Exception):
    """Raised by a handler to close the connection instead of answering (acks=0 with refused records)."""


# Returns the response, None for "answer nothing" (acks=0), or an awaitable of either. A handler that can answer at once
# should be a plain function: it is answered without a task. A future is awaited without a task too. One that does
# something for each of many elements is a generator, which yields after each (`ports.time_slices`).
Handler = Callable[[S, RequestContext, Any], Message | Awaitable[Message | None] | Steps[Any] | None]


class Deferred(NamedTuple):
    """The frame of a response that has to be waited for, and the header of its request."""

    header: RequestHeader
    frame: tasks.EagerFuture[Sequence[Chunk]]


# Serves a frame without decoding it to a message. Returns the frame of the response, or None, with nothing done, for a
# request that `Handler` has to serve.
FastPath = Callable[
    [S, Callable[[RequestHeader], RequestContext], bytearray],
    Sequence[Chunk] | Deferred | None,
]


@dataclass(frozen=True, slots=True)
class Api(Generic[S]):
    """One API key: the versions served, its handler, and the kinds of listener that serve it.

    ``advertised_min`` is what ApiVersions shows when Kafka shows older versions than it serves (Produce 0-2).
    ``on_error`` builds the response when the handler raises (request, api_version, error code, message);
    without it the listener sets the response's top-level ``error_code`` and ``error_message`` where it has them,
    and closes the connection where it has not.

    Requests of one connection run one after the other, as in Kafka, but one that is ``pipelined`` may start while
    earlier pipelined ones still wait (Produce with acks=all: appended in order, acknowledged in order). Where that
    depends on the request, ``pipelined`` is a function of the message.

    ``fast_path`` is tried before the handler on a connection that has no other request under way.
    """

    key: int
    min_version: int
    max_version: int
    handler: Handler[S]
    listeners: frozenset[ListenerKind] = BROKER
    advertised_min: int | None = None
    pipelined: bool | Callable[[Any], bool] = False
    on_error: Callable[[Any, int, int, str], Message] | None = None
    fast_path: FastPath[S] | None = None


class ApiTable(Generic[S]):
    """The APIs of a node by listener kind and key. Raises ValueError for a key that is declared twice for one kind."""

    __slots__ = ("_by_kind",)

    def __init__(self, apis: Iterable[Api[S]]) -> None:
        self._by_kind: dict[ListenerKind, dict[int, Api[S]]] = {"broker": {}, "controller": {}}
        for api in sorted(apis, key=lambda api: api.key):
            for kind in api.listeners:
                if api.key in self._by_kind[kind]:
                    raise ValueError(f"API key {api.key} is declared twice for {kind} listeners")
                self._by_kind[kind][api.key] = api

    def served(self, kind: ListenerKind) -> dict[int, Api[S]]:
        """Key → API of one kind of listener, in ascending order of keys."""
        return self._by_kind[kind]
