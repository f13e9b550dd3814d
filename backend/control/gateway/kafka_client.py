"""Chooses the broker and the version of a request, and when it is sent again.

Retries by class of error: a broker that cannot be reached → the next one, for questions any broker answers; an error
code that Kafka calls retriable → the same question after a back-off, until the time is up; all else → the caller.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from backend.control.gateway.broker_connection import BrokerAddress, BrokerConnection
from backend.control.gateway.connection_pool import ConnectionPool, Lane
from backend.control.gateway.gateway_errors import BrokerUnavailable, ClusterUnavailable, GatewayError
from backend.control.gateway.last_response import LastResponse
from backend.protocol import messages as m
from backend.protocol.errors import KafkaError
from backend.runtime.redact import printable, redact_url

REQUEST_TIMEOUT_S: Final = 10.0
RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 1.0

M = TypeVar("M", bound=m.Message)
T = TypeVar("T")
_log = logging.getLogger(__name__)


def parse_bootstrap(text: str) -> tuple[BrokerAddress, ...]:
    """`host:port,host:port` as addresses. Raises ValueError with one sentence for anything else."""
    result = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        host, separator, port = part.rpartition(":")
        if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(
                f"{redact_url(part)!r} is not host:port; give the brokers as host:port, separated by commas."
            )
        result.append(BrokerAddress(host.strip("[]"), int(port)))
    if not result:
        raise ValueError("There is no bootstrap server; give the brokers as host:port, separated by commas.")
    return tuple(dict.fromkeys(result))


class Gateway:
    """A client of one cluster. All methods belong to one event loop."""

    def __init__(self, bootstrap: Sequence[BrokerAddress], *, pool: ConnectionPool | None = None) -> None:
        self._bootstrap = tuple(bootstrap)
        self._brokers: dict[int, BrokerAddress] = {}
        self._pool = pool or ConnectionPool()
        self._first: BrokerAddress | None = None

    @property
    def bootstrap(self) -> tuple[BrokerAddress, ...]:
        return self._bootstrap

    @property
    def brokers(self) -> Mapping[int, BrokerAddress]:
        """Address of each known broker, as of the newest Metadata response."""
        return self._brokers

    async def learn_brokers(self, brokers: Mapping[int, BrokerAddress]) -> None:
        """Takes over the addresses of a Metadata answer and drops connections to any other."""
        if brokers and brokers != self._brokers:
            self._brokers = dict(brokers)
            await self._pool.keep_only({*brokers.values(), *self._bootstrap})

    async def connection(self, node_id: int, lane: Lane = Lane.SAMPLE) -> BrokerConnection:
        """A negotiated connection to one broker. Raises BrokerUnavailable."""
        address = self._brokers.get(node_id)
        if address is None:
            raise BrokerUnavailable(f"Broker {node_id} is not registered in the cluster, or not alive.")
        return await self._pool.get(address, lane)

    def give_up(self, node_id: int, lane: Lane, reason: str) -> None:
        """Ends the questions of a lane to a broker that is silent by what another lane has seen."""
        address = self._brokers.get(node_id)
        if address is not None:
            self._pool.give_up(address, lane, reason)

    async def ask_node(
        self,
        node_id: int,
        request: m.Message,
        response_type: type[M],
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        at_least: int = 0,
        at_most: int | None = None,
        lane: Lane = Lane.SAMPLE,
        last: LastResponse[M, Any] | None = None,
    ) -> tuple[M, int]:
        """The answer of this broker, and the version it was asked in. Said again, it is the message of `last`.

        Raises GatewayError.
        """
        connection = await self.connection(node_id, lane)
        return await connection.ask(
            request, response_type, timeout_s=timeout_s, at_least=at_least, at_most=at_most, last=last
        )

    async def ask_any(
        self,
        request: m.Message,
        response_type: type[M],
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        at_least: int = 0,
        lane: Lane = Lane.SAMPLE,
        last: LastResponse[M, Any] | None = None,
    ) -> M:
        """The answer of the first broker that gives one. Said again, it is the message of `last`.

        Raises ClusterUnavailable with the causes when none does.
        """
        causes: list[str] = []
        for address in self._candidates():
            try:
                connection = await self._pool.get(address, lane)
                result, _ = await connection.ask(
                    request, response_type, timeout_s=timeout_s, at_least=at_least, last=last
                )
            except BrokerUnavailable as error:
                causes.append(str(error))
                continue
            self._first = address
            return result
        raise ClusterUnavailable("No broker answers. " + " ".join(dict.fromkeys(causes)))

    def _candidates(self) -> Iterable[BrokerAddress]:
        """Last one that answered, then the known brokers, then those we were given."""
        brokers = list(self._brokers.values())
        random.shuffle(brokers)
        first = (self._first,) if self._first is not None else ()
        return dict.fromkeys((*first, *brokers, *self._bootstrap))

    async def close(self) -> None:
        """Closes all connections; open questions fail."""
        await self._pool.close()


async def until_settled(call: Callable[[], Awaitable[T]], *, timeout_s: float) -> T:
    """The result of `call`, repeated with back-off while it fails with a retriable Kafka error, until `timeout_s`.

    Raises what the last attempt raised. An unreachable broker is not retried here: for a write, the caller must first
    find out what the broker did.
    """
    deadline_s = time.monotonic() + timeout_s
    pause_s = RETRY_FIRST_S
    while True:
        try:
            return await call()
        except KafkaError as error:
            if not error.retriable or time.monotonic() + pause_s > deadline_s:
                raise
            _log.info("asking again in %.1f s after %s", pause_s, error)
        await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))
        pause_s = min(RETRY_MAX_S, pause_s * 2)


def describe_failure(error: GatewayError | KafkaError | OSError) -> str:
    """One sentence for people, of any failure of a question to the cluster."""
    if isinstance(error, KafkaError):
        refused = error.code.name.endswith("_AUTHORIZATION_FAILED")
        way_out = " Give our principal the rights that docs/attach.md lists." if refused else ""
        return f"Kafka answered {error.code.name}: {printable(error.message).rstrip('.')}.{way_out}"
    return str(error)
