"""A round that takes over results of the round before equals a round from nothing, over random lives of a cluster."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from backend.control.gateway.broker_connection import BrokerAddress
from backend.control.gateway.requests.metadata_requests import BrokerMetadata, PartitionMetadata
from backend.control.gateway.requests.rights_requests import TOPICS, MissingRight
from backend.control.memo import Memo
from backend.control.observer.sampling.cluster_facts import (
    BrokerFacts,
    ClusterFacts,
    LedgerSums,
    PartitionFacts,
    RemoteFacts,
    ReplicaFacts,
    TopicFacts,
)
from backend.control.observer.sampling_round import RoundCache, RoundContext, SamplingRound, conclude_round
from backend.protocol.errors import ErrorCode
from backend.tiering.follower_phase import FollowerPhase
from backend.tiering.ids import uuid_text
from backend.tiering.phase_inference import (
    ExactPhase,
    FollowerMemory,
    FollowerObservation,
    infer_phase,
    phase_unchanged,
    unchanged_conclusion,
)

BROKERS = (1, 2, 3)
ROUND_MS = 2_000


def start(partition: int) -> PartitionFacts:
    view = PartitionMetadata("orders", bytes([7] * 16), partition, 1, 0, BROKERS, BROKERS, (), ErrorCode.NONE)
    replicas = {b: ReplicaFacts(b, log_start=0, local_start=0, latest_tiered=-1, log_end=10) for b in BROKERS}
    return PartitionFacts(view, True, False, replicas, pending=0, high_watermark=10, epochs=((0, 0),))


def changed(random: Random, facts: PartitionFacts) -> PartitionFacts:
    """One thing that may happen to a partition between two rounds."""
    broker_id = random.choice(BROKERS)
    replica = facts.replicas[broker_id]
    log_end = random.choice((None, 0, (replica.log_end or 0) + 1))
    match random.randrange(5):
        case 0:
            return replace(facts, replicas={**facts.replicas, broker_id: replace(replica, log_end=log_end)})
        case 1:
            isr = tuple(b for b in BROKERS if b != broker_id or random.random() < 0.5)
            return replace(facts, view=replace(facts.view, isr=isr))
        case 2:
            return replace(facts, view=replace(facts.view, leader=random.choice((-1, *BROKERS))))
        case 3:
            return replace(facts, view=replace(facts.view, topic_id=bytes([random.randrange(2)] * 16)))
        case _:
            return replace(facts, pending=random.choice((-1, 0, 5)), error=random.choice((None, "It is lost.")))


def test_a_leader_that_lacks_acknowledged_records_is_remembered_from_round_to_round() -> None:
    before = start(0)
    lagging = {**before.replicas, 3: replace(before.replicas[3], log_end=4)}
    led_by_3 = replace(before.view, leader=3, leader_epoch=2, isr=(3,))
    after = replace(before, view=led_by_3, high_watermark=4, replicas=lagging)
    context = RoundContext()
    for number, partition in enumerate((before, after, after)):
        brokers = {
            b: BrokerFacts(BrokerMetadata(b, BrokerAddress("localhost", b), None), reachable=True) for b in BROKERS
        }
        round_ = conclude_round(ClusterFacts(number * ROUND_MS, "c", 1, {}, brokers, (), (partition,)), context)
        context = round_.next_context(context)
    (election,) = round_.elections.elections.values()
    assert (election.leader, election.former_leader, election.lost, election.at_ms) == (3, 1, 6, ROUND_MS)
    assert election.unsaved == (1, 2)


def life(seed: int) -> list[ClusterFacts]:
    random = Random(seed)
    partitions = [start(number) for number in range(4)]
    rounds = []
    for number in range(60):
        partitions = [p if random.random() < 0.7 else changed(random, p) for p in partitions]
        brokers = {
            b: BrokerFacts(BrokerMetadata(b, BrokerAddress("localhost", b), None), reachable=random.random() < 0.9)
            for b in BROKERS
        }
        rounds.append(ClusterFacts(number * ROUND_MS, "c", 1, {}, brokers, (), tuple(partitions)))
    return rounds


def ledger(random: Random) -> LedgerSums:
    """The rows that the pipeline may have stored by then."""
    copied = random.choice((None, 3, 9))
    keys = [(uuid_text(bytes([topic] * 16)), number) for topic in (0, 1, 7) for number in range(4)]
    return LedgerSums({key: RemoteFacts(100, 1, copied) for key in keys if random.random() < 0.8})


@pytest.mark.parametrize("seed", range(30))
def test_a_life_is_told_the_same_with_and_without_what_was_concluded_before(seed: int) -> None:
    def sample_rounds(unchanged: RoundCache | None) -> list[SamplingRound]:
        context, rounds, random = RoundContext(), [], Random(seed)
        for facts in life(seed):
            if random.random() < 0.3:
                context = replace(context, ledger=ledger(random), flags={b: random.random() < 0.5 for b in BROKERS})
            rounds.append(conclude_round(facts, context, unchanged))
            context = rounds[-1].next_context(context)
        return rounds

    assert sample_rounds(RoundCache()) == sample_rounds(None)


def test_a_follower_that_stays_in_sync_is_concluded_as_the_whole_rules_would() -> None:
    for seed in range(2_000):
        random = Random(seed)
        memory = FollowerMemory(
            random.choice((*FollowerPhase, None)), random.randrange(9), random.choice((None, 0, 5)), 3
        )
        seen: dict[str, Any] = {"in_isr": random.random() < 0.8, "reachable": random.random() < 0.8}
        log_end = random.choice((None, 0, 5, 6))
        sight = FollowerObservation(
            **seen,
            at_ms=100_000,
            log_start=0,
            local_start=0,
            log_end=log_end,
            leader_log_start=0,
            leader_local_start=random.choice((0, 3)),
            leader_log_end=6,
            tiered=True,
            exact=random.choice((None, ExactPhase(FollowerPhase.FETCHING, 1, {}))),
        )
        quiet = infer_phase(memory, sight) == (memory, unchanged_conclusion(memory))
        assert phase_unchanged(memory, **seen, log_end=log_end) == quiet, (memory, sight)


def test_what_did_not_change_is_the_very_object_of_the_round_before() -> None:
    facts = life(1)[0]
    quiet = [replace(facts, at_ms=number * ROUND_MS) for number in range(4)]
    unchanged, context, rounds = RoundCache(), RoundContext(), []
    for at in quiet:
        rounds.append(conclude_round(at, context, unchanged))
        context = rounds[-1].next_context(context)
    # The first round learns, the second sees that nothing moved.
    for before, after in ((rounds[2].partitions, rounds[3].partitions), (rounds[2].replicas, rounds[3].replicas)):
        assert all(a is b for a, b in zip(before, after, strict=True))


def test_a_memo_makes_anew_what_is_made_of_other_things_and_forgets_what_nobody_asks_for() -> None:
    made: list[tuple[int, int]] = []

    def add(a: int, b: int) -> int:
        made.append((a, b))
        return a + b

    memo: Memo[str, int] = Memo()
    memo.begin_round()
    assert (memo.value("x", add, 1, 2), memo.value("y", add, 3, 4)) == (3, 7)
    memo.begin_round()
    assert (memo.value("x", add, 1, 2), memo.value("x", add, 1, 5)) == (3, 6)
    memo.begin_round()
    assert (memo.value("x", add, 1, 5), memo.value("y", add, 3, 4)) == (6, 7)
    assert made == [(1, 2), (3, 4), (1, 5), (3, 4)]


def test_a_tiered_partition_that_the_ledger_does_not_know_has_nothing_remote_once_everything_was_read() -> None:
    facts = ClusterFacts(1, "c", 1, {}, {}, (), (start(0),))

    def remote(ledger_sums: LedgerSums) -> set[int | None]:
        return {row.remote_log_bytes for row in conclude_round(facts, RoundContext(ledger=ledger_sums)).partitions}

    assert remote(LedgerSums()) == {None}, "nobody counts, or not yet"
    assert remote(LedgerSums(complete=True)) == {0}


def test_the_last_stable_offset_is_kept_with_the_others_while_the_leader_is_silent() -> None:
    partition = replace(start(0), last_stable=7)
    facts = ClusterFacts(1, "c", 1, {}, {}, (), (partition,))
    first = conclude_round(facts, RoundContext())
    assert first.partitions[0].last_stable_offset == 7
    silent = replace(partition, replicas={1: ReplicaFacts(1, error="away")}, last_stable=None, high_watermark=None)
    later = replace(facts, at_ms=2, partitions=(silent,))
    second = conclude_round(later, first.next_context(RoundContext()))
    assert second.partitions[0].last_stable_offset == 7


@pytest.mark.parametrize("operation", ["Describe", "DescribeConfigs"])
def test_remote_bytes_are_not_known_while_a_right_on_topics_is_missing(operation: str) -> None:
    """Internal topics are still seen, as if nothing were tiered."""
    internal = replace(start(0), tiered=False)
    facts = ClusterFacts(1, "c", 1, {}, {}, (), (internal,))
    ledger = LedgerSums(complete=True)
    missing = (MissingRight(operation, TOPICS),)
    blind = conclude_round(facts, RoundContext(ledger=ledger, missing_rights=missing))
    assert blind.totals["remote_log_bytes"] is None
    assert [row.remote_log_bytes for row in blind.partitions] == [None], "whether it is tiered is not known"
    assert conclude_round(facts, RoundContext(ledger=ledger)).totals["remote_log_bytes"] == 0


def test_a_topic_whose_settings_are_known_has_nothing_remote_though_others_are_hidden() -> None:
    internal = replace(start(0), tiered=False)
    topic = TopicFacts(internal.view.topic, internal.view.topic_id, 1, 1, internal=True, config={})
    facts = ClusterFacts(1, "c", 1, {}, {}, (topic,), (internal,))
    context = RoundContext(missing_rights=(MissingRight("Describe", TOPICS),))
    assert [row.remote_log_bytes for row in conclude_round(facts, context).partitions] == [0]


def test_remote_bytes_are_not_0_while_the_ledger_counts_some_of_topics_that_are_not_seen() -> None:
    """The moment after rights were lost, and before they are asked for again."""
    facts = ClusterFacts(1, "c", 1, {}, {}, (), (replace(start(0), tiered=False),))
    ledger = LedgerSums({("hidden", 0): RemoteFacts(900, 1, 9)}, complete=True)
    assert conclude_round(facts, RoundContext(ledger=ledger)).totals["remote_log_bytes"] is None
