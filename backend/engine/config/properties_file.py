"""Java properties text ↔ map, as far as broker files use it: comments, ``=`` or ``:``, continued lines, escapes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_ESCAPED: Final = re.compile(r"\\(.)")
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Name → value; a later line wins."""
    properties: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.strip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        end_of_name = min(
            (position for position in (line.find("="), line.find(":")) if position >= 0), default=len(line)
        )
        properties[line[:end_of_name].strip()] = _ESCAPED.sub(_unescaped, line[end_of_name + 1 :].strip())
    return properties


def _unescaped(match: re.Match[str]) -> str:
    return _LETTERS.get(match[1], match[1])


def format_properties(values: Mapping[str, str]) -> str:
    """One ``name=value`` a line, in the map's order; `parse_properties` reads it back."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in values.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
