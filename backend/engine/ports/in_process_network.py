"""Nodes that share an event loop reach one another without the system's sockets; everybody else comes over TCP.

A frame is delivered whole, in the loop's next iteration. A message that both ends know is delivered in the place of its
frame, which then need not be encoded and decoded, and at once where nothing waits before it. Both are delivered in the
receiver's context, so that log lines bear its name.
TLS is never bypassed: a port with TLS is reached over TCP by the nodes of the same process too. So is a port that is
bound and not served yet; a connection that began over TCP stays on TCP.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from itertools import count

from backend.engine.ports.file_range import FileUnreadable
from backend.engine.ports.network import (
    FRAME_BYTES_MAX,
    Accept,
    Connection,
    FrameHandler,
    FrameTooLarge,
    LocalMessage,
    MessageHandler,
    Network,
    Server,
    Transport,
)
from backend.engine.ports.socket_connection import OUTPUT_HIGH_BYTES, OUTPUT_LOW_BYTES
from backend.protocol.buffers import Chunk


class InProcessConnection:
    """One end of a connection within the process. Frames that were sent before a close still arrive."""

    other_end: InProcessConnection

    def __init__(self, peer: str, frame_bytes_max: int, context: Context) -> None:
        """`context` is that of the node whose end this is."""
        self._peer = peer
        self._frame_bytes_max = frame_bytes_max
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._handler: FrameHandler | None = None
        self._messages: MessageHandler | None = None
        # Frames without their lengths, and messages; each with its size.
        self._input: deque[tuple[bytearray | LocalMessage, int]] = deque()
        self._input_bytes = 0
        self._due = False
        self._paused = False
        # The other end is processing the message that this end has just sent.
        self._sending = False
        # The other end has so much unread input that this end delivers nothing more to its own handler.
        self._backpressured = False
        self._other_closed = False
        self._closed = False

    def start(self, handler: FrameHandler) -> None:
        """Begins to deliver frames."""
        self._handler = handler
        if isinstance(handler, MessageHandler) and handler.accepts_messages:
            self._messages = handler
        self._deliver_soon()

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def output_bytes(self) -> int:
        return 0 if self._closed else self.other_end._input_bytes

    @property
    def closed(self) -> bool:
        return self._closed

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._deliver_soon()

    def limit_frames(self, bytes_max: int) -> None:
        self._frame_bytes_max = bytes_max

    def send(self, chunks: Sequence[Chunk]) -> None:
        """One frame, or nothing."""
        if self._closed:
            return
        frame = bytearray()
        try:
            for chunk in chunks:
                frame += chunk if isinstance(chunk, (bytes, bytearray, memoryview)) else bytes(chunk)
        except FileUnreadable as error:
            self._finish(error)
            return
        if not frame:
            return
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4, "one frame at a time"
        del frame[:4]
        self._enqueue(frame, len(frame))

    @property
    def accepts_messages(self) -> bool:
        """Whether the other end takes messages by :meth:`send_message`; not before it is accepted."""
        return self.other_end._messages is not None

    def send_message(self, message: LocalMessage) -> None:
        """Sends a message in the place of its frame. The other end gets it at once unless earlier input waits there.

        So the receiver runs within the sender's call: a request is the last thing that its sender does before it waits,
        and a response only sets a future. The response to a request that is answered within this call comes in the
        loop's next iteration; otherwise a client that always has another request would never give the loop back.
        """
        if self._closed:
            return
        try:
            message.read_files()
        except FileUnreadable as error:
            self._finish(error)
            return
        far_end, size = self.other_end, message.size_bytes
        if far_end._input or not far_end._is_ready():
            self._enqueue(message, size)
            return
        self._sending = True
        try:
            far_end._context.run(far_end._deliver_now, message, size)
        finally:
            self._sending = False
            self._deliver_soon()

    def _deliver_now(self, item: LocalMessage, size: int) -> None:
        try:
            self._deliver_item(item, size)
        except Exception as error:  # logged as the loop does it, and the sender goes on
            context = {"message": f"Exception in a message of {self._peer}", "exception": error}
            self._loop.call_exception_handler(context)

    def _enqueue(self, item: bytearray | LocalMessage, size: int) -> None:
        self.other_end._arrived(item, size)
        if self.other_end._input_bytes > OUTPUT_HIGH_BYTES:
            self._backpressured = True

    def close(self) -> None:
        self._finish(None)

    def close_after_flush(self) -> None:
        # Frames that were sent are with the other end already.
        self._finish(None)

    # Input

    def _arrived(self, item: bytearray | LocalMessage, size: int) -> None:
        if not self._closed:
            self._input.append((item, size))
            self._input_bytes += size
            self._deliver_soon()

    def _deliver_soon(self) -> None:
        if not self._due and self._may_deliver():
            self._due = True
            self._loop.call_soon(self._deliver, context=self._context)

    def _may_deliver(self) -> bool:
        return (bool(self._input) or self._other_closed) and self._is_ready()

    def _is_ready(self) -> bool:
        return self._handler is not None and not (self._closed or self._paused or self._backpressured or self._sending)

    def _deliver(self) -> None:
        self._due = False
        try:
            while self._input and self._may_deliver():
                item, size = self._input.popleft()
                self._count_delivered(size)
                self._deliver_item(item, size)
        finally:
            # The loop logs what a handler raises, and the next frame is not to wait for the one after it.
            if self._input:
                self._deliver_soon()
            else:
                self._close_with_other()

    def _count_delivered(self, size: int) -> None:
        self._input_bytes -= size
        if self.other_end._backpressured and self._input_bytes < OUTPUT_LOW_BYTES:
            self.other_end._backpressured = False
            self.other_end._deliver_soon()

    def _deliver_item(self, item: bytearray | LocalMessage, size: int) -> None:
        if size > self._frame_bytes_max:
            self._finish(FrameTooLarge(f"{self._peer} announced a frame of {size} bytes"))
        elif isinstance(item, bytearray):
            if self._handler is not None:
                self._handler.on_frame(item)
        elif self._messages is not None:
            self._messages.on_message(item)

    # The end

    def _close_with_other(self) -> None:
        if self._other_closed and self._may_deliver():
            self._finish(None)

    def _finish(self, error: BaseException | None) -> None:
        if self._closed:
            return
        self._closed = True
        self._input.clear()
        self._input_bytes = 0
        far_end = self.other_end
        far_end._other_closed = True
        far_end._backpressured = False
        far_end._deliver_soon()
        if self._handler is not None:
            self._handler.on_closed(error)


class _InProcessServer:
    """A port bound over TCP; nodes of the same loop connect to it directly while it is open."""

    def __init__(
        self,
        servers: dict[tuple[str, int], _InProcessServer],
        host: str,
        server: Server,
        accept: Accept,
        frame_bytes_max: int,
    ) -> None:
        self._servers = servers
        self._address = (host, server.port)
        self._server = server
        self._accept = accept
        self._frame_bytes_max = frame_bytes_max
        # Of the node that listens.
        self._context = copy_context()

    @property
    def port(self) -> int:
        return self._server.port

    def start(self) -> None:
        self._server.start()
        self._servers[self._address] = self

    def close(self) -> None:
        if self._servers.get(self._address) is self:
            del self._servers[self._address]
        self._server.close()

    def connect(
        self, caller: str, handler: Callable[[Connection], FrameHandler], frame_bytes_max: int
    ) -> InProcessConnection:
        """The caller's end of a new connection; the other end is accepted in the next iteration, as by TCP."""
        host, port = self._address
        own_end = InProcessConnection(f"{host}:{port}", frame_bytes_max, copy_context())
        # A copy of the context: serving one caller may lead to serving another, and none can be entered twice.
        far_end = InProcessConnection(f"{host}:{caller}", self._frame_bytes_max, self._context.copy())
        own_end.other_end, far_end.other_end = far_end, own_end
        own_end.start(handler(own_end))
        asyncio.get_running_loop().call_soon(self._admit, far_end, context=self._context)
        return own_end

    def _admit(self, far_end: InProcessConnection) -> None:
        if self._servers.get(self._address) is not self:
            far_end.close()
            return
        try:
            far_end.start(self._accept(far_end))
        except BaseException:  # which the loop logs
            far_end.close()
            raise


class InProcessNetwork:
    """Shared by the nodes of one event loop, over the network that they share with others."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._servers: dict[tuple[str, int], _InProcessServer] = {}
        # In the place of the port that the system would give a caller.
        self._callers = count(1)

    def listen(
        self,
        host: str,
        port: int,
        accept: Accept,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        transport: Transport | None = None,
    ) -> Server:
        server = self._network.listen(host, port, accept, frame_bytes_max=frame_bytes_max, transport=transport)
        return (
            server if transport is not None else _InProcessServer(self._servers, host, server, accept, frame_bytes_max)
        )

    async def connect(
        self,
        host: str,
        port: int,
        handler: Callable[[Connection], FrameHandler],
        *,
        timeout_ms: float,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        transport: Transport | None = None,
    ) -> Connection:
        server = self._servers.get((host, port)) if transport is None else None
        if server is not None:
            return server.connect(f"local-{next(self._callers)}", handler, frame_bytes_max)
        # A port that is bound and not served yet keeps its callers waiting in the system's backlog.
        return await self._network.connect(
            host, port, handler, timeout_ms=timeout_ms, frame_bytes_max=frame_bytes_max, transport=transport
        )
