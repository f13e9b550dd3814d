"""A voter's disk is lost, or put back as it was before, while the quorum is down: nothing that it had committed with
the others is undone.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.engine.raft.quorum_state import VoterStanding, decode_quorum_state
from backend.protocol import messages as m
from tests.cluster.broker_process import BrokerProcesses
from tests.effort import effort
from tests.waiting import wait_until
from tests.wire import ask

# Shorter than Kafka's, so that a start with a voter that stays away is not waited for.
SETTINGS = {"ebbline.quorum.start.wait.ms": "1000", "offsets.topic.num.partitions": "1"}
CREATE_VERSION = 7
# Elections that the two could have had without the third.
PATIENCE_S = 8.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path, voters=3, settings=SETTINGS) as running:
        yield running


def create(cluster: BrokerProcesses, *names: str, through: int = 1) -> None:
    topic = m.CreateTopicsRequest.Topics
    request = m.CreateTopicsRequest(
        topics=[topic(name=name, num_partitions=1, replication_factor=2) for name in names], timeout_ms=30_000
    )
    answer = ask(cluster.layout.ports[through], request, CREATE_VERSION, m.CreateTopicsResponse, timeout_s=40)
    assert [(result.name, result.error_code) for result in answer.topics] == [(name, 0) for name in names]


def topics(cluster: BrokerProcesses) -> set[str]:
    return {name for name in cluster.admin.list_topics(timeout=10).topics if not name.startswith("__")}


def log_dir(cluster: BrokerProcesses, node_id: int) -> Path:
    return Path(cluster.layout.log_dirs[node_id])


def standing(cluster: BrokerProcesses, node_id: int) -> VoterStanding:
    path = log_dir(cluster, node_id) / "__cluster_metadata-0" / "quorum-state"
    return decode_quorum_state(path.read_bytes()).standing


def no_leader_for(cluster: BrokerProcesses, *nodes: int, seconds: float = PATIENCE_S) -> None:
    """The nodes run for so long and elect nobody."""
    said = {node: len(cluster.log(node)) for node in nodes}

    def elected() -> bool:
        return any(" is leader " in cluster.log(node)[said[node] :] for node in nodes)

    with pytest.raises(AssertionError, match="a leader is elected"):
        wait_until("a leader is elected", elected, seconds)
    assert all(cluster.runs(node) for node in nodes)


@pytest.mark.parametrize("lost", effort(["folder"], ["folder", "metadata", "quorum-state"]))
def test_a_voter_with_a_new_disk_and_one_that_was_away_wait_for_the_third(
    cluster: BrokerProcesses, tmp_path: Path, lost: str
) -> None:
    create(cluster, "before")
    cluster.stop(3)
    create(cluster, "after1", "after2", "after3")
    cluster.stop_all()
    folder = log_dir(cluster, 1)
    match lost:
        case "folder":
            shutil.rmtree(folder)
        case "metadata":
            shutil.rmtree(folder / "__cluster_metadata-0")
        case _:
            (folder / "__cluster_metadata-0" / "quorum-state").write_bytes(b"\x00" * 100)
    for node in (1, 3):
        cluster.spawn(node)
    wait_until("voter 3 says whom it waits for", lambda: "Not heard: voter 2" in cluster.log(3), 40)
    assert "Without all of what it had, and so without a vote" in cluster.log(3)
    no_leader_for(cluster, 1, 3)
    cluster.spawn(2)
    cluster.wait_for(1, 2, 3)
    assert topics(cluster) == {"before", "after1", "after2", "after3"}
    said = "Node 1 has caught up with the metadata quorum and votes again"
    wait_until("voter 1 has caught up", lambda: said in cluster.log(1), 30)
    assert standing(cluster, 1) is VoterStanding.MEMBER
    # It counts again: without 2 the others go on.
    cluster.kill(2)
    create(cluster, "without2", through=1)
    if lost == "quorum-state":
        kept = list((folder / "__cluster_metadata-0").glob("quorum-state.damaged-*"))
        assert [path.read_bytes() for path in kept] == [b"\x00" * 100]


def test_metadata_that_was_put_back_from_an_older_copy_is_noticed(cluster: BrokerProcesses, tmp_path: Path) -> None:
    create(cluster, "before")
    cluster.stop_all()
    metadata, copy = log_dir(cluster, 1) / "__cluster_metadata-0", tmp_path / "copy"
    shutil.copytree(metadata, copy)
    for node in (1, 2):
        cluster.spawn(node)
    cluster.wait_for(1, 2)
    create(cluster, "after1", "after2")
    cluster.stop_all()
    shutil.rmtree(metadata)
    shutil.copytree(copy, metadata)
    for node in (1, 3):
        cluster.spawn(node)
    wait_until("voter 1 notices", lambda: "it is an older copy" in cluster.log(1), 40)
    no_leader_for(cluster, 1, 3)
    cluster.spawn(2)
    cluster.wait_for(1, 2, 3)
    assert topics(cluster) == {"before", "after1", "after2"}


def test_the_only_voter_without_its_metadata_is_refused_and_nothing_is_deleted(tmp_path: Path) -> None:
    with BrokerProcesses(tmp_path, voters=1, settings=SETTINGS) as cluster:
        create(cluster, "before")
    metadata, aside = log_dir(cluster, 1) / "__cluster_metadata-0", tmp_path / "aside"
    kept = sorted(path for node in (1, 2, 3) for path in log_dir(cluster, node).glob("before-0"))
    assert kept
    metadata.rename(aside)
    cluster.spawn(1)
    assert cluster.ended(1) == 1
    last = cluster.log(1).strip().splitlines()[-1]
    said = f"ebbline: Node 1 cannot start: {metadata} is empty, although this node was part of a cluster"
    assert last.startswith(said)
    assert "Traceback" not in cluster.log(1)
    assert all(path.is_dir() for path in kept)
    shutil.rmtree(metadata)
    aside.rename(metadata)
    with cluster:
        assert topics(cluster) == {"before"}


def test_an_only_voter_makes_its_quorum_state_again(tmp_path: Path) -> None:
    with BrokerProcesses(tmp_path, voters=1, settings=SETTINGS) as cluster:
        create(cluster, "before")
    path = log_dir(cluster, 1) / "__cluster_metadata-0" / "quorum-state"
    path.write_bytes(b"\x00garbage")
    with cluster:
        assert topics(cluster) == {"before"}
        create(cluster, "after")
    assert "cannot read its quorum-state" in cluster.log(1)


def test_a_new_quorum_is_made_only_by_all_its_voters(tmp_path: Path) -> None:
    cluster = BrokerProcesses(tmp_path, voters=3, settings=SETTINGS)
    try:
        for node in (1, 2):
            cluster.spawn(node)
        said = "a new quorum is made only by all its voters together"
        wait_until("voter 1 says so", lambda: said in cluster.log(1), 40)
        no_leader_for(cluster, 1, 2, seconds=3)
        cluster.spawn(3)
        cluster.wait_for(1, 2, 3)
    finally:
        cluster.__exit__()
