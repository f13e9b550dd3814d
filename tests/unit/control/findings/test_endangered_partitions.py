"""Partitions whose last leader has less than another replica: from the first sign until another one leads."""

from __future__ import annotations

from typing import Any

from backend.control.findings.endangered_partitions import (
    ENDANGERED_MAX,
    EndangeredPartitions,
    endangered_of_evidence,
)
from backend.control.gateway.requests.eligible_replica_requests import EligibleReplicas
from backend.control.gateway.requests.metadata_requests import PartitionMetadata
from backend.control.gateway.requests.offset_requests import ListedOffset
from backend.control.observer.sampling.leaderless_logs import PARTITIONS_MAX, undecided
from backend.protocol.errors import ErrorCode
from backend.tiering.ids import TopicPartition

ORDERS_0 = TopicPartition("orders", 0)
WAITS_FOR_3 = {ORDERS_0: EligibleReplicas((), (3,))}
# The longest log is of an older epoch: broker 1's is the best.
ENDS = {
    (ORDERS_0, 1): ListedOffset(1000, 4),
    (ORDERS_0, 2): ListedOffset(2000, 3),
    (ORDERS_0, 3): ListedOffset(0, -1),
}
LIVING_ENDS = {key: end for key, end in ENDS.items() if key[1] != 3}


NOW_MS = 1_000_000


def partition(number: int = 0, **more: Any) -> PartitionMetadata:
    values: dict[str, Any] = {"leader": -1, "leader_epoch": 5, "replicas": (3, 1, 2), "isr": (), "offline": ()}
    return PartitionMetadata("orders", bytes(16), partition=number, error=ErrorCode.NONE, **values | more)


def seen() -> EndangeredPartitions:
    return EndangeredPartitions().next([partition()], WAITS_FOR_3, ENDS, at_ms=NOW_MS)


def test_a_last_leader_with_less_than_another_endangers_its_partition() -> None:
    endangered = seen().by_partition[ORDERS_0]
    assert (endangered.last_leader, endangered.best) == (3, 1)
    assert endangered.log_ends == {3: (-1, 0), 1: (4, 1000), 2: (3, 2000)}
    assert seen().last_leaders == {3}


def test_a_stopped_broker_is_remembered_until_another_one_leads() -> None:
    stopped = seen().next([partition()], WAITS_FOR_3, LIVING_ENDS, at_ms=NOW_MS)
    assert stopped == seen()
    assert stopped.next([partition()], {}, {}, at_ms=NOW_MS) == seen(), "nobody answered"
    assert stopped.next([partition(leader=1, isr=(1,))], {}, {}, at_ms=NOW_MS).by_partition == {}
    assert stopped.next([], {}, {}, at_ms=NOW_MS).by_partition == {}, "the topic is gone"
    assert stopped.next([partition()], {ORDERS_0: EligibleReplicas((1,))}, {}, at_ms=NOW_MS).by_partition == {}


def test_a_last_leader_that_has_its_old_disk_again_endangers_nothing() -> None:
    whole = LIVING_ENDS | {(ORDERS_0, 3): ListedOffset(1000, 4)}
    assert seen().next([partition()], WAITS_FOR_3, whole, at_ms=NOW_MS).by_partition == {}


def test_nothing_is_concluded_of_a_last_leader_that_never_answered() -> None:
    assert EndangeredPartitions().next([partition()], WAITS_FOR_3, LIVING_ENDS, at_ms=NOW_MS).by_partition == {}
    assert (
        EndangeredPartitions()
        .next([partition()], {ORDERS_0: EligibleReplicas((3,), (3,))}, ENDS, at_ms=NOW_MS)
        .by_partition
        == {}
    )


def test_the_evidence_of_a_finding_gives_them_back_to_the_next_process() -> None:
    endangered = seen().by_partition[ORDERS_0]
    assert endangered_of_evidence(3, {"partitions": [endangered.evidence()]}) == [endangered]
    assert endangered_of_evidence(3, {"partitions": [{"partition": "orders-0", "log_end_offset": 0}]}) == []
    assert endangered_of_evidence(3, {}) == []


def test_as_many_are_remembered_as_can_be_looked_at() -> None:
    rows = [partition(number) for number in range(ENDANGERED_MAX + 1)]
    waiting = {row.topic_partition: EligibleReplicas((), (3,)) for row in rows}
    ends = {
        (row.topic_partition, broker): ListedOffset(broker == 1, 0 if broker == 1 else -1)
        for row in rows
        for broker in (1, 3)
    }
    assert len(EndangeredPartitions().next(rows, waiting, ends, at_ms=NOW_MS).by_partition) == ENDANGERED_MAX


def test_partitions_that_are_too_many_to_be_looked_at_are_counted() -> None:
    rows = [partition(number) for number in range(PARTITIONS_MAX + 10)]
    waiting = {row.topic_partition: EligibleReplicas((), (3,)) for row in rows}
    read, unread = undecided(rows, waiting, complete=True)
    assert (len(read), unread) == (PARTITIONS_MAX, 10)
    assert undecided(rows, {}, complete=False) == ([], len(rows))
    assert undecided(rows, {}, complete=True) == ([], 0), "the cluster does not tell"
    assert undecided([partition(leader=1), partition(isr=(2,))], {}, complete=False) == ([], 0)


def test_the_time_at_which_it_was_first_seen_stays_from_look_to_look() -> None:
    later = seen().next([partition()], WAITS_FOR_3, ENDS, at_ms=NOW_MS + 9_000)
    assert later.by_partition[ORDERS_0].since_ms == NOW_MS
    led = later.next([partition(leader=1)], {}, {}, at_ms=NOW_MS + 10_000)
    again = led.next([partition()], WAITS_FOR_3, ENDS, at_ms=NOW_MS + 11_000)
    assert again.by_partition[ORDERS_0].since_ms == NOW_MS + 11_000
