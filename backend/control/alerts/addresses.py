"""Addresses that messages are sent to, checked without being shown: they may hold a key."""

from __future__ import annotations

import httpx


def check_address(url: str, owner: str = "the webhook") -> str:
    """A usable address. Raises ValueError with one sentence, which does not show it."""
    refusal = f"{owner}'s address is none: give one like https://example.org/hook"
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(refusal) from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(refusal)
    return url
