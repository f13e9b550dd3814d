"""The line of a key in a TOML text: `tomllib` gives values without their place. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

Path = tuple[str | int, ...]
_PART: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEY: Final = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER: Final = re.compile(rf"\s*(\[\[?)\s*({_KEY})\s*\]")
_ASSIGNMENT: Final = re.compile(rf"\s*({_KEY})\s*=")
# Brackets, and the texts that hide them: strings of one line, a comment; a string of several lines begins or ends.
_TOKEN: Final = re.compile(r"""\"{3}|'{3}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|#.*|[\[\]{}]""")

_ENDS: Final = {
    '"""': re.compile(r'(?:[^"\\]|\\.|"(?!""))*"{3}'),
    "'''": re.compile(r"(?:[^']|'(?!''))*'{3}"),
}


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """The line of what stands at `path`, or of the nearest table around it; None: it stands nowhere."""
    places = list(_places(text))
    for length in range(len(path), 0, -1):
        around = tuple(path[:length])
        for exact in (True, False):
            for place, line in places:
                if place == around or (not exact and place[:length] == around):
                    return line
    return None


def _places(text: str) -> Iterator[tuple[Path, int]]:
    """(path, line) of each header and each key; elements of an array of tables have their number in the path."""
    table: Path = ()
    numbers: dict[Path, int] = {}
    depth, quotes = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if depth == 0 and not quotes:
            if (header := _HEADER.match(line)) is not None:
                table = _numbered(_parts(header[2]), numbers)
                if header[1] == "[[":
                    numbers[table] = numbers.get(table, -1) + 1
                    table = (*table, numbers[table])
                yield table, number
                continue
            if (assignment := _ASSIGNMENT.match(line)) is not None:
                yield (*table, *_parts(assignment[1])), number
        depth, quotes = _state_at_end(line, depth, quotes)


def _state_at_end(line: str, depth: int, quotes: str) -> tuple[int, str]:
    """(open brackets, quotes of an open string of several lines) at the end of a line."""
    at = 0
    while True:
        if quotes:
            end = _ENDS[quotes].match(line, at)
            if end is None:
                return depth, quotes
            at, quotes = end.end(), ""
        token = _TOKEN.search(line, at)
        if token is None:
            return depth, ""
        at = token.end()
        if token[0] in ('"""', "'''"):
            quotes = token[0]
        elif token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth = max(0, depth - 1)


def _parts(key: str) -> Path:
    return tuple(part.strip("\"'") for part in re.findall(_PART, key))


def _numbered(parts: Path, numbers: dict[Path, int]) -> Path:
    """A header below an array of tables belongs to the array's last element."""
    path: Path = ()
    for part in parts[:-1]:
        path = (*path, part)
        if path in numbers:
            path = (*path, numbers[path])
    return (*path, *parts[-1:])
