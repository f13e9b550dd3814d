"""Requests and responses with their headers: between the byte stream of a connection and the message classes.

A frame on the wire is an int32 length and then the frame. The functions that encode put the length in front; those
that decode take the frame without it. Header versions follow KIP-482: request header 2 and response header 1 when the
message is flexible, except that an ApiVersions response always has header 0, so that any client can read it
(KIP-511).
"""

from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple, TypeVar, cast

from backend.protocol import codec
from backend.protocol.buffers import Buffer, Chunk
from backend.protocol.errors import DecodeError, EncodeError, ErrorCode
from backend.protocol.messages import ApiVersionsRequest, Message, request_class, response_class
from backend.protocol.varint import decode_uvarint

__all__ = [
    "RequestHeader",
    "UnsupportedRequest",
    "decode_request",
    "decode_request_header",
    "decode_response",
    "encode_request",
    "encode_response",
    "request_class",
    "response_class",
]

M = TypeVar("M", bound=Message)

API_VERSIONS: Final = 18
# Kafka 4.3 defines none; a later client may send some.
HEADER_TAGS_MAX: Final = 100
# ApiVersions requests have a flexible header from this version on, also in versions that are not known yet.
_API_VERSIONS_FLEXIBLE: Final = 3
_REQUEST: Final = Struct(">hhih")  # api key, version, correlation id, length of the client id
_SEND_REQUEST: Final = Struct(">ihhih")
_NO_TAGS: Final = b"\0"
_SEND_RESPONSE: Final = Struct(">ii")
_SEND_RESPONSE_FLEXIBLE: Final = Struct(">iix")
_CORRELATION: Final = Struct(">i")
_INT16: Final = Struct(">h")


class RequestHeader(NamedTuple):
    """The header of a request. A client id may be absent."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


class UnsupportedRequest(DecodeError):
    """A request of an API or a version that Kafka 4.3 does not have, so that even its header's shape is unknown."""


def _skip_tags(frame: Any, position: int) -> int:
    count, position = decode_uvarint(frame, position)
    if count > HEADER_TAGS_MAX:
        raise DecodeError(f"a header has {count} tagged fields, more than {HEADER_TAGS_MAX}")
    for _ in range(count):
        _, position = decode_uvarint(frame, position)
        size, position = decode_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise DecodeError(f"a tagged field of the header ends {position - len(frame)} bytes behind the frame")
    return position


def _is_flexible(api_key: int, version: int) -> bool:
    if api_key == API_VERSIONS:
        return version >= _API_VERSIONS_FLEXIBLE
    try:
        cls = request_class(api_key)
    except KeyError:
        raise UnsupportedRequest(f"API key {api_key} is none of Kafka 4.3") from None
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise UnsupportedRequest(
            f"{cls.NAME} has no version {version}; known are {cls.MIN_VERSION} to {cls.MAX_VERSION}"
        )
    return version >= cls.FIRST_FLEXIBLE


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a request and where its body starts.

    Raises DecodeError, or UnsupportedRequest for an API or version that does not exist. Only ApiVersions is let through
    in every version, because its answer shows the client which versions there are.
    """
    try:
        api_key, version, correlation_id, size = _REQUEST.unpack_from(frame)
        flexible = _is_flexible(api_key, version)
        position = 10
        client_id = None
        if size >= 0:
            position += size
            if position > len(frame):
                raise DecodeError(f"the client id needs {size} bytes and {len(frame) - 10} are left")
            client_id = str(frame[10:position], "utf-8")
        elif size != -1:
            raise DecodeError(f"the client id has the length {size}, which it may not have")
        if flexible:
            # One zero byte unless a client sends tagged fields, which Kafka 4.3 does not define here.
            position = position + 1 if frame[position] == 0 else _skip_tags(frame, position)
    except (StructError, IndexError) as error:
        raise DecodeError(f"a request header is cut off after {len(frame)} bytes") from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"the client id is not UTF-8: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id), position


def decode_request(frame: Buffer) -> tuple[RequestHeader, Message]:
    """A request and its header. Bytes behind the request are ignored, as Kafka does.

    An ApiVersions request of an unknown version comes back empty, with the version as it was sent in the header: answer
    it in version 0 with UNSUPPORTED_VERSION. Otherwise raises as `decode_request_header` does.
    """
    header, position = decode_request_header(frame)
    cls = request_class(header.api_key)
    if header.api_key == API_VERSIONS and not cls.MIN_VERSION <= header.api_version <= cls.MAX_VERSION:
        return header, ApiVersionsRequest()
    message, _ = codec.decode(cls, header.api_version, frame, position)
    return header, message


def encode_request(message: Message, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
    """The frame of a request, whose records are buffers, as buffers to send, with its length in front."""
    chunks = cast(list[Buffer], codec.encode_chunks(message, version))
    client = b"" if client_id is None else client_id.encode()
    tail = _NO_TAGS if version >= message.FIRST_FLEXIBLE else b""
    size = 10 + len(client) + len(tail) + sum(map(len, chunks))
    try:
        length = -1 if client_id is None else len(client)
        head = _SEND_REQUEST.pack(size, message.API_KEY, version, correlation_id, length)
    except StructError as error:
        raise EncodeError(
            f"{message.NAME} of {size} bytes with client id {client_id!r:.40} has no frame: {error}"
        ) from error
    chunks[0] = b"".join((head, client, tail, chunks[0]))
    return chunks


def encode_response(message: Message, version: int, correlation_id: int) -> list[Chunk]:
    """The frame of a response as chunks to send, with its length in front; large records are passed through."""
    chunks = codec.encode_chunks(message, version)
    flexible = version >= message.FIRST_FLEXIBLE and message.API_KEY != API_VERSIONS
    size = sum(map(len, chunks)) + (5 if flexible else 4)
    try:
        head = (_SEND_RESPONSE_FLEXIBLE if flexible else _SEND_RESPONSE).pack(size, correlation_id)
    except StructError as error:
        raise EncodeError(f"{message.NAME} of {size} bytes for correlation id {correlation_id} has no frame") from error
    chunks[0] = head + bytes(chunks[0])
    return chunks


def decode_response(cls: type[M], version: int, frame: Buffer) -> tuple[int, M]:
    """Correlation id and response. Raises DecodeError.

    A broker that does not know the ApiVersions version it was asked in answers in version 0, which is read here too.
    """
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        position = 4
        if cls.API_KEY == API_VERSIONS:
            if version and _INT16.unpack_from(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION:
                version = 0
        elif version >= cls.FIRST_FLEXIBLE:
            position = 5 if frame[4] == 0 else _skip_tags(frame, 4)
    except (StructError, IndexError) as error:
        raise DecodeError(f"the header of {cls.NAME} is cut off after {len(frame)} bytes") from error
    message, _ = codec.decode(cls, version, frame, position)
    return correlation_id, message
