"""Texts for messages and logs: without what may be a secret, and without what a terminal would obey. Pure."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "…"
# Of a URL: who signs in (user and password, or a key and its secret), and what is asked for, which may hold a key.
_USER: Final = re.compile(r"(?<=//)[^\s,]*@|[^/\s,@]*@")
_QUERY: Final = re.compile(r"[?#]\S*")
# C0 and C1 controls, DEL, and what turns the direction of a line: they move a cursor, change colours, title or order,
# and a line end begins what looks like another line of a log.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
REPLACEMENT: Final = "·"


def printable(text: str) -> str:
    """Text of another's making for a terminal or a log: each control character is a `·`."""
    return text if text.isprintable() else _CONTROL.sub(REPLACEMENT, text)


def redact_url(text: str) -> str:
    """`s3://…@bucket/prefix` of `s3://KEY:SECRET@bucket/prefix`; the same for each of several, separated by commas."""
    return _QUERY.sub(f"?{HIDDEN}", _USER.sub(f"{HIDDEN}@", text))


def redact(message: str, secret: str) -> str:
    """`message` of another's making, with `secret` as `redact_url` shows it."""
    return message.replace(secret, redact_url(secret)) if secret else message
