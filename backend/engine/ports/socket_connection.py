"""One TCP connection as frames: a raw non-blocking socket on the loop's readers and writers."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Sequence
from itertools import islice

from backend.engine.ports.frame_buffers import PACE_KNOWN_S, FrameBuffers
from backend.engine.ports.network import FrameHandler, FrameTooLarge, NoRoom
from backend.protocol.buffers import Chunk, FileRange

# A reader that is slower than this much output is not read from, nor are its requests of earlier reads carried out,
# until it has caught up.
OUTPUT_HIGH_BYTES = 16 * 1024 * 1024
OUTPUT_LOW_BYTES = OUTPUT_HIGH_BYTES // 4
# Linux accepts up to IOV_MAX (1024) chunks in one sendmsg.
SEND_CHUNKS_MAX = 512
# Small frames arrive many at once: one read of this size takes them all.
SCRATCH_BYTES = 64 * 1024
# The rest of a read, a frame's beginning, moves out of it when it is shorter than this: so a connection costs at most
# four times what its peer has sent. 20,000 that send 5 bytes each would hold 1.3 GB otherwise.
SCRATCH_KEPT_BYTES = SCRATCH_BYTES // 4
# Scratch buffers that no connection needs now are kept: 1 MB in all.
SPARE_SCRATCHES_MAX = 16
# Answers of this size together go out at once, also while further requests of the same read wait.
CORK_BYTES_MAX = 64 * 1024
# A frame is believed to be as long as it says only as far as its bytes come: its buffer starts with this much, of which
# the system gives memory for what has come, and is doubled when full. So a connection costs at most twice what its peer
# has sent.
FRAME_FIRST_BYTES = 1024 * 1024

_LENGTH = struct.Struct(">i")
# Of all connections of the process; taking from a list and adding to it are atomic.
_spare_scratches: list[bytearray] = []


class SocketConnection:
    """One non-blocking TCP socket."""

    def __init__(
        self, sock: socket.socket, loop: asyncio.AbstractEventLoop, frame_bytes_max: int, buffers: FrameBuffers
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._frame_bytes_max = frame_bytes_max
        self._buffers = buffers
        host, port = sock.getpeername()[:2]
        self.host = str(host)
        self._peer = f"{host}:{port}"
        # Only while it has something: thousands of idle connections share a few.
        self._scratch: bytearray | None = None
        self._scratch_used = 0
        # The bytes received into it, while it is given back.
        self._rest = b""
        self._frame: bytearray | None = None
        self._frame_bytes = 0
        self._frame_used = 0
        self._frame_began_s = 0.0
        # The bytes that its frame counts for in the buffers.
        self.held_bytes = 0
        self._output: deque[memoryview | FileRange] = deque()
        self._output_bytes = 0
        self._writing = False
        self._reading = False
        self._paused_by_output = False
        self._paused_by_owner = False
        self._corked = False
        self._closing = False
        self._closed = False
        self._handler: FrameHandler | None = None

    def start(self, handler: FrameHandler) -> None:
        """Begins to deliver frames."""
        self._handler = handler
        self._update_reading()

    async def ready(self) -> None:
        """Returns once requests may be sent; OSError when that will never be."""

    def limit_frames(self, bytes_max: int) -> None:
        """Frames that begin from now on may be so long."""
        if self._buffers.wider is not None and bytes_max > self._frame_bytes_max and self._frame is None:
            self._release_buffers()
            self._buffers = self._buffers.wider
        self._frame_bytes_max = bytes_max

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def output_bytes(self) -> int:
        return self._output_bytes

    @property
    def closed(self) -> bool:
        return self._closed

    def pause_reading(self) -> None:
        self._paused_by_owner = True
        self._update_reading()

    def resume_reading(self) -> None:
        self._paused_by_owner = False
        self._update_reading()
        self._deliver_soon()

    def _deliver_soon(self) -> None:
        """Frames that a pause has left in the scratch buffer come without a further read."""
        if self._scratch_used and not self._closed:
            self._loop.call_soon(self._deliver_corked)

    def _update_reading(self) -> None:
        reads = not (self._closed or self._closing or self._paused_by_output or self._paused_by_owner)
        if reads and not self._reading:
            self._loop.add_reader(self._fd, self._on_readable)
        elif self._reading and not reads:
            self._loop.remove_reader(self._fd)
        self._reading = reads

    def _on_readable(self) -> None:
        try:
            if self._frame is not None:
                self._read_into_frame()
            else:
                self._read_into_scratch()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._finish(error)

    def _receive_into(self, room: memoryview) -> int:
        """Bytes read, 0 at the end; BlockingIOError when there are none yet."""
        return self._sock.recv_into(room)

    def _send_some(self) -> int:
        """Bytes of the output that went out; BlockingIOError when none can now."""
        output = self._output
        first = output[0]
        if not isinstance(first, memoryview):
            return first.send_to(self._fd)
        views: list[memoryview] = []
        for chunk in islice(output, SEND_CHUNKS_MAX):
            if not isinstance(chunk, memoryview):
                # Without it the few bytes before a range would be a separate packet (TCP_NODELAY).
                return self._sock.sendmsg(views, (), socket.MSG_MORE)
            views.append(chunk)
        return self._sock.sendmsg(views)

    def _shut_down(self) -> None:
        """The transport's last bytes to its peer before the socket closes."""

    def _read_into_frame(self) -> None:
        frame = self._frame
        assert frame is not None
        # The view is let go of at once: a buffer with views does not grow.
        with memoryview(frame) as view, view[self._frame_used :] as rest:
            count = self._receive_into(rest)
        if count == 0:
            self._finish(None)
            return
        self._frame_used += count
        if self._frame_used > self.held_bytes and not self._has_room(self._frame_used - self.held_bytes):
            return
        if self._frame_used < len(frame):
            return
        if len(frame) < self._frame_bytes:
            more = min(len(frame), self._frame_bytes - len(frame))
            if self._has_room(more):
                frame.extend(bytes(more))
            return
        self._drop_frame()
        self._deliver(frame)

    def _has_room(self, size: int) -> bool:
        if self._buffers.reserve(self, size):
            self.held_bytes += size
            return True
        held = self._buffers.held_bytes
        self._finish(NoRoom(f"unfinished frames hold {held} bytes, which leaves no room for {size} more; try again"))
        return False

    def expected_s(self) -> float:
        """Seconds that the frame takes at its pace so far; 0 while that is not known, or while it waits for us."""
        age_s = self._loop.time() - self._frame_began_s
        if not self._reading or age_s < PACE_KNOWN_S:
            return 0.0
        return age_s * self._frame_bytes / max(1, self._frame_used)

    def make_room(self) -> None:
        """Ends, for the sake of others, a connection whose frame comes too slowly."""
        age_s = self._loop.time() - self._frame_began_s
        self._finish(
            NoRoom(
                f"{self._frame_used} of {self._frame_bytes} bytes of its frame came in {age_s:.0f} s, and others needed"
                " the room"
            )
        )

    def _drop_frame(self) -> None:
        self._frame = None
        self._release_buffers()

    def _release_buffers(self) -> None:
        if self.held_bytes:
            self._buffers.release(self)
            self.held_bytes = 0

    def _read_into_scratch(self) -> None:
        scratch = self._take_scratch()
        try:
            count = self._receive_into(memoryview(scratch)[self._scratch_used :])
        except BaseException:
            self._release_scratch()
            raise
        if count == 0:
            self._finish(None)
            return
        self._scratch_used += count
        self._deliver_corked()

    def _take_scratch(self) -> bytearray:
        scratch = self._scratch
        if scratch is None:
            scratch = self._scratch = _spare_scratches.pop() if _spare_scratches else bytearray(SCRATCH_BYTES)
            if self._rest:
                scratch[: len(self._rest)] = self._rest
                self._rest = b""
        return scratch

    def _deliver_corked(self) -> None:
        """Delivers what has come; the small answers given meanwhile leave together, which saves most of their cost."""
        if self._scratch_used:
            self._take_scratch()
        self._corked = True
        try:
            self._deliver_scratch()
        finally:
            self._corked = False
            self._count_rest()
            self._release_scratch()
            if self._output and not self._writing:
                self._on_writable()

    def _release_scratch(self) -> None:
        scratch, used = self._scratch, self._scratch_used
        if scratch is None or used >= SCRATCH_KEPT_BYTES:
            return
        if used:
            self._rest = bytes(memoryview(scratch)[:used])
        if len(_spare_scratches) < SPARE_SCRATCHES_MAX:
            _spare_scratches.append(scratch)
        self._scratch = None

    def _count_rest(self) -> None:
        """Counts the bytes of an unfinished frame that lie in the scratch as those of any; mostly there are none.

        Not while the connection waits for us: then it may hold whole frames, 64 KiB in all.
        """
        used = self._scratch_used if self._reading else 0
        if used == self.held_bytes or self._frame is not None or self._closed:
            return
        if self.held_bytes:
            self._release_buffers()
        else:
            self._frame_began_s = self._loop.time()
        if used and self._scratch is not None:
            self._frame_used = used
            self._frame_bytes = 4 + _LENGTH.unpack_from(self._scratch)[0] if used >= 4 else SCRATCH_BYTES
            self._has_room(used)

    def _deliver_scratch(self) -> None:
        position = 0
        used = self._scratch_used
        scratch = self._scratch
        if scratch is None:
            return
        # The rest of a full output waits here until the peer has read: see `_after_write`.
        while used - position >= 4 and not (self._closed or self._paused_by_owner or self._paused_by_output):
            (size,) = _LENGTH.unpack_from(scratch, position)
            if size < 0 or size > self._frame_bytes_max:
                self._finish(FrameTooLarge(f"{self._peer} announced a frame of {size} bytes"))
                return
            body = position + 4
            if used - body >= size:
                position = body + size
                self._deliver(scratch[body:position])
                continue
            if 4 + size > SCRATCH_BYTES:
                self._begin_frame(size, scratch[body:used])
                self._scratch_used = 0
                return
            break
        if position:
            # The rest belongs to another frame.
            self._release_buffers()
            rest = used - position
            scratch[:rest] = scratch[position:used]
            self._scratch_used = rest

    def _begin_frame(self, size: int, head: bytearray) -> None:
        self._release_buffers()
        self._frame_began_s, self._frame_bytes, self._frame_used = self._loop.time(), size, len(head)
        if not self._has_room(len(head)):
            return
        frame = bytearray(min(size, FRAME_FIRST_BYTES))
        frame[: len(head)] = head
        self._frame = frame

    def _deliver(self, frame: bytearray) -> None:
        handler = self._handler
        if handler is not None and not self._closed:
            handler.on_frame(frame)

    def send(self, chunks: Sequence[Chunk]) -> None:
        if self._closed or self._closing:
            return
        for chunk in chunks:
            if size := len(chunk):
                self._output.append(memoryview(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk)
                self._output_bytes += size
        if not self._writing:
            if not self._corked or self._output_bytes > CORK_BYTES_MAX:
                self._on_writable()
        elif self._output_bytes > OUTPUT_HIGH_BYTES and not self._paused_by_output:
            self._paused_by_output = True
            self._update_reading()

    def _on_writable(self) -> None:
        try:
            while self._output:
                self._drop_sent(self._send_some())
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._finish(error)
            return
        self._after_write()

    def _drop_sent(self, sent: int) -> None:
        self._output_bytes -= sent
        output = self._output
        while sent:
            first = output[0]
            if sent >= len(first):
                sent -= len(first)
                output.popleft()
            else:
                output[0] = first[sent:] if isinstance(first, memoryview) else first.advance(sent)
                return

    def _after_write(self) -> None:
        pending = bool(self._output)
        if pending and not self._writing:
            self._loop.add_writer(self._fd, self._on_writable)
        elif self._writing and not pending:
            self._loop.remove_writer(self._fd)
        self._writing = pending
        if self._output_bytes > OUTPUT_HIGH_BYTES:
            self._paused_by_output = True
            self._update_reading()
        elif self._paused_by_output and self._output_bytes < OUTPUT_LOW_BYTES:
            self._paused_by_output = False
            self._update_reading()
            self._deliver_soon()
        if self._closing and not pending:
            self._finish(None)

    def close(self) -> None:
        self._finish(None)

    def close_after_flush(self) -> None:
        self._closing = True
        self._update_reading()
        if not self._output:
            self._finish(None)

    def _finish(self, error: BaseException | None) -> None:
        if self._closed:
            return
        self._closed = True
        self._update_reading()
        if self._writing:
            self._loop.remove_writer(self._fd)
            self._writing = False
        self._output.clear()
        self._output_bytes = 0
        self._scratch_used, self._rest = 0, b""
        self._drop_frame()
        self._shut_down()
        self._sock.close()
        if self._handler is not None:
            self._handler.on_closed(error)
