"""When waiting requests are told: news of the high watermark alone lingers, records go before acknowledgements."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from backend.engine.ports.clock import SystemClock
from backend.engine.replica.deadlines import Deadlines
from backend.engine.replica.purgatory import HIGH_WATERMARK_LINGER_MS, Purgatory
from tests.unit.engine.replica.nodes import Nodes, play


class Told:
    """Notes when it was asked whether it still knows less."""

    def __init__(self) -> None:
        self.at_s: list[float] = []

    def complete_if_stale(self) -> None:
        self.at_s.append(time.monotonic())


def test_each_fetch_lingers_its_own_time_and_is_told_once() -> None:
    async def run() -> None:
        purgatory = Purgatory(Deadlines(SystemClock()))
        fetches: list[Any] = [Told() for _ in range(4)]
        began_s = []
        for fetch in fetches:
            began_s.append(time.monotonic())
            purgatory.tell_soon(fetch)
            await asyncio.sleep(HIGH_WATERMARK_LINGER_MS * 0.6 / 1000)
        deadline_s = time.monotonic() + 10
        while not all(fetch.at_s for fetch in fetches) and time.monotonic() < deadline_s:
            await asyncio.sleep(0.001)
        assert [len(fetch.at_s) for fetch in fetches] == [1] * 4
        # The loop's clock may be a part of a millisecond early.
        waited_ms = [(fetch.at_s[0] - begin_s) * 1000 for fetch, begin_s in zip(fetches, began_s, strict=True)]
        assert min(waited_ms) >= HIGH_WATERMARK_LINGER_MS - 0.5

    asyncio.run(run())


def test_records_go_to_their_reader_before_their_producer_is_told(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.create("orders", [1, 2, 3])
            await nodes.produce(1, "orders", b"first")
            reading = asyncio.create_task(nodes.fetch(1, "orders", 1, wait_ms=5000))
            waiting = nodes[1].partition("orders").waiting_fetches
            await nodes.until("the reader waits", lambda: any(not one._params.from_follower for one in waiting))
            order: list[str] = []
            reading.add_done_callback(lambda _: order.append("reader"))
            producing = asyncio.create_task(nodes.produce(1, "orders", b"second"))
            producing.add_done_callback(lambda _: order.append("producer"))
            await asyncio.gather(reading, producing)
            await asyncio.sleep(0)
            assert order == ["reader", "producer"]

    play(run)
