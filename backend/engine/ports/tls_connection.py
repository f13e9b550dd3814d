"""One TLS connection: OpenSSL on the non-blocking socket, under the frames of `SocketConnection`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Final, cast

from backend.engine.ports.file_range import FileUnreadable
from backend.engine.ports.frame_buffers import FrameBuffers
from backend.engine.ports.network import FrameHandler
from backend.engine.ports.socket_connection import SocketConnection
from backend.protocol.buffers import Buffer, Chunk

# A handshake takes two round trips; a peer that is slower than this holds a connection for nothing.
HANDSHAKE_MS_MAX: Final = 30_000
# One read takes at most so much, so that a fast peer leaves the others a turn.
READ_BYTES_MAX: Final = 256 * 1024
# The largest TLS record; smaller chunks (a length, a header) share one.
RECORD_BYTES: Final = 16 * 1024


class TlsFailed(ConnectionError):
    """The handshake failed: no TLS at the other end, or a certificate that is not accepted."""


class TlsConnection(SocketConnection):
    """See `Connection`; frames flow once the handshake is done."""

    def __init__(
        self,
        context: ssl.SSLContext,
        server_hostname: str | None,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        frame_bytes_max: int,
        buffers: FrameBuffers,
    ) -> None:
        """A `server_hostname` makes this the client's end."""
        sock.setblocking(False)
        self._tls = context.wrap_socket(
            sock,
            server_side=server_hostname is None,
            do_handshake_on_connect=False,
            server_hostname=server_hostname,
        )
        super().__init__(self._tls, loop, frame_bytes_max, buffers)
        self._shaking = True
        self._ready: asyncio.Future[None] = loop.create_future()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, handler: FrameHandler) -> None:
        super().start(handler)
        if not self._closed:
            self._timer = self._loop.call_later(HANDSHAKE_MS_MAX / 1000, self._overdue)
            self._shake_hands()

    async def ready(self) -> None:
        """After the handshake; TlsFailed or another OSError when it did not come about."""
        await self._ready

    # Handshake

    def _overdue(self) -> None:
        self._finish(TlsFailed(f"{self.peer} did not finish the TLS handshake within {HANDSHAKE_MS_MAX} ms"))

    def _shake_hands(self) -> None:
        wants_write = False
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            wants_write = True
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            self._finish(ConnectionResetError(f"{self.peer} closed during the TLS handshake"))
            return
        except ssl.SSLError as error:
            self._finish(TlsFailed(f"the TLS handshake with {self.peer} failed: {_reason(error)}"))
            return
        except OSError as error:
            self._finish(error)
            return
        else:
            self._shaking = False
        self._watch_writable(wants_write)
        if not self._shaking:
            self._begin()

    def _watch_writable(self, watches: bool) -> None:
        if watches and not self._writing:
            self._loop.add_writer(self._fd, self._on_writable)
        elif self._writing and not watches:
            self._loop.remove_writer(self._fd)
        self._writing = watches

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._ready.done():
            self._ready.set_result(None)
        # The peer's first request may have come together with the end of its handshake.
        self._loop.call_soon(self._read_decrypted)

    # Reading: what OpenSSL has decrypted makes no socket readable, so it is asked.

    def _on_readable(self) -> None:
        if self._shaking:
            self._shake_hands()
            return
        super()._on_readable()
        self._read_decrypted()

    def _read_decrypted(self) -> None:
        while self._reading and self._tls.pending():
            super()._on_readable()

    def _update_reading(self) -> None:
        before = self._reading
        super()._update_reading()
        if self._reading and not before and not self._shaking:
            self._loop.call_soon(self._read_decrypted)

    def _receive_into(self, room: memoryview) -> int:
        total, bytes_max = 0, min(len(room), READ_BYTES_MAX)
        while total < bytes_max:
            try:
                count = self._tls.recv_into(room[total:bytes_max])
            except ssl.SSLWantReadError:
                if total:
                    return total
                raise BlockingIOError from None
            except OSError:
                # Bytes that came before are delivered; the error comes again.
                if total:
                    return total
                raise
            if count == 0:
                break
            total += count
        return total

    # Writing

    def send(self, chunks: Sequence[Chunk]) -> None:
        try:
            # Plain bytes have to be read first, all of them before any encrypted one is queued.
            read = [chunk if isinstance(chunk, (bytes, bytearray, memoryview)) else bytes(chunk) for chunk in chunks]
        except FileUnreadable as error:
            self._finish(error)
            return
        super().send(read)

    def _on_writable(self) -> None:
        if self._shaking:
            self._shake_hands()
        else:
            super()._on_writable()

    def _send_some(self) -> int:
        try:
            return self._tls.send(self._record())
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None

    def _record(self) -> Buffer:
        """The output's beginning. After SSLWantWriteError it begins the same again, as OpenSSL demands."""
        output = cast("deque[memoryview]", self._output)  # see `send`
        first = output[0]
        if len(first) >= RECORD_BYTES or len(output) == 1:
            return first[:RECORD_BYTES]
        record = bytearray()
        for chunk in output:
            record += chunk[: RECORD_BYTES - len(record)]
            if len(record) == RECORD_BYTES:
                break
        return record

    # End

    def _shut_down(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._shaking:
            # The peer gets the close_notify alert; nobody waits for its own.
            with contextlib.suppress(OSError, ValueError):
                self._tls.unwrap()

    def _finish(self, error: BaseException | None) -> None:
        super()._finish(error)
        if not self._ready.done():
            self._ready.set_exception(error or ConnectionResetError(f"{self.peer} closed during the TLS handshake"))
            # The side that accepts a connection does not wait for it.
            self._ready.exception()


def _reason(error: ssl.SSLError) -> str:
    detail = getattr(error, "verify_message", "")
    return f"{error.reason or error}{f' ({detail})' if detail else ''}"
