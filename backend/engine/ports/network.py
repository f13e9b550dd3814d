"""Length-prefixed frames over a network: what the port promises. `socket_network` is TCP.

A frame is what Kafka sends: four bytes of length, then that many bytes. The port hands whole
frames up and takes lists of chunks down, so that the layers above never copy a record.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from backend.engine.ports.frame_buffers import FrameBuffers
from backend.protocol.buffers import Chunk

# socket.request.max.bytes of Kafka.
FRAME_BYTES_MAX = 100 * 1024 * 1024


class FrameTooLarge(ConnectionError):
    """The peer announced a frame with a negative length or one above the limit."""


class NoRoom(ConnectionError):
    """The unfinished frames of a listener's connections leave no room for more of this one."""


class FrameHandler(Protocol):
    """The upper side of one connection. All calls come on the loop's thread."""

    def on_frame(self, frame: bytearray) -> None:
        """One whole frame without its length; the buffer belongs to the handler."""
        ...

    def on_closed(self, error: BaseException | None) -> None:
        """Called exactly once; None when the peer closed or we did."""
        ...


class LocalMessage(Protocol):
    """A message that the nodes of one process send in the place of a frame."""

    @property
    def size_bytes(self) -> int:
        """About as much as the frame, for limits."""
        ...

    def read_files(self) -> None:
        """Reads what would have left its file by itself. Raises FileUnreadable."""
        ...


@runtime_checkable
class MessageHandler(FrameHandler, Protocol):
    """A handler that takes the messages of nodes of the same process."""

    @property
    def accepts_messages(self) -> bool:
        """False where a peer has to prove first who it is: such a connection has frames only. It does not change."""
        ...

    def on_message(self, message: LocalMessage) -> None:
        """One message, which neither end may change. The call may come within the sender's own work."""
        ...


class Connection(Protocol):
    """The lower side of one connection."""

    @property
    def peer(self) -> str:
        """``host:port`` of the other side."""
        ...

    @property
    def output_bytes(self) -> int:
        """Bytes accepted by :meth:`send` that the socket has not taken yet."""
        ...

    @property
    def closed(self) -> bool: ...

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Queues the chunks (with their length prefix) in order; ignored once closed."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def limit_frames(self, bytes_max: int) -> None:
        """The longest frame that may begin from now on; a longer one closes the connection.

        Its frames then count among those of peers that may send such long ones.
        """
        ...

    def close(self) -> None:
        """Drops what is queued and closes."""
        ...

    def close_after_flush(self) -> None:
        """Closes once everything queued has been sent."""
        ...


class Server(Protocol):
    """A bound port. Peers may connect at once; they are accepted from :meth:`start` on."""

    @property
    def port(self) -> int: ...

    def start(self) -> None: ...

    def close(self) -> None: ...


Accept = Callable[[Connection], FrameHandler]


class NewConnection(Connection, Protocol):
    """A connection that a transport has just made."""

    def start(self, handler: FrameHandler) -> None:
        """Begins to deliver frames."""
        ...

    async def ready(self) -> None:
        """Returns once requests may be sent; OSError when that will never be."""
        ...


class Transport(Protocol):
    """The layer between TCP and the frames: none (`SocketConnection` itself), or TLS (`ports.tls`)."""

    def __call__(
        self, sock: socket.socket, loop: asyncio.AbstractEventLoop, frame_bytes_max: int, buffers: FrameBuffers
    ) -> NewConnection:
        """One connection; OSError when its peer is gone."""
        ...


class Network(Protocol):
    """Listening and connecting."""

    def listen(
        self,
        host: str,
        port: int,
        accept: Accept,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        transport: Transport | None = None,
    ) -> Server:
        """Binds at once (OSError when the port is taken); port 0 picks a free one."""
        ...

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
        """An open connection, or OSError / TimeoutError."""
        ...
