"""Whether the backend serves: ready in all, or in all but what others must mend: its database, a full disk."""

from __future__ import annotations

from typing import Any, Final

DATABASE: Final = "database"
# A start does not bring them back by failing.
OF_OTHERS: Final = (DATABASE, "disk")


def serves(answer: Any) -> bool:
    """`answer`: what `/readyz` says. Brokers and API need no database, so a start waits for none that is away."""
    if not isinstance(answer, dict):
        return False
    if answer.get("ready") is True:
        return True
    checks = answer.get("checks")
    if not isinstance(checks, dict) or answer.get("starting") is not False:
        return False
    return all(problem is None for name, problem in checks.items() if name not in OF_OTHERS)


def waits_for(answer: Any) -> str | None:
    """Why the database is not used, in the backend's words; None: it is."""
    checks = answer.get("checks") if isinstance(answer, dict) else None
    problem = checks.get(DATABASE) if isinstance(checks, dict) else None
    return None if problem is None else str(problem)


def readyz(api_url: str) -> Any:
    """The answer of `/readyz`; None when there is none."""
    import httpx  # only here: it is imported while the first child starts

    try:
        # Plain HTTP: without `verify` each question would load all certificates, 40 ms.
        return httpx.get(f"{api_url}/readyz", timeout=5.0, verify=False).json()
    except (httpx.HTTPError, ValueError):
        return None
