"""The memory that the unfinished frames of a listener's connections take, and the choice of those that give way.

A frame costs what has come of it, so that announcing one costs nothing. When all the room is taken, frames that come
too slowly to be of use make room: those of the address that holds most first, so that one client does not shut out the
others.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

# Frames above the scratch size that one listener's connections have begun and not finished: five of the largest.
UNFINISHED_BYTES_MAX: Final = 512 * 1024 * 1024
# So many of the largest frames are enough where frames are small, as before a login: 32 MiB of
# sasl.server.max.receive.size.
FRAMES_AT_A_TIME: Final = 64
# request.timeout.ms of Kafka's clients: a frame that would take longer at its pace is one nobody waits for.
USEFUL_S: Final = 30.0
# Nothing is said of a frame's pace before; a full window of a slow line comes within it.
PACE_KNOWN_S: Final = 1.0
# Room is made for so much at a time: looking through 20,000 frames takes some 20 ms, and a peer must send 4 MiB for it.
ROOM_BYTES_MIN: Final = 4 * 1024 * 1024


class UnfinishedFrame(Protocol):
    """A connection that is in the middle of a frame."""

    @property
    def host(self) -> str: ...

    @property
    def held_bytes(self) -> int: ...

    def expected_s(self) -> float:
        """Seconds that the whole frame takes at its pace so far; 0 while that is not known."""
        ...

    def make_room(self) -> None:
        """Drops the frame with its connection, and gives back what it holds."""
        ...


class FrameBuffers:
    """Belongs to one event loop."""

    def __init__(self, bytes_max: int = UNFINISHED_BYTES_MAX, wider: FrameBuffers | None = None) -> None:
        """`wider` is where the frames of a peer count that has been let send longer ones."""
        self.bytes_max = bytes_max
        self.wider = wider
        self.held_bytes = 0
        self._frames: dict[UnfinishedFrame, None] = {}

    def reserve(self, frame: UnfinishedFrame, size: int) -> bool:
        """Whether there is room for so much more of a frame, which then is taken."""
        if self.held_bytes + size > self.bytes_max:
            self._make_room(frame, size)
            if self.held_bytes + size > self.bytes_max:
                return False
        self.held_bytes += size
        self._frames[frame] = None
        return True

    def release(self, frame: UnfinishedFrame) -> None:
        """Its frame has come whole, or its connection has ended."""
        if frame in self._frames:
            del self._frames[frame]
            self.held_bytes -= frame.held_bytes

    def _make_room(self, wanting: UnfinishedFrame, size: int) -> None:
        by_host: Counter[str] = Counter()
        slow: list[tuple[float, UnfinishedFrame]] = []
        for frame in self._frames:
            by_host[frame.host] += frame.held_bytes
            expected_s = frame.expected_s()
            if frame is not wanting and expected_s > USEFUL_S:
                slow.append((expected_s, frame))
        slow.sort(key=lambda candidate: (by_host[candidate[1].host], candidate[0]), reverse=True)
        enough = self.held_bytes - max(size, ROOM_BYTES_MIN)
        for _, frame in slow:
            if self.held_bytes <= enough:
                return
            frame.make_room()


def buffers_for(frame_bytes_max: int) -> FrameBuffers:
    """Room for a listener whose frames have at first this size at most."""
    bytes_max = FRAMES_AT_A_TIME * frame_bytes_max
    return FrameBuffers() if bytes_max >= UNFINISHED_BYTES_MAX else FrameBuffers(bytes_max, wider=FrameBuffers())
