"""When a follower is stuck: one rule for Overview and Followers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from backend.store.queries.partitions import ReplicaRow
from backend.tiering.follower_phase import FollowerPhase

# One failed attempt is a hiccup, two a restart of the leader; the third fails for a reason that stays.
STUCK_ATTEMPTS: Final = 3
# The limit where no broker reports attempts (Kafka does not), and for a wait that should take seconds.
STUCK_MS: Final = 30_000

# Answers that come while a topic's creation, deletion or a leader change spreads to all brokers; the fetcher asks again
# and Kafka logs a warning at most ("not expected to persist", AbstractFetcherThread.processFetchRequest).
PASSING: Final = (
    "UNKNOWN_TOPIC_OR_PARTITION",
    "UNKNOWN_TOPIC_ID",
    "INCONSISTENT_TOPIC_ID",
    "NOT_LEADER_OR_FOLLOWER",
    "UNKNOWN_LEADER_EPOCH",
    "FENCED_LEADER_EPOCH",
)


# A leader that knows a newer epoch than the follower's metadata: over once that arrives.
NEWER_EPOCH: Final = "the leader has a newer epoch than"


def is_ordinary_retry(body: Mapping[str, Any]) -> bool:
    """Whether the broker reported a transient error that it retries: no failure until it stays."""
    evidence = body.get("evidence")
    reason = str((evidence if isinstance(evidence, dict) else {}).get("reason") or "")
    tried = body.get("attempts")
    if isinstance(tried, int) and tried >= STUCK_ATTEMPTS:
        return False
    if body.get("phase") == FollowerPhase.FAILED.value:
        return reason.startswith(NEWER_EPOCH)
    return body.get("phase") == FollowerPhase.DELAYED.value and any(f" {name}" in reason for name in PASSING)


def attempts(replica: ReplicaRow) -> int | None:
    """Attempts that failed one after the other, as its broker reported; None: it did not report them."""
    evidence = replica.evidence if isinstance(replica.evidence, dict) else {}
    count = evidence.get("attempts")
    return count if isinstance(count, int) and not isinstance(count, bool) else None


def why_stuck(replica: ReplicaRow, now_ms: int) -> str | None:
    """The rule that calls a follower stuck, in words; None: it is not."""
    since_ms = now_ms - (replica.phase_since_ms or replica.changed_ms)
    if replica.phase == FollowerPhase.FAILED.value:
        evidence = replica.evidence if isinstance(replica.evidence, dict) else {}
        if str(evidence.get("reason") or "").startswith(NEWER_EPOCH) and since_ms <= STUCK_MS:
            return None
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
