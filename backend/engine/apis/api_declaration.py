"""What a handler is given beside the request, and how a module declares its handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from backend.engine.ports import tasks
from backend.engine.ports.time_slices import Steps
from backend.protocol.buffers import Chunk
from backend.protocol.frames import RequestHeader
from backend.protocol.messages import Message

if TYPE_CHECKING:
    from backend.engine.apis.services import Services

ListenerKind = Literal["broker", "controller"]

BROKER: Final[frozenset[ListenerKind]] = frozenset({"broker"})
CONTROLLER: Final[frozenset[ListenerKind]] = frozenset({"controller"})
BOTH: Final[frozenset[ListenerKind]] = BROKER | CONTROLLER
ANONYMOUS: Final = "ANONYMOUS"


class RequestContext(NamedTuple):
    """Who asks, and through which listener. A tuple, because one is made for every request."""

    header: RequestHeader
    connection_id: int
    client_host: str
    listener_name: str
    listener_kind: ListenerKind
    # Name of KafkaPrincipal "User:..."; ANONYMOUS where nobody authenticates.
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
Handler = Callable[["Services", RequestContext, Any], Message | Awaitable[Message | None] | Steps[Any] | None]


class Deferred(NamedTuple):
    """The frame of an answer that is to be waited for, and what its request said of itself."""

    header: RequestHeader
    frame: tasks.EagerFuture[Sequence[Chunk]]


# Serves a frame without decoding it to a message; the frame of the answer, or None, with nothing done, for `Handler`.
FastPath = Callable[
    ["Services", Callable[[RequestHeader], RequestContext], bytearray],
    Sequence[Chunk] | Deferred | None,
]


@dataclass(frozen=True, slots=True)
class Api:
    """One API key: the versions served, its handler, and the kinds of listener that serve it.

    ``advertised_min`` is what ApiVersions shows when Kafka shows older versions than it serves (Produce 0-2).
    ``on_error`` builds the response when the handler raises (request, api_version, error code, message);
    without it the listener sets the response's top-level ``error_code`` and ``error_message`` where it has them,
    and closes the connection where it has not.

    Requests of one connection run one after the other, as in Kafka, but one that is ``pipelined`` may start while
    earlier pipelined ones still wait (Produce with acks=all: appended in order, acknowledged in order). Where not every
    request of a kind may, ``pipelined`` is told the message.
    """

    key: int
    min_version: int
    max_version: int
    handler: Handler
    listeners: frozenset[ListenerKind] = BROKER
    advertised_min: int | None = None
    pipelined: bool | Callable[[Any], bool] = False
    on_error: Callable[[Any, int, int, str], Message] | None = None
    # Asked before the handler, on a connection on which nothing else is under way.
    plain: FastPath | None = None
