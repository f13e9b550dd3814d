"""The one place where text becomes what both databases can store.

Names of groups, clients, members and hosts, error texts and settings are what strangers make of them. PostgreSQL takes
no zero character, in text and in JSON, neither database half of a surrogate pair, and PostgreSQL's indexes no key of
more than a third of a page. One such text would have the whole round refused that it is part of, so it is stored as
something that reads alike. Doing so twice changes nothing more.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import Dialect, String
from sqlalchemy.types import TypeDecorator

# A row of a B-tree of PostgreSQL has 2,704 bytes: two such texts of four bytes a character, and 300 for the rest.
KEY_CHARS_MAX: Final = 300
_NOT_STORABLE: Final = re.compile("[\0\ud800-\udfff]")
_INSTEAD: Final = {"\0": "\u2400"}  # ␀
_UNKNOWN: Final = "\ufffd"  # �
_DIGEST_CHARS: Final = 16


def storable(text: str) -> str:
    """The text itself, nearly always; else with ␀ for a zero character and � for half a pair."""
    if text.isascii() and "\0" not in text:
        return text
    return _NOT_STORABLE.sub(lambda match: _INSTEAD.get(match[0], _UNKNOWN), text)


def storable_key(text: str) -> str:
    """As `storable`, and short enough for an index: a longer text is cut and ends in a digest of the whole."""
    stored = storable(text)
    if len(stored) <= KEY_CHARS_MAX:
        return stored
    digest = sha256(stored.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{stored[: KEY_CHARS_MAX - _DIGEST_CHARS - 1]}…{digest}"


def storable_json(value: Any) -> str:
    """JSON text of a value, all of whose texts are `storable`."""
    text = json.dumps(value)
    if "\\u0000" in text or "\\ud" in text:
        return json.dumps(_storable_parts(value))
    return text


def _storable_parts(value: Any) -> Any:
    match value:
        case str():
            return storable(value)
        case dict():
            return {
                storable(key) if isinstance(key, str) else key: _storable_parts(part) for key, part in value.items()
            }
        case list() | tuple():
            return [_storable_parts(part) for part in value]
        case _:
            return value


class Text(TypeDecorator[str]):
    """A column of text, and what it is compared with."""

    impl = String
    cache_ok = True

    @property
    def python_type(self) -> type[str]:
        return str

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return storable(value) if isinstance(value, str) else value


class KeyText(Text):
    """A column of text that is part of a key."""

    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return storable_key(value) if isinstance(value, str) else value
