"""Nodes of one process start together or not at all."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from backend.control.gateway.broker_connection import BrokerAddress, BrokerConnection
from backend.engine.broker import StartRefused
from backend.engine.cluster import Cluster
from tests.engine_cluster import layout

# Longer than any test may take: who waits for a controller that never comes fails by the test's time-out.
PATIENT = {"initial.broker.registration.timeout.ms": "3600000"}


@pytest.mark.timeout(60)
def test_a_node_that_cannot_start_is_told_at_once_and_the_others_are_stopped(tmp_path: Path) -> None:
    made = layout(tmp_path, brokers=3, settings=PATIENT)
    meta = Path(made.log_dirs[1]) / "meta.properties"
    meta.parent.mkdir(parents=True)
    meta.write_text(f"version=1\ncluster.id={made.cluster_id}\nnode.id=7\ndirectory.id=jBaFZD9eRrSUeT_dej-o9w\n")

    async def play() -> str:
        cluster = Cluster(made)
        with pytest.raises(StartRefused) as raised:
            await cluster.start()
        assert cluster.brokers == {}
        return str(raised.value)

    assert "belongs to node 7, not 1" in asyncio.run(play())
    for port in (*made.ports.values(), made.controller_port):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))


@pytest.mark.timeout(60)
def test_a_start_that_is_given_up_leaves_nothing_open(tmp_path: Path) -> None:
    made = layout(tmp_path, brokers=2, settings=PATIENT)

    async def play() -> None:
        cluster = Cluster(made)
        # Only node 2: its controller never comes.
        starting = asyncio.ensure_future(cluster.start_broker(2))
        while not (Path(made.log_dirs[2]) / ".lock").exists():
            await asyncio.sleep(0.01)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert cluster.brokers == {}
        await cluster.start()
        await cluster.stop()

    asyncio.run(play())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("steps", range(6))
def test_a_kill_whose_caller_gives_up_is_carried_out_before_the_node_starts_again(tmp_path: Path, steps: int) -> None:
    """Heal of the lab, in the middle of its kill: half of a node kept its ports, and answered nobody."""
    made = layout(tmp_path, brokers=1)

    async def play() -> None:
        cluster = Cluster(made)
        await cluster.start()
        killing = asyncio.ensure_future(cluster.kill_broker(1))
        for _ in range(steps):
            await asyncio.sleep(0)
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)
        if 1 not in cluster.brokers:
            await cluster.start_broker(1)
        await answers(made.ports[1])
        await cluster.stop()

    asyncio.run(play())


@pytest.mark.timeout(60)
def test_of_two_starts_that_wait_for_the_end_of_a_node_one_starts_it(tmp_path: Path) -> None:
    made = layout(tmp_path, brokers=1)

    async def play() -> None:
        cluster = Cluster(made)
        await cluster.start()
        # The loop begins them in this order.
        ended, *started = await asyncio.gather(
            cluster.kill_broker(1), cluster.start_broker(1), cluster.start_broker(1), return_exceptions=True
        )
        assert (ended, [str(outcome) for outcome in started]) == (None, ["None", "Broker 1 is running already"])
        await answers(made.ports[1])
        await cluster.stop()

    asyncio.run(play())


async def answers(port: int) -> None:
    connection = await BrokerConnection.open(BrokerAddress("127.0.0.1", port))
    await connection.close()


def test_a_metadata_topic_with_more_replicas_than_brokers_is_refused_by_its_setting(tmp_path: Path) -> None:
    factor = "rlmm.config.remote.log.metadata.topic.replication.factor"
    made = layout(tmp_path, brokers=1, tiering=True, settings={factor: "3"})
    with pytest.raises(StartRefused, match=f"{factor} is 3, and this cluster has 1 broker: set it"):
        asyncio.run(Cluster(made).start())
    assert not Path(made.log_dirs[1]).exists()
