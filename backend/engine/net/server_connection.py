"""One client's connection: frames in, handler calls, answers out in the order of the requests.

Requests run one after the other, as in Kafka's socket server, except that pipelined ones (see `Api`) may overlap. While
one has to wait the connection is not read, so a client cannot pile up work. A frame that is no valid request closes
this connection and nothing else (Kafka: `SocketServer.processCompletedReceives`).

On a SASL listener nothing is a request before the client has authenticated (`net.authentication`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import GeneratorType
from typing import Any, Final

from backend.engine.apis.api_declaration import ANONYMOUS, Deferred, ListenerKind, NoAnswer, RequestContext
from backend.engine.apis.services import Services
from backend.engine.net.authentication import (
    HANDSHAKE_KEY,
    LOGIN_MS_MAX,
    Authentication,
    AuthenticationFailed,
)
from backend.engine.net.client_request import (
    INLINE_BYTES_MAX,
    INLINE_ELEMENTS_MAX,
    Request,
    api_name,
    decode,
    error_response,
    illegal_state,
    local_request,
    response_chunks,
)
from backend.engine.net.request_throttle import charge
from backend.engine.ports import tasks
from backend.engine.ports.file_range import FileUnreadable
from backend.engine.ports.in_process_network import InProcessConnection
from backend.engine.ports.network import Connection, FrameTooLarge, LocalMessage, NoRoom
from backend.engine.ports.time_slices import Unfinished
from backend.engine.ports.tls_connection import TlsFailed
from backend.protocol import frames, messages
from backend.protocol.buffers import Chunk
from backend.protocol.errors import DecodeError, EncodeError, ErrorCode, KafkaError, TooManyElements
from backend.protocol.frames import RequestHeader
from backend.protocol.local_messages import LocalFetchRequest, LocalFetchResponse
from backend.protocol.messages import Message

# Unanswered pipelined requests of one connection: librdkafka sends up to 5 of a partition leader's batches at once.
IN_FLIGHT_MAX: Final = 32
# Their frames together: a request alone may be larger (socket.request.max.bytes), a second one then waits.
IN_FLIGHT_BYTES_MAX: Final = 32 * 1024 * 1024
_log = logging.getLogger(__name__)


class ServerConnection:
    """The upper side of one accepted connection."""

    def __init__(
        self,
        services: Services,
        connection: Connection,
        id: int,
        listener_name: str,
        listener_kind: ListenerKind,
        on_close: Callable[[int], None],
        handlers: set[tasks.Task[Any]],
        authentication: Authentication | None = None,
    ) -> None:
        """`handlers` holds the tasks that work on requests; they may outlive the connection, as in Kafka."""
        self.id = id
        self._services = services
        self._connection = connection
        self._in_process = connection if isinstance(connection, InProcessConnection) else None
        self._listener_name = listener_name
        self._listener_kind = listener_kind
        self.client_host = connection.peer.rpartition(":")[0]
        self._apis = services.apis.served(listener_kind)
        self._on_close = on_close
        self._clock = services.ports.clock
        self._waiting: deque[Request] = deque()
        self._running: deque[Request] = deque()
        self._running_bytes = 0
        self._handlers = handlers
        self._reading_paused = False
        # While a worker decodes a frame nothing behind it is read.
        self._decoding = False
        # Runs while a client that is over its quota is not read from.
        self._muted: tasks.TimerHandle | None = None
        self._last_active_ms = self._clock.monotonic_ms()
        self._authentication = authentication
        self._user = ANONYMOUS
        self._login_failed = False
        # Runs until the client has authenticated, and once it has failed to.
        self._timer = None if authentication is None else tasks.call_later(LOGIN_MS_MAX, self._login_overdue)

    # From the port

    def on_frame(self, frame: bytearray) -> None:
        if self._login_failed:
            # The end of a throttle or a pipelining client may let frames through, which are dropped.
            return
        now_ms = self._last_active_ms = self._clock.monotonic_ms()
        authentication = self._authentication
        try:
            if authentication is not None:
                if authentication.user is None:
                    self._log_in(authentication, frame)
                    return
                if authentication.expired and not self._may_follow_expiry(authentication, frame):
                    self._close_expired()
                    return
            if self._serve_by_fast_path(frame, now_ms):
                return
            elements_max = None if len(frame) < INLINE_BYTES_MAX else INLINE_ELEMENTS_MAX
            request = decode(self._apis, self._listener_kind, frame, now_ms, elements_max)
        except TooManyElements:
            self._decode_elsewhere(frame, now_ms)
            return
        except DecodeError as error:
            self._refuse_frame(str(error))
            return
        self._waiting.append(request)
        self._start_waiting()

    def _decode_elsewhere(self, frame: bytearray, now_ms: float) -> None:
        self._decoding = True
        self._pause_or_resume()
        work = partial(decode, self._apis, self._listener_kind, frame, now_ms)
        self._services.ports.workers.run(work).add_done_callback(self._decoded)

    def _decoded(self, outcome: tasks.Future[Request]) -> None:
        self._decoding = False
        if self._connection.closed:
            # An error has no client any more.
            outcome.exception()
            return
        try:
            request = outcome.result()
        except tasks.Cancelled:  # the node stops
            self._connection.close()
            return
        except DecodeError as error:
            self._refuse_frame(str(error))
            return
        request.is_large = True
        self._waiting.append(request)
        self._start_waiting()

    @property
    def accepts_messages(self) -> bool:
        return self._authentication is None

    def on_message(self, message: LocalMessage) -> None:
        assert self._authentication is None
        assert isinstance(message, LocalFetchRequest)
        now_ms = self._last_active_ms = self._clock.monotonic_ms()
        try:
            request = local_request(self._apis, self._listener_kind, message, now_ms)
        except DecodeError as error:
            self._refuse_frame(str(error))
            return
        self._waiting.append(request)
        self._start_waiting()

    def _serve_by_fast_path(self, frame: bytearray, now_ms: float) -> bool:
        """Whether the frame was served without being decoded, as `Api.fast_path` can."""
        if self._running or self._waiting or self._muted is not None or len(frame) < 2:
            return False
        api = self._apis.get(frame[0] << 8 | frame[1])
        if api is None or api.fast_path is None:
            return False
        authentication = self._authentication
        if authentication is not None and not authentication.done:
            return False
        try:
            response = api.fast_path(self._services, self._context, frame)
        except Exception as error:  # answered by its code, and logged unless it is Kafka's
            self._failed(decode(self._apis, self._listener_kind, frame, now_ms), error)
            return True
        if response is None:
            return False
        if isinstance(response, Deferred):
            request = Request(api, response.header, frames.request_class(api.key)(), len(frame), now_ms)
            self._running.append(request)
            self._running_bytes += request.frame_bytes
            response.frame.add_callback(partial(self._on_eager_outcome, request))
            return True
        self._measure(api.key, now_ms)
        self._connection.send(response)
        return True

    def on_closed(self, error: BaseException | None) -> None:
        if isinstance(error, FrameTooLarge):
            self._count_malformed(str(error))
        elif isinstance(error, NoRoom):
            self._services.metrics.refused_connections += 1
            self._log_closed(str(error))
        elif isinstance(error, FileUnreadable):
            self._log_closed(str(error))
        elif isinstance(error, TlsFailed):
            self._count_failed_login(str(error))
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()
        if self._muted is not None:
            self._muted.cancel()
        self._on_close(self.id)

    # For the listener

    def idle_since_before(self, limit_ms: float) -> bool:
        """Whether nothing has come since then and nothing is being worked on."""
        busy = self._running or self._waiting or self._muted or self._decoding
        return self._last_active_ms < limit_ms and not busy

    @property
    def last_active_ms(self) -> float:
        """When something came last, or the connection began."""
        return self._last_active_ms

    def begin(self) -> None:
        """Input that has waited unread so far is read from now on."""
        self._last_active_ms = self._clock.monotonic_ms()

    def close(self) -> None:
        self._connection.close()

    # Authentication

    def _log_in(self, authentication: Authentication, frame: bytearray) -> None:
        """One frame of a client that has not authenticated yet. DecodeError as any frame."""
        try:
            chunks = authentication.on_frame(frame, self._serve_api_versions)
        except AuthenticationFailed as failed:
            if failed.illegal_state:
                request = decode(self._apis, self._listener_kind, frame, self._last_active_ms)
                failed.response = illegal_state(request)
            header = None if failed.response is None else frames.decode_request_header(frame)[0]
            self._fail_login(failed, header)
            return
        self._connection.send(chunks)
        if authentication.user is not None:
            self._logged_in(authentication.user)

    def _serve_api_versions(self, header: RequestHeader, request: Message) -> Message:
        response = self._apis[header.api_key].handler(self._services, self._context(header), request)
        assert isinstance(response, Message), "ApiVersions is answered at once"
        return response

    def _logged_in(self, user: str) -> None:
        self._user = user
        self._services.metrics.successful_authentications += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._connection.limit_frames(self._services.config.socket_request_max_bytes)

    def _login_overdue(self) -> None:
        self._count_failed_login(f"no authentication within {LOGIN_MS_MAX} ms")
        self._connection.close()

    def _may_follow_expiry(self, authentication: Authentication, frame: bytearray) -> bool:
        """A new authentication may; while it goes on it judges itself what comes."""
        return not authentication.done or frames.decode_request_header(frame)[0].api_key == HANDSHAKE_KEY

    def _close_expired(self) -> None:
        self._services.metrics.expired_connections += 1
        self._log_closed("its authentication is over (connections.max.reauth.ms)")
        self._connection.close()

    def _fail_login(self, failed: AuthenticationFailed, header: RequestHeader | None) -> None:
        """The answer waits, so that guessing passwords takes time (KIP-306)."""
        self._count_failed_login(str(failed))
        self._login_failed = True
        self._connection.pause_reading()
        self._waiting.clear()
        # Nothing resumes it.
        self._reading_paused = False
        chunks: list[Chunk] = []
        if failed.response is not None and header is not None:
            chunks = frames.encode_response(failed.response, header.api_version, header.correlation_id)

        def end() -> None:
            self._connection.send(chunks)
            self._connection.close_after_flush()

        if self._timer is not None:
            self._timer.cancel()
        self._timer = tasks.call_later(self._services.config.connection_failed_authentication_delay_ms, end)

    def _count_failed_login(self, reason: str) -> None:
        self._services.metrics.failed_authentications += 1
        self._log_closed(reason)

    def _reauthenticate(self, request: Request) -> Message | None:
        """The answer to a request of a later authentication (KIP-368), None when none is under way."""
        authentication, message, key = self._authentication, request.message, request.api.key
        if authentication is None:
            return None
        if authentication.done and not (key == HANDSHAKE_KEY and authentication.may_begin_again()):
            return None
        if isinstance(message, messages.SaslHandshakeRequest):
            return authentication.handshake(message, request.header.api_version)
        if isinstance(message, messages.SaslAuthenticateRequest):
            response = authentication.authenticate(message)
            if authentication.done:
                self._services.metrics.successful_authentications += 1
            return response
        raise AuthenticationFailed("another request came during the SASL authentication", illegal_state(request))

    def _context(self, header: RequestHeader) -> RequestContext:
        return RequestContext(header, self.id, self.client_host, self._listener_name, self._listener_kind, self._user)

    # Frames to requests

    def _refuse_frame(self, reason: str) -> None:
        self._count_malformed(reason)
        self._connection.close()

    def _count_malformed(self, reason: str) -> None:
        self._services.metrics.malformed_frames += 1
        self._log_closed(reason)

    def _log_closed(self, reason: str) -> None:
        _log.warning(
            "Listener %s of node %d closed the connection from %s: %s",
            self._listener_name, self._services.node_id, self._connection.peer, reason,
        )  # fmt: skip

    # Requests to handlers

    def _start_waiting(self) -> None:
        while self._waiting and self._muted is None and not self._connection.closed:
            request = self._waiting[0]
            if self._running and not self._may_overlap(request):
                break
            self._waiting.popleft()
            self._start(request)
        self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        paused = bool(self._waiting) or self._muted is not None or self._decoding
        if paused != self._reading_paused and not self._connection.closed:
            self._reading_paused = paused
            if self._reading_paused:
                self._connection.pause_reading()
            else:
                self._connection.resume_reading()

    def _may_overlap(self, request: Request) -> bool:
        return (
            request.overlaps
            and self._running[-1].overlaps
            and len(self._running) < IN_FLIGHT_MAX
            and self._running_bytes + request.frame_bytes <= IN_FLIGHT_BYTES_MAX
        )

    def _start(self, request: Request) -> None:
        self._running.append(request)
        self._running_bytes += request.frame_bytes
        if request.answered:
            self._send_answered()
            return
        context = self._context(request.header)
        limited = self._services.metadata.image.client_quotas
        began_ms = self._clock.monotonic_ms() if limited else 0.0
        try:
            if self._authentication is not None and (response := self._reauthenticate(request)) is not None:
                self._answered(request, response)
                return
            outcome: Any = request.api.handler(self._services, context, request.message)
            if outcome.__class__ is GeneratorType:
                outcome = self._services.time_slicer.begin(outcome)
            if limited:
                request.spent_ms = self._clock.monotonic_ms() - began_ms
        except AuthenticationFailed as failed:
            self._fail_login(failed, request.header)
            return
        except Exception as error:  # likewise
            self._failed(request, error)
            return
        if isinstance(outcome, Unfinished):
            outcome = self._finished(request, outcome)
        if outcome is None or isinstance(outcome, Message):
            self._answered(request, outcome)
            return
        if isinstance(outcome, tasks.EagerFuture):
            outcome.add_callback(partial(self._on_eager_outcome, request))
            return
        if isinstance(outcome, tasks.Future):
            waiting: tasks.Future[Any] = outcome
        else:
            handler = tasks.start(outcome, name=f"{type(request.message).__name__} from {self._connection.peer}")
            self._handlers.add(handler)
            handler.add_done_callback(self._handlers.discard)
            waiting = handler
        waiting.add_done_callback(partial(self._on_outcome, request))

    async def _finished(self, request: Request, unfinished: Unfinished[Any]) -> Message | None:
        """The answer to a request that took more than its first time slice."""
        response: Any = await self._services.time_slicer.finish(unfinished)
        if isinstance(response, tasks.Future):
            response = await response
        request.is_large = True
        message: Message | None = response
        return message

    def _on_eager_outcome(self, request: Request, outcome: tasks.Future[Message | Sequence[Chunk] | None]) -> None:
        """As `_on_outcome`, in the middle of other work, such as a change of role: no handler may begin there."""
        if self._waiting:
            outcome.add_done_callback(partial(self._on_outcome, request))
        else:
            self._on_outcome(request, outcome)

    def _on_outcome(self, request: Request, outcome: tasks.Future[Message | Sequence[Chunk] | None]) -> None:
        error = tasks.Cancelled() if outcome.cancelled() else outcome.exception()
        if isinstance(error, tasks.Cancelled):  # the node stops
            self._connection.close()
        elif error is not None:
            self._failed(request, error)
        else:
            self._answered(request, outcome.result())

    def _failed(self, request: Request, error: BaseException) -> None:
        """The one place where an exception becomes a response."""
        if isinstance(error, NoAnswer):
            self._connection.close()
            return
        name = frames.request_class(request.api.key).__name__
        self._services.metrics.request(name.removesuffix("Request")).errors += 1
        if isinstance(error, KafkaError):
            code, text = int(error.code), error.message
        else:
            code, text = int(ErrorCode.UNKNOWN_SERVER_ERROR), "The server experienced an unexpected error."
            _log.error("%s of %s on node %d failed: %r", name, self._connection.peer, self._services.node_id, error,
                       exc_info=error)  # fmt: skip
        response = error_response(request.api, request.message, request.header.api_version, code, text)
        if response is None:
            if isinstance(error, KafkaError):
                self._log_closed(f"{api_name(request.api.key)}: {text}")
            self._connection.close()
            return
        self._answered(request, response)

    # Answers

    def _answered(self, request: Request, response: Message | Sequence[Chunk] | None) -> None:
        if request.is_large and isinstance(response, Message):
            request.is_large = False
            # A quota is charged when the answer is sent, and the throttle time stands in it.
            if not self._services.metadata.image.client_quotas:
                self._encode_elsewhere(request, response)
                return
        if response is None or isinstance(response, Message):
            request.response = response
        else:
            request.frame = response
        request.answered = True
        if self._running and self._running[0].answered:
            self._send_answered()

    def _encode_elsewhere(self, request: Request, response: Message) -> None:
        """A worker encodes the answer of a request with many elements, which has about as many."""
        work = partial(response_chunks, response, request.header)
        self._services.ports.workers.run(work).add_done_callback(partial(self._on_outcome, request))

    def _send_answered(self) -> None:
        while self._running and self._running[0].answered:
            request = self._running.popleft()
            self._running_bytes -= request.frame_bytes
            self._measure(request.api.key, request.started_ms)
            throttle_ms = 0
            if self._services.metadata.image.client_quotas and self._listener_kind == "broker":
                throttle_ms = charge(self._services, self._context(request.header), request.message, request.response,
                                     frame_bytes=request.frame_bytes, spent_ms=request.spent_ms)  # fmt: skip
            if throttle_ms:
                self._mute(throttle_ms)
            if self._connection.closed:
                continue
            if request.frame is not None:
                self._connection.send(request.frame)
                continue
            if request.response is None:
                continue
            header = request.header
            in_process, response = self._in_process, request.response
            if in_process is not None and isinstance(response, messages.FetchResponse) and in_process.accepts_messages:
                in_process.send_message(LocalFetchResponse(header.correlation_id, response))
                continue
            try:
                chunks = response_chunks(response, header)
            except EncodeError as error:
                _log.error("Node %d could not encode an answer for %s: %s", self._services.node_id,
                           self._connection.peer, error)  # fmt: skip
                self._connection.close()
                return
            except KafkaError as error:
                if not self._send_error(request, error):
                    return
                continue
            self._connection.send(chunks)
        if self._waiting:
            self._start_waiting()

    def _send_error(self, request: Request, error: KafkaError) -> bool:
        """In the place of an answer that could not be sent; False, and the connection is closed, where none can be."""
        version = request.header.api_version
        response = error_response(request.api, request.message, version, int(error.code), error.message)
        chunks = None
        if response is not None:
            with suppress(KafkaError):
                chunks = response_chunks(response, request.header)
        if chunks is None:
            self._log_closed(f"{api_name(request.api.key)}: {error.message}")
            self._connection.close()
            return False
        self._connection.send(chunks)
        return True

    def _mute(self, throttle_ms: int) -> None:
        """The answer goes out at once; nothing is read from the client until its time is over (KIP-219)."""
        timer = tasks.call_later(throttle_ms, self._unmute)
        if self._muted is not None:
            # Of two waits the longer one counts.
            sooner, timer = sorted((self._muted, timer), key=tasks.TimerHandle.when)
            sooner.cancel()
        self._muted = timer
        if not self._reading_paused:
            self._reading_paused = True
            self._connection.pause_reading()

    def _unmute(self) -> None:
        self._muted = None
        self._start_waiting()

    def _measure(self, api_key: int, started_ms: float) -> None:
        now_ms = self._last_active_ms = self._clock.monotonic_ms()
        meter = self._services.metrics.request(api_name(api_key))
        took_ms = now_ms - started_ms
        meter.count += 1
        meter.total_time_ms += took_ms
        if took_ms > meter.max_time_ms:
            meter.max_time_ms = took_ms
