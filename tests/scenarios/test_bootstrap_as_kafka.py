"""New replicas as a real Kafka added them: start offsets, epoch caches, and what every replica then says of itself.

Where Kafka 4.3.1 never lets a replica join, ours does as KIP-1023 intends; `follower.fetch.tiered.compat=kafka` shows
Kafka's way. The two cases with a throttle are left out: they differ from others in time alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from backend.protocol import messages as m
from backend.protocol.batch import RecordData
from backend.protocol.errors import ErrorCode
from tests.scenarios.tiering_lab import DEBUG, START_MS, Lab, lab, values

FIXTURE: Final = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "apache-kafka-4.3.1" / "bootstrap.json").read_text()
)
CASES: Final[Mapping[str, Any]] = {case["case"]: case for case in FIXTURE["cases"]}
LEADER, OLD, NEW = 1, 2, 3
# The names of the fixture for what ListOffsets tells of a replica.
OFFSETS: Final = {"logStart": -2, "localStart": -4, "latestTiered": -5, "pendingUpload": -6, "end": -1}
FLAG: Final = "follower.fetch.last.tiered.offset.enable"
# First offsets of the 13 segments of Kafka's topic of 52,000 records, and where its leader epochs begin.
SEGMENTS: Final = (0, 4035, 8070, 12105, 16140, 20175, 24210, 28245, 32280, 36320, 40355, 44390, 48425)
EPOCHS: Final = (0, 15_000, 35_000)
END: Final = 52_000


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    soon = {"remote.log.manager.task.interval.ms": "100", "log.retention.check.interval.ms": "100"}
    with lab(tmp_path_factory.mktemp("bootstrap"), settings=soon) as started:
        yield started


def set_flag(running: Lab, value: str | None, node: int | None = None) -> None:
    """On one broker, or as the brokers' common default; None unsets it."""
    assert running.alter_brokers(node, follower_fetch_last_tiered_offset_enable=value) == 0


def set_compat(running: Lab, value: str | None) -> None:
    assert running.alter_brokers(follower_fetch_tiered_compat=value) == 0


@pytest.fixture(autouse=True)
def settings_as_before(running: Lab) -> Iterator[None]:
    yield
    for node in (None, LEADER, OLD, NEW):
        set_flag(running, None, node)
    set_compat(running, None)


def offsets(running: Lab, topic: str, node: int) -> dict[str, int]:
    """What a broker says of its own replica."""
    told = {name: running.list_offset(node, topic, at, replica=DEBUG) for name, at in OFFSETS.items()}
    assert {row.error for row in told.values()} <= {0}, told
    return {name: row.offset for name, row in told.items()}


def wanted(row: Mapping[str, int]) -> dict[str, int]:
    return {name: row[name] for name in OFFSETS}


def expect_offsets(running: Lab, topic: str, node: int, expected: dict[str, int]) -> None:
    """Waits for the tasks that copy, delete and learn to get there."""
    last: list[dict[str, int]] = []

    def same() -> bool:
        last[:] = [offsets(running, topic, node)]
        return last[0] == expected

    try:
        running.wait("the offsets are Kafka's", same, 20)
    except AssertionError:
        raise AssertionError(f"broker {node}, {topic}: Kafka {expected}, here {last}") from None


def expect_leader(running: Lab, case: Mapping[str, Any]) -> None:
    """The leader stands as Kafka's did before the case."""
    topic, before = case["topic"], case["leader_before"]
    assert running.registration(topic).leader_epoch == before["leaderEpoch"]
    expect_offsets(running, topic, LEADER, wanted(before))


def add(running: Lab, topic: str) -> None:
    running.reassign(topic, (LEADER, OLD, NEW))


def wait_joined(running: Lab, topic: str) -> None:
    running.wait("the new replica is in sync", lambda: set(running.registration(topic).isr) == {LEADER, OLD, NEW})


def remove(running: Lab, topic: str) -> None:
    """Takes the new replica away again, as between the cases on Kafka: the leader epoch rises by one."""
    running.reassign(topic, (LEADER, OLD))
    running.wait("the replica is gone", lambda: running.registration(topic).replicas == (LEADER, OLD))
    running.wait("its log is gone", lambda: running.list_offset(NEW, topic, -1, replica=DEBUG).error != 0)


def checkpoint(running: Lab, topic: str, node: int) -> str:
    text: str = running.log(topic, node=node).leader_epochs.encode().decode()
    return text


