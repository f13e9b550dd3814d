"""Messages to bytes and back, in any version Kafka 4.3 has.

Functions of a version are generated from the message tables when the version is first used and kept on the class. Input
from outside can only fail as `DecodeError`; a length is believed only as far as bytes are there.
"""

from struct import error as StructError
from typing import Any, TypeVar

from backend.protocol.buffers import Chunk
from backend.protocol.codegen.decoder import make_decoder
from backend.protocol.codegen.encoder import make_encoder
from backend.protocol.errors import DecodeError, EncodeError
from backend.protocol.messages.base import Message
from backend.protocol.messages.schema import schema

__all__ = ["DecodeError", "EncodeError", "decode", "encode", "encode_chunks"]

M = TypeVar("M", bound=Message)


def _encoder(cls: type[Message], version: int) -> Any:
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise EncodeError(f"{cls.NAME} has no version {version}; use {cls.MIN_VERSION} to {cls.MAX_VERSION}")
    made = cls.ENCODERS[version] = make_encoder(cls, schema(cls.NAME), version)
    return made


def _decoder(cls: type[Message], version: int) -> Any:
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise DecodeError(f"{cls.NAME} has no version {version}; known are {cls.MIN_VERSION} to {cls.MAX_VERSION}")
    made = cls.DECODERS[version] = make_decoder(cls, schema(cls.NAME), version)
    return made


def encode_chunks(message: Message, version: int) -> list[Chunk]:
    """The message as chunks to send one after another, the first of them bytes; large records are passed through.

    Raises EncodeError when a value does not fit its field. Fields that the version does not have are left out.
    """
    encoder = message.ENCODERS.get(version) or _encoder(message.__class__, version)
    out: list[Any] = []
    done: list[Any] = []
    try:
        encoder(message, out, done)
    except (StructError, AttributeError, TypeError, ValueError, OverflowError) as error:
        raise EncodeError(f"{message.NAME} v{version} cannot be encoded: {error}") from error
    if out or not done:
        done.append(b"".join(out))
    return done


def encode(message: Message, version: int) -> bytes:
    """The message as one byte string; raises EncodeError when a value does not fit its field."""
    chunks = encode_chunks(message, version)
    first = chunks[0]
    return first if len(chunks) == 1 and isinstance(first, bytes) else b"".join(map(bytes, chunks))


def decode(
    cls: type[M],
    version: int,
    buffer: bytes | bytearray | memoryview,
    offset: int = 0,
    elements_max: int | None = None,
) -> tuple[M, int]:
    """The message that starts at `offset`, and where it ends; raises DecodeError for anything else.

    With more than `elements_max` elements, where that is said, it is TooManyElements, soon.
    A memoryview must be one of single bytes. Records are slices of the given buffer, so it must not be reused.
    """
    decoder = cls.DECODERS.get(version) or _decoder(cls, version)
    if buffer.__class__ is not bytes and not cls.HAS_RECORDS:
        buffer = bytes(buffer)
    try:
        decoded: tuple[M, int]
        if elements_max is None:
            decoded = decoder(buffer, offset, len(buffer))
        else:
            decoded = decoder(buffer, offset, len(buffer), elements_max)
        return decoded
    except DecodeError as error:
        raise error.__class__(f"{cls.NAME} v{version} of {len(buffer) - offset} bytes: {error}") from None
    except (StructError, IndexError) as error:
        raise DecodeError(f"{cls.NAME} v{version} is cut off after {len(buffer) - offset} bytes") from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"{cls.NAME} v{version} has text that is not UTF-8: {error}") from error
