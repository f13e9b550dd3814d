"""A partition's place in a move, the next request, the limits that are set, the cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.control.gateway.requests.config_requests import BROKER, TOPIC, ConfigResource
from backend.control.operations.config.topic_config_rules import check_topic_config, deletes_remote
from backend.control.operations.lifecycle.plan_draft import CheckOutcome
from backend.control.operations.reassign import copy_estimate, reassignment_checks, replication_throttles
from backend.control.operations.reassign.copy_estimate import ReplicaCopy
from backend.control.operations.reassign.partition_moves import (
    CurrentReplicas,
    MoveState,
    PlannedMove,
    move_state,
    move_states,
    next_batch,
    rollback_request,
)
from backend.control.operations.reassign.reassignment_checks import ReassignmentFacts
from backend.control.operations.reassign.replication_throttles import (
    FOLLOWER_REPLICAS,
    HIDDEN,
    LEADER_RATE,
    LEADER_REPLICAS,
    Throttles,
)
from backend.protocol.config_enums import AlterConfigOp
from backend.tiering.estimate import EstimateVerdict, PartitionEstimate
from backend.tiering.ids import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
AIM = PlannedMove("id", (1, 2), (3, 2))
BEFORE = CurrentReplicas("id", (1, 2), (), (), (1, 2), 1)
MOVING = CurrentReplicas("id", (3, 2, 1), (3,), (1,), (1, 2), 1)
DONE = CurrentReplicas("id", (3, 2), (), (), (2, 3), 2)
CANCELLED = CurrentReplicas("id", (2, 1), (), (), (1, 2), 1)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (BEFORE, MoveState.WAITING),
        (MOVING, MoveState.MOVING),
        (DONE, MoveState.DONE),
        (None, MoveState.GONE),
        (replace(BEFORE, topic_id="another"), MoveState.GONE),
        (replace(MOVING, replicas=(4, 2, 1), adding=(4,)), MoveState.CHANGED),
        (replace(BEFORE, replicas=(4, 2)), MoveState.CHANGED),
    ],
)
def test_a_partition_s_standing_is_read_from_the_cluster(now: CurrentReplicas | None, expected: MoveState) -> None:
    assert move_state(AIM, now) is expected


def test_no_more_partitions_move_at_once_than_are_allowed() -> None:
    moves = {TopicPartition("t", n): AIM for n in range(5)}
    stand = dict.fromkeys(moves, MoveState.WAITING) | {TopicPartition("t", 0): MoveState.MOVING}
    assert len(next_batch(moves, stand, at_once=3).assign) == 2
    assert next_batch(moves, stand, at_once=1).nothing
    assert next_batch(moves, stand, at_once=0).nothing


def test_a_stop_cancels_what_moves_and_puts_the_old_order_back() -> None:
    moves = {A: AIM, B: AIM}
    first = rollback_request(moves, {A: MOVING, B: DONE}, move_states(moves, {A: MOVING, B: DONE}))
    assert (list(first.cancel), first.assign) == ([A], {})
    then = rollback_request(moves, {A: CANCELLED, B: DONE}, move_states(moves, {A: CANCELLED, B: DONE}))
    assert (list(then.cancel), then.assign) == ([], {A: (1, 2)})
    assert rollback_request(moves, {A: BEFORE, B: DONE}, move_states(moves, {A: BEFORE, B: DONE})).nothing


NONE = Throttles(
    {"t": dict.fromkeys(replication_throttles.REPLICA_LISTS)},
    {b: dict.fromkeys(replication_throttles.RATES) for b in "123"},
)


def test_the_limit_names_sources_joining_replicas_and_every_broker_concerned() -> None:
    throttles = replication_throttles.throttles_for(NONE, {A: AIM, B: PlannedMove("id", (1, 2), (1,))}, 1000)
    assert throttles.topics["t"] == {LEADER_REPLICAS: "0:1,0:2", FOLLOWER_REPLICAS: "0:3"}
    assert set(throttles.brokers) == {"1", "2", "3"}
    changes = replication_throttles.changes(NONE, throttles)
    assert [resource.type for resource in changes] == [BROKER, BROKER, BROKER, TOPIC], "rates first"
    assert replication_throttles.changes(throttles, throttles) == {}


def test_what_others_named_stays_named_and_comes_back() -> None:
    before = Throttles({"t": {LEADER_REPLICAS: "7:1", FOLLOWER_REPLICAS: "*"}}, {})
    throttles = replication_throttles.throttles_for(before, {A: AIM}, 1000)
    assert throttles.topics["t"] == {LEADER_REPLICAS: "7:1,0:1,0:2", FOLLOWER_REPLICAS: "*"}
    back = replication_throttles.changes(throttles, before)[ConfigResource(TOPIC, "t")]
    assert [(change.name, change.op, change.value) for change in back] == [(LEADER_REPLICAS, AlterConfigOp.SET, "7:1")]


def test_a_rate_that_kafka_hides_is_removed_and_not_set_at_every_step() -> None:
    now = Throttles({}, {"1": {LEADER_RATE: HIDDEN}})
    same = Throttles({}, {"1": {LEADER_RATE: "1000"}})
    assert replication_throttles.changes(now, same) != {}
    assert replication_throttles.changes(now, same, trust_hidden=True) == {}
    gone = replication_throttles.changes(now, Throttles({}, {"1": {LEADER_RATE: None}}), trust_hidden=True)
    assert [change.op for change in gone[ConfigResource(BROKER, "1")]] == [AlterConfigOp.DELETE]


def test_the_flag_of_the_joining_broker_decides_which_bytes_count() -> None:
    estimate = PartitionEstimate("t", 0, EstimateVerdict.QUALIFIES, "", off_bytes=1000, on_bytes=100)
    moves = {A: PlannedMove("id", (1,), (1, 2, 3))}
    copies = copy_estimate.copies(moves, {A: 1}, {A: estimate}, {2: True, 3: False})
    result = copy_estimate.estimate_json(copies, throttle_bytes_per_s=100, age={})
    assert (result["off_bytes"], result["on_bytes"], result["in_effect_bytes"]) == (2000, 200, 1100)
    # Broker 1 sends all of it, so it is the busiest.
    assert (result["off_ms"], result["on_ms"], result["in_effect_ms"]) == (20_000, 2_000, 11_000)


FACTS = ReassignmentFacts(
    now={A: BEFORE},
    registered=frozenset({1, 2, 3}),
    alive=frozenset({1, 2, 3}),
    min_isr={"t": 1},
    tiered=frozenset({"t"}),
    without_tier=frozenset(),
    usable_bytes={3: 10_000},
    total_bytes={3: 20_000},
)
COPY = ReplicaCopy("t", 0, 3, 1, 1000, 100, False, "qualifies", "")


def failed_checks(
    move: PlannedMove = AIM, facts: ReassignmentFacts = FACTS, copy: ReplicaCopy = COPY, limit: int | None = 500
) -> dict[str, CheckOutcome]:
    checks = reassignment_checks.checks({A: move}, facts, [copy] if move.adding else [], limit)
    assert [c.outcome for c in checks] == sorted((c.outcome for c in checks), key=["refused", "warning", "ok"].index)
    return {check.name: check.outcome for check in checks if check.outcome is not CheckOutcome.OK}


def test_nothing_speaks_against_an_ordinary_move() -> None:
    assert failed_checks() == {}


@pytest.mark.parametrize(
    ("move", "facts", "copy", "limit", "expected"),
    [
        (PlannedMove("id", (1, 2), (1, 2)), FACTS, COPY, 500, {"change": "refused"}),
        (
            PlannedMove("id", (1, 2), (9, 2)),
            replace(FACTS, registered=frozenset({1, 2})),
            COPY,
            500,
            {"brokers": "refused"},
        ),
        (PlannedMove("id", (1, 2), (3, 3)), FACTS, COPY, 500, {"brokers": "refused"}),
        (AIM, replace(FACTS, alive=frozenset({1, 2})), COPY, 500, {"brokers": "refused"}),
        (AIM, replace(FACTS, now={A: replace(BEFORE, leader=-1)}), COPY, 500, {"leader": "refused"}),
        (AIM, replace(FACTS, now={A: MOVING}), COPY, 500, {"in-progress": "refused", "in-sync": "warning"}),
        (AIM, replace(FACTS, running_plan=7), COPY, 500, {"in-progress": "warning"}),
        (PlannedMove("id", (1, 2), (1,)), replace(FACTS, min_isr={"t": 2}), COPY, 500, {"in-sync": "refused"}),
        (AIM, replace(FACTS, min_isr={"t": 2}, now={A: replace(BEFORE, isr=(1,))}), COPY, 500, {"in-sync": "refused"}),
        (
            PlannedMove("id", (1, 2), (2,)),
            replace(FACTS, now={A: replace(BEFORE, isr=(1,))}),
            COPY,
            500,
            {"in-sync": "refused"},
        ),
        (AIM, replace(FACTS, without_tier=frozenset({3})), COPY, 500, {"tier": "refused"}),
        (AIM, replace(FACTS, usable_bytes={3: 999}), COPY, 500, {"space": "refused"}),
        (AIM, replace(FACTS, usable_bytes={3: 2500}), COPY, 500, {"space": "warning"}),
        (AIM, replace(FACTS, usable_bytes={}), COPY, 500, {"space": "warning"}),
        (AIM, FACTS, COPY, None, {"limit": "refused"}),
        (AIM, replace(FACTS, produced_bytes_per_s=500), COPY, 500, {"limit": "warning"}),
        (AIM, replace(FACTS, rates_set=[3]), COPY, 500, {"throttles": "refused"}),
        (AIM, replace(FACTS, lists_set=["t"]), COPY, 500, {"throttles": "warning"}),
        (AIM, FACTS, replace(COPY, flag_on=True, on_bytes=None, verdict="blocked"), 500, {"blocked": "warning"}),
        (AIM, FACTS, replace(COPY, off_bytes=None, verdict="unknown"), 500, {"estimate": "warning"}),
        (AIM, FACTS, replace(COPY, flag_on=True), 500, {"thin-leader": "warning"}),
        (
            PlannedMove("id", (1, 2), (2, 1)),
            replace(FACTS, local_bytes={(A, 1): 1000, (A, 2): 499}),
            COPY,
            500,
            {"thin-leader": "warning"},
        ),
    ],
)
def test_what_speaks_against_a_move(
    move: PlannedMove, facts: ReassignmentFacts, copy: ReplicaCopy, limit: int | None, expected: dict[str, str]
) -> None:
    assert failed_checks(move, facts, copy, limit) == expected


TIERED = {
    "remote.storage.enable": "true",
    "cleanup.policy": "delete",
    "retention.ms": "100",
    "local.retention.ms": "-2",
}


@pytest.mark.parametrize(
    ("settings", "effective", "expected"),
    [
        ({"retention.ms": "200"}, TIERED, {}),
        ({"local.retention.ms": "50"}, TIERED, {}),
        ({"local.retention.ms": "101"}, TIERED, {"local.retention.ms": "refused"}),
        ({"local.retention.ms": "-1"}, TIERED, {"local.retention.ms": "refused"}),
        ({"remote.storage.enable": "true"}, {"cleanup.policy": "compact"}, {"compacted": "refused"}),
        ({"remote.log.copy.disable": "true"}, TIERED, {"copy-disable": "warning"}),
        (
            {"remote.log.copy.disable": "true"},
            TIERED | {"local.retention.ms": "50"},
            {"copy-disable": "refused"},
        ),
        ({"remote.storage.enable": "false"}, TIERED, {"remote-data": "refused"}),
        (
            {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"},
            TIERED,
            {"remote-data": "warning"},
        ),
    ],
)
def test_tiering_settings_are_held_against_kafka_s_rules(
    settings: dict[str, str | None], effective: dict[str, str | None], expected: dict[str, str]
) -> None:
    assert {check.name: check.outcome for check in check_topic_config(settings, effective, 1000)} == expected
    assert deletes_remote(settings) == ("remote.log.delete.on.disable" in settings)
