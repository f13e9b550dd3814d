"""Connections to the brokers of one cluster: opened when first used and when broken, never more than allowed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from enum import Enum
from typing import Final

from backend.control.gateway.broker_connection import CONNECT_TIMEOUT_S, BrokerAddress, BrokerConnection
from backend.control.gateway.client_security import Security
from backend.control.gateway.gateway_errors import BrokerUnavailable

# A broker that swallows connection attempts costs CONNECT_TIMEOUT_S a try; so it is tried at most every 10 s,
# a third of the time. One that refuses at once costs nothing and is tried each time. Each lane goes by the silence that
# it met: samples try all the time, and a plan would be refused for a broker that has just started.
SLOW_FAILURE_PAUSE_S: Final = 10.0
SLOW_FAILURE_S: Final = 1.0


class Lane(Enum):
    """Requests of different temper do not wait for each other: one connection per broker and lane, five a broker.

    CONTROLLER: what a broker hands on to the active controller, and answers late when there is none; requests behind
    it on the same connection would wait for it, and a broker that lives would look silent.
    """

    SAMPLE = "sample"
    ACT = "act"
    EVENTS = "events"
    LIVENESS = "liveness"
    CONTROLLER = "controller"


class ConnectionPool:
    """At most one connection per (address, lane)."""

    def __init__(self, *, connect_timeout_s: float = CONNECT_TIMEOUT_S, security: Security | None = None) -> None:
        self._security = security
        self._connect_timeout_s = connect_timeout_s
        self._connections: dict[tuple[BrokerAddress, Lane], BrokerConnection] = {}
        self._opening: dict[tuple[BrokerAddress, Lane], asyncio.Lock] = {}
        self._not_before_s: dict[tuple[BrokerAddress, Lane], tuple[float, str]] = {}
        self._retiring: dict[asyncio.Task[None], BrokerConnection] = {}
        self._closed = False

    async def get(self, address: BrokerAddress, lane: Lane) -> BrokerConnection:
        """A usable connection. Raises BrokerUnavailable or UnsupportedByBroker."""
        key = (address, lane)
        result = self._connections.get(key)
        if result is not None and result.usable:
            return result
        async with self._opening.setdefault(key, asyncio.Lock()):
            result = self._connections.get(key)
            if result is not None and result.usable:
                return result
            if self._closed:
                raise BrokerUnavailable("This process is shutting down.")
            if result is not None:
                # Broken: closed at once. At the end of its session: its last answers are waited for.
                retiring = asyncio.create_task(result.retire(), name=f"gateway-retire-{address}")
                self._retiring[retiring] = result
                retiring.add_done_callback(self._retiring.pop)
                self._connections.pop(key)
            self._connections[key] = opened = await self._open(address, lane)
            return opened

    def give_up(self, address: BrokerAddress, lane: Lane, reason: str) -> None:
        """Ends the questions of a lane to a broker that is known to be silent, and leaves it in peace for a while."""
        self._not_before_s[address, lane] = (time.monotonic() + SLOW_FAILURE_PAUSE_S, reason)
        silent = self._connections.pop((address, lane), None)
        if silent is not None:
            ending = asyncio.create_task(silent.close(reason), name=f"gateway-give-up-{address}")
            self._retiring[ending] = silent
            ending.add_done_callback(self._retiring.pop)

    async def _open(self, address: BrokerAddress, lane: Lane) -> BrokerConnection:
        began_s = time.monotonic()
        not_before_s, reason = self._not_before_s.get((address, lane), (0.0, ""))
        if began_s < not_before_s:
            raise BrokerUnavailable(reason)
        try:
            opened = await BrokerConnection.open(address, timeout_s=self._connect_timeout_s, security=self._security)
        except BrokerUnavailable as error:
            if time.monotonic() - began_s >= SLOW_FAILURE_S:
                self._not_before_s[address, lane] = (time.monotonic() + SLOW_FAILURE_PAUSE_S, str(error))
            raise
        for each in Lane:
            self._not_before_s.pop((address, each), None)
        return opened

    async def keep_only(self, addresses: Collection[BrokerAddress]) -> None:
        """Closes connections to brokers that have left the cluster or moved."""
        gone = [key for key in self._connections if key[0] not in addresses]
        for key in gone:
            self._opening.pop(key, None)
            await self._connections.pop(key).close()
        self._not_before_s = {key: pause for key, pause in self._not_before_s.items() if key[0] in addresses}

    async def close(self) -> None:
        """Closes everything; nothing can be opened afterwards."""
        self._closed = True
        for connection in [*self._connections.values(), *self._retiring.values()]:
            await connection.close()
        self._connections.clear()
