"""Control batches: the records of a log that no application sees (KIP-98 transaction markers, KIP-595, KIP-630).

A control record's key is int16 version and int16 type. A batch holds one of them.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final

from backend.protocol import codec
from backend.protocol import messages as m
from backend.protocol.buffers import Buffer
from backend.protocol.errors import DecodeError
from backend.protocol.record_batches.record_batch import RecordData, build_batch

_KEY: Final = Struct(">hh")
_MARKER: Final = Struct(">hi")
_KEY_VERSION: Final = 0
_MARKER_VERSION: Final = 0


class ControlType(IntEnum):
    """The types of control records (Kafka: `ControlRecordType`)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_type(key: bytes | None) -> int:
    """The type in a control record's key; raises DecodeError for a key that is too short. May be an unknown type."""
    if key is None or len(key) < _KEY.size:
        raise DecodeError(f"a control record's key has {_KEY.size} bytes, not {len(key or b'')}")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise DecodeError(f"a control record's key has version {version}")
    return int(kind)


def marker_epoch(value: bytes | None) -> int:
    """The coordinator's epoch in an end-of-transaction marker; raises DecodeError when it is cut off."""
    if value is None or len(value) < _MARKER.size:
        raise DecodeError(f"a transaction marker has {_MARKER.size} bytes, not {len(value or b'')}")
    return int(_MARKER.unpack_from(value)[1])


def _record(kind: ControlType, value: bytes, timestamp_ms: int) -> list[RecordData]:
    return [RecordData(timestamp_ms, _KEY.pack(_KEY_VERSION, kind), value)]


def end_txn_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The batch that ends a producer's transaction in one partition."""
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return build_batch(
        _record(kind, _MARKER.pack(_MARKER_VERSION, coordinator_epoch), timestamp_ms),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def _control_batch(
    kind: ControlType, value: bytes, timestamp_ms: int, base_offset: int, leader_epoch: int
) -> bytearray:
    records = _record(kind, value, timestamp_ms)
    return build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch, control=True)


def leader_change(
    *,
    leader_id: int,
    voters: Sequence[int],
    granting_voters: Sequence[int],
    timestamp_ms: int,
    base_offset: int,
    leader_epoch: int,
) -> bytearray:
    """The first batch of a metadata leader's epoch (KIP-595), version 0."""
    message = m.LeaderChangeMessage(
        leader_id=leader_id,
        voters=[m.LeaderChangeMessage.Voters(voter_id=voter) for voter in voters],
        granting_voters=[m.LeaderChangeMessage.GrantingVoters(voter_id=voter) for voter in granting_voters],
    )
    return _control_batch(ControlType.LEADER_CHANGE, codec.encode(message, 0), timestamp_ms, base_offset, leader_epoch)


def voters(directories: Mapping[int, bytes], *, timestamp_ms: int, base_offset: int, leader_epoch: int) -> bytearray:
    """The batch that says by which directory each voter is known (VotersRecord of KIP-853), version 0.

    `directories`: voter → directory id. Where voters listen stands in `controller.quorum.voters`, not here.
    """
    kind = m.VotersRecord.Voters
    message = m.VotersRecord(
        version=0,
        voters=[
            kind(
                voter_id=voter,
                voter_directory_id=directory_id,
                endpoints=[],
                kraft_version_feature=kind.KraftVersionFeature(min_supported_version=0, max_supported_version=0),
            )
            for voter, directory_id in sorted(directories.items())
        ],
    )
    return _control_batch(ControlType.KRAFT_VOTERS, codec.encode(message, 0), timestamp_ms, base_offset, leader_epoch)


def voter_directories(value: Buffer) -> dict[int, bytes]:
    """Voter → directory id, from a VotersRecord's value. DecodeError."""
    message = codec.decode(m.VotersRecord, 0, value)[0]
    return {voter.voter_id: bytes(voter.voter_directory_id) for voter in message.voters}


def snapshot_header(
    *, last_contained_log_timestamp_ms: int, timestamp_ms: int, base_offset: int = 0, leader_epoch: int = 0
) -> bytearray:
    """The first batch of a snapshot file (KIP-630)."""
    message = m.SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_log_timestamp_ms)
    return _control_batch(
        ControlType.SNAPSHOT_HEADER, codec.encode(message, 0), timestamp_ms, base_offset, leader_epoch
    )


def snapshot_footer(*, timestamp_ms: int, base_offset: int, leader_epoch: int = 0) -> bytearray:
    """The last batch of a snapshot file (KIP-630): without it the snapshot is incomplete."""
    value = codec.encode(m.SnapshotFooterRecord(), 0)
    return _control_batch(ControlType.SNAPSHOT_FOOTER, value, timestamp_ms, base_offset, leader_epoch)
