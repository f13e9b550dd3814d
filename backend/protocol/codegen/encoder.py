"""Generates the encoder of a message version.

The generated function is `f(o, out, done)`: it appends byte strings of message `o` to `out`. Runs of fixed-width
fields, the length that follows them and empty tag sections become one `pack`. Large records go to `done` as they are,
behind what was joined so far, so that a fetched log segment is never copied.
"""

from collections.abc import Callable
from struct import Struct as Layout
from typing import Any, Final, NoReturn, cast

from backend.protocol.codegen.source import FIXED, SourceBuilder
from backend.protocol.messages.base import Message, Struct
from backend.protocol.messages.schema import FRESH, ZERO_UUID, Field, Schema
from backend.protocol.varint import encode_uvarint

# Records below this are joined with what surrounds them: one more buffer costs a system call more than the copy.
JOIN_BYTES: Final = 2048
# Arrays up to this length have a ready layout: replicas, in-sync replicas and the like.
SHORT_ARRAY: Final = 8
_NULL_ARRAY: Final = b"\xff\xff\xff\xff"


def _bad_uuid(value: Any) -> NoReturn:
    raise ValueError(f"a uuid has 16 bytes, not {len(value)}")


def _uuid(value: Any) -> bytes:
    if len(value) != 16:
        _bad_uuid(value)
    return bytes(value)


def _length(count: int, flexible: bool) -> bytes:
    return encode_uvarint(count + 1) if flexible else count.to_bytes(4, "big")


def _long_array(code: str, flexible: bool) -> Callable[[Any], bytes]:
    return lambda values: _length(len(values), flexible) + Layout(f">{len(values)}{code}").pack(*values)


def _short_arrays(code: str, flexible: bool) -> tuple[Callable[..., bytes], ...]:
    prefix = "B" if flexible else "i"
    return tuple(Layout(f">{prefix}{n}{code}").pack for n in range(SHORT_ARRAY + 1))


def _uuid_array(values: Any, flexible: bool) -> bytes:
    return b"".join([_length(len(values), flexible), *map(_uuid, values)])


def _string_array(values: Any, flexible: bool) -> bytes:
    parts = [_length(len(values), flexible)]
    for value in values:
        data = value.encode()
        parts.append(encode_uvarint(len(data) + 1) if flexible else len(data).to_bytes(2, "big", signed=True))
        parts.append(data)
    return b"".join(parts)


_GLOBALS: Final[dict[str, Any]] = {
    "bad_uuid": _bad_uuid,
    "uvarint": encode_uvarint,
    # The number of tagged fields in a section: no message has 128.
    "one_byte": tuple(bytes((count,)) for count in range(128)),
    "uuid_array": _uuid_array,
    "string_array": _string_array,
}


