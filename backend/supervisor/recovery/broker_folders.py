"""The brokers' folders of a data folder, judged before anything is started: whose each is, and what is left of the
metadata quorum.

A quorum whose voters have forgotten what they agreed on must not start: an empty cluster would take the place of the
one that was here, and every log would belong to nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from backend.data_folder.data_folder import ClusterIdentity, DataFolder
from backend.engine.common.topic_names import CLUSTER_METADATA_TOPIC
from backend.engine.log.checkpoint_files import decode_clean_shutdown, decode_meta_properties
from backend.engine.log.file_names import (
    CLEAN_SHUTDOWN_FILE,
    LOG_SUFFIX,
    META_PROPERTIES_FILE,
    parse_dir_name,
)
from backend.engine.log.log_errors import LogDirError
from backend.engine.ports.disk import OsDisk
from backend.engine.raft.acknowledged import ACKNOWLEDGED_FILE, AcknowledgedFiles
from backend.engine.raft.quorum_state import QUORUM_STATE_FILE, BadQuorumState, VoterStanding, decode_quorum_state

SNAPSHOT_SUFFIX: Final = ".checkpoint"
# In `quorum/` of the data folder while `ebbline quorum recover` puts folders in their place.
RECOVERING_FILE: Final = "recovering"


class MetadataCondition(StrEnum):
    """The state of a voter's metadata folder: only a whole one may vote."""

    WHOLE = "whole"
    MISSING = "missing"
    # There are records, but what this voter promised (its epoch, its vote) cannot be read.
    FORGETFUL = "without a readable quorum-state"
    # The voter's other folders tell of a later epoch than its quorum-state: the metadata folder was put back.
    OLDER = "an older copy of what it was"
    # Its disk was lost before, and it has not caught up since.
    CATCHING_UP = "not caught up since it was lost"


@dataclass(frozen=True, slots=True)
class BrokerFolder:
    """One broker's log directory as it lies there."""

    node_id: int
    path: Path
    # The node whose meta.properties lie in it; None when there are none that can be read.
    owner: int | None
    metadata: MetadataCondition
    # Whether something in it was written by a broker that had registered with a cluster.
    in_use: bool

    @property
    def metadata_path(self) -> Path:
        return self.path / f"{CLUSTER_METADATA_TOPIC}-0"


def read_broker_folders(folder: DataFolder, identity: ClusterIdentity) -> tuple[BrokerFolder, ...]:
    """All brokers' folders, by id. Changes nothing. OSError."""
    return tuple(_read(node_id, folder) for node_id in range(1, identity.brokers + 1))


def _read(node_id: int, folder: DataFolder) -> BrokerFolder:
    path = folder.broker_log_dir(node_id)
    notes = (path / ACKNOWLEDGED_FILE, folder.quorum / f"node-{node_id}.{ACKNOWLEDGED_FILE}")
    acknowledged = AcknowledgedFiles(OsDisk(), map(str, notes)).read()
    metadata = path / f"{CLUSTER_METADATA_TOPIC}-0"
    names = [entry.name for entry in path.iterdir()] if path.is_dir() else []
    partitions = [parsed for name in names if (parsed := parse_dir_name(name)) is not None]
    logs = any(partition.topic != CLUSTER_METADATA_TOPIC for partition in partitions)
    in_use = logs or _has_records(metadata) or _stopped_as_broker(path / CLEAN_SHUTDOWN_FILE)
    in_use |= acknowledged is not None and acknowledged.end.offset > 0
    condition = _condition(metadata, 0 if acknowledged is None else acknowledged.leader_epoch)
    return BrokerFolder(node_id, path, _owner(path / META_PROPERTIES_FILE), condition, in_use)


def _stopped_as_broker(path: Path) -> bool:
    """Whether a broker that had registered has stopped here in order."""
    return path.exists() and decode_clean_shutdown(path.read_bytes()) >= 0


def _owner(path: Path) -> int | None:
    try:
        return decode_meta_properties(path.read_bytes(), str(path)).node_id
    except (FileNotFoundError, NotADirectoryError, LogDirError):
        return None  # what is damaged is refused by its own broker


def _condition(folder: Path, noted_epoch: int) -> MetadataCondition:
    """`noted_epoch`: the newest that the voter's notes outside of the folder tell of."""
    state = folder / QUORUM_STATE_FILE
    if not state.exists():
        return MetadataCondition.FORGETFUL if _has_records(folder) else MetadataCondition.MISSING
    try:
        stored = decode_quorum_state(state.read_bytes())
    except BadQuorumState:
        return MetadataCondition.FORGETFUL
    if stored.standing is VoterStanding.CATCHING_UP:
        return MetadataCondition.CATCHING_UP
    if stored.standing is not VoterStanding.MEMBER:
        return MetadataCondition.MISSING
    return MetadataCondition.OLDER if stored.leader_epoch < noted_epoch else MetadataCondition.WHOLE


def _has_records(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    suffixes = (LOG_SUFFIX, SNAPSHOT_SUFFIX)
    return any(entry.suffix in suffixes and entry.stat().st_size for entry in folder.iterdir())


def misplaced(folders: Sequence[BrokerFolder]) -> str | None:
    """Why folders that lie in each other's place are refused; None when each is where it belongs."""
    by_id = {here.node_id: here for here in folders}
    for here in folders:
        if here.owner is None or here.owner == here.node_id:
            continue
        other = by_id.get(here.owner)
        if other is not None and other.owner == here.node_id:
            return (
                f"The folders {here.path} and {other.path} are swapped: the first holds the logs of broker"
                f" {here.owner}, the second those of broker {other.owner}. Nothing has been changed; put each back in"
                " its place."
            )
        return (
            f"The folder {here.path} holds the logs of broker {here.owner}, not of broker {here.node_id}. Nothing has"
            f" been changed; put broker {here.node_id}'s own folder there, and this one where broker {here.owner}"
            " belongs."
        )
    return None


def quorum_lost(folders: Sequence[BrokerFolder], voters: int) -> str | None:
    """Why no leader of the metadata quorum could be elected by those who know what it had agreed on.

    None when a majority of the `voters`, which are the first nodes, is whole, or when nothing says that there has ever
    been a cluster.
    """
    voting = folders[:voters]
    lost = [voter for voter in voting if voter.metadata is not MetadataCondition.WHOLE]
    majority = voters // 2 + 1
    if not any(voter.in_use for voter in folders) or voters - len(lost) >= majority:
        return None
    losses = "; ".join(f"voter {voter.node_id}: {voter.metadata_path} is {voter.metadata}" for voter in lost)
    return (
        f"{len(lost)} of {voters} voters have lost the cluster's metadata ({losses}), and without {majority} of them"
        " nobody knows what the cluster was. Nothing has been started or changed, so that no empty cluster takes its"
        " place; put these folders back from their disks or from a backup, and start again. If they are gone for good,"
        " `ebbline quorum recover` shows what is left, and goes on from it."
    )


def recovery_interrupted(folder: DataFolder) -> str | None:
    """Why voters of which only some were given the metadata that was left do not start; None when there are none."""
    if not (folder.quorum / RECOVERING_FILE).exists():
        return None
    return (
        f"`ebbline quorum recover` was begun on {folder.root} and did not end, so its voters may not be of one quorum."
        " Run it again; nothing has been started or changed."
    )