def as_kafka(running: Lab, name: str) -> None:
    """Adds the replica and compares everything with what Kafka had after it."""
    case = CASES[name]
    topic = case["topic"]
    expect_leader(running, case)
    add(running, topic)
    wait_joined(running, topic)
    expect_offsets(running, topic, NEW, wanted(case["new_replica"]))
    # A leader epoch without records does not reach the follower, there as here; an empty checkpoint has no header.
    assert _entries(checkpoint(running, topic, NEW)) == _entries(case["new_replica_leader_epoch_checkpoint"])
    assert checkpoint(running, topic, LEADER) == case["leader_leader_epoch_checkpoint"]


def _entries(text: str) -> list[str]:
    return text.split("\n")[2:-1]


def stuck_in_kafka(running: Lab, name: str, joined: dict[str, int], *, flag_off: bool = False) -> None:
    """Kafka's way first: the replica stays empty. Then ours, or with the flag off, it joins."""
    case = CASES[name]
    topic = case["topic"]
    assert case["joined_isr_after_s"] is None
    set_compat(running, "kafka")
    expect_leader(running, case)
    add(running, topic)
    running.wait("three attempts have failed", lambda: attempts(running, topic) >= 3)
    assert set(running.registration(topic).isr) == {LEADER, OLD}
    assert offsets(running, topic, NEW) == wanted(case["new_replica"])
    assert checkpoint(running, topic, LEADER) == case["leader_leader_epoch_checkpoint"]
    if flag_off:
        set_flag(running, None)
    else:
        set_compat(running, None)
    wait_joined(running, topic)
    expect_offsets(running, topic, NEW, joined)


def afterwards(name: str) -> dict[str, int]:
    """The replica after it joined in Kafka at last."""
    told = CASES[name]["then"]["new_replica"]
    return {key: told[str(at)][2] for key, at in OFFSETS.items()}


def attempts(running: Lab, topic: str) -> int:
    """Failed attempts of the new replica."""
    manager = running.cluster.broker(NEW).services.replica_manager

    def ask() -> int:
        state = manager.fetch_state(manager.partition(topic, 0).topic_id_partition)
        return 0 if state is None else state.attempts

    return running.cluster.ask(ask)


def described(running: Lab) -> dict[str, Any]:
    """The flag as the new replica's broker describes it, in the fixture's names."""
    resources = m.DescribeConfigsRequest.Resources
    wanted = resources(resource_type=4, resource_name=str(NEW), configuration_keys=[FLAG])
    request = m.DescribeConfigsRequest(resources=[wanted], include_synonyms=True)
    [row] = running.ask(NEW, request, 4, m.DescribeConfigsResponse).results[0].configs
    return {
        "Name": row.name,
        "Value": row.value,
        "ReadOnly": row.read_only,
        "ConfigSource": row.config_source,
        "IsSensitive": row.is_sensitive,
        "ConfigType": row.config_type,
        "Synonyms": [{"Name": one.name, "Value": one.value, "Source": one.source} for one in row.synonyms],
    }


def records(first: int, end: int) -> Sequence[RecordData]:
    return [RecordData(START_MS + offset, None, b"") for offset in range(first, end)]


@pytest.fixture(scope="module")
def drift(running: Lab) -> str:
    """52,000 records in Kafka's segments and epochs, two batches a segment."""
    topic = "drift"
    running.create(topic, [(LEADER, OLD)])
    leaders = {EPOCHS[1]: (OLD, LEADER), EPOCHS[2]: (LEADER, OLD)}
    ends = (*SEGMENTS[1:], END)
    for begin, end in zip(SEGMENTS, ends, strict=True):
        inside = [epoch for epoch in EPOCHS[1:] if begin < epoch < end]
        half = inside[0] if inside else (begin + end) // 2
        running.produce_batch(topic, records(begin, half))
        if half in leaders:
            running.move_leader(topic, leaders[half])
        running.produce_batch(topic, records(half, end))
    return topic


def test_a_leader_that_has_offset_0_makes_the_flag_meaningless(running: Lab, drift: str) -> None:
    as_kafka(running, "flag off, leader still has offset 0 locally")
    remove(running, drift)
    set_flag(running, "true")
    as_kafka(running, "flag on (cluster default), leader still has offset 0 locally")
    remove(running, drift)


