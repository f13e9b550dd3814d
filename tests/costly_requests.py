"""The most expensive legal requests of every API: as many elements as a request may have, in each of its arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from backend.protocol import frames
from backend.protocol.codegen.decoder import NUMBERS_PER_ELEMENT, REQUEST_ELEMENTS_MAX
from backend.protocol.messages.base import Message
from backend.protocol.messages.schema import Field, schema

# Some elements are left for the rest of the request.
ELEMENTS: Final = REQUEST_ELEMENTS_MAX - 2_000


class Costly(NamedTuple):
    """One request: all its elements in the array at `path`, with one name or as many as elements."""

    key: int
    version: int
    path: tuple[str, ...]
    distinct: bool
    elements: int = ELEMENTS

    def __str__(self) -> str:
        name = frames.request_class(self.key).__name__.removesuffix("Request")
        return f"{name}-v{self.version}-{'.'.join(self.path)}-{'names' if self.distinct else 'one name'}"


def shapes(key: int, version: int, elements: int = ELEMENTS) -> Iterator[Costly]:
    """One for each array of the request, at any depth, with repeated names and with different ones."""
    fields = schema(frames.request_class(key).NAME).fields
    for path in _arrays(fields, version):
        for distinct in (False, True):
            yield Costly(key, version, path, distinct, elements)


def _arrays(fields: tuple[Field, ...], version: int, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in fields:
        if version in field.versions and field.is_array:
            yield (*before, field.name)
            if field.is_struct:
                yield from _arrays(field.fields, version, (*before, field.name))


def request(costly: Costly, names: dict[str, Any]) -> Message:
    """The message; `names` are values of fields by name, such as a topic that there is."""
    cls = frames.request_class(costly.key)
    maker = _Maker(costly, names)
    made: Message = maker.struct(cls, schema(cls.NAME).fields, costly.path)
    return made


class _Maker:
    def __init__(self, costly: Costly, names: dict[str, Any]) -> None:
        self._version = costly.version
        self._distinct = costly.distinct
        self._elements = costly.elements
        self._names = names
        self._count = 0

    def struct(self, cls: type, fields: tuple[Field, ...], path: tuple[str, ...]) -> Any:
        """An object with one element in every array, and very many in the one at the path."""
        made = cls()
        for field in fields:
            if self._version not in field.versions:
                continue
            requested = path[1:] if path[:1] == (field.name,) else ()
            if field.is_array:
                many = path == (field.name,)
                count = self._room(cls, field) if many else 1
                setattr(made, field.name, [self._element(cls, field, requested, many) for _ in range(count)])
            elif field.is_struct:
                if getattr(made, field.name) is not None:
                    setattr(made, field.name, self.struct(getattr(cls, field.class_name), field.fields, requested))
            elif (value := self._value(field, False)) is not None:
                setattr(made, field.name, value)
        return made

    def _room(self, cls: type, field: Field) -> int:
        if field.is_struct:
            # Each element has one in each of its arrays.
            return self._elements // (1 + _weight(field.fields, self._version))
        return self._elements if field.type in ("string", "uuid") else self._elements * NUMBERS_PER_ELEMENT

    def _element(self, cls: type, field: Field, path: tuple[str, ...], many: bool) -> Any:
        if field.is_struct:
            self._count += many
            return self.struct(getattr(cls, field.class_name), field.fields, path)
        value = self._value(field, many)
        return value if value is not None else {"string": "", "uuid": bytes(16), "bytes": b""}.get(field.type, 0)

    def _value(self, field: Field, many: bool) -> Any:
        """None: as it is by default."""
        self._count += many
        given = self._names.get(field.name)
        if field.type == "string":
            text = given if given is not None else "x"
            return f"{text}-{self._count}" if self._distinct and self._count else text
        if field.type == "uuid":
            return self._count.to_bytes(16, "big") if self._distinct else given
        if given is None and self._distinct and field.type in ("int32", "int64") and many:
            return self._count
        return given


def _weight(fields: tuple[Field, ...], version: int) -> int:
    return sum(
        1 + (_weight(field.fields, version) if field.is_struct else 0)
        for field in fields
        if version in field.versions and field.is_array
    )
