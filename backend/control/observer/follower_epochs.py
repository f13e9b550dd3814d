"""Leader-epoch chains of replicas: the leader's is asked, a follower's is concluded.

OffsetForLeaderEpoch is answered by leaders only. A follower copies the leader's chain, so below its log end it has the
leader's epochs, unless it disagrees with the leader at an offset whose epoch it named itself (ListOffsets -2, -4, -5).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from backend.control.observer.sampling.cluster_facts import EpochPoint
from backend.tiering.epoch_lineage import EpochEntry


@dataclass(frozen=True, slots=True)
class FollowerChain:
    """(epoch, first offset) ascending; `disagrees` is the lowest point at which follower and leader differ."""

    entries: tuple[EpochEntry, ...]
    disagrees: EpochPoint | None = None


def epoch_at(chain: Sequence[EpochEntry], offset: int) -> int | None:
    """The epoch that the chain gives an offset; None below its first entry."""
    position = bisect_right([start for _, start in chain], offset)
    return chain[position - 1][0] if position else None


def follower_chain(
    leader: Sequence[EpochEntry],
    points: Iterable[EpochPoint],
    log_start: int,
    log_end: int,
    leader_end: int | None,
) -> FollowerChain:
    """The state of a follower's chain, from the leader's and from the points the follower named.

    A point at a log end stands for no record: of an empty or idle log it is the epoch of what was there before, while
    the leader names the epoch that it leads in. Only points below both log ends are compared; none where the leader's
    (`leader_end`) is not known.
    """
    compared_end = min(log_end, log_start if leader_end is None else leader_end)
    ordered = sorted((point for point in points if point.offset < compared_end), key=lambda point: point.offset)
    for point in ordered:
        if epoch_at(leader, point.offset) not in (None, point.epoch):
            agreed = [entry for entry in leader if entry[1] < point.offset and entry[0] < point.epoch]
            own = [(p.epoch, p.offset) for p in ordered if p.offset >= point.offset]
            return FollowerChain(_distinct([*agreed, *own]), point)
    return FollowerChain(tuple(entry for entry in leader if entry[1] < log_end or entry[1] <= log_start))


def _distinct(entries: Iterable[EpochEntry]) -> tuple[EpochEntry, ...]:
    """The first offset of each epoch."""
    first: dict[int, int] = {}
    for epoch, start in entries:
        first.setdefault(epoch, start)
    return tuple(first.items())
