"""Generates the decoder of a message version.

The generated function is `f(buf, pos, end, left)` and returns the message and where it ends. Runs of fixed-width fields
and the length that follows them become one `unpack_from`. Records are slices of a memoryview of the buffer. Nothing is
allocated for a length before the bytes that must follow it are known to be there. As two bytes can be a struct of an
array, which takes a hundred in memory, a message also has a limit of elements.
"""

from collections.abc import Callable
from functools import partial
from itertools import repeat
from struct import Struct as Layout
from typing import Any, Final, NoReturn, cast

from backend.protocol.codegen.encoder import SHORT_ARRAY
from backend.protocol.codegen.source import FIXED, SourceBuilder, smallest_bytes
from backend.protocol.errors import DecodeError, TooManyElements
from backend.protocol.messages.base import Message, Struct
from backend.protocol.messages.schema import FRESH, Field, Schema
from backend.protocol.varint import decode_uvarint, decode_uvarint_rest

# Structs, strings, uuids and tagged fields of one message together. A small struct takes two bytes on the wire, about a
# hundred in memory and some microseconds: a hostile request can cost 10 MB and a second at most, while a broker that is
# asked may describe a million partitions.
REQUEST_ELEMENTS_MAX: Final = 100_000
ELEMENTS_MAX: Final = 1_000_000
# Numbers of a long array that count as one element: each takes 40 bytes in memory, and what is asked of each takes as
# long as of an element's quarter. A request has 400,000 at most, an answer for each of which is some 60 MB.
NUMBERS_PER_ELEMENT: Final = 4


def _short(name: str, needed: int, left: int) -> NoReturn:
    raise DecodeError(f"{name} needs {needed} bytes and {max(0, left)} are left")


def _no_length(name: str, length: int) -> NoReturn:
    raise DecodeError(f"{name} has the length {length}, which it may not have")


def _too_many(elements_max: int) -> NoReturn:
    raise TooManyElements(f"more than {elements_max} elements, which no such message needs")


def _long_array(code: str, size: int, buf: Any, pos: int, end: int, count: int) -> tuple[list[Any], int]:
    if count * size > end - pos:
        _short(f"an array of {count} numbers", count * size, end - pos)
    return list(Layout(f">{count}{code}").unpack_from(buf, pos)), pos + count * size


def _uuid_array(buf: Any, pos: int, end: int, count: int) -> tuple[list[bytes], int]:
    after = pos + count * 16
    if after > end:
        _short(f"an array of {count} uuids", count * 16, end - pos)
    return [bytes(buf[at : at + 16]) for at in range(pos, after, 16)], after


def _string_array(flexible: bool, buf: Any, pos: int, end: int, count: int) -> tuple[list[str], int]:
    if count > end - pos:
        _short(f"an array of {count} strings", count, end - pos)
    values = []
    for _ in repeat(None, count):
        if flexible:
            size, pos = decode_uvarint(buf, pos)
            size -= 1
        else:
            size = int.from_bytes(buf[pos : pos + 2], "big", signed=True)
            pos += 2
        if size < 0:
            _no_length("a string of an array", size)
        if pos + size > end:
            _short("a string of an array", size, end - pos)
        values.append(str(buf[pos : pos + size], "utf-8"))
        pos += size
    return values, pos


def _tag(buf: Any, pos: int, end: int) -> tuple[int, int, int]:
    """Tag, end of its value, start of its value."""
    tag, pos = decode_uvarint(buf, pos)
    size, pos = decode_uvarint(buf, pos)
    if pos + size > end:
        _short(f"tagged field {tag}", size, end - pos)
    return tag, pos + size, pos


def _skip_tags(buf: Any, pos: int, end: int, count: int) -> int:
    for _ in repeat(None, count):
        _, pos, _ = _tag(buf, pos, end)
    return pos


def _bad_tag(name: str, tag: int, pos: int, expected: int) -> NoReturn:
    raise DecodeError(f"tagged field {tag} of {name} ends at byte {pos}, its size says {expected}")


_GLOBALS: Final[dict[str, Any]] = {
    "short": _short,
    "no_length": _no_length,
    "rest": decode_uvarint_rest,
    "tag": _tag,
    "skip_tags": _skip_tags,
    "bad_tag": _bad_tag,
    "too_many": _too_many,
    "repeat": repeat,
    "new": object.__new__,
}


