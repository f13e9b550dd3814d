"""The brokers' folders that `ebbline up` refuses before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.data_folder.data_folder import FORMAT_VERSION, ClusterIdentity, DataFolder
from backend.engine.log.checkpoint_files import MetaProperties, encode_clean_shutdown
from backend.engine.raft.acknowledged import ACKNOWLEDGED_FILE, Acknowledged, encode_acknowledged
from backend.engine.raft.quorum_state import QuorumState, encode_quorum_state
from backend.engine.raft.raft_state import LogEnd
from backend.supervisor.recovery.broker_folders import MetadataCondition, misplaced, quorum_lost, read_broker_folders

BROKERS = 4


def identity(controllers: int = 3) -> ClusterIdentity:
    return ClusterIdentity(FORMAT_VERSION, "AQIDBAUGBwgJCgsMDQ4PEA", "c", BROKERS, 1, 2, controllers)


def write(folder: DataFolder, node_id: int, *, owner: int = 0, metadata: bool = True, records: bool = True) -> Path:
    """A broker's folder as a stopped cluster leaves it; the path of its metadata."""
    path = folder.broker_log_dir(node_id)
    (path / "orders-0").mkdir(parents=True)
    (path / "meta.properties").write_bytes(MetaProperties("c", owner or node_id, bytes(16)).encode())
    (path / ".kafka_cleanshutdown").write_bytes(encode_clean_shutdown(7))
    kept = path / "__cluster_metadata-0"
    if metadata:
        kept.mkdir()
        (kept / "quorum-state").write_bytes(encode_quorum_state(QuorumState(1, 3, 1, (1, 2, 3))))
        (kept / "00000000000000000000.log").write_bytes(b"x" if records else b"")
    return kept


def lost(folder: DataFolder, controllers: int = 3) -> str | None:
    return quorum_lost(read_broker_folders(folder, identity(controllers)), controllers)


@pytest.mark.parametrize(
    ("controllers", "without", "refused"),
    [(3, (), False), (3, (1,), False), (3, (4,), False), (3, (1, 2), True), (3, (1, 2, 3), True), (1, (1,), True)],
)
def test_a_majority_of_voters_without_metadata_is_no_quorum(
    tmp_path: Path, controllers: int, without: tuple[int, ...], refused: bool
) -> None:
    folder = DataFolder(tmp_path)
    for node_id in range(1, BROKERS + 1):
        write(folder, node_id, metadata=node_id not in without)
    said = lost(folder, controllers)
    assert (said is not None) == refused
    for node_id in without if said else ():
        assert f"voter {node_id}: {folder.broker_log_dir(node_id)}/__cluster_metadata-0 is missing" in str(said)


def test_a_voter_whose_promises_cannot_be_read_does_not_count(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    kept = [write(folder, node_id) for node_id in range(1, BROKERS + 1)]
    (kept[0] / "quorum-state").write_bytes(b"\x00garbage")
    assert lost(folder) is None
    (kept[1] / "quorum-state").unlink()
    conditions = [broker_folder.metadata for broker_folder in read_broker_folders(folder, identity())]
    assert conditions[:2] == [MetadataCondition.FORGETFUL] * 2
    assert "2 of 3 voters have lost" in str(lost(folder))


@pytest.mark.parametrize("older", [(1,), (1, 2)])
def test_metadata_that_was_put_back_from_an_older_copy_does_not_count(tmp_path: Path, older: tuple[int, ...]) -> None:
    """The note beside the folder, or the one in `quorum/`, tells of a later epoch."""
    folder = DataFolder(tmp_path)
    folder.quorum.mkdir()
    for node_id in range(1, BROKERS + 1):
        log_dir = write(folder, node_id).parent
        epoch = 4 if node_id in older else 3
        note = encode_acknowledged(Acknowledged(LogEnd(90, epoch), epoch))
        where = log_dir / ACKNOWLEDGED_FILE if node_id % 2 else folder.quorum / f"node-{node_id}.{ACKNOWLEDGED_FILE}"
        where.write_bytes(note)
    said = lost(folder)
    assert (said is not None) == (len(older) == 2)
    for node_id in older if said else ():
        assert f"voter {node_id}: {folder.broker_log_dir(node_id)}/__cluster_metadata-0 is an older copy" in str(said)


def test_a_first_start_that_was_interrupted_may_be_repeated(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    assert lost(folder) is None
    path = folder.broker_log_dir(1)
    (path / "__cluster_metadata-0").mkdir(parents=True)
    (path / "meta.properties").write_bytes(MetaProperties("c", 1, bytes(16)).encode())
    (path / ".kafka_cleanshutdown").write_bytes(encode_clean_shutdown(-1))
    (path / "__cluster_metadata-0" / "quorum-state").write_bytes(encode_quorum_state(QuorumState(voted_id=1)))
    assert lost(folder) is None, "a vote of one is no quorum yet"


def test_the_folder_of_a_broker_without_a_vote_tells_of_the_cluster_too(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    write(folder, 4)
    assert "3 of 3 voters have lost" in str(lost(folder))


def test_swapped_folders_are_named_both_and_put_back_they_are_taken(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    for node_id, owner in ((1, 1), (2, 3), (3, 2), (4, 4)):
        write(folder, node_id, owner=owner)
    said = str(misplaced(read_broker_folders(folder, identity())))
    assert f"The folders {folder.broker_log_dir(2)} and {folder.broker_log_dir(3)} are swapped" in said
    aside = tmp_path / "aside"
    folder.broker_log_dir(2).rename(aside)
    folder.broker_log_dir(3).rename(folder.broker_log_dir(2))
    aside.rename(folder.broker_log_dir(3))
    assert misplaced(read_broker_folders(folder, identity())) is None


def test_a_copy_of_another_brokers_folder_is_refused_by_name(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    for node_id, owner in ((1, 1), (2, 1), (3, 3), (4, 4)):
        write(folder, node_id, owner=owner)
    said = str(misplaced(read_broker_folders(folder, identity())))
    assert f"The folder {folder.broker_log_dir(2)} holds the logs of broker 1, not of broker 2" in said
