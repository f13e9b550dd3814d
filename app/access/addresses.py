"""The names by which a browser may reach the dashboard, and which pages may ask it. Pure.

A page of another site can make a browser of this machine open the dashboard: its own name may point to 127.0.0.1 (DNS
rebinding), and any page may open a WebSocket anywhere. The headers Host and Origin show whose page it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Addresses:
    """The accepted values of Host and Origin, in lower case.

    Source: RFC 9110 section 7.2 (Host), RFC 6454 section 6.2 (Origin); both leave out the port that the scheme has.
    """

    hosts: frozenset[str]
    origins: frozenset[str]
    shown: str  # the dashboard's address in texts for people
    secure_hosts: frozenset[str]  # reached over https only
    # Of the session. Browsers keep cookies by the name of the host, whatever its port: each dashboard has its own.
    cookie: str

    @classmethod
    def of(cls, port: int, public_url: str | None = None) -> Self:
        """Loopback names with the dashboard's own `port`, and the host of a proxy's `public_url`."""
        hosts: set[str] = set()
        origins: set[str] = set()
        cookie = f"ebbline_session_{port}"
        for name in LOOPBACK_NAMES:
            _add(hosts, origins, "http", name, port)
        if public_url is None:
            shown = f"http://{LOOPBACK_NAMES[0]}:{port}"
            return cls(frozenset(hosts), frozenset(origins), shown, frozenset(), cookie)
        parts = urlsplit(public_url)
        name = (parts.hostname or "").lower()
        public: set[str] = set()
        _add(
            public,
            origins,
            parts.scheme,
            f"[{name}]" if ":" in name else name,
            parts.port or _PORTS[parts.scheme],
        )
        secure = public if parts.scheme == "https" else ()
        return cls(frozenset(hosts | public), frozenset(origins), public_url.rstrip("/"), frozenset(secure), cookie)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP status, and one sentence."""

    status: int
    text: str


def refusal(headers: Sequence[tuple[bytes, bytes]], addresses: Addresses) -> Refusal | None:
    """Why a request with these headers is not served; None: it may be.

    421 for a Host that is none of ours (or is missing, or stands twice), 403 for a page of another origin.
    """
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) != 1 or hosts[0].decode("latin-1").lower() not in addresses.hosts:
        return Refusal(
            421,
            f"This dashboard answers at {addresses.shown} only. Behind a proxy, or a tunnel with another port, set"
            " EBBLINE_PUBLIC_URL to the address that the browser shows.",
        )
    origins = [value for name, value in headers if name == b"origin"]
    if any(origin.decode("latin-1").lower() not in addresses.origins for origin in origins):
        return Refusal(403, "A page of another site asked for this; only the dashboard's own pages may.")
    return None


def _add(hosts: set[str], origins: set[str], scheme: str, name: str, port: int) -> None:
    """Adds name and port as a browser sends them in Host and Origin."""
    hosts.add(f"{name}:{port}")
    if port == _PORTS[scheme]:
        hosts.add(name)
        origins.add(f"{scheme}://{name}")
    else:
        origins.add(f"{scheme}://{name}:{port}")
