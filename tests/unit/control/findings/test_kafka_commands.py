"""Commands in actions can be run as they stand: with an address that answers, and with all that the finding knows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backend.control.findings.evaluate import candidates
from backend.control.findings.finding_context import Candidate, FindingContext, GroupOffset, LogBounds, ThrottleSetting
from backend.control.findings.kafka_commands import NO_ADDRESS, bootstrap_server, cancel_moves
from backend.control.gateway.requests.rights_requests import CLUSTER, GROUPS, TOPICS, MissingRight
from tests.unit.control.findings.rule_cases import CASES, METADATA, meta
from tests.unit.control.findings.sights import broker, context, partition, replica, topic

AT_2 = "--bootstrap-server 10.0.0.2:9092"


def at(broker_id: int, **more: Any) -> Any:
    return broker(broker_id, host=f"10.0.0.{broker_id}", **more)


BROKERS: dict[str, Any] = {"brokers": [at(1, reachable=False, error="away"), at(2), at(3, fenced=True)]}


def action(slug: str, **facts: Any) -> str:
    return next(c for c in raised(**facts) if c.slug == slug).action


def raised(**facts: Any) -> list[Candidate]:
    return list(candidates(context(**BROKERS | facts)).values())


def test_the_address_is_that_of_a_broker_that_answers_or_of_one_that_did() -> None:
    seen = context(**BROKERS)
    assert (bootstrap_server(seen), bootstrap_server(seen, 3)) == ("10.0.0.2:9092", "10.0.0.3:9092")
    assert bootstrap_server(context(brokers=[at(1, reachable=False, error="away")])) == "10.0.0.1:9092"
    assert bootstrap_server(FindingContext(at_ms=0)) == NO_ADDRESS


@pytest.mark.parametrize("slug", sorted(CASES))
def test_no_command_in_an_action_has_a_placeholder_for_its_address(slug: str) -> None:
    for facts, _ in CASES[slug]:
        for candidate in candidates(context(**facts)).values():
            assert NO_ADDRESS not in candidate.action


def test_a_move_is_cancelled_by_a_file_that_the_action_has_whole() -> None:
    moved = partition(replicas=(1, 2, 3), adding_replicas=(2,), removing_replicas=(2,), isr=(1, 3))
    stalled = action("move-stalled", partitions=[moved], replicas=[replica(2, in_isr=False, error="away")])
    command, _, content = stalled.partition(", where move.json is ")
    assert command.endswith(f"kafka-reassign-partitions.sh {AT_2} --reassignment-json-file move.json --cancel")
    assert json.loads(content.removesuffix(".")) == {
        "version": 1,
        "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}],
    }
    assert cancel_moves(context(**BROKERS), [moved]) in action("move-foreign", partitions=[moved])


def test_a_limit_of_moves_between_log_directories_is_removed_by_hand_and_others_by_a_plan() -> None:
    rate, moves = "leader.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second"
    left = action("throttle-left", throttles=[ThrottleSetting(name, "1", broker_id=2) for name in (rate, moves)])
    assert "ebbline plan clear-throttle; " in left
    assert left.endswith(
        f"kafka-configs.sh {AT_2} --alter --entity-type brokers --entity-name 2 --delete-config {moves}."
    )
    of_all = action("throttle-left", throttles=[ThrottleSetting(moves, "1", broker_id=-1)])
    assert "clear-throttle" not in of_all, "the plan does not know it"
    assert f"--entity-default --delete-config {moves}" in of_all


def test_of_many_moves_of_another_tool_the_first_are_in_the_file() -> None:
    moved = [partition(index=number, adding_replicas=(3,)) for number in range(12)]
    foreign = action("move-foreign", partitions=moved)
    assert foreign.count('"replicas":') == 10
    assert foreign.endswith("(and 2 more partitions).")


def test_rights_are_granted_by_the_commands_of_the_page() -> None:
    rights = (("Describe", TOPICS), ("DescribeConfigs", CLUSTER), ("Describe", GROUPS), ("Read", f"Topic {METADATA}"))
    granted = action("rights-missing", missing_rights=[MissingRight(*right) for right in rights])
    add = f"kafka-acls.sh {AT_2} --add --allow-principal User:PRINCIPAL --operation"
    described = ("Describe --topic '*'", "DescribeConfigs --cluster", "Describe --group '*'")
    for right in (*described, f"Read --topic '{METADATA}'"):
        assert f"{add} {right}" in granted


def test_settings_of_the_metadata_topic_are_a_command_and_its_replicas_a_plan() -> None:
    made = topic(METADATA, replication_factor=1, retention_ms="5")
    unsafe = action("metadata-unsafe", topics={"orders": topic(), METADATA: made})
    sets = f"kafka-configs.sh {AT_2} --alter --topic {METADATA} --add-config retention.ms=-1,retention.bytes=-1"
    assert sets in unsafe
    assert unsafe.endswith(f"Then give it 3 replicas: ebbline plan replication-factor 3 {METADATA}.")
    assert f"ebbline plan replication-factor 3 {METADATA}" in action("metadata-unsafe", **meta(replication_factor=1))


def test_a_reset_of_a_group_is_its_owner_s_choice_and_of_those_partitions_that_lost_records() -> None:
    bounds = {("orders", number): LogBounds(100, 200) for number in (0, 1, 2)}
    offsets = [GroupOffset("a b", "orders", number, 40 if number else 150, members=False) for number in (0, 1, 2)]
    idle = action("group-below-log-start", group_offsets=offsets, group_bounds=bounds)
    reset = "--group 'a b' --topic orders:1,2 --reset-offsets --to-earliest --dry-run"
    assert f"kafka-consumer-groups.sh {AT_2} {reset}" in idle
    assert "Only if the owner wants" in idle
    assert "skips only records that are lost already" in idle
    reads = [GroupOffset("g", "orders", 1, 40)]
    busy = action("group-below-log-start", group_offsets=reads, group_bounds=bounds)
    assert f"kafka-consumer-groups.sh {AT_2} --describe --group g" in busy
    assert "--reset-offsets" not in busy, "nobody takes records from a group that reads"
