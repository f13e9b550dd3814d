"""The choice of the replica that a consumer should read from (KIP-392), as a pure decision.

Kafka: `RackAwareReplicaSelector`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A replica that has the offset asked for and that the client can reach."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    behind_ms: float


def preferred_replica(rack: str, leader: ReplicaView, others: Sequence[ReplicaView]) -> int | None:
    """The replica in the client's rack that is caught up most; None when the leader should serve the client itself."""
    if not rack or leader.rack == rack:
        return None
    near = [replica for replica in others if replica.rack == rack]
    if not near:
        return None
    return max(near, key=lambda replica: (replica.log_end_offset, -replica.behind_ms, replica.broker_id)).broker_id
