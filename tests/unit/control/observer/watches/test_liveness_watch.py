"""Endangered partitions in the watch over the living: they stay while questions fail, and go with a leader."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from backend.control.findings.broker_absences import BrokerAbsences
from backend.control.findings.finding_context import ClusterSilence
from backend.control.gateway.broker_connection import BrokerAddress
from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import Gateway
from backend.control.gateway.requests.eligible_replica_requests import EligiblePage, EligibleReplicas
from backend.control.gateway.requests.metadata_requests import (
    BrokerMetadata,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from backend.control.gateway.requests.offset_requests import ListedOffset
from backend.control.observer.watches import liveness_watch
from backend.control.observer.watches.liveness_watch import (
    REJOINING_S,
    BrokerLiveness,
    Liveness,
    LivenessWatch,
    metadata_interval_s,
    rejoining_brokers,
    returning_brokers,
)
from backend.protocol.errors import ErrorCode
from backend.tiering.ids import TopicPartition

ORDERS_0 = TopicPartition("orders", 0)


def cluster(alive: tuple[int, ...], leader: int = -1) -> ClusterMetadata:
    row = PartitionMetadata("orders", bytes(16), 0, leader, 5, (3, 1), (), (), ErrorCode.NONE)
    brokers = tuple(BrokerMetadata(number, BrokerAddress("localhost", number), None) for number in alive)
    topic = TopicMetadata(topic="orders", topic_id=bytes(16), internal=False, partitions=(row,))
    return ClusterMetadata("c1", 1, brokers, (topic,))


def test_a_broker_that_is_stopped_endangers_its_partition_until_that_is_led(monkeypatch: pytest.MonkeyPatch) -> None:
    views = iter([cluster((1, 3)), cluster((1,)), cluster((1,)), cluster((1,), leader=1)])
    pages = iter([True, True, False])
    seen: list[Liveness] = []

    async def fetch_cluster(*_: Any, **__: Any) -> ClusterMetadata:
        return next(views)

    async def fetch_eligible(*_: Any, **__: Any) -> EligiblePage:
        if not next(pages):
            raise GatewayError("It did not answer.")
        return EligiblePage({ORDERS_0: EligibleReplicas((), (3,))})

    async def fetch_log_ends(_: Any, rows: Any, alive: Any) -> dict[tuple[TopicPartition, int], ListedOffset]:
        ends = {1: ListedOffset(1000, 4), 3: ListedOffset(0, -1)}
        return {(row.topic_partition, number): ends[number] for row in rows for number in alive}

    async def fetch_missing_rights(*_: Any) -> tuple[()]:
        return ()

    for function in (fetch_cluster, fetch_eligible, fetch_log_ends, fetch_missing_rights):
        monkeypatch.setattr(liveness_watch, function.__name__, function)
    monkeypatch.setattr(liveness_watch, "METADATA_INTERVAL_S", 0.0)
    monkeypatch.setattr(liveness_watch, "METADATA_S_PER_PARTITION", 0.0)

    async def play() -> None:
        watch = LivenessWatch(cast(Gateway, None), seen.append, lambda: 1)
        task = asyncio.create_task(watch.run())
        async with asyncio.timeout(10):
            while len(seen) < 4:
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(play())
    endangered = [dict(liveness.endangered.by_partition) for liveness in seen[:4]]
    assert endangered[0][ORDERS_0].last_leader == 3
    assert endangered[1] == endangered[2] == endangered[0]
    assert endangered[3] == {}
    assert [liveness.listed for liveness in seen[:2]] == [frozenset({1, 3}), frozenset({1})]


def test_brokers_answer_from_the_first_answer_until_none_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether rounds of samples end well is another question: those of another cluster answer, too."""
    views: list[ClusterMetadata | None] = [None, cluster((1,), leader=1), None]
    seen: list[bool] = []

    async def fetch_cluster(*_: Any, **__: Any) -> ClusterMetadata:
        view = views[min(len(seen), len(views) - 1)]
        if view is None:
            raise GatewayError("It did not answer.")
        return view

    async def fetch_missing_rights(*_: Any) -> tuple[()]:
        return ()

    for function in (fetch_cluster, fetch_missing_rights):
        monkeypatch.setattr(liveness_watch, function.__name__, function)
    monkeypatch.setattr(liveness_watch, "METADATA_INTERVAL_S", 0.0)
    monkeypatch.setattr(liveness_watch, "METADATA_S_PER_PARTITION", 0.0)

    async def watch() -> None:
        ended = asyncio.Event()

        def submit(_: Liveness) -> None:
            if len(seen) < len(views):
                seen.append(watched.brokers_answer)
            if len(seen) == len(views):
                ended.set()

        watched = LivenessWatch(cast(Gateway, None), submit, lambda: 0)
        assert not watched.brokers_answer
        task = asyncio.create_task(watched.run())
        await asyncio.wait_for(ended.wait(), 10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(watch())
    assert seen == [False, True, False]


def test_an_outage_of_the_whole_cluster_is_no_absence_of_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was stopped twice, before all of them were, would be a broker that comes and goes."""
    up: set[int] = {1, 2}
    newest = Liveness(0)

    class Connections:
        async def connection(self, broker_id: int, _lane: Any) -> Connections:
            if broker_id not in up:
                raise GatewayError("It does not answer.")
            return self

        async def ask(self, *_: Any, **__: Any) -> None:
            return None

        def give_up(self, *_: Any) -> None:
            return None

    async def fetch_cluster(*_: Any, **__: Any) -> ClusterMetadata:
        if not up:
            raise GatewayError("It does not answer.")
        return cluster(tuple(up), leader=1)

    async def fetch_missing_rights(*_: Any) -> tuple[()]:
        return ()

    for function in (fetch_cluster, fetch_missing_rights):
        monkeypatch.setattr(liveness_watch, function.__name__, function)
    for name in ("PROBE_INTERVAL_S", "METADATA_INTERVAL_S", "METADATA_S_PER_PARTITION"):
        monkeypatch.setattr(liveness_watch, name, 0.0)

    def submit(liveness: Liveness) -> None:
        nonlocal newest
        newest = liveness

    async def watch() -> None:
        watched = LivenessWatch(cast(Gateway, Connections()), submit, lambda: 7)
        task = asyncio.create_task(watched.run())
        watched.set_brokers(frozenset({1, 2}))

        async def living(brokers: set[int]) -> None:
            up.clear()
            up.update(brokers)
            while {b.broker_id for b in newest.brokers.values() if b.error is None and b.seen_ms} != brokers:
                await asyncio.sleep(0)
            while (newest.away is None) != bool(brokers):
                await asyncio.sleep(0)

        for brokers in ({1, 2}, {1}, {1, 2}, {1}, {1, 2}, set(), {1, 2}):
            await living(brokers)
        assert newest.repeated_absences == {}
        for brokers in ({1}, {1, 2}, {1}, {1, 2}, {1}):
            await living(brokers)
        assert newest.repeated_absences[2].count == 3
        task.cancel()
        watched.set_brokers(frozenset())
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(watch(), 10))


def test_a_broker_that_is_listed_again_and_was_silent_before_that_has_just_started() -> None:
    """In a rolling restart its replicas are in sync before it is asked again, while the next broker stops."""
    silent = {
        1: BrokerLiveness(1, 5, None, asked_s=9.0),
        2: BrokerLiveness(2, 5, "Connection refused.", asked_s=9.0),
        3: BrokerLiveness(3, 5, "It hangs.", asked_s=9.0),
        4: BrokerLiveness(4, 5, "It is not listed.", asked_s=9.0),
    }
    assert returning_brokers(silent, {1: 10.0, 2: 10.0, 3: 1.0}) == {2}


def test_a_broker_that_answers_again_is_about_to_join_the_isrs_for_a_moment() -> None:
    since = BrokerAbsences(1, 0.0, returned_s=10.0)
    brokers = {
        1: BrokerLiveness(1, 5),
        2: BrokerLiveness(2, 5, absences=since),
        3: BrokerLiveness(3, 5, "Connection refused.", absences=since),
    }
    assert rejoining_brokers(brokers, 10.0 + REJOINING_S - 0.1) == {2}
    assert rejoining_brokers(brokers, 10.0 + REJOINING_S) == frozenset()


def test_a_broker_that_goes_away_is_told_while_another_question_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rights are asked for on any broker, and may wait for the one that hangs for longer than that may be told late."""
    reached: list[int] = []
    seen: list[Liveness] = []

    class Connections:
        async def connection(self, broker_id: int, _lane: Any) -> Connections:
            reached.append(broker_id)
            if len(reached) > 1:
                raise GatewayError("It does not answer.")
            return self

        async def ask(self, *_: Any, **__: Any) -> None:
            return None

        def give_up(self, *_: Any) -> None:
            return None

    async def fetch_cluster(*_: Any, **__: Any) -> ClusterMetadata:
        return cluster((1,), leader=1)

    async def fetch_missing_rights(*_: Any) -> tuple[()]:
        await asyncio.Event().wait()
        return ()

    for function in (fetch_cluster, fetch_missing_rights):
        monkeypatch.setattr(liveness_watch, function.__name__, function)
    monkeypatch.setattr(liveness_watch, "PROBE_INTERVAL_S", 0.0)
    monkeypatch.setattr(liveness_watch, "PROBE_ANSWER_S", 60.0)
    for name in ("METADATA_INTERVAL_S", "METADATA_S_PER_PARTITION", "METADATA_ANSWER_S"):
        monkeypatch.setattr(liveness_watch, name, 0.0)

    async def watch() -> None:
        watched = LivenessWatch(cast(Gateway, Connections()), seen.append, lambda: 7)
        task = asyncio.create_task(watched.run())
        while not watched.brokers_answer:
            await asyncio.sleep(0)
        watched.set_brokers(frozenset({1}))
        while not seen:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(watch(), 10))
    assert (seen[0].brokers[1].seen_ms, seen[0].brokers[1].error) == (7, "It does not answer.")
    assert seen[0].away == ClusterSilence(7, "It does not answer."), "no other one answers: the cluster is away"


@pytest.mark.parametrize(
    ("partitions", "interval_s"), [(0, 1.0), (230, 1.0), (10_000, 3.0), (50_000, 5.0), (1_000_000, 5.0)]
)
def test_leaders_and_isr_are_asked_for_every_5_s_at_any_size(partitions: int, interval_s: float) -> None:
    assert metadata_interval_s(partitions) == pytest.approx(interval_s)
