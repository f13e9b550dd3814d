"""Whether a process of ours lives, asked of what it serves.

Brokers are judged by the brokers, never by the control API alone: that one has its own limit of connections, and
what stops it must not restart what it only watches. Any answer is one, also "too many connections": a process that
answers lives.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import Final

from backend.settings.settings import LOOPBACK

# An event loop that lives answers within 250 ms (its longest turns); a busy machine is given four times as much.
KAFKA_ANSWER_S: Final = 1.0
HTTP_ANSWER_S: Final = 2.0
# ApiVersions version 0, correlation id 1, client id "supervisor": it needs no login and changes nothing.
_CLIENT_ID: Final = b"supervisor"
_BODY: Final = struct.pack(">hhih", 18, 0, 1, len(_CLIENT_ID)) + _CLIENT_ID
_API_VERSIONS: Final = struct.pack(">i", len(_BODY)) + _BODY


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