class _Encoder:
    def __init__(self, schema: Schema, version: int) -> None:
        self.version = version
        self.flexible = version in schema.flexible
        self.source = SourceBuilder()
        self.out = "out"
        self.run: list[tuple[str, str]] = []  # format code and expression; code x is a zero byte
        self.pieces: list[str] = []  # expressions of byte strings, in order

    # Emission: the run becomes a piece, the pieces become one statement.

    def flush_run(self) -> None:
        if not self.run:
            return
        arguments = ", ".join(expression for code, expression in self.run if code != "x")
        formats = "".join(code for code, _ in self.run)
        if arguments:
            self.pieces.append(f"{self.source.layout(formats, 'pack')}({arguments})")
        else:
            self.pieces.append(repr(bytes(len(formats))))
        self.run = []

    def flush(self) -> None:
        self.flush_run()
        if len(self.pieces) == 1:
            self.source.line(f"{self.out}.append({self.pieces[0]})")
        elif self.pieces:
            self.source.line(f"{self.out} += ({', '.join(self.pieces)})")
        self.pieces = []

    def piece(self, expression: str) -> None:
        self.flush_run()
        self.pieces.append(expression)

    def local(self, prefix: str, expression: str) -> str:
        name = self.source.fresh(prefix)
        self.source.line(f"{name} = {expression}")
        return name

    # One field of each kind.

    def struct(self, owner: type[Struct], fields: tuple[Field, ...], value: str) -> None:
        for field in fields:
            if self.version in field.versions and field.tag is None:
                self.field(owner, field, f"{value}.{field.name}")
        if self.flexible:
            tagged = (f for f in fields if self.version in f.versions and f.tag is not None)
            self.tags(owner, sorted(tagged, key=lambda f: f.tag or 0), value)

    def field(self, owner: type[Struct], field: Field, value: str) -> None:
        nullable = self.version in field.nullable
        if field.is_array:
            self.array(owner, field, value, nullable)
        elif field.is_struct:
            self.nested(getattr(owner, field.class_name), field, self.local("s", value), nullable)
        elif field.type in ("string", "bytes"):
            self.text(field, value, nullable)
        elif field.type == "records":
            self.records(self.local("r", value))
        elif field.type == "uuid":
            # A shorter value would be padded and a longer one cut, both in silence.
            value = self.local("u", value)
            self.source.line(f"if len({value}) != 16: bad_uuid({value})")
            self.run.append(("16s", value))
        else:
            self.run.append((FIXED[field.type][0], value))

    def nested(self, made: type[Struct], field: Field, value: str, nullable: bool) -> None:
        if not nullable:
            self.struct(made, field.fields, value)
            return
        # KIP-893: a byte says whether the struct is there; in a tagged field it is an unsigned varint.
        absent = -1 if field.tag is None else 0
        self.run.append(("b", f"{absent} if {value} is None else 1"))
        self.flush()
        self.source.line(f"if {value} is not None:")
        self.source.depth += 1
        self.struct(made, field.fields, value)
        self.flush()
        self.source.line("pass")
        self.source.depth -= 1

    def text(self, field: Field, value: str, nullable: bool) -> None:
        line, data, size = self.source.line, self.source.fresh("d"), self.source.fresh("n")
        compact = self.flexible and not field.never_compact
        convert = ".encode()" if field.type == "string" else ""
        plus = " + 1" if compact else ""
        if nullable:
            line(f"{data} = {value}")
            line(f"if {data} is None: {data} = b''; {size} = {0 if compact else -1}")
            line(f"else: {data} = {data}{convert}; {size} = len({data}){plus}")
        else:
            line(f"{data} = {value}{convert}; {size} = len({data}){plus}")
        if compact:
            # The first byte of the length joins the run; a longer length keeps its other bytes with the text.
            line(f"if {size} > 127: {data} = uvarint({size} >> 7) + {data}; {size} = {size} & 127 | 128")
            self.run.append(("B", size))
        else:
            self.run.append(("h" if field.type == "string" else "i", size))
        self.piece(data)

    def array(self, owner: type[Struct], field: Field, value: str, nullable: bool) -> None:
        values = self.local("a", value)
        if field.is_struct:
            self.struct_array(getattr(owner, field.class_name), field, values, nullable)
            return
        if field.type in ("uuid", "string"):
            whole = f"{field.type}_array({values}, {self.flexible})"
        else:
            code = FIXED[field.type][0]
            short = self.source.constant("short", _short_arrays(code, self.flexible))
            long = self.source.constant("long", _long_array(code, self.flexible))
            count = f"len({values}){' + 1' if self.flexible else ''}"
            quick = f"{short}[len({values})]({count}, *{values})"
            whole = f"({quick} if len({values}) <= {SHORT_ARRAY} else {long}({values}))"
        if nullable:
            whole = f"({bytes(1) if self.flexible else _NULL_ARRAY!r} if {values} is None else {whole})"
        self.piece(whole)

    def struct_array(self, made: type[Struct], field: Field, values: str, nullable: bool) -> None:
        line, size = self.source.line, self.source.fresh("n")
        count = f"len({values}){' + 1' if self.flexible else ''}"
        if nullable:
            line(f"if {values} is None: {values} = (); {size} = {0 if self.flexible else -1}")
            line(f"else: {size} = {count}")
        else:
            line(f"{size} = {count}")
        if self.flexible:
            self.run.append(("B", f"{size} if {size} < 128 else {size} & 127 | 128"))
            self.flush()
            line(f"if {size} > 127: {self.out}.append(uvarint({size} >> 7))")
        else:
            self.run.append(("i", size))
            self.flush()
        item = self.source.fresh("o")
        line(f"for {item} in {values}:")
        self.source.depth += 1
        self.struct(made, field.fields, item)
        self.flush()
        self.source.line("pass")
        self.source.depth -= 1

    def records(self, value: str) -> None:
        line, size = self.source.line, self.source.fresh("n")
        line(f"if {value} is None: {size} = -1")
        line(f"else: {size} = sum(map(len, {value})) if {value}.__class__ is list else len({value})")
        if self.flexible:
            self.piece(f"uvarint({size} + 1)")
        else:
            self.run.append(("i", size))
        self.flush()
        line(f"if {size} >= {JOIN_BYTES}:")
        line("    done.append(b''.join(out)); out.clear()")
        line(f"    if {value}.__class__ is list: done += {value}")
        line(f"    else: done.append({value})")
        line(f"elif {size} > 0:")
        line(f"    if {value}.__class__ is list: out += {value}")
        line(f"    else: out.append({value})")

    # Tagged fields (KIP-482): written only when they differ from their default, in ascending order of tags.

    def tags(self, owner: type[Struct], fields: list[Field], value: str) -> None:
        if not fields:
            self.run.append(("x", ""))
            return
        slots = {f.name: self.local("t", f"{value}.{'_' if f.is_lazy else ''}{f.name}") for f in fields}
        present = {f.name: self.differs(owner, f, slots[f.name]) for f in fields}
        run, pieces = list(self.run), list(self.pieces)
        self.source.line(f"if {' or '.join(present.values())}:")
        self.source.depth += 1
        self.flush()
        self.tag_section(owner, fields, slots, present)
        self.source.depth -= 1
        self.source.line("else:")
        self.source.depth += 1
        self.run, self.pieces = [*run, ("x", "")], pieces
        self.flush()
        self.source.depth -= 1

    def tag_section(
        self, owner: type[Struct], fields: list[Field], slots: dict[str, str], present: dict[str, str]
    ) -> None:
        section, outer = self.local("sections", "[]"), self.out
        for field in fields:
            self.source.line(f"if {present[field.name]}:")
            self.source.depth += 1
            if (run := self.fixed(field, slots[field.name])) is not None:
                self.source.line(f"{section}.append({self.packed_tag(cast(int, field.tag), run)})")
                self.source.depth -= 1
                continue
            self.out = self.local("body", "[]")
            self.field(owner, field, slots[field.name])
            self.flush()
            self.source.line(f"{self.out} = b''.join({self.out})")
            self.source.line(f"{section}.append(uvarint({field.tag}) + uvarint(len({self.out})) + {self.out})")
            self.source.depth -= 1
        self.out = outer
        self.source.line(f"{outer}.append(one_byte[len({section})])")
        self.source.line(f"{outer} += {section}")

    def fixed(self, field: Field, value: str) -> list[tuple[str, str]] | None:
        """The run of a field whose bytes are as many whatever it holds; None for others."""
        if field.is_array or self.version in field.nullable:
            return None
        if not field.is_struct:
            return [(FIXED[field.type][0], value)] if field.type in FIXED and field.type != "uuid" else None
        run: list[tuple[str, str]] = []
        for inner in field.fields:
            if self.version not in inner.versions:
                continue
            part = None if inner.tag is not None else self.fixed(inner, f"{value}.{inner.name}")
            if part is None:
                return None
            run += part
        return [*run, ("x", "")]

    def packed_tag(self, tag: int, run: list[tuple[str, str]]) -> str:
        """An expression for a tagged field of a fixed run: tag and size take a byte each."""
        formats = "".join(code for code, _ in run)
        size = Layout(f">{formats}").size
        assert max(tag, size) < 128, "no field of this kind needs more"
        arguments = ", ".join(expression for code, expression in run if code != "x")
        return f"{self.source.layout('BB' + formats, 'pack')}({tag}, {size}, {arguments})"

    def differs(self, owner: type[Struct], field: Field, value: str) -> str:
        """An expression that is true when the field must be written."""
        if field.default is None:
            return f"{value} is not None"
        if field.is_array:
            return f"({value} is None or len({value}) > 0)"
        if field.default is FRESH:
            joint = "is not None and" if field.is_lazy else "is None or"
            return f"({value} {joint} {self.struct_differs(owner, field, value)})"
        if field.type == "uuid" and field.default == ZERO_UUID:
            return f"{value} != {self.source.constant('zero', ZERO_UUID)}"
        return f"{value} != {field.default!r}"

    def struct_differs(self, owner: type[Struct], field: Field, value: str) -> str:
        """An expression that is true when a struct that is there is not all defaults."""
        if any(inner.is_array or inner.is_struct for inner in field.fields):
            return f"{value} != {self.source.constant('default', getattr(owner, field.class_name)())}"
        inner = (self.differs(owner, inner, f"{value}.{inner.name}") for inner in field.fields)
        return f"({' or '.join(inner)})"


def make_encoder(cls: type[Message], schema: Schema, version: int) -> Callable[[Any, list[Any], list[Any]], None]:
    """The function that appends a message of `cls` in one version: small bytes to `out`, large to `done`."""
    encoder = _Encoder(schema, version)
    encoder.struct(cls, schema.fields, "o")
    encoder.flush()
    encoder.source.line("return None")
    function = encoder.source.compile("o, out, done", f"encode {schema.name} v{version}", _GLOBALS)
    return cast(Callable[[Any, list[Any], list[Any]], None], function)
