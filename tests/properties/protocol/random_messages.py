"""Random messages of any schema, with the values that encodings stumble over: nulls, empty and long ones, extremes."""

import struct
from random import Random
from typing import Any

from backend.protocol.messages import Message, Struct, message_class
from backend.protocol.messages.schema import Field, schema

RANGES = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
# Texts on both sides of 127 bytes, where a compact length takes a second byte, and beyond ASCII.
TEXTS = ("a", "topic-1", "ünï-çødé ✓ 𝄞", "x" * 125, "x" * 126, "x" * 127, "y" * 300)
# Other libraries turn these into dates and durations, which cannot hold every number.
MOMENTS = (0, 1, 1_700_000_000_123)
DURATIONS = (0, 1, 30_000)


def _number(rng: Random, field: Field) -> int:
    name = field.name
    if "error_code" in name:
        return rng.randint(-1, 133)
    if field.type in ("uint16", "uint32"):
        return rng.randrange(1 << int(field.type[4:]))
    if "timestamp" in name or name.endswith(("_ms", "_time")) or "time_ms" in name:
        allowed = MOMENTS if field.type == "int64" else DURATIONS
        return rng.choice((*allowed, field.default) if isinstance(field.default, int) else allowed)
    bits = RANGES[field.type]
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return rng.choice((0, 1, -1, low, high, field.default or 0, rng.randint(low, high)))


def _scalar(rng: Random, field: Field) -> Any:
    match field.type:
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.choice((0.0, -1.5, 1e300, rng.random()))
        case "string":
            return rng.choice(TEXTS)
        case "bytes":
            return rng.randbytes(rng.choice((0, 1, 126, 127, 1000)))
        case "records":
            return rng.randbytes(rng.choice((0, 61, 126, 2047, 2048, 5000)))
        case "uuid":
            return rng.choice((bytes(16), rng.randbytes(16)))
    return _number(rng, field)


def _value(rng: Random, owner: type[Struct], field: Field, version: int, depth: int) -> Any:
    if version in field.nullable and rng.random() < 0.25:
        return None
    if field.is_array:
        # Lengths on both sides of the ready layouts and, for plain values, of one-byte lengths.
        longest = (0, 1, 2, 3) if field.is_struct else (0, 1, 3, 8, 9, 130)
        count = rng.choice(longest if depth < 3 else (0, 1))
        if field.is_struct:
            nested = getattr(owner, field.class_name)
            return [random_struct(rng, nested, field.fields, version, depth + 1) for _ in range(count)]
        return [_scalar(rng, field) for _ in range(count)]
    if field.is_struct:
        return random_struct(rng, getattr(owner, field.class_name), field.fields, version, depth + 1)
    return _scalar(rng, field)


def random_struct(rng: Random, cls: type[Any], fields: tuple[Field, ...], version: int, depth: int = 0) -> Any:
    made = cls()
    for field in fields:
        # A field that is left alone keeps its default; the version decides which fields exist.
        if version in field.versions and rng.random() < (0.6 if field.tag is not None else 0.95):
            setattr(made, field.name, _value(rng, cls, field, version, depth))
    return made


def random_message(rng: Random, name: str, version: int) -> Message:
    """A message of which exactly the fields of `version` are set."""
    made: Message = random_struct(rng, message_class(name), schema(name).fields, version)
    return made


def as_values(value: Any) -> Any:
    """A message as plain dicts and lists; buffers as bytes, floats by their bits."""
    if isinstance(value, Struct):
        return {name: as_values(getattr(value, name)) for name in value.FIELDS}
    if isinstance(value, list):
        return [as_values(item) for item in value]
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return struct.pack(">d", value) if isinstance(value, float) else value
