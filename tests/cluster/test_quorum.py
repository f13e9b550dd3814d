"""Three voters, each a separate process: any one may die, come back, or lose its disk, and the cluster goes on."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from backend.engine.raft.leader_fetch import as_buffer
from backend.engine.raft.snapshot_files import SnapshotId, parse_file_name
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from tests.cluster.broker_process import BrokerProcesses
from tests.effort import effort
from tests.waiting import wait_until
from tests.wire import ask

NODES = (1, 2, 3)
# A snapshot after every few changes, and hardly any log behind it.
EAGER = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.log.segment.bytes": "4000",
    "metadata.max.retention.bytes": "3000",
    "offsets.topic.num.partitions": "1",
}
DESCRIBE_VERSION = 2
CREATE_VERSION = 7


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    folder = tmp_path_factory.mktemp("quorum")
    with BrokerProcesses(folder, voters=3, settings=EAGER, program="tests.cluster.held_snapshots") as running:
        yield running


def quorum(cluster: BrokerProcesses, *, without: int = 0) -> m.DescribeQuorumResponse.Topics.Partitions | None:
    """The leader's response, through some broker; None while there is no leader."""
    topic = m.DescribeQuorumRequest.Topics
    request = m.DescribeQuorumRequest(
        topics=[topic(topic_name="__cluster_metadata", partitions=[topic.Partitions(partition_index=0)])]
    )
    for node_id in NODES:
        if node_id == without:
            continue
        try:
            answer = ask(cluster.layout.ports[node_id], request, DESCRIBE_VERSION, m.DescribeQuorumResponse)
        except OSError:
            continue
        if not answer.error_code and not answer.topics[0].partitions[0].error_code:
            return answer.topics[0].partitions[0]
    return None


def leader(cluster: BrokerProcesses, *, without: int = 0) -> int:
    leaders: list[int] = []

    def led() -> bool:
        state = quorum(cluster, without=without)
        leaders[:] = [state.leader_id] if state is not None and state.leader_id not in (-1, without) else []
        return bool(leaders)

    wait_until("the quorum has a leader", led)
    return leaders[0]


def create(cluster: BrokerProcesses, *names: str, without: int = 0) -> None:
    """Through a broker that runs: a client may take the dead one for the controller as long as that is not fenced."""
    through = next(node for node in NODES if node != without)
    topic = m.CreateTopicsRequest.Topics
    request = m.CreateTopicsRequest(
        topics=[topic(name=name, num_partitions=2, replication_factor=2) for name in names], timeout_ms=30_000
    )
    answer = ask(cluster.layout.ports[through], request, CREATE_VERSION, m.CreateTopicsResponse, timeout_s=40)
    assert [(result.name, result.error_code, result.error_message) for result in answer.topics] == [
        (n, 0, None) for n in names
    ]


def caught_up(cluster: BrokerProcesses, node_id: int) -> bool:
    state = quorum(cluster)
    if state is None:
        return False
    ends = {voter.replica_id: voter.log_end_offset for voter in state.current_voters}
    return ends[node_id] >= state.high_watermark


def topics(cluster: BrokerProcesses) -> set[str]:
    return {name for name in cluster.admin.list_topics(timeout=10).topics if not name.startswith("__")}


def metadata_folder(cluster: BrokerProcesses, node_id: int) -> Path:
    return Path(cluster.layout.log_dirs[node_id]) / "__cluster_metadata-0"


def start_offset(cluster: BrokerProcesses, node_id: int) -> int:
    """Where the first segment of a node's metadata log begins."""
    return min(int(path.stem) for path in metadata_folder(cluster, node_id).glob("*.log"))


def half_written(cluster: BrokerProcesses, node_id: int) -> list[Path]:
    return list(metadata_folder(cluster, node_id).glob("*.checkpoint.part"))


def test_the_leader_dies_in_the_middle_of_a_snapshot_and_nothing_that_was_acknowledged_is_lost(
    cluster: BrokerProcesses,
) -> None:
    made = set()
    epochs = []
    for number in range(effort(1, 15)):
        killed = leader(cluster)
        cluster.hold_path(killed).touch()
        names = [f"before-{number}"]
        create(cluster, *names)
        while not half_written(cluster, killed):
            # The next one by bytes; the write holds up no change.
            names.append(f"before-{number}-{len(names)}")
            create(cluster, names[-1])
        create(cluster, f"meanwhile-{number}")
        assert leader(cluster) == killed
        cluster.kill(killed)
        assert half_written(cluster, killed)
        cluster.hold_path(killed).unlink()
        after = leader(cluster, without=killed)
        assert after != killed
        create(cluster, f"without-{number}", without=killed)
        state = quorum(cluster, without=killed)
        assert state is not None
        epochs.append(state.leader_epoch)
        cluster.spawn(killed)
        cluster.wait_for(*NODES)
        wait_until(f"voter {killed} has caught up", lambda killed=killed: caught_up(cluster, killed))  # type: ignore[misc]  # bound now
        made |= {*names, f"meanwhile-{number}", f"without-{number}"}
    assert epochs == sorted(set(epochs)), "each leader has an epoch of its own"
    assert made <= topics(cluster)


