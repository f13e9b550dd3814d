"""The state that a follower rebuilds from the remote tier when its leader is past its offset (KIP-405;
`TierStateMachine`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from backend.engine.log.checkpoint_files import decode_epochs
from backend.engine.ports import tasks
from backend.engine.remote.manager.tier import Tier
from backend.engine.remote.storage.remote_storage_manager import IndexType, RemoteStorageError, RemoteStorageNotReady
from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.tiering.ids import TopicIdPartition, uuid_text


@dataclass(frozen=True, slots=True)
class AuxState:
    """History below `next_offset`: where the follower starts to fetch, its leader epochs and its producers."""

    next_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    producer_snapshot: bytes


async def read_aux_state(tier: Tier, partition: TopicIdPartition, epoch: int, offset: int) -> AuxState:
    """State after the remote segment that holds `offset` as a record of `epoch`.

    Both indexes are in hand before this returns, so the caller drops nothing local for a state it cannot build. Raises
    RemoteStorageNotReady while metadata is still being read, RemoteStorageError when there is no such segment or an
    index cannot be read.
    """
    tier.meters.mark(partition.topic, "buildremotelogauxstaterequests")
    try:
        return await _read(tier, partition, epoch, offset)
    except RemoteStorageNotReady:
        raise
    except RemoteStorageError:
        tier.meters.mark(partition.topic, "buildremotelogauxstateerrors")
        raise


async def _read(tier: Tier, partition: TopicIdPartition, epoch: int, offset: int) -> AuxState:
    if not tier.metadata.is_ready(partition):
        raise RemoteStorageNotReady(f"Remote log metadata of {partition} is still being read")
    segment = tier.metadata.lookup(partition, epoch, offset)
    if segment is None:
        raise RemoteStorageError(
            f"No remote segment of {partition} holds offset {offset} of epoch {epoch}; the leader must copy it first"
        )
    storage = tier.storage
    epochs, snapshot = await tasks.gather(
        [
            tier.workers.run(lambda: storage.fetch_index(segment, IndexType.LEADER_EPOCH)),
            tier.workers.run(lambda: storage.fetch_index(segment, IndexType.PRODUCER_SNAPSHOT)),
        ]
    )
    try:
        entries = tuple(decode_epochs(epochs))
        _check_epochs(entries, segment)
    except ValueError as error:
        raise RemoteStorageError(
            f"Leader epochs of segment {uuid_text(segment.segment_id)} of {partition} cannot be read: {error}"
        ) from error
    return AuxState(segment.end_offset + 1, entries, snapshot)


def _check_epochs(entries: Sequence[tuple[int, int]], segment: SegmentMetadata) -> None:
    """Raises ValueError unless the index is a history that ends with the epochs which the metadata names.

    An index that was cut off between two lines, or is another segment's, would be a follower's past otherwise: both
    come from one epoch cache when a segment is copied.
    """
    if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(entries)) or any(min(entry) < 0 for entry in entries):
        raise ValueError("its epochs or their offsets do not ascend")
    base = segment.start_offset
    before = [epoch for epoch, start in entries if start <= base]
    inside = [(before[-1], base)] if before else []
    inside += [entry for entry in entries if entry[1] > base]
    if tuple(inside) != tuple(segment.segment_leader_epochs):
        raise ValueError(f"it has {tuple(inside)} for the segment, whose metadata has {segment.segment_leader_epochs}")
