"""The meaning of -1 as answer to ListOffsets -6 (earliest pending upload), one for three situations (KIP-1023).

Source: `UnifiedLog.fetchOffsetByTimestamp` and `ReplicaManager`, which turns an answer at the log end into -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

# The answer "no such offset" of ListOffsets.
UNKNOWN: Final = -1


class PendingReason(StrEnum):
    """Why there is no earliest pending upload."""

    NOT_TIERED = "not_tiered"
    LEADER_DOES_NOT_KNOW = "leader_does_not_know"
    """Since it became leader or was restarted, it has not looked at the remote tier yet (one task interval)."""
    ALL_COPIED = "all_copied"
    """Everything up to the log end is in the remote tier, or the log is empty."""
    CHANGING = "changing"
    """The answers of one round contradict each other because records arrived between them; the next round tells."""


@dataclass(frozen=True, slots=True)
class Pending:
    """The offset of the first record that is not in the remote tier; None with the reason when there is none.

    For ALL_COPIED the offset is the log end: nothing is pending, and that is known.
    """

    offset: int | None
    reason: PendingReason | None


@dataclass(frozen=True, slots=True)
class PendingFrom:
    """The first offset that is not in the remote tier, from a stored sample; None: not known.

    `inferred`: the leader does not know ListOffsets -6 (before KIP-1023), so it follows from its other answers.
    """

    offset: int | None
    inferred: bool = False


class OffsetSample(Protocol):
    """A partition as it was sampled and stored; None: not known."""

    @property
    def pending_reason(self) -> str | None: ...
    @property
    def earliest_pending_upload_offset(self) -> int | None: ...
    @property
    def log_start_offset(self) -> int | None: ...
    @property
    def latest_tiered_offset(self) -> int | None: ...
    @property
    def log_end_offset(self) -> int | None: ...
    @property
    def remote_log_bytes(self) -> int | None: ...


def pending_from(sample: OffsetSample) -> PendingFrom:
    """Reads a stored sample, whose `pending_reason` is what `earliest_pending` made of a -1."""
    offset, tiered, start = (
        sample.earliest_pending_upload_offset,
        sample.latest_tiered_offset,
        sample.log_start_offset,
    )
    if sample.pending_reason == PendingReason.ALL_COPIED:
        return PendingFrom(sample.log_end_offset)
    if sample.pending_reason is not None or offset == UNKNOWN:
        return PendingFrom(None)
    if offset is not None:
        return PendingFrom(offset)
    if tiered is not None and tiered != UNKNOWN:
        return PendingFrom(max(tiered + 1, start or 0), inferred=True)
    if tiered == UNKNOWN and sample.remote_log_bytes == 0 and start is not None:
        return PendingFrom(start, inferred=True)
    return PendingFrom(None)


def earliest_pending(
    *,
    tiered: bool,
    offset: int | None,
    log_start: int | None,
    local_start: int | None,
    latest_tiered: int | None,
    log_end: int | None,
    highest_copied: int | None = None,
) -> Pending:
    """Reads a leader's answers of one round. `highest_copied` (inclusive) is what the ledger says was copied."""
    if not tiered:
        return Pending(None, PendingReason.NOT_TIERED)
    if offset is None or log_start is None or local_start is None or log_end is None:
        return Pending(None, None)
    knows_nothing = latest_tiered is None or latest_tiered == UNKNOWN
    copied_before = highest_copied is not None and highest_copied >= log_start
    if knows_nothing and copied_before and log_end > log_start:
        # Just restarted: it would answer its log start, although the ledger shows finished copies.
        return Pending(None, PendingReason.LEADER_DOES_NOT_KNOW)
    if offset != UNKNOWN:
        return Pending(offset, None)
    if log_end <= log_start:
        return Pending(log_end, PendingReason.ALL_COPIED)
    if knows_nothing:
        reason = PendingReason.LEADER_DOES_NOT_KNOW if local_start > log_start else PendingReason.CHANGING
        return Pending(None, reason)
    first = max((latest_tiered or 0) + 1, log_start)
    if first >= log_end:
        return Pending(log_end, PendingReason.ALL_COPIED)
    return Pending(None, PendingReason.CHANGING)
