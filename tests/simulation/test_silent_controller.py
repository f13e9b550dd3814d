"""The active controller falls silent on open connections: requests of clients go to its successor within seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from backend.protocol.errors import KafkaError
from tests.simulation.client import Client
from tests.simulation.combined_nodes import NODES, CombinedWorld
from tests.simulation.machine import dispose

SEEDS: Final = (1, 2, 3)
# controller.quorum.fetch.timeout.ms, an election, and the time that a former leader has left: 5 s; it took 30 s.
ANSWER_MS_MAX: Final = 8000.0
WAIT_S: Final = 30.0
SETTLE_S: Final = 10.0


async def insist(work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Tries on, as clients do while a cluster starts."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                await work()
            except KafkaError:
                await asyncio.sleep(0.2)
            else:
                return


def active_controller(world: CombinedWorld) -> int:
    """The node that leads the quorum."""
    broker = world.machines[NODES[0]].broker
    assert broker is not None
    assert broker._raft is not None
    return broker._raft.metadata.raft.leader_id


async def ask_while_it_is_silent(world: CombinedWorld) -> float:
    """Virtual time until a topic is created."""
    await asyncio.gather(*(world.machines[node].start() for node in NODES))
    client = Client(world)
    await insist(lambda: client.create_topic(NODES[0], "first", {0: list(NODES)}, {}))
    # Their own requests of the start, which end earlier and take the connection with them, are over.
    await asyncio.sleep(SETTLE_S)
    silent = active_controller(world)
    through = next(node for node in NODES if node != silent)
    others = [node for node in NODES if node != silent]
    world.fabric.weather.holes |= {pair for node in others for pair in ((silent, node), (node, silent))}
    asked_ms = world.loop.now_ms
    await client.create_topic(through, "second", {0: others}, {}, timeout_ms=60_000.0)
    client.close()
    return world.loop.now_ms - asked_ms


def test_a_request_that_waits_for_a_silent_controller_goes_to_its_successor() -> None:
    took_ms = []
    for seed in SEEDS:
        world = CombinedWorld(seed)
        took_ms.append(world.loop.play(ask_while_it_is_silent(world)))
        dispose(world)
    assert max(took_ms) < ANSWER_MS_MAX, took_ms