@contextmanager
def creating_topics(cluster: BrokerProcesses, prefix: str, without: int) -> Iterator[list[str]]:
    """Topics are created meanwhile, some in a second; the names of those that were acknowledged."""
    made: list[str] = []
    enough = threading.Event()

    def work() -> None:
        while not enough.wait(0.2):
            name = f"{prefix}-{len(made)}"
            create(cluster, name, without=without)
            made.append(name)

    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(work)
        try:
            yield made
        finally:
            enough.set()
            working.result(60)


def test_a_voter_that_was_away_and_one_whose_disk_is_wiped_fetch_a_snapshot_while_topics_are_created(
    cluster: BrokerProcesses,
) -> None:
    leads = leader(cluster)
    away, wiped = (node for node in NODES if node != leads)
    made = []
    for node in (away, wiped):
        state = quorum(cluster)
        assert state is not None
        [end] = [voter.log_end_offset for voter in state.current_voters if voter.replica_id == node]
        cluster.kill(node)
        if node == wiped:
            shutil.rmtree(metadata_folder(cluster, node))
        fetched = cluster.log(node).count(f"Node {node} goes on from snapshot")
        with creating_topics(cluster, f"without-voter-{node}", without=node) as names:
            # Several snapshots later the log that it would need is gone.
            seen: set[str] = set()

            def is_deleted(seen: set[str] = seen, end: int = end) -> bool:
                seen |= {path.name for path in metadata_folder(cluster, leads).glob("*.checkpoint")}
                return start_offset(cluster, leads) > end and len(seen) >= 3

            if node == away:
                wait_until("the leader's log begins behind what the voter has", is_deleted)
            cluster.spawn(node)
            wait_until(
                f"voter {node} has fetched a snapshot",
                lambda node=node, fetched=fetched: (
                    cluster.log(node).count(f"Node {node} goes on from snapshot") > fetched
                ),  # type: ignore[misc]  # bound now
            )
            cluster.wait_for(*NODES)
        wait_until(f"voter {node} has caught up", lambda node=node: caught_up(cluster, node))  # type: ignore[misc]  # bound now
        assert list(metadata_folder(cluster, node).glob("*.checkpoint"))
        assert not half_written(cluster, node)
        made += names
    assert set(made) <= topics(cluster)


def test_requests_of_another_cluster_or_without_sense_get_their_codes(cluster: BrokerProcesses) -> None:
    leads = leader(cluster)
    port, another = cluster.layout.controller_ports[leads], leads % 3 + 1

    def vote(**fields: object) -> m.VoteResponse:
        part = m.VoteRequest.Topics.Partitions(partition_index=0, replica_id=another, replica_epoch=0)
        topic = m.VoteRequest.Topics(topic_name=str(fields.pop("topic", "__cluster_metadata")), partitions=[part])
        return ask(port, m.VoteRequest(topics=[topic], **fields), 2, m.VoteResponse)  # type: ignore[arg-type]  # by name

    assert vote(cluster_id="another").error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert vote(topic="orders").error_code == ErrorCode.INVALID_REQUEST
    assert vote(voter_id=99).topics[0].partitions[0].error_code == ErrorCode.INVALID_VOTER_KEY
    assert vote().topics[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH

    state = quorum(cluster)
    assert state is not None
    leads_epoch = state.leader_epoch
    newest = max(
        file_name for path in metadata_folder(cluster, leads).iterdir() if (file_name := parse_file_name(path.name))
    )
    size = (metadata_folder(cluster, leads) / newest.file_name).stat().st_size

    def snapshot(
        snapshot_id: SnapshotId = newest,
        *,
        position: int = 0,
        epoch: int = leads_epoch,
        max_bytes: int = 100,
        topic: str = "__cluster_metadata",
        cluster_id: str | None = None,
        node: int = leads,
    ) -> tuple[int, int]:
        part = m.FetchSnapshotRequest.Topics.Partitions
        requested = part(
            partition=0,
            current_leader_epoch=epoch,
            snapshot_id=part.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
            position=position,
        )
        topics = [m.FetchSnapshotRequest.Topics(name=topic, partitions=[requested])]
        request = m.FetchSnapshotRequest(cluster_id=cluster_id, max_bytes=max_bytes, topics=topics)
        answer = ask(cluster.layout.controller_ports[node], request, 1, m.FetchSnapshotResponse)
        if not answer.topics:
            return answer.error_code, -1
        [partition] = answer.topics[0].partitions
        if not partition.error_code:
            assert (partition.size, partition.position) == (size, position)
            assert len(as_buffer(partition.unaligned_records)) == min(max_bytes, size - position)
        return answer.error_code, partition.error_code

    assert snapshot() == (0, 0)
    assert snapshot(position=size - 1) == (0, 0)
    assert snapshot(position=size) == (0, ErrorCode.POSITION_OUT_OF_RANGE)
    assert snapshot(position=-1) == (0, ErrorCode.POSITION_OUT_OF_RANGE)
    assert snapshot(SnapshotId(0, 0)) == (0, ErrorCode.SNAPSHOT_NOT_FOUND)
    assert snapshot(SnapshotId(5, 0)) == (0, ErrorCode.SNAPSHOT_NOT_FOUND)
    assert snapshot(epoch=0) == (0, ErrorCode.FENCED_LEADER_EPOCH)
    assert snapshot(epoch=10_000) == (0, ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert snapshot(node=another) == (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert snapshot(topic="orders") == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert snapshot(cluster_id="another") == (ErrorCode.INCONSISTENT_CLUSTER_ID, -1)
    assert snapshot(max_bytes=-1) == (ErrorCode.INVALID_REQUEST, -1)