def test_the_flag_starts_the_replica_behind_the_last_tiered_offset(running: Lab, drift: str) -> None:
    log = running.log(drift)
    kept = [segment.size_bytes for segment in log.segments if segment.base_offset >= 24_210]
    assert running.alter(drift, local_retention_bytes=sum(kept)) == 0
    expect_offsets(running, drift, LEADER, wanted(CASES["flag off, leader local start above 0"]["leader_before"]))
    as_kafka(running, "flag off, leader local start above 0")
    remove(running, drift)
    set_flag(running, "true")
    as_kafka(running, "flag on (cluster default), leader local start above 0")
    remove(running, drift)


def test_only_the_new_replicas_own_broker_counts(running: Lab, drift: str) -> None:
    set_flag(running, "true", NEW)
    as_kafka(running, "flag on for broker 3 only (the new replica)")
    remove(running, drift)
    set_flag(running, None, NEW)
    set_flag(running, "true", LEADER)
    set_flag(running, "true", OLD)
    as_kafka(running, "flag on for brokers 1 and 2 only (leader and old follower)")
    remove(running, drift)
    for node in (LEADER, OLD):
        set_flag(running, None, node)
    set_flag(running, "true")
    set_flag(running, "false", NEW)
    as_kafka(running, "cluster default true, broker 3 overrides with false")
    told = CASES["cluster default true, broker 3 overrides with false"]["extra"]["describe_configs_broker_3"][0]
    assert described(running) == {name: told[name] for name in described(running)}


def test_an_empty_topic_and_one_without_anything_tiered_are_copied_from_0(running: Lab) -> None:
    set_flag(running, "true")
    running.create("t-empty", [(LEADER, OLD)])
    expect_leader(running, CASES["flag on, empty topic (0/0/0)"])
    as_kafka(running, "flag on, empty topic (0/0/0)")
    running.create("t-none", [(LEADER, OLD)])
    running.produce("t-none", *values(0, 1))
    as_kafka(running, "flag on, nothing tiered yet, offset 0 local (0/0/2)")


def test_a_log_start_inside_a_remote_segment_changes_nothing(running: Lab) -> None:
    set_flag(running, "true")
    running.create("t-mid", [(LEADER, OLD)], local_retention_bytes=1)
    running.produce("t-mid", *values(*range(7)))
    as_kafka(running, "flag on, 0-5 tiered and deleted locally, record 6 local (0/6/7)")
    remove(running, "t-mid")
    running.delete_records("t-mid", 3)
    as_kafka(running, "flag on, log start 3 inside remote segment 2-3 (3/6/7)")


def test_everything_tiered_keeps_a_replica_out_of_kafka_and_not_out_of_ours(running: Lab) -> None:
    set_flag(running, "true")
    running.create("t-all", [(LEADER, OLD)], local_retention_ms=1)
    running.produce("t-all", *values(*range(6)))
    joined = {"logStart": 0, "localStart": 6, "latestTiered": 5, "pendingUpload": -1, "end": 6}
    stuck_in_kafka(running, "flag on, everything tiered (0/6/6), no producer active", joined)
    running.produce("t-all", *values(6))
    remove(running, "t-all")
    set_flag(running, None)
    as_kafka(running, "flag off, everything tiered (0/7/7)")
    remove(running, "t-all")
    set_flag(running, "true")
    stuck = "flag on, everything tiered (0/7/7), stuck, then the flag is switched off"
    stuck_in_kafka(running, stuck, afterwards(stuck), flag_off=True)


def test_records_deleted_up_to_the_local_log_keep_a_replica_out_of_kafka_and_not_out_of_ours(running: Lab) -> None:
    set_flag(running, "true")
    running.create("t-gone", [(LEADER, OLD)], local_retention_bytes=1)
    running.produce("t-gone", *values(*range(8)))
    running.wait("0-5 are remote only", lambda: running.offsets("t-gone")[1] == 6)
    running.delete_records("t-gone", 7)
    name = "flag on, DeleteRecords to 7 inside the active segment: nothing valid in remote, log start = local start = 7"
    [full] = [case for case in CASES if case.startswith(name)]
    stuck_in_kafka(running, full, afterwards(full))


def test_everything_deleted_keeps_a_replica_out_of_kafka_and_not_out_of_ours(running: Lab) -> None:
    topic, name = "t-cut", "flag on, everything deleted with DeleteRecords (7/7/7)"
    running.create(topic, [(LEADER, OLD)], local_retention_bytes=1)
    running.produce(topic, *values(*range(7)))
    running.wait("0-5 are remote only", lambda: running.offsets(topic)[1] == 6)
    add(running, topic)
    wait_joined(running, topic)
    remove(running, topic)
    running.delete_records(topic, 7)
    set_flag(running, "true")
    stuck_in_kafka(running, name, afterwards(name))


