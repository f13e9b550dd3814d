"""The way to another node: one connection, many requests in flight, answers assigned by correlation id.

Both ends are the same software, so versions are given by the caller and never negotiated. The connection is made when
first needed and again after it broke, with a pause that grows while the other node cannot be reached. Where the other
node's listener asks for it the connection is TLS and authenticates first, and again before its time is over (KIP-368).
"""

from __future__ import annotations

import logging
from typing import Final

from backend.engine.net.peer_security import OPEN, PeerSecurity
from backend.engine.net.sasl_client import authenticate
from backend.engine.ports import Ports, tasks
from backend.engine.ports.in_process_network import InProcessConnection
from backend.engine.ports.network import Connection, LocalMessage
from backend.protocol import frames
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.protocol.frames import RequestHeader
from backend.protocol.local_messages import LocalFetchRequest, LocalFetchResponse
from backend.protocol.messages import FetchRequest, Message

# Kafka's reconnect.backoff.ms and its max, for a node of the same machine.
RECONNECT_PAUSE_MS: Final = 50.0
RECONNECT_PAUSE_MS_MAX: Final = 1000.0
CONNECT_TIMEOUT_MS: Final = 10_000.0
# Requests without an answer; the next one waits. The other side works them off one by one.
IN_FLIGHT_MAX: Final = 64
# Part of an authentication's time after which the next one begins (SaslClientAuthenticator: 85 to 95 %).
REAUTH_AFTER: Final = (0.85, 0.95)

_log = logging.getLogger(__name__)


class _Pending:
    """A request that waits for its answer."""

    __slots__ = ("due_ms", "future", "response_class", "version")

    def __init__(
        self, response_class: type[Message], version: int, future: tasks.Future[Message], due_ms: float
    ) -> None:
        self.response_class = response_class
        self.version = version
        self.future = future
        self.due_ms = due_ms


