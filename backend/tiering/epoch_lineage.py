"""Is a remote segment part of a replica's chain of leader epochs, and if not, why (KIP-405, "unclean leader election").

A deposed leader may have copied records that its successors never had. Such a segment is real, readable and wrong for
the present leader: it must stay out of retention's sums and go by other rules.
Source: `RemoteLogManager.isRemoteSegmentWithinLeaderEpochs`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

EpochEntry = tuple[int, int]
"""(leader epoch, its first offset)."""


class Reason(StrEnum):
    """Why a segment is, or is not, part of the chain."""

    WITHIN = "WITHIN"
    EPOCH_OUT_OF_RANGE = "EPOCH_OUT_OF_RANGE"
    EPOCH_UNKNOWN = "EPOCH_UNKNOWN"
    STARTS_BEFORE_EPOCH = "STARTS_BEFORE_EPOCH"
    NEXT_EPOCH_DIFFERS = "NEXT_EPOCH_DIFFERS"
    ENDS_AFTER_EPOCH = "ENDS_AFTER_EPOCH"
    ENDS_AFTER_LOG_END = "ENDS_AFTER_LOG_END"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer with the epoch that decided it; `explanation` is one sentence for people."""

    reason: Reason
    explanation: str

    @property
    def within(self) -> bool:
        return self.reason is Reason.WITHIN


_WITHIN: Final = Verdict(Reason.WITHIN, "every epoch of the segment agrees with the leader's chain")


def without_empty_epochs(entries: Iterable[EpochEntry]) -> tuple[EpochEntry, ...]:
    """Of several epochs with one first offset only the last stays: the others hold no record. Epochs ascend."""
    kept: list[EpochEntry] = []
    for epoch, start in entries:
        if kept and kept[-1][1] == start:
            kept[-1] = (epoch, start)
        else:
            kept.append((epoch, start))
    return tuple(kept)


def segment_lineage(
    segment_epochs: Sequence[EpochEntry], end_offset: int, lineage: Sequence[EpochEntry], log_end: int
) -> Verdict:
    """Whether the chain `lineage` contains the segment.

    `segment_epochs` and `lineage` ascend by epoch; `end_offset` is the segment's last offset (inclusive), `log_end` the
    log's next one. Epochs of the segment below the chain's first are ignored: log start has passed the segment's head.
    """
    own = without_empty_epochs(segment_epochs)
    if not own or not lineage:
        return Verdict(Reason.EPOCH_OUT_OF_RANGE, "there is no epoch to compare")
    first, last = lineage[0][0], lineage[-1][0]
    if not first <= own[-1][0] <= last:
        return Verdict(
            Reason.EPOCH_OUT_OF_RANGE, f"its last epoch {own[-1][0]} is outside the leader's epochs {first} to {last}"
        )
    starts = dict(lineage)
    epochs = [epoch for epoch, _ in lineage]
    counted = [entry for entry in own if entry[0] >= first]
    for position, (epoch, start) in enumerate(counted):
        if epoch not in starts:
            return Verdict(Reason.EPOCH_UNKNOWN, f"the leader never had records of epoch {epoch}")
        if position == 0 and epoch != first and start < starts[epoch]:
            return Verdict(
                Reason.STARTS_BEFORE_EPOCH,
                f"its epoch {epoch} starts at {start}, the leader's at {starts[epoch]}",
            )
        higher = bisect_right(epochs, epoch)
        following = lineage[higher] if higher < len(lineage) else None
        if position == len(counted) - 1:
            if following is not None and end_offset >= following[1]:
                return Verdict(
                    Reason.ENDS_AFTER_EPOCH,
                    f"it ends at {end_offset}, but the leader's epoch {following[0]} starts at {following[1]}",
                )
        elif following != counted[position + 1]:
            return Verdict(
                Reason.NEXT_EPOCH_DIFFERS,
                f"after epoch {epoch} it continues with {counted[position + 1]}, the leader with {following}",
            )
    if end_offset >= log_end:
        return Verdict(Reason.ENDS_AFTER_LOG_END, f"it ends at {end_offset}, the log at {log_end}")
    return _WITHIN


@dataclass(frozen=True, slots=True)
class Copy:
    """A finished copy: its epochs with the first offset of each, and the offset after its last record."""

    name: str
    epochs: tuple[EpochEntry, ...]
    next_offset: int
    finished_ms: int

    def end_of(self, epoch: int) -> int:
        """The offset after the epoch's last record in the segment."""
        return min((start for other, start in self.epochs if other > epoch), default=self.next_offset)


def replaced(copies: Iterable[Copy]) -> frozenset[str]:
    """Names of those that share (epoch, first offset) with a later copy that ends that epoch earlier.

    Kafka 4.3.1 keeps one segment by epoch and first offset, and the later copy wins, whatever it covers (KIP-405,
    scenario 5; `RemoteLogLeaderEpochState`): retention never sees the other one again.
    """
    all_copies = list(copies)
    newest: dict[EpochEntry, Copy] = {}
    for copy in sorted(all_copies, key=lambda each: each.finished_ms):
        newest.update(dict.fromkeys(copy.epochs, copy))
    return frozenset(
        copy.name
        for copy in all_copies
        if any(
            newest[entry] is not copy and newest[entry].end_of(entry[0]) < copy.end_of(entry[0])
            for entry in copy.epochs
        )
    )