class _Decoder:
    def __init__(self, schema: Schema, version: int, has_records: bool) -> None:
        self.version = version
        self.flexible = version in schema.flexible
        self.has_records = has_records
        self.elements_max = REQUEST_ELEMENTS_MAX if schema.kind == "request" else ELEMENTS_MAX
        self.source = SourceBuilder()
        self.run: list[tuple[str, int, str]] = []  # format code, bytes, where the value goes
        self.ahead = 0  # bytes read since `pos` was last moved

    # Emission: a run becomes one unpack; `pos` moves only where something of unknown size begins.

    def flush(self) -> None:
        if not self.run:
            return
        at = f"pos + {self.ahead}" if self.ahead else "pos"
        targets = ", ".join(target for _, _, target in self.run)
        if len(self.run) == 1 and self.run[0][0] == "B":
            self.source.line(f"{targets} = buf[{at}]")
        else:
            unpack = self.source.layout("".join(code for code, _, _ in self.run), "unpack_from")
            self.source.line(f"{targets}{',' if len(self.run) == 1 else ''} = {unpack}(buf, {at})")
        self.ahead += sum(size for _, size, _ in self.run)
        self.run = []

    def sync(self) -> None:
        self.flush()
        if self.ahead:
            self.source.line(f"pos += {self.ahead}")
            self.ahead = 0

    def length(self, code: str, size: int, compact: bool) -> str:
        """Reads a length: a local that holds the count plus one when flexible, else the count, below zero for null."""
        name = self.source.fresh("n")
        self.run.append(("B", 1, name) if compact else (code, size, name))
        self.sync()
        if compact:
            self.source.line(f"if {name} > 127: {name}, pos = rest(buf, pos, {name})")
        return name

    def spend(self, count: str) -> None:
        """Elements that are about to be read count against the limit of the message."""
        self.source.line(f"left -= {count}")
        self.source.line(f"if left < 0: too_many({self.elements_max})")

    def present(self, size: str, compact: bool) -> str:
        return size if compact else f"{size} >= 0"

    def count(self, size: str, compact: bool) -> str:
        return f"{size} - 1" if compact else size

    def absent(self, size: str, target: str, title: str, nullable: bool, compact: bool) -> None:
        """The branch for a length that says null, after the branch for one that does not."""
        if not nullable:
            self.source.line(f"else: no_length({title!r}, {self.count(size, compact)})")
        else:
            # Any length below zero, as in Kafka; compact ones have but one.
            self.source.line(f"else: {target} = None")

    # One field of each kind.

    def struct(self, made: type[Struct], fields: tuple[Field, ...], value: str, title: str) -> None:
        tagged = []
        self.source.line(f"{value} = new({self.source.constant('C', made)})")
        for field in fields:
            if self.version in field.versions and field.tag is None:
                self.field(made, field, f"{value}.{field.name}", f"{title}.{field.name}")
                continue
            self.default(made, field, value)
            if self.version in field.versions:
                tagged.append(field)
        if self.flexible:
            self.tags(made, tagged, value, title)

    def default(self, made: type[Struct], field: Field, value: str) -> None:
        if field.is_lazy:
            self.source.line(f"{value}._{field.name} = None")
        elif field.default is FRESH:
            self.source.line(f"{value}.{field.name} = {self.source.constant('C', getattr(made, field.class_name))}()")
        elif field.is_array and field.default is not None:
            self.source.line(f"{value}.{field.name} = []")
        else:
            self.source.line(f"{value}.{field.name} = {field.default!r}")

    def field(self, made: type[Struct], field: Field, target: str, title: str) -> None:
        nullable = self.version in field.nullable
        if field.is_array:
            self.array(made, field, target, title, nullable)
        elif field.is_struct:
            self.nested(getattr(made, field.class_name), field, target, title, nullable)
        elif field.type in FIXED:
            code, size = FIXED[field.type]
            self.run.append((code, size, target))
        else:
            self.text(field, target, title, nullable)

    def nested(self, made: type[Struct], field: Field, target: str, title: str, nullable: bool) -> None:
        value = self.source.fresh("s")
        if not nullable:
            self.struct(made, field.fields, value, title)
            self.source.line(f"{target} = {value}")
            return
        # KIP-893: a byte says whether the struct is there; in a tagged field it is an unsigned varint, 0 or 1.
        there = self.source.fresh("n")
        self.run.append(("b", 1, there))
        self.sync()
        self.source.line(f"if {there} {'<' if field.tag is None else '<='} 0: {target} = None")
        self.source.line("else:")
        self.source.depth += 1
        self.struct(made, field.fields, value, title)
        self.sync()
        self.source.line(f"{target} = {value}")
        self.source.depth -= 1

    def text(self, field: Field, target: str, title: str, nullable: bool) -> None:
        line, kind = self.source.line, field.type
        compact = self.flexible and not field.never_compact
        size = self.length("h" if kind == "string" else "i", 2 if kind == "string" else 4, compact)
        piece = "buf[pos:e]"
        if kind == "records":
            piece = "view[pos:e]"
        elif kind == "bytes":
            piece = f"bytes({piece})" if self.has_records else piece
        else:
            piece = f"str({piece}, 'utf-8')" if self.has_records else f"{piece}.decode()"
        line(f"if {self.present(size, compact)}:")
        line(f"    e = pos + {self.count(size, compact)}")
        line(f"    if e > end: short({title!r}, {self.count(size, compact)}, end - pos)")
        line(f"    {target} = {piece}; pos = e")
        self.absent(size, target, title, nullable, compact)

    def array(self, made: type[Struct], field: Field, target: str, title: str, nullable: bool) -> None:
        line = self.source.line
        size = self.length("i", 4, self.flexible)
        count = self.count(size, self.flexible)
        line(f"if {self.present(size, self.flexible)}:")
        self.source.depth += 1
        if field.is_struct:
            self.struct_array(getattr(made, field.class_name), field, target, title, count)
        elif field.type in ("uuid", "string"):
            self.spend(size)
            reader = _uuid_array if field.type == "uuid" else partial(_string_array, self.flexible)
            line(f"{target}, pos = {self.source.constant('array', reader)}(buf, pos, end, {count})")
        else:
            code, width = FIXED[field.type]
            unpacks = tuple(Layout(f">{n}{code}").unpack_from for n in range(SHORT_ARRAY + 1))
            long = self.source.constant("array", partial(_long_array, code, width))
            limit = SHORT_ARRAY + 1 if self.flexible else SHORT_ARRAY
            line(f"if {size} <= {limit}:")
            line(f"    {target} = list({self.source.constant('short', unpacks)}[{count}](buf, pos))")
            line(f"    pos += ({count}) * {width}")
            line("else:")
            self.source.depth += 1
            self.spend(f"{size} // {NUMBERS_PER_ELEMENT}")
            line(f"{target}, pos = {long}(buf, pos, end, {count})")
            self.source.depth -= 1
        self.source.depth -= 1
        self.absent(size, target, title, nullable, self.flexible)

    def struct_array(self, made: type[Struct], field: Field, target: str, title: str, count: str) -> None:
        line = self.source.line
        least = max(1, smallest_bytes(field.fields, self.version, self.flexible))
        line(f"if ({count}) * {least} > end - pos: short({title!r}, ({count}) * {least}, end - pos)")
        self.spend(count)
        values, add, item = (self.source.fresh(prefix) for prefix in ("a", "add", "o"))
        line(f"{values} = []; {add} = {values}.append")
        line(f"for _ in repeat(None, {count}):")
        self.source.depth += 1
        self.struct(made, field.fields, item, title)
        self.sync()
        line(f"{add}({item})")
        self.source.depth -= 1
        line(f"{target} = {values}")

    def tags(self, made: type[Struct], fields: list[Field], value: str, title: str) -> None:
        """The tag section (KIP-482); tags that this version does not know are skipped."""
        line = self.source.line
        size = self.source.fresh("n")
        self.run.append(("B", 1, size))
        self.sync()
        line(f"if {size}:")
        self.source.depth += 1
        line(f"if {size} > 127: {size}, pos = rest(buf, pos, {size})")
        self.spend(size)
        if not fields:
            line(f"pos = skip_tags(buf, pos, end, {size})")
            self.source.depth -= 1
            return
        key, stop = self.source.fresh("k"), self.source.fresh("e")
        line(f"for _ in repeat(None, {size}):")
        self.source.depth += 1
        line(f"{key}, {stop}, pos = tag(buf, pos, end)")
        for position, field in enumerate(fields):
            line(f"{'el' if position else ''}if {key} == {field.tag}:")
            self.source.depth += 1
            slot = f"{value}.{'_' if field.is_lazy else ''}{field.name}"
            self.field(made, field, slot, f"{title}.{field.name}")
            self.sync()
            self.source.depth -= 1
        line(f"else: pos = {stop}")
        line(f"if pos != {stop}: bad_tag({title!r}, {key}, pos, {stop})")
        self.source.depth -= 2


def make_decoder(cls: type[Message], schema: Schema, version: int) -> Callable[..., tuple[Any, int]]:
    """The function that reads a message of `cls` in one version; may raise IndexError, struct.error, DecodeError.

    Its fourth argument is how many elements it reads at most.
    """
    decoder = _Decoder(schema, version, cls.HAS_RECORDS)
    if cls.HAS_RECORDS:
        decoder.source.line("view = buf if buf.__class__ is memoryview else memoryview(buf)")
    decoder.struct(cls, schema.fields, "o", schema.name)
    decoder.sync()
    decoder.source.line("return o, pos")
    signature = f"buf, pos, end, left={decoder.elements_max}"
    function = decoder.source.compile(signature, f"decode {schema.name} v{version}", _GLOBALS)
    return cast(Callable[..., tuple[Any, int]], function)
