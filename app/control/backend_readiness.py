"""The backend's own word on the database: its observer writes every few seconds, also when nobody has a page open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import httpx

# On the same machine; a page that says what it does not see must not wait for it.
TIMEOUT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class DatabaseReadiness:
    """`responded_ms`: when the database last did what the backend wanted of it, None: never; `problem`: why it takes no
    writes, None: it does.
    """

    responded_ms: int | None
    problem: str | None


def database_readiness(api_url: str) -> DatabaseReadiness | None:
    """The backend's word on the database now; None: it does not answer."""
    if not api_url:
        return None
    try:
        # No proxy may stand between two processes of one machine. Nothing secret goes either way.
        body = httpx.get(f"{api_url}/readyz", timeout=TIMEOUT_S, trust_env=False, verify=False).json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None
    return _readiness(body) if isinstance(body, dict) else None


def _readiness(body: dict[str, Any]) -> DatabaseReadiness:
    responded_ms, checks = body.get("database_responded_ms"), body.get("checks")
    problem = checks.get("database") if isinstance(checks, dict) else None
    return DatabaseReadiness(
        responded_ms if isinstance(responded_ms, int) else None, problem if isinstance(problem, str) else None
    )
