"""What a follower rebuilds from the remote tier when its leader is past its offset (KIP-405; `TierStateMachine`)."""

from __future__ import annotations

from dataclasses import dataclass

from backend.engine.log.checkpoints import decode_epochs
from backend.engine.ports import tasks
from backend.engine.remote.rsm import IndexType, RemoteStorageError, RemoteStorageNotReady
from backend.engine.remote.tier import Tier
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
    except ValueError as error:
        raise RemoteStorageError(
            f"Leader epochs of segment {uuid_text(segment.segment_id)} of {partition} cannot be read: {error}"
        ) from error
    return AuxState(segment.end_offset + 1, entries, snapshot)
