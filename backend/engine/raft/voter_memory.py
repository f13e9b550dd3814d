"""Judges a voter's folder at a start: whether it still has all votes and records that the voter has promised.

The verdict is a function of what lies there. A voter that does not remember gets a new directory id, so that the
others do not take it for the voter that they know, and catches up before it is one again. An only voter has nobody to
catch up with: it is refused instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from backend.engine.ports.disk import Disk
from backend.engine.raft.acknowledged import Acknowledged
from backend.engine.raft.quorum_state import (
    NO_DIRECTORY,
    NOBODY,
    QUORUM_STATE_FILE,
    BadQuorumState,
    QuorumState,
    VoterStanding,
    decode_quorum_state,
)
from backend.engine.raft.raft_state import LogEnd


class MetadataLost(Exception):
    """The only voter's metadata is not what it was, and nothing else has it; one sentence for the operator."""


@dataclass(frozen=True, slots=True)
class Traces:
    """Evidence in a node's other files of the metadata that it has had."""

    acknowledged: Acknowledged | None = None
    # Epoch of the broker when it last stopped in order: the offset of its registration; -1 unknown.
    broker_epoch: int = -1
    # Whether a log directory holds a partition.
    partitions: bool = False

    @property
    def records(self) -> bool:
        """Whether the log has had records."""
        acknowledged = self.acknowledged is not None and self.acknowledged.end.offset > 0
        return acknowledged or self.broker_epoch >= 0 or self.partitions


@dataclass(frozen=True, slots=True)
class VoterMemory:
    """The state that the node begins with; `lost` names what its folder no longer has, None when nothing."""

    state: QuorumState
    lost: str | None = None


def read_quorum_state(disk: Disk, folder: str) -> tuple[QuorumState | None, str | None]:
    """The quorum-state of a metadata folder, None without one; and why it cannot be read. OSError."""
    path = f"{folder}/{QUORUM_STATE_FILE}"
    if not disk.exists(path):
        return None, None
    try:
        return decode_quorum_state(disk.read(path)), None
    except BadQuorumState as error:
        return None, str(error)


def set_damaged_aside(disk: Disk, folder: str, now_ms: int) -> str:
    """A quorum-state that cannot be read is kept under another name; its new path. OSError."""
    path = f"{folder}/{QUORUM_STATE_FILE}"
    aside = f"{path}.damaged-{now_ms}"
    disk.rename(path, aside)
    disk.sync_dir(folder)
    return aside


def judge(
    stored: QuorumState | None,
    damage: str | None,
    end: LogEnd,
    traces: Traces,
    *,
    directory_id: bytes,
    fresh_directory_id: bytes,
) -> VoterMemory:
    """The memory of one of several voters.

    `stored` is its quorum-state, `damage` why that cannot be read. `directory_id`: of its log directory, by which
    folders of before there were standings are known; `fresh_directory_id` is given to one that has forgotten.
    """
    lost = _lost(stored, damage, end, traces)
    if lost is None and stored is not None:
        own_directory_id = stored.directory_id if stored.directory_id != NO_DIRECTORY else directory_id
        return VoterMemory(replace(stored, directory_id=own_directory_id))
    if lost is None:
        return VoterMemory(QuorumState(directory_id=fresh_directory_id, standing=VoterStanding.FORMING))
    if stored is not None and _joins(stored, end):
        # It has given no vote under this directory id.
        return VoterMemory(replace(stored, standing=VoterStanding.CATCHING_UP), lost)
    epoch = max(end.epoch, stored.leader_epoch if stored else 0)
    voters = stored.voters if stored else ()
    state = QuorumState(NOBODY, epoch, NOBODY, voters, fresh_directory_id, VoterStanding.CATCHING_UP)
    return VoterMemory(state, lost)


def judge_only_voter(stored: QuorumState | None, end: LogEnd, traces: Traces, folder: str) -> QuorumState:
    """The memory of an only voter, whose vote no other node counts on. MetadataLost when its log is not what it was."""
    lost = _lost_records(end, traces)
    if lost is not None:
        raise MetadataLost(
            f"{folder} {lost}, and this is the only controller; nothing has been changed, so that no empty or older"
            " cluster takes its place: put that folder back from its disk or from the newest backup"
        )
    kept = stored or QuorumState(leader_epoch=end.epoch)
    known_epoch = traces.acknowledged.leader_epoch if traces.acknowledged else 0
    if kept.leader_epoch < known_epoch:
        kept = replace(kept, leader_epoch=known_epoch, leader_id=NOBODY, voted_id=NOBODY)
    return replace(kept, standing=VoterStanding.MEMBER)


def _joins(stored: QuorumState, end: LogEnd) -> bool:
    """Whether it was catching up already, or has got records of a quorum that it took no part in making."""
    return stored.standing is VoterStanding.CATCHING_UP or (stored.standing is VoterStanding.FORMING and end.offset > 0)


def _lost(stored: QuorumState | None, damage: str | None, end: LogEnd, traces: Traces) -> str | None:
    if damage is not None:
        return f"has a quorum-state that is damaged ({damage})"
    if stored is not None and _joins(stored, end):
        return "has not caught up yet"
    noted = traces.acknowledged is not None and not traces.records
    if stored is None and (end.offset > 0 or noted):
        return "has no quorum-state, so its votes are not known"
    acknowledged = traces.acknowledged
    if stored is not None and acknowledged is not None and stored.leader_epoch < acknowledged.leader_epoch:
        return (
            f"is of epoch {stored.leader_epoch}, but this node has taken part in epoch"
            f" {acknowledged.leader_epoch}: it is an older copy"
        )
    return _lost_records(end, traces)


def _lost_records(end: LogEnd, traces: Traces) -> str | None:
    if end.offset == 0 and traces.records:
        return "is empty, although this node was part of a cluster"
    acknowledged_end = traces.acknowledged.end if traces.acknowledged else None
    if acknowledged_end is not None and end < acknowledged_end:
        return (
            f"ends at offset {end.offset} of epoch {end.epoch}, but this node has acknowledged the metadata up to"
            f" offset {acknowledged_end.offset} of epoch {acknowledged_end.epoch}: it is an older copy"
        )
    if end.offset <= traces.broker_epoch:
        return (
            f"ends at offset {end.offset}, but this node was registered at offset {traces.broker_epoch}: it is an older"
            " copy"
        )
    return None
