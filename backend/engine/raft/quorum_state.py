"""The file `quorum-state` beside the metadata log: who leads, in which epoch, and this node's vote (KIP-595)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

QUORUM_STATE_FILE: Final = "quorum-state"
NOBODY: Final = -1


class BadQuorumState(ValueError):
    """The file is not what Kafka 4.3 or this engine writes; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class QuorumState:
    """Data version 0, which is what Kafka writes while `kraft.version` is 0."""

    leader_id: int = NOBODY
    leader_epoch: int = 0
    voted_id: int = NOBODY
    voters: tuple[int, ...] = ()


def encode_quorum_state(state: QuorumState) -> bytes:
    """The file's bytes, as Kafka's FileQuorumStateStore writes them."""
    text = json.dumps(
        {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in state.voters],
            "data_version": 0,
        },
        separators=(",", ":"),
    )
    return text.encode()


def decode_quorum_state(data: bytes) -> QuorumState:
    """The state in a file; BadQuorumState for anything else."""
    try:
        fields = json.loads(data)
        version = fields["data_version"]
        if version not in (0, 1):
            raise BadQuorumState(f"data version {version} is newer than 1")
        return QuorumState(
            leader_id=int(fields["leaderId"]),
            leader_epoch=int(fields["leaderEpoch"]),
            voted_id=int(fields["votedId"]),
            voters=tuple(int(voter["voterId"]) for voter in fields.get("currentVoters") or ()),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise BadQuorumState(f"it cannot be read: {error}") from error
