"""What another client of a loop waits for: turns of the loop, how long each took it, and its own answers."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Self

from backend.protocol import frames
from backend.protocol import messages as m
from tests.wire import exactly


@dataclass
class LoopWatch:
    """Counts turns on `loop`, which another thread runs, while a client on `port` asks for ApiVersions again and again.

    A turn's time is the processor time of the loop's thread, so that a busy machine makes none of them longer.
    """

    loop: asyncio.AbstractEventLoop
    port: int
    turn_ms_max: float = 0.0
    turns_waited_max: int = 0
    answer_ms_max: float = 0.0
    answers: int = 0
    _turns: int = 0
    _since_s: float | None = None
    _running: bool = True
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._ask, name="other client", daemon=True)
        self.loop.call_soon_threadsafe(self._turn)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running = False
        self._thread.join(60)

    def _turn(self) -> None:
        now_s = time.thread_time()
        if self._since_s is not None:
            self.turn_ms_max = max(self.turn_ms_max, (now_s - self._since_s) * 1000)
        self._since_s = now_s
        self._turns += 1
        if self._running:
            self.loop.call_soon(self._turn)

    def _ask(self) -> None:
        request = m.ApiVersionsRequest(client_software_name="other", client_software_version="1")
        data = b"".join(bytes(chunk) for chunk in frames.encode_request(request, 3, 1, "other"))
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            while self._running:
                turns, began_s = self._turns, time.monotonic()
                connection.sendall(data)
                (size,) = struct.unpack(">i", exactly(connection, 4))
                exactly(connection, size)
                took_ms = (time.monotonic() - began_s) * 1000
                self.answers += 1
                # Turns of an idle loop take next to nothing; only those with work in them make anybody wait.
                if took_ms > self.answer_ms_max:
                    self.answer_ms_max, self.turns_waited_max = took_ms, self._turns - turns
                time.sleep(0.002)
