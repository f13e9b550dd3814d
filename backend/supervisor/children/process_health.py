"""Whether a process of ours lives, asked of what it serves.

Brokers are judged by the brokers, never by the control API alone: that one has its own limit of connections, and
what stops it must not restart what it only watches. Any answer is one, also "too many connections": a process that
answers lives.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import Any, Final

from backend.settings.settings import LOOPBACK

# An event loop that lives answers within 250 ms (its longest turns); a busy machine is given four times as much.
KAFKA_ANSWER_S: Final = 1.0
HTTP_ANSWER_S: Final = 2.0
# ApiVersions version 0, correlation id 1, client id "supervisor": it needs no login and changes nothing.
_CLIENT_ID: Final = b"supervisor"
_BODY: Final = struct.pack(">hhih", 18, 0, 1, len(_CLIENT_ID)) + _CLIENT_ID
_API_VERSIONS: Final = struct.pack(">i", len(_BODY)) + _BODY
# The checks of `/readyz` that others must mend; a start waits for none of them.
DATABASE: Final = "database"
OF_OTHERS: Final = (DATABASE, "disk")


def any_broker_answers(ports: Iterable[int]) -> bool:
    """Whether a Kafka listener on one of these ports of this machine answers; blocks up to a second for each."""
    return any(broker_answers(port) for port in ports)


def broker_answers(port: int) -> bool:
    """Whether the listener answers, or refuses: closing a connection that is too many is the work of a live process.

    A process that hangs does neither; the system still accepts connections for it.
    """
    try:
        connection = socket.create_connection((LOOPBACK, port), timeout=KAFKA_ANSWER_S)
    except OSError:
        return False
    with connection:
        try:
            connection.sendall(_API_VERSIONS)
            connection.recv(4)
        except TimeoutError:
            return False
        except OSError:
            return True
    return True


def http_answers(url: str) -> bool:
    """Whether anything comes back, whatever its status."""
    return _status(url) is not None


def http_serves(url: str) -> bool:
    """Whether the answer is 200."""
    return _status(url) == 200


def provider_signs_in(dashboard_url: str) -> bool:
    """Whether the dashboard at this address leaves the sign-in to an OIDC provider: it serves its page unasked."""
    return http_serves(f"{dashboard_url}/")


def _status(url: str) -> int | None:
    import httpx  # only here: it is imported while the first child starts

    try:
        # Plain HTTP: without `verify` each question would load all certificates, 40 ms.
        return httpx.get(url, timeout=HTTP_ANSWER_S, verify=False).status_code
    except httpx.HTTPError:
        return None


def serves(body: Any) -> bool:
    """`body`: what `/readyz` says. Brokers and API need no database, so a start waits for none that is away."""
    if not isinstance(body, dict):
        return False
    if body.get("ready") is True:
        return True
    checks = body.get("checks")
    if not isinstance(checks, dict) or body.get("starting") is not False:
        return False
    return all(problem is None for name, problem in checks.items() if name not in OF_OTHERS)


def waits_for(body: Any) -> str | None:
    """Why the database is not used, in the backend's words; None: it is."""
    checks = body.get("checks") if isinstance(body, dict) else None
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
