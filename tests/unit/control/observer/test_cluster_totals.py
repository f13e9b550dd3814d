"""Sums over the cluster: bytes produced, each partition's records times its own bytes per record, and sums of now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from backend.control.findings.finding_context import ClusterSilence
from backend.control.gateway.requests.metadata_requests import PartitionMetadata
from backend.control.observer.cluster_totals import produced, totals_now
from backend.control.observer.watches.liveness_watch import BrokerLiveness, Liveness
from backend.protocol.errors import ErrorCode
from backend.store.writes.samples import PartitionSample


def partition(topic: str, log_end: int | None, **more: Any) -> PartitionSample:
    row: dict[str, Any] = {
        "topic": topic,
        "partition": 0,
        "topic_id": f"id-{topic}",
        "leader": 1,
        "leader_epoch": 0,
        "replicas": (1,),
        "isr": (1,),
        "tiered": True,
        "local_log_start_offset": 0,
        "log_end_offset": log_end,
    }
    return PartitionSample(**{**row, **more})


def since(before: list[PartitionSample], now: list[PartitionSample]) -> int | None:
    return produced(now, {(p.topic, p.partition): p for p in before})


BIG, TINY = partition("big", 1_000), partition("tiny", 5_000_000)


def test_records_of_very_different_size_count_with_the_size_of_their_own_partition() -> None:
    big = partition("big", 1_100, local_log_bytes=1_100 * 10_000)
    tiny = partition("tiny", 5_000_200, local_log_bytes=5_000_200 * 10)
    assert since([BIG, TINY], [big, tiny]) == 100 * 10_000 + 200 * 10


def test_an_idle_partition_adds_nothing_whatever_its_records_are() -> None:
    big = partition("big", 1_100, local_log_bytes=1_100 * 10_000)
    idle = replace(TINY, local_log_bytes=5_000_000 * 10)
    assert since([BIG, TINY], [big, idle]) == since([BIG], [big]) == 1_000_000


def test_only_the_local_records_tell_the_size_when_the_others_are_remote() -> None:
    assert since([BIG], [partition("big", 1_100, local_log_start_offset=900, local_log_bytes=400)]) == 200


def test_what_is_not_known_is_left_out_and_no_number_when_it_is_all() -> None:
    unsized = partition("big", 1_100)
    tiny = partition("tiny", 5_000_200, local_log_bytes=5_000_200 * 10)
    assert since([BIG, TINY], [unsized, tiny]) == 2_000
    assert since([BIG], [unsized]) is None
    assert since([], [tiny]) is None
    assert since([BIG], [partition("big", None)]) is None
    assert since([BIG], [partition("big", 1_100, local_log_bytes=1_100, answered_ms=1)]) is None


def test_a_topic_made_anew_and_records_taken_back_are_no_production() -> None:
    assert since([BIG], [partition("big", 1_100, topic_id="other", local_log_bytes=1_100)]) is None
    assert since([BIG], [partition("big", 900, local_log_bytes=900)]) == 0


def test_partitions_that_are_not_tiered_do_not_count() -> None:
    assert since([BIG], [partition("big", 1_100, tiered=False, local_log_bytes=1_100)]) is None


ROUND = {
    "brokers": 3,
    "brokers_reachable": 3,
    "offline_partitions": 0,
    "replicas_not_in_sync": 0,
    "local_log_bytes": 500,
}
AWAY = ClusterSilence(1_000, "No broker answered in 3 s.")


def listed(leader: int, isr: tuple[int, ...]) -> PartitionMetadata:
    return PartitionMetadata("orders", bytes(16), 0, leader, 0, (1, 2), isr, (), ErrorCode.NONE)


def brokers(*alive: int) -> dict[int, BrokerLiveness]:
    return {n: BrokerLiveness(n, 900, None if n in alive else f"Broker {n} refuses connections.") for n in (1, 2, 3)}


def test_between_two_rounds_brokers_leaders_and_isr_are_those_of_liveness() -> None:
    liveness = Liveness(2_000, brokers(1), (listed(1, (1,)), listed(-1, (2,))))
    now = totals_now(ROUND, liveness, fresh=True)
    changed = {"brokers_reachable": 1, "offline_partitions": 1, "replicas_not_in_sync": 2}
    assert now == {**ROUND, **changed}
    assert totals_now(ROUND, Liveness(2_000), fresh=True) == ROUND


def test_sums_of_a_round_that_is_not_fresh_are_not_known_and_never_those_of_before() -> None:
    away = Liveness(2_000, brokers(), (listed(1, (1, 2)),), away=AWAY)
    assert totals_now(ROUND, away, fresh=False) == dict.fromkeys(ROUND) | {"brokers": 3, "brokers_reachable": 0}
    hangs = Liveness(2_000, brokers(1, 2), (listed(1, (1,)),))
    live = {"brokers": 3, "brokers_reachable": 2, "offline_partitions": 0, "replicas_not_in_sync": 1}
    assert totals_now(ROUND, hangs, fresh=False) == {"local_log_bytes": None, **live}
