"""Lines of generated source, with unique local names and one namespace for the constants the code refers to."""

from struct import Struct as Layout
from typing import Any, Final

from backend.protocol.messages.schema import Field

FIXED: Final = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "uint16": ("H", 2),
    "uint32": ("I", 4),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}


class SourceBuilder:
    """A function under construction: its lines, the indentation, and the objects its text names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {}
        self.depth = 1
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, prefix: str) -> str:
        """A local name that nothing else uses."""
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, prefix: str, value: Any) -> str:
        """A name for an object that the generated code uses."""
        name = f"{prefix}{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def layout(self, formats: str, method: str) -> str:
        """The name of `pack` or `unpack_from` of a big-endian layout; the same layout gets the same name."""
        name = f"{method}_{formats.replace('?', 'z')}"
        if name not in self.namespace:
            self.namespace[name] = getattr(Layout(f">{formats}"), method)
        return name

    def compile(self, signature: str, title: str, globals_: dict[str, Any]) -> Any:
        """The function `f` with this signature and the collected body."""
        text = f"def f({signature}):\n" + "\n".join(self.lines) + "\n"
        namespace = {**globals_, **self.namespace}
        exec(compile(text, f"<{title}>", "exec"), namespace)
        return namespace["f"]


def smallest_bytes(fields: tuple[Field, ...], version: int, flexible: bool) -> int:
    """The least bytes a struct of these fields can take: what bounds the length of an array before it is read."""
    total = 1 if flexible else 0
    for field in fields:
        if version not in field.versions or field.tag is not None:
            continue
        if field.is_array:
            total += 1 if flexible else 4
        elif field.is_struct:
            nullable = version in field.nullable
            total += 1 if nullable else smallest_bytes(field.fields, version, flexible)
        elif field.type in FIXED:
            total += FIXED[field.type][1]
        elif flexible:
            total += 1
        else:
            total += 2 if field.type == "string" else 4
    return total
