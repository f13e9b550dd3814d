"""Makes the class of a message from its schema, nested structs included, when the class is first asked for."""

from typing import Any, Final

from backend.protocol.messages.base import Message, Struct
from backend.protocol.messages.schema import Field, Schema

_UNSET: Final = object()  # "not given": None is a value of nullable fields


_EQUALITY: Final = """
def __eq__(self, other):
    if other.__class__ is not self.__class__:
        return NotImplemented
    return {}
"""


def _lazy_property(slot: str, nested: type[Struct]) -> property:
    """The struct in `slot`, made when first looked at; the codec reads the slot itself, where None means absent."""

    def get(self: Struct) -> Any:
        value = getattr(self, slot)
        if value is None:
            value = nested()
            setattr(self, slot, value)
        return value

    def put(self: Struct, value: Any) -> None:
        setattr(self, slot, value)

    return property(get, put)


def _assignment(field: Field, parameters: list[str]) -> str:
    """Adds the field's parameter to `parameters` and returns the line of `__init__` that stores it."""
    name = field.name
    if field.is_lazy:
        parameters.append(f"{name}=None")
        return f"self._{name} = {name}"
    fresh = "[]" if field.is_array else f"self.{field.class_name}()"
    if field.starts_as_struct or (field.is_array and field.default is not None):
        parameters.append(f"{name}=_UNSET")
        return f"self.{name} = {fresh} if {name} is _UNSET else {name}"
    parameters.append(f"{name}={field.default!r}")
    return f"self.{name} = {name}"


def _make(base: type[Struct], qualified: str, module: str, fields: tuple[Field, ...]) -> type[Any]:
    members: dict[str, Any] = {
        "__slots__": tuple(f"_{f.name}" if f.is_lazy else f.name for f in fields),
        "__module__": module,
        "__qualname__": qualified,
        "FIELDS": tuple(f.name for f in fields),
    }
    for field in fields:
        if field.is_struct:
            nested = _make(Struct, f"{qualified}.{field.class_name}", module, field.fields)
            members[field.class_name] = nested
            if field.is_lazy:
                members[field.name] = _lazy_property(f"_{field.name}", nested)
    parameters: list[str] = []
    lines = [_assignment(field, parameters) for field in fields] or ["pass"]
    signature = f"self, *, {', '.join(parameters)}" if parameters else "self"
    namespace: dict[str, Any] = {"_UNSET": _UNSET}
    exec(f"def __init__({signature}):\n    " + "\n    ".join(lines), namespace)
    exec(_EQUALITY.format(" and ".join(f"self.{f.name} == other.{f.name}" for f in fields) or "True"), namespace)
    members["__init__"] = namespace["__init__"]
    members["__eq__"] = namespace["__eq__"]
    members["__hash__"] = None
    return type(qualified.rpartition(".")[2], (base,), members)


def _has_records(fields: tuple[Field, ...]) -> bool:
    return any(field.type == "records" or _has_records(field.fields) for field in fields)


def build(schema: Schema, module: str) -> type[Message]:
    """The class of a message, with one nested class per struct field, named by the field in CamelCase."""
    made = _make(Message, schema.name, module, schema.fields)
    made.NAME = schema.name
    made.GROUP = schema.group
    made.KIND = schema.kind
    made.KEY = made.API_KEY = -1 if schema.key is None else schema.key
    made.MIN_VERSION = schema.versions.first
    made.MAX_VERSION = schema.versions.last
    made.FIRST_FLEXIBLE = min(schema.flexible.first, schema.versions.last + 1)
    made.HAS_RECORDS = _has_records(schema.fields)
    made.ENCODERS = {}
    made.DECODERS = {}
    return made
