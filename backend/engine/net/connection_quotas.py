"""The number of connections that the listeners of one role of a node may have (Kafka: `ConnectionQuotas`).

`max.connections` holds for all of them, `listener.name.<name>.max.connections` for one, `max.connections.per.ip` and
its overrides for one address on all of them. The listener that brokers use among themselves is not held up by
`max.connections` where there is another one: for its connection another listener's, used longest ago, is closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from backend.engine.config import BROKER_SETTINGS, BrokerConfig, ConfigError
from backend.engine.config.address_limits import MAX_PER_ADDRESS, NO_LIMIT, OVERRIDES, overrides_of
from backend.engine.config.listeners import LISTENER_PREFIX, MAX_CONNECTIONS

UNLIMITED: Final = NO_LIMIT


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Of all listeners, of one address, and of one listener."""

    total: int = UNLIMITED
    per_host: int = UNLIMITED
    of_listener: int = UNLIMITED
    # Addresses with a separate limit.
    of_hosts: Mapping[str, int] = field(default_factory=dict)

    def of_host(self, host: str) -> int:
        return self.of_hosts.get(host, self.per_host)


def limits_of(config: BrokerConfig, dynamic: Mapping[str, str], listener_name: str) -> ConnectionLimits:
    """The limits of the node's file, overridden by those that have been set while it runs."""
    own = listener_setting(listener_name)
    names = (MAX_CONNECTIONS, MAX_PER_ADDRESS, OVERRIDES)
    changed = config.overlay({name: dynamic[name] for name in names if name in dynamic})
    of_listener = _parsed(dynamic.get(own, config.originals.get(own)))
    try:
        of_hosts = overrides_of(changed.max_connections_per_ip_overrides)
    except ConfigError:
        # As `_parsed`.
        of_hosts = {}
    return ConnectionLimits(changed.max_connections, changed.max_connections_per_ip, of_listener, of_hosts)


def listener_setting(listener_name: str) -> str:
    """Name of the limit of one listener."""
    return f"{LISTENER_PREFIX}{listener_name.lower()}.{MAX_CONNECTIONS}"


def _parsed(text: str | None) -> int:
    """A text that cannot be used is no limit: it was refused where it was set, so a newer version has set it."""
    if text is None:
        return UNLIMITED
    try:
        value = BROKER_SETTINGS[MAX_CONNECTIONS].parse(text)
    except ConfigError:
        return UNLIMITED
    return value if isinstance(value, int) else UNLIMITED


@dataclass(slots=True)
class ConnectionQuotas:
    """The connections that exist now. Listeners acquire and release slots, and are called when one may be free."""

    # Name of the listener that is not held up by the others' connections.
    protected: str | None = None
    of_listener: Counter[str] = field(default_factory=Counter)
    of_host: Counter[str] = field(default_factory=Counter)
    on_free: list[Callable[[], None]] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.of_listener.total()

    def is_free(self, listener_name: str, limits: ConnectionLimits) -> bool:
        """Whether a connection may be served now; if not it waits."""
        if self.of_listener[listener_name] >= limits.of_listener:
            return False
        return listener_name == self.protected or self.total < limits.total

    def acquire(self, listener_name: str, host: str) -> None:
        self.of_listener[listener_name] += 1
        self.of_host[host] += 1

    def release(self, listener_name: str, host: str) -> None:
        """A connection has ended; those that wait are served in the order of the listeners."""
        self.of_listener[listener_name] -= 1
        self.of_host[host] -= 1
        if not self.of_host[host]:
            del self.of_host[host]
        self.notify_free()

    def notify_free(self) -> None:
        """Calls the listeners after a change of the connections or of their limits."""
        for callback in tuple(self.on_free):
            callback()
