"""New replicas as a real Kafka added them: start offsets, epoch caches, and what every replica then says of itself.

Where Kafka 4.3.1 never lets a replica join, ours does as KIP-1023 intends; `follower.fetch.tiered.compat=kafka` shows
Kafka's way.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from backend.engine.controller.commands.cluster_bootstrap import METADATA_VERSION_LEVEL
from backend.engine.controller.commands.command import ControllerResult
from backend.engine.replica.partition import Partition
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.record_batches.record_batch import RecordData
from backend.protocol.remote_log.metadata_serde import metadata_partition
from tests.scenarios.tiering_lab import DEBUG, START_MS, Lab, lab, values

FIXTURE: Final = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "apache-kafka-4.3.1" / "bootstrap.json").read_text()
)
CASES: Final[Mapping[str, Any]] = {case["case"]: case for case in FIXTURE["cases"]}
LEADER, OLD, NEW = 1, 2, 3
METADATA: Final = "__remote_log_metadata"
KAFKA_4_2_IV0: Final = 28
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
    """A broker's report of its replica."""
    rows = {name: running.list_offset(node, topic, at, replica=DEBUG) for name, at in OFFSETS.items()}
    assert {row.error for row in rows.values()} <= {0}, rows
    return {name: row.offset for name, row in rows.items()}


def offsets_of(row: Mapping[str, int]) -> dict[str, int]:
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


def expect_leader(running: Lab, case: Mapping[str, Any], *, same_epoch: bool = True) -> None:
    """The leader stands as Kafka's did before the case."""
    topic, before = case["topic"], case["leader_before"]
    if same_epoch:
        assert running.registration(topic).leader_epoch == before["leaderEpoch"]
    expect_offsets(running, topic, LEADER, offsets_of(before))


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


def as_kafka(running: Lab, name: str, *, same_epoch: bool = True) -> None:
    """Adds the replica and compares everything with what Kafka had after it.

    Unless it is the `same_epoch`, the leader was elected more often here, without a record since.
    """
    case = CASES[name]
    topic = case["topic"]
    expect_leader(running, case, same_epoch=same_epoch)
    add(running, topic)
    wait_joined(running, topic)
    expect_offsets(running, topic, NEW, offsets_of(case["new_replica"]))
    # A leader epoch without records does not reach the follower, there as here; an empty checkpoint has no header.
    assert _entries(checkpoint(running, topic, NEW)) == _entries(case["new_replica_leader_epoch_checkpoint"])
    own, kafkas = checkpoint(running, topic, LEADER), case["leader_leader_epoch_checkpoint"]
    if same_epoch:
        assert own == kafkas
    else:
        assert _entries(own)[:-1] == _entries(kafkas)[:-1]


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
    assert offsets(running, topic, NEW) == offsets_of(case["new_replica"])
    assert checkpoint(running, topic, LEADER) == case["leader_leader_epoch_checkpoint"]
    if flag_off:
        set_flag(running, None)
    else:
        set_compat(running, None)
    wait_joined(running, topic)
    expect_offsets(running, topic, NEW, joined)


def afterwards(name: str) -> dict[str, int]:
    """The replica after it joined in Kafka at last."""
    answers = CASES[name]["then"]["new_replica"]
    return {key: answers[str(at)][2] for key, at in OFFSETS.items()}


def attempts(running: Lab, topic: str) -> int:
    """Failed attempts of the new replica; 0 while its broker has not heard of it."""
    manager = running.cluster.broker(NEW).broker_services.replica_manager

    def ask() -> int:
        result = manager.find(topic, 0)
        state = manager.fetch_state(result.topic_id_partition) if isinstance(result, Partition) else None
        return 0 if state is None else state.attempts

    return running.cluster.ask(ask)


