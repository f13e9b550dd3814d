"""Plans for settings, for records and for limits that were left, on a living cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from backend.control.operations.record_deletion import DeleteInputs, DeleteRecords
from backend.protocol.errors import ErrorCode, KafkaError
from tests.control.site import TIERED, ControlSite
from tests.control.steps import (
    LIMIT,
    LISTS,
    RATES,
    SETTINGS,
    done,
    limits,
    revert,
    set_here,
    topic,
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlSite]:
    with ControlSite(tmp_path_factory.mktemp("site"), settings=SETTINGS) as made:
        yield made


def test_a_topic_setting_is_changed_checked_by_kafka_and_put_back(site: ControlSite) -> None:
    topic(site, "settings", [[1]], records=0)
    done(site, "topic_config", {"topic": "settings", "settings": {"retention.ms": "3600000"}})
    changed = done(site, "topic_config", {"topic": "settings", "settings": {"retention.ms": "60000"}})
    assert set_here(site, 2, "settings")["retention.ms"] == "60000"
    assert revert(site, changed["id"]) == 201
    assert set_here(site, 2, "settings")["retention.ms"] == "3600000"
    bad = site.plan({"topic": "settings", "settings": {"retention.ms": "soon"}}, kind="topic_config")
    assert {c["name"] for c in bad["checks"] if c["outcome"] == "refused"} == {"kafka"}
    same = site.plan({"topic": "settings", "settings": {"retention.ms": "3600000"}}, kind="topic_config")
    assert same["state"] == "refused"


def test_copying_is_paused_and_resumed_and_tiering_is_not_turned_off_by_accident(site: ControlSite) -> None:
    site.create_topic("paused", partitions=1, replicas=1, config={"remote.storage.enable": "true"})
    paused = done(site, "topic_config", {"topic": "paused", "settings": {"remote.log.copy.disable": "true"}})
    assert paused["diff"]["words"]["title"] == "Pause copying on paused"
    assert revert(site, paused["id"]) == 201
    assert "remote.log.copy.disable" not in set_here(site, 2, "paused")
    off = site.plan({"topic": "paused", "settings": {"remote.storage.enable": "false"}}, kind="topic_config")
    assert off["state"] == "refused"
    gone = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
    deleted = done(site, "topic_config", {"topic": "paused", "settings": gone})
    assert revert(site, deleted["id"]) == 409


def test_a_broker_setting_is_changed_and_put_back(site: ControlSite) -> None:
    inputs = {"scope": "broker", "broker_id": 2, "settings": {"log.cleaner.threads": "2"}}
    changed = done(site, "broker_config", inputs)
    assert set_here(site, 4, "2")["log.cleaner.threads"] == "2"
    assert revert(site, changed["id"]) == 201
    assert "log.cleaner.threads" not in set_here(site, 4, "2")
    assert site.plan({"settings": {"broker.id": "7"}}, kind="broker_config")["state"] == "refused"


def test_what_a_deletion_frees_is_told_though_the_local_log_begins_late(site: ControlSite) -> None:
    """All records are of one size, and nothing counts the remote tier here."""
    site.create_topic("freed", partitions=1, replicas=2, config=TIERED)
    site.produce("freed", 1_500)
    site.wait_until_quiet("freed")
    (row,) = site.partitions("freed")
    assert row["local_log_start_offset"] > 700
    record_bytes = row["local_log_bytes"] / (row["log_end_offset"] - row["local_log_start_offset"])
    inputs = {"partitions": [{"topic": "freed", "partition": 0, "offset": 500}]}
    estimate = site.plan(inputs, kind="delete_records")["estimate"]
    assert estimate["records"] == 500
    assert abs(estimate["bytes"] - 500 * record_bytes) < 10


def test_records_are_deleted_up_to_an_offset_and_no_further_than_the_end(site: ControlSite) -> None:
    topic(site, "cut", [[1]], records=50)
    beyond = {"partitions": [{"topic": "cut", "partition": 0, "offset": 51}]}
    assert site.plan(beyond, kind="delete_records")["state"] == "refused"
    cut = done(site, "delete_records", {"partitions": [{"topic": "cut", "partition": 0, "offset": 20}]})
    assert cut["estimate"]["records"] == 20
    site.wait_until("the log begins there", lambda: site.partitions("cut")[0]["log_start_offset"] == 20)
    assert revert(site, cut["id"]) == 409


def test_records_are_deleted_of_all_partitions_or_it_is_told_of_which_they_are_gone(site: ControlSite) -> None:
    topic(site, "partly", [[1]], records=50)
    site.create_topic("newest-of-key", partitions=1, replicas=1, config={"cleanup.policy": "compact"})
    requested = [
        {"topic": name, "partition": 0, "offset": offset} for name, offset in (("newest-of-key", 0), ("partly", 9))
    ]
    refused = site.plan({"partitions": requested}, kind="delete_records")
    assert [check["name"] for check in refused["checks"] if check["outcome"] == "refused"] == ["policy"]
    # As where a topic becomes compacted after the check.
    kind, inputs = DeleteRecords(), DeleteInputs.model_validate({"partitions": requested})
    with pytest.raises(
        KafkaError, match="newest-of-key-0 were not deleted; those of 1 other partition are gone"
    ) as said:
        site.cluster.call(kind.apply(site.plane.parts.operations._context, inputs, {}))
    assert said.value.code is ErrorCode.POLICY_VIOLATION
    site.wait_until("it is cut", lambda: site.partitions("partly")[0]["log_start_offset"] == 9)


def test_limits_that_others_left_are_found_and_cleared(site: ControlSite) -> None:
    topic(site, "left", [[1]], records=0)
    assert site.operator.post("/v1/plans", json={"kind": "clear_throttle", "inputs": {}}).status_code == 422
    rate = {"scope": "broker", "broker_id": 2, "settings": {RATES[0]: "1000"}}
    done(site, "broker_config", rate)
    done(site, "broker_config", {"settings": {RATES[1]: "1000"}})
    done(site, "topic_config", {"topic": "left", "settings": {LISTS[0]: "0:1"}})
    assert set(limits(site, "left")) == {f"2 {RATES[0]}", f" {RATES[1]}", f"left {LISTS[0]}"}
    adding = {"action": "add", "topics": ["left"], "brokers": [2], "throttle_bytes_per_s": LIMIT}
    refused = site.plan(adding, kind="reassign")
    assert "throttles" in {c["name"] for c in refused["checks"] if c["outcome"] == "refused"}
    cleared = done(site, "clear_throttle", {})
    assert {change["object"] for change in cleared["diff"]["changes"]} == {"all brokers", "broker 2", "topic left"}
    assert any("--entity-default" in command for command in cleared["cli"])
    assert limits(site, "left") == {}
