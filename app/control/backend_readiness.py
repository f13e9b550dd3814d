"""The backend's own word on the database: its observer writes every few seconds, also when nobody has a page open."""

from __future__ import annotations

from typing import Final

import httpx

# On the same machine; a page that says what it does not see must not wait for it.
TIMEOUT_S: Final = 1.0


def database_responded_ms(api_url: str) -> int | None:
    """When the database last did what the backend wanted of it; None: the backend does not answer, or never saw it."""
    if not api_url:
        return None
    try:
        # No proxy may stand between two processes of one machine. Nothing secret goes either way.
        body = httpx.get(f"{api_url}/readyz", timeout=TIMEOUT_S, trust_env=False, verify=False).json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None
    responded_ms = body.get("database_responded_ms") if isinstance(body, dict) else None
    return responded_ms if isinstance(responded_ms, int) else None