def described(running: Lab) -> dict[str, Any]:
    """The flag as the new replica's broker describes it, in the fixture's names."""
    resources = m.DescribeConfigsRequest.Resources
    resource = resources(resource_type=4, resource_name=str(NEW), configuration_keys=[FLAG])
    request = m.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    [row] = running.ask(NEW, request, 4, m.DescribeConfigsResponse).results[0].configs
    return {
        "Name": row.name,
        "Value": row.value,
        "ReadOnly": row.read_only,
        "ConfigSource": row.config_source,
        "IsSensitive": row.is_sensitive,
        "ConfigType": row.config_type,
        "Synonyms": [
            {"Name": synonym.name, "Value": synonym.value, "Source": synonym.source} for synonym in row.synonyms
        ],
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
    expect_offsets(running, drift, LEADER, offsets_of(CASES["flag off, leader local start above 0"]["leader_before"]))
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
    settings = CASES["cluster default true, broker 3 overrides with false"]["extra"]["describe_configs_broker_3"][0]
    assert described(running) == {name: settings[name] for name in described(running)}


def test_a_throttle_changes_nothing_but_the_time(running: Lab, drift: str) -> None:
    throttled = f"0:{NEW}"
    rate = "follower_replication_throttled_rate"
    assert running.alter(drift, follower_replication_throttled_replicas=throttled) == 0
    for flag, words in (("false", "flag off"), ("true", "flag on (cluster default)")):
        [name] = [case for case in CASES if case.startswith(words) and "throttled" in case]
        set_flag(running, flag)
        # Kafka's topic is fifty times as many bytes: as many seconds' worth at this rate.
        assert running.alter_brokers(NEW, **{rate: 80_000}) == 0
        as_kafka(running, name, same_epoch=False)
        remove(running, drift)
    assert running.alter_brokers(NEW, **{rate: None}) == 0
    assert running.alter(drift, follower_replication_throttled_replicas=None) == 0


def test_a_metadata_version_without_list_offsets_11_puts_the_mode_off_without_an_error(
    running: Lab, drift: str, caplog: pytest.LogCaptureFixture
) -> None:
    """4.2-IV0; no request lowers the level of a cluster that runs, so the controller writes the record itself."""
    controller = running.cluster.broker(1).services.controller
    assert controller is not None

    def level_is(level: int) -> bool:
        brokers = [running.cluster.broker(node) for node in (LEADER, OLD, NEW)]
        return {broker.services.metadata.image.features["metadata.version"] for broker in brokers} == {level}

    record = m.FeatureLevelRecord(name="metadata.version", feature_level=KAFKA_4_2_IV0)
    running.cluster.call(controller.submit("format with 4.2-IV0", lambda _: ControllerResult((record,), None)))
    running.wait("every broker has 4.2-IV0", lambda: level_is(KAFKA_4_2_IV0))
    set_flag(running, "true")
    with caplog.at_level(logging.INFO, "backend.engine.replica"):
        as_kafka(running, "flag off, leader local start above 0", same_epoch=False)
    assert [line for line in caplog.messages if f"{drift}-0" in line and "BUILDING_REMOTE_AUX" in line]
    assert not [line for line in caplog.messages if "ListOffsets" in line or "cannot start behind" in line]
    remove(running, drift)
    update = m.UpdateFeaturesRequest.FeatureUpdates(
        feature="metadata.version", max_version_level=METADATA_VERSION_LEVEL, upgrade_type=1
    )
    request = m.UpdateFeaturesRequest(feature_updates=[update], timeout_ms=30_000)
    assert running.ask(LEADER, request, 2, m.UpdateFeaturesResponse).error_code == 0
    running.wait("every broker has the newest level", lambda: level_is(METADATA_VERSION_LEVEL))
    as_kafka(running, "flag on (cluster default), leader local start above 0", same_epoch=False)
    remove(running, drift)


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


def reassignment(running: Lab, topic: str) -> tuple[set[int], tuple[int, ...], tuple[int, ...]]:
    """(replicas, those being added, those being removed)."""
    now = running.registration(topic)
    return set(now.replicas), now.adding_replicas, now.removing_replicas


def test_asking_for_the_old_replicas_does_not_end_a_move_which_cannot_end_and_a_cancel_does(running: Lab) -> None:
    topic = "t-back"
    note = FIXTURE["reassignment_note"]
    assert "left the partition with replicas [1,2,3], adding [3], removing [3] and never completed" in note
    set_flag(running, "true")
    set_compat(running, "kafka")
    running.create(topic, [(LEADER, OLD)], local_retention_ms=1)
    running.produce(topic, *values(*range(6)))
    running.wait_offsets(topic, (0, 6, 6, 5), LEADER, OLD)

    def back() -> None:
        """The new replica cannot join, and the old list is asked for again."""
        add(running, topic)
        running.wait("an attempt has failed", lambda: attempts(running, topic) >= 1)
        running.reassign(topic, (LEADER, OLD))
        assert reassignment(running, topic) == ({LEADER, OLD, NEW}, (NEW,), (NEW,))
        failed = attempts(running, topic)
        running.wait("two more have failed", lambda: attempts(running, topic) >= failed + 2)
        assert reassignment(running, topic) == ({LEADER, OLD, NEW}, (NEW,), (NEW,))

    def is_refused() -> bool:
        return running.list_offset(NEW, topic, -1, replica=DEBUG).error != 0

    back()
    epoch = running.registration(topic).leader_epoch
    running.reassign(topic, None)
    assert reassignment(running, topic) == ({LEADER, OLD}, (), ())
    assert running.registration(topic).leader_epoch == epoch + 1
    running.wait("its log is gone", is_refused)
    # Without Kafka's way the last request counts (KIP-455).
    back()
    set_compat(running, None)
    running.reassign(topic, (LEADER, OLD))
    running.wait("the move has ended", lambda: reassignment(running, topic) == ({LEADER, OLD}, (), ()))
    running.wait("its log is gone", is_refused)


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


def test_a_leader_that_does_not_know_what_is_tiered_is_waited_for(
    running: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """Row 3 of KIP-1023: broker 2 is back as leader and cannot read its remote log metadata, which is on broker 3."""
    topic, new = "t-restart", LEADER
    set_flag(running, "true")
    running.create(topic, [(OLD,)], local_retention_bytes=1)
    running.produce(topic, *values(*range(7)))
    running.wait("0-5 are remote only", lambda: running.offsets(topic)[1] == 6)
    before = offsets(running, topic, OLD)
    topic_id = running.log(topic).topic_id_partition.topic_id
    index = metadata_partition(topic_id, 0, 5)
    held = running.registration(METADATA, index).replicas
    running.reassign(METADATA, (NEW,), partition=index)
    running.wait("broker 3 has it alone", lambda: running.registration(METADATA, index).replicas == (NEW,))
    running.cluster.stop_broker(OLD)
    running.cluster.stop_broker(NEW)
    running.cluster.start_broker(OLD)
    running.wait("broker 2 leads again", lambda: running.leads(OLD, topic))
    assert running.list_offset(OLD, topic, -6, replica=new).offset == -1
    with caplog.at_level(logging.INFO, "backend.engine.replica"):
        running.reassign(topic, (OLD, new))
        sentence = "the leader's local log starts at 6, but it does not know yet up to where it is tiered"
        running.wait("it is told what is waited for", lambda: any(sentence in line for line in caplog.messages))
    assert offsets(running, topic, new)["end"] == 0
    running.cluster.start_broker(NEW)
    in_sync(running, topic, OLD, new)
    expect_offsets(running, topic, new, offsets(running, topic, OLD))
    assert offsets(running, topic, new) == before
    running.reassign(METADATA, held, partition=index)
    running.wait("it is as before", lambda: set(running.registration(METADATA, index).isr) == set(held))


def test_a_compacted_topic_is_not_tiered_and_is_copied_whole(running: Lab) -> None:
    topic = "t-compact"
    set_flag(running, "true")
    running.create(topic, [(LEADER, OLD)], remote_storage_enable="false", cleanup_policy="compact,delete")
    for key in (b"a", b"b", b"a"):
        running.produce_batch(topic, [RecordData(START_MS, key, b"value")])
    refused = running.alter(topic, remote_storage_enable="true")
    assert refused == ErrorCode.INVALID_CONFIG
    running.delete_records(topic, 1)  # only a log that begins above 0 could make a difference
    add(running, topic)
    in_sync(running, topic, LEADER, OLD, NEW)
    assert running.offsets(topic, node=NEW)[:3] == (1, 1, 3)
