"""One TCP connection to one broker: pipelined requests, answers by correlation id, time-outs.

Versions are negotiated at the start with ApiVersions (KIP-35, KIP-511). A broker answers the requests of a connection
in their order, so one that is overdue holds up all behind it: the connection is closed, as Kafka's own client does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from backend import __version__
from backend.control.gateway.client_security import Security, plain_message, scram_client
from backend.control.gateway.gateway_errors import (
    AnswerOverdue,
    BrokerUnavailable,
    NotAuthenticated,
    ProtocolViolation,
    UnsupportedByBroker,
)
from backend.control.gateway.last_response import LastResponse
from backend.control.gateway.oauth import ABORT, TokenError, first_message, refusal
from backend.control.gateway.trust import handshake_error
from backend.protocol import frames
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError, ErrorCode, error_for
from backend.protocol.scram import ScramError

CLIENT_ID: Final = "ebbline-control"
SOFTWARE_NAME: Final = "ebbline"
# The largest honest answers are Metadata (10,000 partitions x 3 replicas: 1 MB) and Fetch (asked with at most 1 MB).
RESPONSE_BYTES_MAX: Final = 64 << 20
# Requests in flight on one connection; the next one waits. 2 connections x 8 x 9 brokers = 144 open answers.
IN_FLIGHT_MAX: Final = 8
CONNECT_TIMEOUT_S: Final = 5.0
# A broker ends a session after the lifetime that it announced (KIP-368); a new connection takes its place before that.
SESSION_SHARE: Final = 0.85
RETIRE_TIMEOUT_S: Final = 30.0

M = TypeVar("M", bound=m.Message)
T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Address of a broker; prints as host:port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(slots=True)
class _Waiting:
    cls: type[m.Message]
    version: int
    response: asyncio.Future[Any]
    last: LastResponse[Any, Any] | None = None

    def read(self, frame: bytes) -> m.Message:
        """The message of an answer. Raises DecodeError."""
        if self.last is None:
            return frames.decode_response(self.cls, self.version, frame)[1]
        message: m.Message = self.last.message_of(self.cls, self.version, frame)
        return message


@dataclass(frozen=True, slots=True)
class _Closed:
    """Why a connection is closed; each caller gets an own exception."""

    kind: type[BrokerUnavailable]
    text: str

    def exception(self) -> BrokerUnavailable:
        return self.kind(self.text)


class BrokerConnection:
    """Use `open`; every method belongs to the event loop that opened it."""

    def __init__(self, address: BrokerAddress, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.address = address
        self.versions: Mapping[int, tuple[int, int]] = {}
        self.features: Mapping[str, int] = {}
        self._reader = reader
        self._writer = writer
        self._waiting: dict[int, _Waiting] = {}
        self._next_correlation_id = 0
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._closed: _Closed | None = None
        self._ends_s = float("inf")
        self._loop = asyncio.get_running_loop()
        self._pump = self._loop.create_task(self._read_responses(), name=f"gateway-{address}")

    @classmethod
    async def open(
        cls, address: BrokerAddress, *, timeout_s: float = CONNECT_TIMEOUT_S, security: Security | None = None
    ) -> BrokerConnection:
        """A connection that is encrypted and authenticated as `security` says, with its versions negotiated.

        Raises BrokerUnavailable (NotAuthenticated among it) or UnsupportedByBroker.
        """
        tls = None if security is None else security.tls
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
        except TimeoutError as error:
            raise BrokerUnavailable(f"The broker at {address} accepted no connection in {timeout_s:g} s.") from error
        except ssl.SSLError as error:
            why = handshake_error(error)
            text = f"The broker at {address} and we cannot agree on TLS ({why}): check the certificates."
            raise NotAuthenticated(text) from error
        except OSError as error:
            raise BrokerUnavailable(f"The broker at {address} cannot be reached: {error.strerror or error}.") from error
        connection = cls(address, reader, writer)
        try:
            await connection._negotiate(timeout_s)
            if security is not None and security.mechanism is not None:
                await connection._authenticate(security, timeout_s)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _negotiate(self, timeout_s: float) -> None:
        request = m.ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        version = m.ApiVersionsRequest.MAX_VERSION
        response = await self._exchange(request, m.ApiVersionsResponse, version, timeout_s)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            versions = {key.api_key: key.max_version for key in response.api_keys}
            version = min(version, versions.get(m.ApiVersionsRequest.API_KEY, 0))
            response = await self._exchange(request, m.ApiVersionsResponse, version, timeout_s)
        if response.error_code:
            raise error_for(response.error_code, f"the broker at {self.address} refused to negotiate versions")
        self.versions = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        self.features = {feature.name: feature.max_version_level for feature in response.finalized_features}

    async def _authenticate(self, security: Security, timeout_s: float) -> None:
        """SaslHandshake, then SaslAuthenticate as often as the mechanism takes (KIP-43, KIP-152)."""
        shake = m.SaslHandshakeRequest(mechanism=security.mechanism or "")
        response, _ = await self.ask(shake, m.SaslHandshakeResponse, timeout_s=timeout_s, at_least=1)
        if response.error_code:
            offered = ", ".join(response.mechanisms)
            raise NotAuthenticated(f"The broker at {self.address} takes {offered}, not {security.mechanism}.")
        if security.mechanism == "PLAIN":
            await self._sasl(plain_message(security), timeout_s)
            return
        if security.tokens is not None:
            await self._bear(security, timeout_s)
            return
        scram = scram_client(security)
        try:
            final = scram.respond(await self._sasl(scram.first_message, timeout_s))
            scram.check(await self._sasl(final, timeout_s))
        except ScramError as error:
            raise NotAuthenticated(f"The broker at {self.address} cannot be trusted: {error}.") from error

    async def _bear(self, security: Security, timeout_s: float) -> None:
        """OAUTHBEARER: the token; a broker that does not take it says why, and wants that to be answered (RFC 7628)."""
        assert security.tokens is not None
        try:
            token = await security.tokens.token()
        except TokenError as error:
            raise NotAuthenticated(f"There is no token for the broker at {self.address}. {error}") from error
        challenge = await self._sasl(first_message(token, security.extensions), timeout_s)
        if challenge:
            with contextlib.suppress(NotAuthenticated):
                await self._sasl(ABORT, timeout_s)
            raise NotAuthenticated(f"The broker at {self.address} refuses our token: {refusal(challenge)}.")

    async def _sasl(self, message: bytes, timeout_s: float) -> bytes:
        request = m.SaslAuthenticateRequest(auth_bytes=message)
        response, _ = await self.ask(request, m.SaslAuthenticateResponse, timeout_s=timeout_s)
        if response.error_code:
            why = response.error_message or "wrong user or password"
            raise NotAuthenticated(f"The broker at {self.address} refuses our credentials: {why}.")
        if response.session_lifetime_ms > 0:
            self._ends_s = time.monotonic() + SESSION_SHARE * response.session_lifetime_ms / 1000
        return bytes(response.auth_bytes)

    @property
    def usable(self) -> bool:
        return self._closed is None and time.monotonic() < self._ends_s

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def version_for(self, request: type[m.Message], at_least: int = 0) -> int:
        """The newest version both sides have. Raises UnsupportedByBroker when there is none from `at_least` on."""
        lowest, highest = self.versions.get(request.API_KEY, (0, -1))
        version = min(highest, request.MAX_VERSION)
        if version < max(lowest, request.MIN_VERSION, at_least):
            versions = f" in version {at_least} or newer" if at_least else ""
            raise UnsupportedByBroker(f"The broker at {self.address} does not answer {request.NAME}{versions}.")
        return version

    async def ask(
        self,
        request: m.Message,
        response_type: type[M],
        *,
        timeout_s: float,
        at_least: int = 0,
        at_most: int | None = None,
        last: LastResponse[M, Any] | None = None,
    ) -> tuple[M, int]:
        """The answer and the version it was asked in. Raises GatewayError."""
        version = self.version_for(type(request), at_least)
        return await self._exchange(request, response_type, min(version, at_most or version), timeout_s, last), version

    async def _exchange(
        self,
        request: m.Message,
        response_type: type[M],
        version: int,
        timeout_s: float,
        last: LastResponse[M, Any] | None = None,
    ) -> M:
        try:
            async with asyncio.timeout(timeout_s), self._slots:
                result: M = await self._send(
                    request, _Waiting(response_type, version, self._loop.create_future(), last)
                )
                return result
        except TimeoutError as error:
            reason = f"The broker at {self.address} did not answer {request.NAME} in {timeout_s:g} s."
            self._fail(AnswerOverdue, reason)
            raise AnswerOverdue(reason) from error

    async def _send(self, request: m.Message, waiting: _Waiting) -> Any:
        if self._closed is not None:
            raise self._closed.exception()
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        self._waiting[correlation_id] = waiting
        try:
            self._writer.writelines(frames.encode_request(request, waiting.version, correlation_id, CLIENT_ID))
            await self._writer.drain()
            return await waiting.response
        except OSError as error:
            reason = f"The broker at {self.address} closed the connection: {error.strerror or error}."
            self._fail(BrokerUnavailable, reason)
            raise BrokerUnavailable(reason) from error
        finally:
            self._waiting.pop(correlation_id, None)

    async def _read_responses(self) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                if not 4 <= size <= RESPONSE_BYTES_MAX:
                    raise DecodeError(f"an answer of {size} bytes, where 4 to {RESPONSE_BYTES_MAX} are possible")
                self._deliver(await self._reader.readexactly(size))
        except DecodeError as error:
            self._fail(ProtocolViolation, f"The peer at {self.address} does not speak Kafka: {error}.")
        except asyncio.IncompleteReadError:
            self._fail(BrokerUnavailable, f"The broker at {self.address} closed the connection.")
        except OSError as error:
            self._fail(BrokerUnavailable, f"The connection to {self.address} broke: {error.strerror or error}.")

    def _deliver(self, frame: bytes) -> None:
        (correlation_id,) = struct.unpack_from(">i", frame)
        waiting = self._waiting.get(correlation_id)
        if waiting is None:
            # Its request was given up before the answer came (a cancelled caller); the order of the others is kept.
            if correlation_id >= self._next_correlation_id:
                raise DecodeError(f"an answer to request {correlation_id}, which was never sent")
            return
        message = waiting.read(frame)
        if not waiting.response.done():
            waiting.response.set_result(message)

    def _fail(self, kind: type[BrokerUnavailable], reason: str) -> None:
        if self._closed is not None:
            return
        self._closed = _Closed(kind, reason)
        self._writer.close()
        for waiting in self._waiting.values():
            if not waiting.response.done():
                waiting.response.set_exception(kind(reason))

    async def retire(self) -> None:
        """Closes once no request waits for a response, and after RETIRE_TIMEOUT_S in any case."""
        waiting = [waiting.response for waiting in self._waiting.values()]
        if waiting:
            await asyncio.wait(waiting, timeout=RETIRE_TIMEOUT_S)
        await self.close()

    async def close(self, reason: str | None = None) -> None:
        """Ends the connection; callers that wait for an answer get BrokerUnavailable, with the reason."""
        self._fail(BrokerUnavailable, reason or f"The connection to {self.address} was closed by this process.")
        self._pump.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._pump
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
