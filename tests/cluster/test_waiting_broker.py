"""A broker whose controllers are away says whom it could not reach, and one that opens its logs may take its time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from backend.engine.broker import StartRefused
from backend.engine.cluster import Cluster
from backend.engine.log.manager.log_manager import LogManager
from backend.engine.remote.metadata.metadata_topic import METADATA_TOPIC
from tests.cluster.broker_process import BrokerProcesses
from tests.engine_cluster import EngineCluster, layout
from tests.waiting import wait_until

TIMEOUT = "initial.broker.registration.timeout.ms"


@pytest.mark.timeout(60)
def test_a_broker_without_its_controller_names_it_and_what_to_do(tmp_path: Path) -> None:
    made = layout(tmp_path, brokers=2, settings={TIMEOUT: "1500"})

    async def play() -> str:
        with pytest.raises(StartRefused) as raised:
            await Cluster(made).start_broker(2)
        return str(raised.value)

    said = asyncio.run(play())
    assert said.startswith(
        f"Node 2 cannot start: Broker 2 has waited 1.5 s ({TIMEOUT}) to be registered by an active controller, one of"
        f" 127.0.0.1:{made.controller_port} ("
    )
    assert f"No connection to 127.0.0.1:{made.controller_port}" in said
    assert said.endswith(" Start the controllers that are away, then this broker again.")


@pytest.mark.timeout(120)
def test_a_voter_whose_quorum_is_away_names_the_voters_and_starts_with_them(tmp_path: Path) -> None:
    cluster = BrokerProcesses(tmp_path, voters=3, settings={TIMEOUT: "12000"})
    try:
        cluster.spawn(1)
        wait_until("it ends", lambda: not cluster.runs(1), 60)
        said = cluster.log(1).splitlines()[-1]
        assert "Broker 1 has waited 12 s" in said
        assert "Node 1 waits for a leader of the metadata quorum. Not heard: voters 2, 3; start them" in said
        assert said.endswith("then start this broker again.")
        for node in (1, 2, 3):
            cluster.spawn(node)
        cluster.wait_for(1, 2, 3)
    finally:
        cluster.stop_all()


def test_logs_may_take_longer_to_open_than_a_registration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = LogManager.load_all

    async def slow(self: LogManager, *given: Any) -> None:
        await asyncio.sleep(2.5)
        await opened(self, *given)

    monkeypatch.setattr(LogManager, "load_all", slow)
    with EngineCluster(tmp_path, made=layout(tmp_path, brokers=1, settings={TIMEOUT: "1500"})) as cluster:
        assert cluster.broker(1).server.epoch >= 0


def test_a_broker_whose_metadata_topic_wants_three_tiers_nothing_until_the_others_come(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = layout(tmp_path, brokers=3, tiering=True)

    async def play() -> None:
        cluster = Cluster(made)
        await cluster.start_broker(1)
        metadata = cluster.brokers[1].services.metadata
        while not any("Nothing is tiered yet" in record.getMessage() for record in caplog.records):
            await asyncio.sleep(0.05)
        assert metadata.image.topic(METADATA_TOPIC) is None
        await asyncio.gather(cluster.start_broker(2), cluster.start_broker(3))
        assert await metadata.wait_for(lambda image: image.topic(METADATA_TOPIC) is not None, 30_000)
        assert not cluster.brokers[1].failed.done()
        await cluster.stop()

    asyncio.run(play())
