"""A mistake in a table of the alerts file: where, and why, in words."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from backend.control.formatting import describe_invalid

Place = tuple[str | int, ...]


class TableMistake(Exception):
    """One sentence without a full stop; `path` is the place in the document."""

    def __init__(self, path: Place, sentence: str) -> None:
        super().__init__(sentence)
        self.path = path


def reason_of(error: ValidationError, place: Place) -> TableMistake:
    """The first thing that does not fit; values are not repeated."""
    first: dict[str, Any] = dict(error.errors(include_url=False, include_input=False)[0])
    # Steps into a union name its members, not the document.
    path = (*place, *(part for part in first["loc"] if not str(part).startswith(("list[", "constrained-", "str"))))
    name = dotted(path)
    match first["type"]:
        case "missing":
            return TableMistake(path, f"{dotted(path[:-1])} has no {path[-1]}")
        case "extra_forbidden":
            return TableMistake(path, f"{name} is not known here")
        case "value_error":
            return TableMistake(path, f"{name}: {describe_invalid(first['msg']).rstrip('.')}")
    return TableMistake(path, f"{name}: {first['msg'][:1].lower()}{first['msg'][1:]}")


def dotted(path: Place) -> str:
    """`receivers.ops.url`; the number of a route counts from 1."""
    return ".".join(str(part + 1 if isinstance(part, int) else part) for part in path)
