"""Advice that outlives the process that gave it: a stopped broker, and records that only one broker has."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from backend.control.control_database import Database
from backend.control.findings.endangered_partitions import EndangeredPartition, EndangeredPartitions
from backend.control.findings.unclean_elections import ElectionMemory, UncleanElection
from backend.control.gateway.requests.metadata_requests import PartitionMetadata
from backend.control.observer.restored_context import merge_contexts, restore_context, restore_endangered
from backend.control.observer.sampling.settings_sample import SettingsSample
from backend.control.observer.sampling_round import RoundContext, SamplingRound
from backend.control.observer.watches.finding_contexts import ObservedLiveness, ObservedRound
from backend.control.observer.watches.finding_watch import FindingWatch
from backend.control.observer.watches.liveness_watch import BrokerLiveness, Liveness
from backend.protocol.errors import ErrorCode
from backend.store.connection.database import reading
from backend.store.queries import findings as queries
from backend.tiering.ids import TopicPartition
from tests.databases import new_sqlite
from tests.unit.control.findings.sights import NOW_MS, broker, partition, topic

CLUSTER: Final = "c1"
ORDERS_0: Final = TopicPartition("orders", 0)
EMPTY_3: Final = EndangeredPartition(ORDERS_0, 3, {3: (-1, 0), 1: (4, 1000), 2: (4, 1000)})
ELECTION: Final = UncleanElection("orders", 0, "id-orders", NOW_MS, 3, 6, 100, 150, 2, (2,), (2,))
BROKERS: Final = [asdict(broker(number)) for number in (1, 2, 3)]
TOPICS: Final = [asdict(topic()), asdict(topic("__remote_log_metadata"))]


def living(*, broker_3: bool, leader: int = -1) -> ObservedLiveness:
    view = PartitionMetadata("orders", bytes(16), 0, leader, 5, (3, 1, 2), (), (), ErrorCode.NONE)
    answering = {number: BrokerLiveness(number, NOW_MS) for number in (1, 2)}
    answering[3] = BrokerLiveness(3, NOW_MS, None if broker_3 else "Connection refused.")
    endangered = EndangeredPartitions({ORDERS_0: EMPTY_3} if leader < 0 else {})
    listed = frozenset({1, 2, 3} if broker_3 else {1, 2})
    seen = Liveness(NOW_MS, answering, (view,), endangered=endangered, listed=listed)
    return ObservedLiveness(seen, BROKERS, TOPICS)


def judged(database: Database, *all_seen: ObservedRound | ObservedLiveness) -> list[Any]:
    """The open findings after each."""

    async def play() -> list[Any]:
        states: list[Any] = []
        result = []
        watch = FindingWatch(database, CLUSTER, attached=True, notify=states.append)
        task = asyncio.create_task(watch.run())
        for seen in all_seen:
            before = len(states)
            if isinstance(seen, ObservedRound):
                watch.submit(seen)
            else:
                watch.submit_liveness(seen)
            async with asyncio.timeout(60):
                while len(states) == before:
                    await asyncio.sleep(0.005)
            with reading(database.engine) as connection:
                result.append({(f.slug, f.object): f for f in queries.all_open(connection, CLUSTER)})
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return result

    return asyncio.run(play())


def test_a_broker_that_was_stopped_as_advised_stays_stopped_in_the_next_process(tmp_path: Path) -> None:
    database = Database(new_sqlite(tmp_path / "0.db"))
    running, stopped = judged(database, living(broker_3=True), living(broker_3=False))
    key = ("last-leader-behind", "broker 3")
    assert running[key].action.startswith("Stop broker 3.")
    assert "--election-type unclean --topic orders --partition 0" in stopped[key].action
    assert stopped[key].id == running[key].id
    assert (stopped["broker-away", "broker 3"].cause, stopped["offline", "orders-0"].cause) == (key, key)
    with reading(database.engine) as connection:
        assert restore_endangered(connection, CLUSTER) == [EMPTY_3]
    (led,) = judged(database, living(broker_3=False, leader=1))
    assert key not in led
    asyncio.run(database.close())


def test_records_that_only_one_broker_has_are_remembered_by_the_next_process(tmp_path: Path) -> None:
    database = Database(new_sqlite(tmp_path / "0.db"))
    row = partition(leader=3, isr=(3,), replicas=(2, 3), tiered=False)
    round_ = SamplingRound(NOW_MS, (row,), (), {}, {}, ElectionMemory({("orders", 0): ELECTION}))
    judged(database, ObservedRound(round_, BROKERS, TOPICS, SettingsSample()))
    with reading(database.engine) as connection:
        restored = restore_context(connection, CLUSTER, 1_000)
    assert restored.elections.elections == {("orders", 0): ELECTION}
    newer = replace(ELECTION, unsaved=())
    seen = RoundContext(elections=ElectionMemory({("orders", 0): newer}))
    assert merge_contexts(restored, seen).elections.elections == {("orders", 0): newer}
    asyncio.run(database.close())
