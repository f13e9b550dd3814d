"""Java properties text ↔ map, as far as broker files use it: comments, ``=`` or ``:``, continued lines."""

from __future__ import annotations

from collections.abc import Mapping


def parse_properties(text: str) -> dict[str, str]:
    """Name → value; a later line wins."""
    found: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.strip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if line.endswith("\\") and not line.endswith("\\\\"):
            pending = line[:-1]
            continue
        cut = min((position for position in (line.find("="), line.find(":")) if position >= 0), default=len(line))
        found[line[:cut].strip()] = (
            line[cut + 1 :].strip().replace("\\\\", "\\").replace("\\:", ":").replace("\\=", "=")
        )
    return found


def format_properties(values: Mapping[str, str]) -> str:
    """One ``name=value`` a line, in the map's order."""
    return "".join(f"{name}={value}\n" for name, value in values.items())