def test_a_remote_tier_emptied_by_deletion_keeps_a_replica_out_of_kafka_and_not_out_of_ours(running: Lab) -> None:
    set_flag(running, "true")
    running.create("t-edge", [(LEADER, OLD)], local_retention_bytes=1)
    running.produce("t-edge", *values(*range(7)))
    running.wait("0-5 are remote only", lambda: running.offsets("t-edge")[1] == 6)
    running.delete_records("t-edge", 6)
    running.wait("nothing is remote", lambda: running.remote_starts("t-edge") == [])
    name = "flag on, DeleteRecords to 6 = local start, remote emptied by expiration (6/6/7)"
    # Kafka was asked before the new replica's own task had looked up what once was copied, as it did for t-gone.
    stuck_in_kafka(running, name, afterwards(name) | {"latestTiered": 5})
    remove(running, "t-edge")
    running.produce("t-edge", *values(*range(7, 13)))
    as_kafka(running, "flag on, log start 6 at a remote segment start, later segments tiered (6/12/13)")


def test_a_topic_without_remote_storage_starts_at_the_leaders_log_start(running: Lab) -> None:
    set_flag(running, "true")
    running.create("t-plain", [(LEADER, OLD)], remote_storage_enable="false")
    running.produce("t-plain", *values(*range(7)))
    running.delete_records("t-plain", 5)
    as_kafka(running, "flag on, topic without remote storage, log start 5, LEO 7")


def in_sync(running: Lab, topic: str, *nodes: int) -> None:
    running.wait(f"{topic} is in sync on {nodes}", lambda: set(running.registration(topic).isr) == set(nodes))


def test_tiering_off_and_on_again_with_nothing_newly_copied(running: Lab) -> None:
    topic = "t-again"
    set_flag(running, "true")
    running.create(topic, [(LEADER, OLD)], local_retention_bytes=1)
    running.produce(topic, *values(*range(7)))
    running.wait("0-5 are remote only", lambda: running.offsets(topic)[1] == 6)
    off = {"remote_storage_enable": "false", "remote_log_delete_on_disable": "true", "local_retention_bytes": None}
    assert running.alter(topic, **off) == 0
    running.wait("nothing is remote", lambda: running.remote_starts(topic) == [])
    running.wait("the log begins with what is local", lambda: running.offsets(topic)[0] == 6)
    assert running.alter(topic, remote_storage_enable="true", remote_log_delete_on_disable="false") == 0
    add(running, topic)
    in_sync(running, topic, LEADER, OLD, NEW)
    running.wait("the replica is whole", lambda: running.offsets(topic, node=NEW)[:3] == (6, 6, 7))
    assert running.fetch(topic, 6, node=NEW).values == [(6, b"v6")]


def test_a_leader_that_has_just_restarted_does_not_keep_a_new_replica_out_for_long(running: Lab) -> None:
    topic = "t-restart"
    set_flag(running, "true")
    running.create(topic, [(OLD,)], local_retention_bytes=1)
    running.produce(topic, *values(*range(7)))
    running.wait("0-5 are remote only", lambda: running.offsets(topic)[1] == 6)
    running.cluster.stop_broker(OLD)
    running.cluster.start_broker(OLD)
    running.reassign(topic, (OLD, NEW))
    in_sync(running, topic, OLD, NEW)
    expect_offsets(running, topic, NEW, offsets(running, topic, OLD))
    assert running.offsets(topic, node=NEW)[:3] == (0, 6, 7)


def test_a_compacted_topic_is_not_tiered_and_is_copied_whole(running: Lab) -> None:
    topic = "t-compact"
    set_flag(running, "true")
    running.create(topic, [(LEADER, OLD)], remote_storage_enable="false", cleanup_policy="compact")
    for key in (b"a", b"b", b"a"):
        running.produce_batch(topic, [RecordData(START_MS, key, b"value")])
    refused = running.alter(topic, remote_storage_enable="true")
    assert refused == ErrorCode.INVALID_CONFIG
    add(running, topic)
    in_sync(running, topic, LEADER, OLD, NEW)
    assert running.offsets(topic, node=NEW)[:3] == (0, 0, 3)
