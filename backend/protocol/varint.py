"""Variable-length integers: unsigned ones of flexible messages (KIP-482), zig-zag ones of records (KIP-98)."""

from typing import Any, Final

from backend.protocol.errors import DecodeError

UVARINT_BITS_MAX: Final = 32
VARINT_BYTES_MAX: Final = 5
VARLONG_BITS_MAX: Final = 64
# One bound for what a varint may count: Java's arrays end here.
_LIMIT: Final = 1 << UVARINT_BITS_MAX
_SINGLE: Final = tuple(bytes((n,)) for n in range(128))


def encode_uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint; ValueError below zero."""
    if 0 <= value < 128:
        return _SINGLE[value]
    if value < 0:
        raise ValueError(f"an unsigned varint cannot hold {value}")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uvarint(buffer: Any, position: int) -> tuple[int, int]:
    """The unsigned varint of at most 32 bits at `position`, and where it ends; IndexError at the end of the buffer."""
    first = buffer[position]
    if first < 128:
        return first, position + 1
    return decode_uvarint_rest(buffer, position + 1, first)


def decode_uvarint_rest(buffer: Any, position: int, first: int) -> tuple[int, int]:
    """Completes an unsigned varint whose first byte, above 127, has been read."""
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >= _LIMIT:
                break
            return value, position
    raise DecodeError(f"a variable-length integer before byte {position} is longer than {UVARINT_BITS_MAX} bits")


def encode_varint(value: int) -> bytes:
    """The bytes of a zig-zag varint or varlong (64 bits)."""
    return encode_uvarint((value << 1) ^ (value >> 63))


def decode_varint(buffer: Any, position: int) -> tuple[int, int]:
    """The zig-zag varint of at most 32 bits at `position`, and where it ends; IndexError at the end of the buffer."""
    value, position = decode_uvarint(buffer, position)
    return (value >> 1) ^ -(value & 1), position


def decode_varlong(buffer: Any, position: int) -> tuple[int, int]:
    """The zig-zag varint of at most 64 bits at `position`, and where it ends; IndexError at the end of the buffer."""
    value = 0
    for shift in range(0, VARLONG_BITS_MAX + 6, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> VARLONG_BITS_MAX:
                break
            return (value >> 1) ^ -(value & 1), position
    raise DecodeError(f"a variable-length integer before byte {position} is longer than {VARLONG_BITS_MAX} bits")


# Zig-zag varints of one and two bytes, by the bits that they hold.
SIGNED_VARINTS: Final = tuple((value >> 1) ^ -(value & 1) for value in range(1 << 14))
_IN_PLACE: Final = """
byte = data[position]
if byte < 128:
    {name} = signed[byte]
    position += 1
elif data[position + 1] < 128:
    {name} = signed[byte & 127 | data[position + 1] << 7]
    position += 2
else:
    {name}, position = {decode}(data, position)
"""


def read_varint_in_place(name: str, decode: str) -> str:
    """Statements for a compiled loop over records, whose cost is that loop: they read the zig-zag varint at `position`
    of `data` into `name`. The loop's namespace has SIGNED_VARINTS as `signed`, and `decode` for more than two bytes.
    """
    return _IN_PLACE.format(name=name, decode=decode)
