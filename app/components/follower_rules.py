"""When a follower is stuck: one rule for Overview and Followers. Pure."""

from __future__ import annotations

from typing import Final

from backend.store.queries.partitions import ReplicaRow
from backend.tiering.phases import FollowerPhase

# One failed attempt is a hiccup, two a restart of the leader; the third fails for a reason that stays.
STUCK_ATTEMPTS: Final = 3
# Where nobody tells attempts (Kafka does not), and for a wait that should take seconds.
STUCK_MS: Final = 30_000


def attempts(replica: ReplicaRow) -> int | None:
    """Attempts that failed one after the other, as its broker told; None: it did not."""
    evidence = replica.evidence if isinstance(replica.evidence, dict) else {}
    found = evidence.get("attempts")
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def why_stuck(replica: ReplicaRow, now_ms: int) -> str | None:
    """The rule that calls a follower stuck, in words; None: it is not."""
    since_ms = now_ms - (replica.phase_since_ms or replica.changed_ms)
    if replica.phase == FollowerPhase.FAILED.value:
        return "Its last error cannot be retried: it waits for a new leader epoch."
    if replica.phase == FollowerPhase.DELAYED.value:
        tried = attempts(replica)
        if tried is not None and tried >= STUCK_ATTEMPTS:
            return f"{tried} attempts failed one after the other; from {STUCK_ATTEMPTS} on a follower counts as stuck."
        if tried is None and since_ms > STUCK_MS:
            return f"No progress for more than {STUCK_MS // 1000} s; its broker does not tell how often it tried."
    if replica.phase == FollowerPhase.WAITING_FOR_METADATA.value and since_ms > STUCK_MS:
        return f"Its broker has not read the remote log's metadata for more than {STUCK_MS // 1000} s."
    return None
