"""The file `quorum-state` beside the metadata log: who leads, in which epoch, this node's vote (KIP-595), and what its
copy of the log is worth: by which directory it is known, and whether it may vote.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from backend.tiering.ids import uuid_bytes, uuid_text

QUORUM_STATE_FILE: Final = "quorum-state"
NOBODY: Final = -1
NO_DIRECTORY: Final = bytes(16)


class VoterStanding(StrEnum):
    """Whether a voter's folder remembers all that the voter has promised and acknowledged.

    A voter that does not must neither vote nor lead nor count for a commit: what it acknowledged may be committed.
    """

    # It remembers; every folder of before there were standings.
    MEMBER = "member"
    # Empty, and nothing says that the node ever was a voter: it takes part in making a quorum, if all others are empty.
    FORMING = "forming"
    # Its disk is new, older than it was, or damaged: it follows a leader that was elected without it until that leader
    # has noted its directory in the log.
    CATCHING_UP = "catching-up"


class BadQuorumState(ValueError):
    """The file is not what Kafka 4.3 or this engine writes; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class QuorumState:
    """Data version 0, which is what Kafka writes while `kraft.version` is 0; the last two fields are ours."""

    leader_id: int = NOBODY
    leader_epoch: int = 0
    voted_id: int = NOBODY
    voters: tuple[int, ...] = ()
    # Of this folder's content, made with it; NO_DIRECTORY in files of before there were any.
    directory_id: bytes = NO_DIRECTORY
    standing: VoterStanding = VoterStanding.MEMBER


def encode_quorum_state(state: QuorumState) -> bytes:
    """The file's bytes, as Kafka's FileQuorumStateStore writes them; programs that do not know our fields skip them."""
    fields: dict[str, Any] = {
        "clusterId": "",
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter} for voter in state.voters],
        "data_version": 0,
    }
    if state.directory_id != NO_DIRECTORY:
        fields |= {"directoryId": uuid_text(state.directory_id), "standing": str(state.standing)}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes) -> QuorumState:
    """The state in a file; BadQuorumState for anything else."""
    try:
        fields = json.loads(data)
        version = fields["data_version"]
        if version not in (0, 1):
            raise BadQuorumState(f"data version {version} is newer than 1")
        directory = fields.get("directoryId")
        return QuorumState(
            leader_id=int(fields["leaderId"]),
            leader_epoch=max(0, int(fields["leaderEpoch"])),
            voted_id=int(fields["votedId"]),
            voters=tuple(int(voter["voterId"]) for voter in fields.get("currentVoters") or ()),
            directory_id=NO_DIRECTORY if directory is None else uuid_bytes(directory),
            standing=VoterStanding(fields.get("standing", VoterStanding.MEMBER)),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadQuorumState(f"it cannot be read: {error}") from error
