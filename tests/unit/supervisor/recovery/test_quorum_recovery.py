"""From which copy a quorum goes on that has lost the majority of its voters, and when it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from immutables import Map

from backend.data_folder.data_folder import FORMAT_VERSION, ClusterIdentity, DataFolder
from backend.engine.controller.image.metadata_image import (
    EMPTY_IMAGE,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from backend.engine.controller.image.replay import apply_records
from backend.engine.raft.acknowledged import Acknowledged, encode_acknowledged
from backend.engine.raft.metadata_batches import encode_batch
from backend.engine.raft.quorum_state import QuorumState, VoterStanding, decode_quorum_state, encode_quorum_state
from backend.engine.raft.raft_state import LogEnd
from backend.protocol import messages as m
from backend.supervisor.recovery.broker_folders import RECOVERING_FILE, recovery_interrupted
from backend.supervisor.recovery.metadata_copies import MetadataCopy, read_copies
from backend.supervisor.recovery.quorum_recovery import (
    OFFSETS_PASSED_OVER_MAX,
    LocalReplica,
    RecoveryRefused,
    plan_recovery,
    read_local_replicas,
    records_to_append,
)
from backend.supervisor.recovery.quorum_rewrite import STAGE, rewrite
from backend.tiering.ids import TopicIdPartition

CLUSTER = "AQIDBAUGBwgJCgsMDQ4PEA"
TOPIC_ID, OTHER_ID = bytes(15) + b"\x07", bytes(15) + b"\x08"
NOW_MS = 1_700_000_000_000


def image_with_orders(leader_epoch: int = 3) -> MetadataImage:
    partition = PartitionRegistration(
        replicas=(1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=leader_epoch, partition_epoch=5
    )
    topic = TopicImage("orders", TOPIC_ID, Map({0: partition}))
    brokers = Map({broker_id: BrokerRegistration(broker_id, 40 + broker_id, bytes(16), ()) for broker_id in (1, 2, 3)})
    return replace(
        EMPTY_IMAGE,
        brokers=brokers,
        topics=Map({TOPIC_ID: topic}),
        topic_ids=Map({"orders": TOPIC_ID}),
        next_producer_id=9,
    )


def copy(
    node_id: int,
    end: LogEnd | None = None,
    *,
    lost: str | None = "is empty",
    votes: bool = True,
    newest: int = 0,
    unreadable: str | None = None,
) -> MetadataCopy:
    end = end or LogEnd(0, 0)
    image = None if unreadable else image_with_orders()
    offset = max(end.offset, newest)
    return MetadataCopy(node_id, Path(f"/{node_id}"), votes, lost, unreadable, image, end, NOW_MS, end.epoch, offset)


def replica(node_id: int, topic_id: bytes, leader_epoch: int = 3) -> LocalReplica:
    return LocalReplica(node_id, Path(f"/{node_id}/x-0"), TopicIdPartition("orders", topic_id, 0), leader_epoch)


def test_the_copy_of_the_highest_epoch_wins_then_the_longest_and_an_observers_counts_too() -> None:
    voters = [copy(1), copy(2, LogEnd(4, 90)), copy(3, LogEnd(5, 80), lost=None)]
    assert plan_recovery(voters, (), interrupted=False).best.node_id == 3
    observer = copy(4, LogEnd(5, 81), lost=None, votes=False)
    plan = plan_recovery([*voters, observer], (), interrupted=False)
    assert (plan.best.node_id, plan.voters, plan.epoch) == (4, (1, 2, 3), 6)


def test_a_majority_that_is_whole_needs_no_recovery_unless_one_was_interrupted() -> None:
    copies = [copy(1), copy(2, LogEnd(2, 9), lost=None), copy(3, LogEnd(1, 9), lost=None)]
    with pytest.raises(RecoveryRefused, match="2 of 3 voters have all their metadata"):
        plan_recovery(copies, (), interrupted=False)
    assert plan_recovery(copies, (), interrupted=True).best.node_id == 2


def test_without_a_copy_that_can_be_read_there_is_nothing_to_go_on_from() -> None:
    copies = [copy(1), copy(2), copy(3, LogEnd(5, 80), unreadable="it is damaged")]
    with pytest.raises(RecoveryRefused, match="nothing to go on from"):
        plan_recovery(copies, (), interrupted=False)


def test_a_copy_that_is_far_too_old_is_refused() -> None:
    copies = [copy(1, newest=OFFSETS_PASSED_OVER_MAX + 81), copy(2), copy(3, LogEnd(1, 80), lost=None)]
    with pytest.raises(RecoveryRefused, match="no copy of this cluster's recent metadata"):
        plan_recovery(copies, (), interrupted=False)


def test_numbers_that_were_given_out_after_the_copys_end_are_not_given_out_again() -> None:
    copies = [copy(1, newest=85), copy(2), copy(3, LogEnd(1, 80), lost=None)]
    replicas = [replica(1, TOPIC_ID, 6), replica(2, TOPIC_ID, 7), replica(3, TOPIC_ID, 3), replica(3, OTHER_ID, 99)]
    plan = plan_recovery(copies, replicas, interrupted=False)
    assert plan.strays == (replicas[3],)
    after = apply_records(plan.image, records_to_append(plan), 90, 2)
    partition = after.partition("orders", 0)
    assert partition is not None
    assert (partition.leader_epoch, partition.isr, partition.leader) == (8, (1, 2, 3), 1)
    assert after.next_producer_id == 1_000_009
    assert sum(type(record) is m.NoOpRecord for record in records_to_append(plan)) == 5


def test_in_an_older_copy_no_broker_counts_as_stopped_in_order_in_the_newest_all_do() -> None:
    for newest, epochs in ((85, {85}), (80, {41, 42, 43})):
        copies = [copy(1, newest=newest), copy(2), copy(3, LogEnd(1, 80), lost=None)]
        plan = plan_recovery(copies, (), interrupted=False)
        assert plan.is_older is (newest > 80)
        after = apply_records(plan.image, records_to_append(plan), 99, 2)
        assert {broker.epoch for broker in after.brokers.values()} == epochs


# --- in folders


def identity(controllers: int = 3) -> ClusterIdentity:
    return ClusterIdentity(FORMAT_VERSION, CLUSTER, "c", 3, 1, 2, controllers)


def write_log(folder: DataFolder, node_id: int, *topics: str, epoch: int = 1, voters: int = 3) -> Path:
    """A node's metadata folder with one batch for each topic; the log file."""
    path = folder.broker_log_dir(node_id) / "__cluster_metadata-0"
    path.mkdir(parents=True)
    data = bytearray()
    for offset, name in enumerate(topics):
        record = m.TopicRecord(name=name, topic_id=bytes(15) + bytes([offset + 1]))
        data += encode_batch([record], base_offset=offset, epoch=epoch, now_ms=NOW_MS + offset)
    (path / "00000000000000000000.log").write_bytes(data)
    state = QuorumState(1, epoch, 1, tuple(range(1, voters + 1)), bytes([node_id]) * 16)
    (path / "quorum-state").write_bytes(encode_quorum_state(state))
    return path / "00000000000000000000.log"


