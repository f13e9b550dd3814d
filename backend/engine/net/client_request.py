"""A request of a client between its frame and its answer (`RequestChannel.Request`, `RequestContext.parseRequest`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from backend.engine.apis import api_versions
from backend.engine.apis.api_declaration import Api, ListenerKind
from backend.engine.apis.support.response_budget import RESPONSE_BYTES_MAX, too_large
from backend.protocol import codec, frames, messages
from backend.protocol.buffers import Chunk
from backend.protocol.errors import DecodeError, ErrorCode
from backend.protocol.frames import RequestHeader
from backend.protocol.local_messages import LocalFetchRequest
from backend.protocol.messages import Message

# Only requests with records have a reason to reach socket.request.max.bytes. Decoding another one of this size can
# take ten times as much for lists of numbers; the decoder limits other elements.
REQUEST_BYTES_MAX: Final = 16 * 1024 * 1024
# Elements that are read on the loop, some 3 us each; a request with more is decoded by a worker, and has cost as much
# when that is noticed. A request with more takes at least two bytes for each.
INLINE_ELEMENTS_MAX: Final = 5_000
INLINE_BYTES_MAX: Final = 2 * INLINE_ELEMENTS_MAX
# A message of a node of the same process comes decoded: from this size on it may have as many elements.
LARGE_MESSAGE_BYTES: Final = 64 * 1024


class Request:
    """One request on its way."""

    __slots__ = (
        "answered", "api", "frame", "frame_bytes", "header", "is_large", "message", "response", "spent_ms",
        "started_ms",
    )  # fmt: skip

    def __init__(
        self, api: Api[Any], header: RequestHeader, message: Message, frame_bytes: int, started_ms: float
    ) -> None:
        self.api = api
        self.header = header
        self.message = message
        self.frame_bytes = frame_bytes
        self.started_ms = started_ms
        # Time on the loop's thread until the handler returned; counted only while there are quotas.
        self.spent_ms = 0.0
        self.answered = False
        # With so many elements that a worker encodes the answer.
        self.is_large = False
        self.response: Message | None = None
        # The frame of the answer, where it was made without a message (`Api.fast_path`).
        self.frame: Sequence[Chunk] | None = None

    @property
    def overlaps(self) -> bool:
        """Whether it may start while others of its connection that may, too, still wait."""
        pipelined = self.api.pipelined
        return pipelined(self.message) if callable(pipelined) else pipelined


def decode(
    apis: Mapping[int, Api[Any]],
    listener_kind: ListenerKind,
    frame: bytearray,
    now_ms: float,
    elements_max: int | None = None,
) -> Request:
    """The request of a frame. DecodeError when there is none that this kind of listener serves, TooManyElements when
    it has more elements than `elements_max`.
    """
    header, position = frames.decode_request_header(frame)
    api = _served(apis, listener_kind, header)
    if not api.min_version <= header.api_version <= api.max_version:
        if header.api_key == api_versions.API_KEY:
            # Answered in the format of version 0, which every client reads (KIP-511).
            header = header._replace(api_version=0)
            request = Request(api, header, messages.ApiVersionsRequest(), len(frame), now_ms)
            request.response, request.answered = api_versions.unsupported_version(), True
            return request
        raise _not_served(api, header)
    cls = frames.request_class(header.api_key)
    if len(frame) > REQUEST_BYTES_MAX and not cls.HAS_RECORDS:
        raise DecodeError(f"{cls.__name__} of {len(frame)} bytes is larger than {REQUEST_BYTES_MAX}")
    message, _ = codec.decode(cls, header.api_version, frame, position, elements_max)
    return Request(api, header, message, len(frame), now_ms)


def local_request(
    apis: Mapping[int, Api[Any]], listener_kind: ListenerKind, given: LocalFetchRequest, now_ms: float
) -> Request:
    """The request of a node of the same process. DecodeError when this kind of listener does not serve it."""
    header = given.header
    api = _served(apis, listener_kind, header)
    if not api.min_version <= header.api_version <= api.max_version:
        raise _not_served(api, header)
    request = Request(api, header, given.message, given.size_bytes, now_ms)
    request.is_large = given.size_bytes > LARGE_MESSAGE_BYTES and not given.message.HAS_RECORDS
    return request


def _served(apis: Mapping[int, Api[Any]], listener_kind: ListenerKind, header: RequestHeader) -> Api[Any]:
    api = apis.get(header.api_key)
    if api is None:
        raise DecodeError(f"API key {header.api_key} is not served by {listener_kind} listeners")
    return api


def _not_served(api: Api[Any], header: RequestHeader) -> DecodeError:
    return DecodeError(
        f"API key {header.api_key} is served in versions {api.min_version} to {api.max_version},"
        f" not {header.api_version}"
    )


def response_chunks(response: Message, header: RequestHeader) -> list[Chunk]:
    """The frame of an answer. Raises KafkaError for one that is too large for clients, if no handler found that before.

    The records of a Fetch are limited elsewhere (`fetch.max.bytes`). EncodeError as `encode_response`.
    """
    chunks = frames.encode_response(response, header.api_version, header.correlation_id)
    if not response.HAS_RECORDS and sum(map(len, chunks)) > RESPONSE_BYTES_MAX:
        raise too_large()
    return chunks


def illegal_state(request: Request) -> Message | None:
    text = f"Unexpected Kafka request of type {api_name(request.api.key)} during SASL authentication."
    return error_response(request.api, request.message, request.header.api_version, ErrorCode.ILLEGAL_SASL_STATE, text)


_API_NAMES: Final[dict[int, str]] = {}


def api_name(api_key: int) -> str:
    name = _API_NAMES.get(api_key)
    if name is None:
        name = _API_NAMES[api_key] = frames.request_class(api_key).__name__.removesuffix("Request")
    return name


def error_response(api: Api[Any], message: Any, api_version: int, code: int, text: str) -> Message | None:
    """The response with an error of the whole request; None when this API has no place for one."""
    if api.on_error is not None:
        return api.on_error(message, api_version, code, text)
    made: Any = frames.response_class(api.key)()
    if not hasattr(made, "error_code"):
        return None
    made.error_code = code
    if hasattr(made, "error_message"):
        made.error_message = text
    response: Message = made
    return response
