"""Texts of settings for messages and logs, without what may be a secret in them. Pure."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "…"
# Of a URL: who signs in (user and password, or a key and its secret), and what is asked for, which may hold a key.
_USER: Final = re.compile(r"(?<=//)[^\s,]*@|[^/\s,@]*@")
_QUERY: Final = re.compile(r"[?#]\S*")


def redact_url(text: str) -> str:
    """`s3://…@bucket/prefix` of `s3://KEY:SECRET@bucket/prefix`; the same for each of several, separated by commas."""
    return _QUERY.sub(f"?{HIDDEN}", _USER.sub(f"{HIDDEN}@", text))


def redact(message: str, secret: str) -> str:
    """`message` of another's making, with `secret` as `redact_url` shows it."""
    return message.replace(secret, redact_url(secret)) if secret else message