def test_what_each_node_has_is_read_and_nothing_is_changed(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    log = write_log(folder, 1, "a", "b", epoch=3)
    before = sorted((path, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file())
    metadata_copy, two, _ = read_copies(folder, identity())
    assert (metadata_copy.end, metadata_copy.last_record_ms, metadata_copy.lost, metadata_copy.usable) == (
        LogEnd(3, 2),
        NOW_MS + 1,
        None,
        True,
    )
    assert metadata_copy.image is not None
    assert set(metadata_copy.image.topic_ids) == {"a", "b"}
    assert (two.usable, two.lost) == (False, "is empty")
    assert before == sorted((path, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file())
    # The end of the last batch never reached the disk.
    log.write_bytes(log.read_bytes()[:-3])
    assert read_copies(folder, identity())[0].end == LogEnd(3, 1)


def test_a_voter_whose_metadata_is_older_than_what_it_acknowledged_is_not_whole(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    write_log(folder, 1, "a")
    (folder.broker_log_dir(1) / "quorum-acknowledged").write_bytes(encode_acknowledged(Acknowledged(LogEnd(2, 40), 6)))
    metadata_copy = read_copies(folder, identity())[0]
    assert "it is an older copy" in str(metadata_copy.lost)
    assert (metadata_copy.usable, metadata_copy.newest_epoch, metadata_copy.newest_offset) == (True, 6, 40)


def test_a_log_with_a_hole_or_of_another_cluster_is_not_gone_on_from(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    log = write_log(folder, 1, "a", "b")
    log.rename(log.with_name("00000000000000000005.log"))
    (folder.broker_log_dir(2)).mkdir(parents=True)
    (folder.broker_log_dir(2) / "meta.properties").write_text(
        "node.id=2\nversion=1\ncluster.id=other\ndirectory.id=AQIDBAUGBwgJCgsMDQ4PEA\n"
    )
    metadata_copy, two, _ = read_copies(folder, identity())
    assert "has no whole snapshot that reaches it" in str(metadata_copy.unreadable)
    assert "belongs to cluster other" in str(two.unreadable)
    assert not metadata_copy.usable
    assert not two.usable


def test_all_voters_get_the_same_log_under_ids_of_their_own_and_what_was_there_is_kept(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    write_log(folder, 3, "a", "b", epoch=4)
    broken = write_log(folder, 2, "a")
    (broken.parent / "quorum-state").write_bytes(b"garbage")
    plan = plan_recovery(read_copies(folder, identity()), read_local_replicas(folder, identity()), interrupted=False)
    kept = rewrite(plan, folder, NOW_MS)
    assert [path.parent.parent.name for path in kept] == ["2", "3"]
    assert (kept[0] / "quorum-state").read_bytes() == b"garbage"
    copies = read_copies(folder, identity())
    assert {(log_copy.end, log_copy.lost) for log_copy in copies} == {(copies[0].end, None)}
    assert copies[0].end > LogEnd(5, 4)
    logs = {(log_copy.path / "00000000000000000000.log").read_bytes() for log_copy in copies}
    assert len(logs) == 1
    states = [decode_quorum_state((log_copy.path / "quorum-state").read_bytes()) for log_copy in copies]
    assert {(state.standing, state.leader_epoch, state.voted_id) for state in states} == {(VoterStanding.MEMBER, 5, -1)}
    assert len({state.directory_id for state in states}) == 3
    assert not list(tmp_path.rglob(STAGE))
    assert recovery_interrupted(folder) is None


def test_a_recovery_that_did_not_end_is_refused_by_up_and_done_again(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    write_log(folder, 3, "a")
    folder.quorum.mkdir()
    (folder.quorum / RECOVERING_FILE).touch()
    assert "did not end" in str(recovery_interrupted(folder))
    stage = folder.broker_log_dir(1) / STAGE
    (stage / "__cluster_metadata-0").mkdir(parents=True)
    plan = plan_recovery(read_copies(folder, identity()), (), interrupted=True)
    rewrite(plan, folder, NOW_MS)
    assert recovery_interrupted(folder) is None
    assert not stage.exists()


def test_an_only_voter_goes_on_from_a_brokers_copy(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    (folder.broker_log_dir(1) / "orders-0").mkdir(parents=True)
    log = write_log(folder, 2, "a")
    (log.parent / "quorum-state").unlink()
    copies = read_copies(folder, identity(1))
    assert [metadata_copy.votes for metadata_copy in copies] == [True, False, False]
    rewrite(plan_recovery(copies, (), interrupted=False), folder, NOW_MS)
    metadata_copy = read_copies(folder, identity(1))[0]
    assert (metadata_copy.lost, metadata_copy.usable) == (None, True)