class PeerClient:
    """Requests to one address. Use from the loop's thread only."""

    def __init__(self, ports: Ports, host: str, port: int, *, client_id: str, security: PeerSecurity = OPEN) -> None:
        self.host = host
        self.port = port
        self._ports = ports
        self._client_id = client_id
        self._security = security
        self._reauth_at_ms: float | None = None
        self._connection: Connection | None = None
        self._connecting = tasks.Lock()
        self._slots = tasks.Semaphore(IN_FLIGHT_MAX)
        self._pending: dict[int, _Pending] = {}
        # One timer for all of them, which looks once a time-out at what is left: nearly every answer comes in time. A
        # timer a request costs as much as sending; the buckets of `Deadlines` would wake an idle node once a request.
        self._timer: tasks.TimerHandle | None = None
        self._timer_due_ms = 0.0
        self._next_correlation_id = 0
        self._pause_ms = 0.0
        self._retry_at_ms = 0.0
        self._closed = False

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def send(self, request: Message, version: int, *, timeout_ms: float) -> Message:
        """The answer. Raises KafkaError NETWORK_EXCEPTION (not reached, or broke underway), REQUEST_TIMED_OUT, and
        DecodeError for an answer that cannot be read. An answer that is late or cannot be read drops the connection.
        """
        due_ms = self._ports.clock.monotonic_ms() + timeout_ms
        try:
            connection = self._open_connection
            if connection is None or self._slots.locked():
                return await self._send_later(request, version, due_ms, timeout_ms)
            async with self._slots:  # which does not wait
                return await self._ask(connection, request, version, due_ms)
        except tasks.Timeout:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{type(request).__name__} to {self.address} had no answer within {timeout_ms:.0f} ms",
            ) from None

    async def _send_later(self, request: Message, version: int, due_ms: float, timeout_ms: float) -> Message:
        """As soon as there are a slot and a connection."""
        await tasks.wait_for(self._slots.acquire(), timeout_ms)
        try:
            left_ms = due_ms - self._ports.clock.monotonic_ms()
            connection = await tasks.wait_for(self._connected(), left_ms)
            return await self._ask(connection, request, version, due_ms)
        finally:
            self._slots.release()

    async def _ask(self, connection: Connection, request: Message, version: int, due_ms: float) -> Message:
        """The answer; raises Timeout when there is none by then."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFF_FFFF
        future: tasks.Future[Message] = tasks.future()
        self._pending[correlation_id] = _Pending(frames.response_class(request.API_KEY), version, future, due_ms)
        if self._timer is None or due_ms < self._timer_due_ms:
            self._wake_at(due_ms)
        try:
            self._send_on(connection, request, version, correlation_id)
            return await future
        except tasks.Timeout:
            # Answers come in order: behind one that is late every other would be late too.
            if connection is self._connection:
                self._drop(None)
            raise
        finally:
            self._pending.pop(correlation_id, None)

    def _send_on(self, connection: Connection, request: Message, version: int, correlation_id: int) -> None:
        if (
            isinstance(request, FetchRequest)
            and isinstance(connection, InProcessConnection)
            and connection.accepts_messages
        ):
            header = RequestHeader(request.API_KEY, version, correlation_id, self._client_id)
            connection.send_message(LocalFetchRequest(header, request))
        else:
            connection.send(frames.encode_request(request, version, correlation_id, self._client_id))

    def _wake_at(self, due_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        self._timer = tasks.call_later(max(0.0, due_ms - self._ports.clock.monotonic_ms()), self._end_late)

    def _end_late(self) -> None:
        self._timer = None
        now_ms = self._ports.clock.monotonic_ms()
        waiting = [pending for pending in self._pending.values() if not pending.future.done()]
        for pending in waiting:
            if pending.due_ms <= now_ms:
                pending.future.set_exception(tasks.Timeout())
        later_ms = [pending.due_ms for pending in waiting if pending.due_ms > now_ms]
        if later_ms:
            self._wake_at(min(later_ms))

    @property
    def _open_connection(self) -> Connection | None:
        """The connection if requests can be sent on it at once."""
        return self._connection if self._reauth_at_ms is None and not self._connecting.locked() else None

    async def _connected(self) -> Connection:
        if (connection := self._open_connection) is not None:
            return connection
        async with self._connecting:
            if self._closed:
                raise self._unreachable("this client is closed")
            if self._connection is not None:
                if self._reauth_at_ms is not None and self._ports.clock.monotonic_ms() >= self._reauth_at_ms:
                    await self._authenticate(self._connection)
                return self._connection
            wait_ms = self._retry_at_ms - self._ports.clock.monotonic_ms()
            if wait_ms > 0:
                await tasks.sleep_ms(wait_ms)
            try:
                connection = await self._ports.network.connect(
                    self.host,
                    self.port,
                    self._handler,
                    timeout_ms=CONNECT_TIMEOUT_MS,
                    transport=self._security.transport(self.host),
                )
            except OSError as error:  # a TimeoutError is one too
                self._wait_longer()
                raise self._unreachable(str(error) or type(error).__name__) from error
            if self._closed:
                connection.close()
                raise self._unreachable("this client is closed")
            self._connection = connection
            if self._security.sasl is not None:
                await self._authenticate(connection)
            self._pause_ms = 0.0
            return connection

    def _wait_longer(self) -> None:
        self._pause_ms = min(max(self._pause_ms * 2, RECONNECT_PAUSE_MS), RECONNECT_PAUSE_MS_MAX)
        jitter = self._ports.random.uniform(0.8, 1.2)
        self._retry_at_ms = self._ports.clock.monotonic_ms() + self._pause_ms * jitter

    async def _authenticate(self, connection: Connection) -> None:
        """Nobody else sends meanwhile: the caller holds the lock. KafkaError NETWORK_EXCEPTION, also when refused."""
        sasl = self._security.sasl
        assert sasl is not None
        due_ms = self._ports.clock.monotonic_ms() + CONNECT_TIMEOUT_MS
        try:
            lifetime_ms = await authenticate(
                sasl,
                self._ports.random.uuid().hex(),
                lambda message, version: self._ask(connection, message, version, due_ms),
            )
        except KafkaError as error:
            self._wait_longer()
            self._drop(None)
            if error.code is ErrorCode.NETWORK_EXCEPTION:
                raise
            _log.error("Node at %s does not let %s in: %s", self.address, sasl.username, error.message)
            raise self._unreachable(f"authentication as {sasl.username} failed: {error.message}") from error
        except tasks.Timeout:
            self._wait_longer()
            self._drop(None)
            reason = f"authentication as {sasl.username} took more than {CONNECT_TIMEOUT_MS:.0f} ms"
            raise self._unreachable(reason) from None
        except BaseException:
            # Half an authentication is of no use to the next request.
            self._drop(None)
            raise
        after = self._ports.random.uniform(*REAUTH_AFTER)
        self._reauth_at_ms = self._ports.clock.monotonic_ms() + lifetime_ms * after if lifetime_ms else None

    def _unreachable(self, reason: str) -> KafkaError:
        return KafkaError(ErrorCode.NETWORK_EXCEPTION, f"No connection to {self.address}: {reason}")

    def _handler(self, connection: Connection) -> _ResponseReceiver:
        return _ResponseReceiver(self, connection)

    def on_response(self, response: LocalFetchResponse) -> None:
        """A response of a node of the same process, maybe within its own work; the caller goes on afterwards."""
        pending = self._pending_request(response.correlation_id)
        if pending is not None and not pending.future.done():
            pending.future.set_result(response.message)

    def _pending_request(self, correlation_id: int) -> _Pending | None:
        pending = self._pending.get(correlation_id)
        if pending is None:
            # The caller was cancelled meanwhile.
            _log.debug("Node at %s answered a request %d that nobody waits for", self.address, correlation_id)
        return pending

    def on_frame(self, frame: bytearray) -> None:
        pending = self._pending_request(int.from_bytes(frame[:4], "big", signed=True))
        if pending is None:
            return
        try:
            _, message = frames.decode_response(pending.response_class, pending.version, frame)
        except DecodeError as error:
            _log.error("Node at %s sent an answer that cannot be read: %s", self.address, error)
            if not pending.future.done():
                pending.future.set_exception(error)
            self._drop(None)
            return
        if not pending.future.done():
            pending.future.set_result(message)

    def on_connection_closed(self, connection: Connection, error: BaseException | None) -> None:
        if connection is self._connection:
            self._drop(error)

    def _drop(self, error: BaseException | None) -> None:
        connection, self._connection = self._connection, None
        self._reauth_at_ms = None
        if connection is not None:
            connection.close()
        waiting = list(self._pending.values())
        self._pending.clear()
        for pending in waiting:
            if not pending.future.done():
                reason = f" ({error})" if error else ""
                pending.future.set_exception(
                    KafkaError(ErrorCode.NETWORK_EXCEPTION, f"The connection to {self.address} broke{reason}")
                )

    def limit_answers(self, limit_ms: float) -> None:
        """Requests in flight that have no answer within the time fail with NETWORK_EXCEPTION, and later ones with them:
        answers come in order.
        """
        connection = self._connection
        newest_id = self._next_correlation_id - 1
        if self._pending:
            tasks.call_later(limit_ms, lambda: self._end_unanswered(connection, newest_id))

    def _end_unanswered(self, connection: Connection | None, newest_id: int) -> None:
        if connection is self._connection and any(number <= newest_id for number in self._pending):
            self._drop(None)

    def close(self) -> None:
        """Drops the connection; requests in flight fail with NETWORK_EXCEPTION."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._drop(None)


class _ResponseReceiver:
    """The upper side of a peer client's connection; each has its own, to recognise the end of an old one."""

    accepts_messages: Final = True

    def __init__(self, client: PeerClient, connection: Connection) -> None:
        self._client = client
        self._connection = connection

    def on_frame(self, frame: bytearray) -> None:
        self._client.on_frame(frame)

    def on_message(self, message: LocalMessage) -> None:
        assert isinstance(message, LocalFetchResponse)
        self._client.on_response(message)

    def on_closed(self, error: BaseException | None) -> None:
        self._client.on_connection_closed(self._connection, error)
