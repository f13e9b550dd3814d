"""The events of a run, as lines to read and as one hash that two runs of a seed must share."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final

# The end of a run is what explains a violation; a whole run has some ten thousand lines.
LINES_MAX: Final = 400
# Node, time and size of a message.
_MESSAGE: Final = Struct(">BdI")


class Trace:
    """Every message, fault and answer of a run. `show` gets each line at once."""

    def __init__(self, now_ms: Callable[[], float], show: Callable[[str], None] | None = None) -> None:
        self._now_ms = now_ms
        self._show = show
        self._hash = hashlib.blake2b(digest_size=16)
        self.lines: deque[str] = deque(maxlen=LINES_MAX)
        self.messages = 0

    def message(self, node: int, data: bytes | bytearray) -> None:
        """Bytes that arrived somewhere: part of the hash only."""
        self.messages += 1
        self._hash.update(_MESSAGE.pack(node, self._now_ms(), len(data)))
        self._hash.update(data)

    def note(self, text: str) -> None:
        """Something a reader wants to know."""
        line = f"{self._now_ms():10.1f} ms  {text}"
        self._hash.update(line.encode())
        self.lines.append(line)
        if self._show is not None:
            self._show(line)

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()
