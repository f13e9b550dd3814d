"""The waits of another client of a loop: rounds of the loop, the duration of each, and the client's responses."""

from __future__ import annotations

import asyncio
import struct
import time
from dataclasses import dataclass, field
from typing import Final, Self

from backend.protocol import frames
from backend.protocol import messages as m

# Turns of an idle loop take next to nothing; only those with work in them make anybody wait.
BUSY_MS: Final = 2.0
PAUSE_S: Final = 0.002


@dataclass
class LoopWatch:
    """Counts turns on `loop`, which another thread runs, while a client on `port` asks for ApiVersions again and again.

    The client lives on the same loop, so that it counts no wait for the interpreter. Of the turns that it waits three
    are its own: its question is read, its answer is read, it goes on. A turn's time is the processor time of the loop's
    thread, so that a busy machine makes none of them longer.
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
    _client: asyncio.Task[None] | None = field(default=None, repr=False)

    def __enter__(self) -> Self:
        asyncio.run_coroutine_threadsafe(self._begin(), self.loop).result(60)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self.loop).result(60)

    async def _begin(self) -> None:
        self._turn()
        self._client = asyncio.create_task(self._ask())
        while not self.answers and not self._client.done():
            await asyncio.sleep(PAUSE_S)

    async def _end(self) -> None:
        self._running = False
        assert self._client is not None
        await self._client

    def _turn(self) -> None:
        now_s = time.thread_time()
        if self._since_s is not None:
            took_ms = (now_s - self._since_s) * 1000
            self.turn_ms_max = max(self.turn_ms_max, took_ms)
            self._turns += took_ms >= BUSY_MS
        self._since_s = now_s
        if self._running:
            self.loop.call_soon(self._turn)

    async def _ask(self) -> None:
        request = m.ApiVersionsRequest(client_software_name="other", client_software_version="1")
        data = b"".join(bytes(chunk) for chunk in frames.encode_request(request, 3, 1, "other"))
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while self._running:
            turns, began_s = self._turns, time.monotonic()
            writer.write(data)
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(size)
            self.answer_ms_max = max(self.answer_ms_max, (time.monotonic() - began_s) * 1000)
            self.turns_waited_max = max(self.turns_waited_max, self._turns - turns)
            self.answers += 1
            await asyncio.sleep(PAUSE_S)
        writer.close()
