"""The connections that one address may have: `max.connections.per.ip` and its overrides (`SocketServerConfigs`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final

from backend.engine.config.setting_definition import ConfigError

MAX_PER_ADDRESS: Final = "max.connections.per.ip"
OVERRIDES: Final = "max.connections.per.ip.overrides"
NO_LIMIT: Final = 2**31 - 1
# Utils.validHostPattern: what could be an address or a name.
_HOST: Final = re.compile(r"[0-9a-zA-Z\-%._:]*")
_LOCALHOST: Final = "localhost"


@lru_cache(maxsize=8)
def overrides_of(text: str) -> Mapping[str, int]:
    """Limits by address, from `address:number, ...`. ConfigError for what is not of this form.

    Kafka looks names up once; here only `localhost` is one, and others are limits of nobody: a broker asks no name
    server.
    """
    limits = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, colon, number = entry.rpartition(":")
        if not colon:
            raise ConfigError(
                f"Error parsing configuration property '{OVERRIDES}': {entry} is not of the form address:number"
            )
        try:
            limits[_address(host.strip())] = int(number)
        except ValueError:
            raise ConfigError(f'For input string: "{number.strip()}"') from None
    return MappingProxyType(limits)


def _address(host: str) -> str:
    """The address in the form of a connection's peer; a host name stays as it is."""
    try:
        return "127.0.0.1" if host == _LOCALHOST else str(ip_address(host))
    except ValueError:
        return host


def check_address_limits(limit: int, overrides: str) -> None:
    """ConfigError for a pair that Kafka refuses."""
    limits = overrides_of(overrides)
    if limit == 0 and not limits:
        raise ConfigError(f"{MAX_PER_ADDRESS} can be set to zero only if {OVERRIDES} property is set.")
    invalid = [host for host in limits if not _HOST.fullmatch(host)]
    if invalid:
        raise ConfigError(f"{OVERRIDES} contains invalid addresses : {','.join(invalid)}")
