"""Server-side assignors of the consumer group protocol: `uniform` and `range` (KIP-848).

Both are functions of what members subscribe to and what they have as target now. Racks do not matter, as in Kafka 4.
Kafka: `UniformAssignor`, `RangeAssignor`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from backend.engine.coordinator.topics_view import AssignablePartition

TargetAssignment = dict[str, frozenset[AssignablePartition]]


class MemberSpec(NamedTuple):
    """A member as an assignor sees it: topics that exist, by id, and its present target."""

    instance_id: str | None
    topics: frozenset[bytes]
    target: frozenset[AssignablePartition]


def uniform(members: Mapping[str, MemberSpec], counts: Mapping[bytes, int]) -> TargetAssignment:
    """Equal numbers of partitions; a member keeps one unless another has fewer."""
    kept = _kept(members, counts)
    if len({spec.topics for spec in members.values()}) == 1:
        _share_evenly(members, counts, kept)
    else:
        _share_by_subscription(members, counts, kept)
    return {member_id: frozenset(partitions) for member_id, partitions in kept.items()}


def _kept(members: Mapping[str, MemberSpec], counts: Mapping[bytes, int]) -> dict[str, set[AssignablePartition]]:
    """Present targets that may stay: the topic is subscribed to, the partition exists and is no other member's."""
    seen: set[AssignablePartition] = set()
    kept: dict[str, set[AssignablePartition]] = {}
    for member_id, spec in members.items():
        kept_partitions = {
            partition
            for partition in spec.target
            if partition[0] in spec.topics and partition[1] < counts.get(partition[0], 0)
        } - seen
        seen |= kept_partitions
        kept[member_id] = kept_partitions
    return kept


def _free(
    topics: frozenset[bytes], counts: Mapping[bytes, int], kept: dict[str, set[AssignablePartition]]
) -> list[AssignablePartition]:
    taken = set().union(*kept.values())
    everything = ((topic, index) for topic in sorted(topics) for index in range(counts.get(topic, 0)))
    return [partition for partition in everything if partition not in taken]


def _share_evenly(
    members: Mapping[str, MemberSpec], counts: Mapping[bytes, int], kept: dict[str, set[AssignablePartition]]
) -> None:
    """All subscribe to the same: each gets the quota, some one more, first those who have more already."""
    topics = next(iter(members.values())).topics
    quota, extra = divmod(sum(counts.get(topic, 0) for topic in topics), len(members))
    quotas: dict[str, int] = {}
    for member_id in sorted(members, key=lambda key: (-len(kept[key]), key)):
        quotas[member_id] = quota + (extra > 0)
        extra -= extra > 0
        for surplus in sorted(kept[member_id])[quotas[member_id] :]:
            kept[member_id].remove(surplus)
    free = _free(topics, counts, kept)
    for member_id in sorted(members):
        missing = quotas[member_id] - len(kept[member_id])
        kept[member_id].update(free[:missing])
        del free[:missing]


def _share_by_subscription(
    members: Mapping[str, MemberSpec], counts: Mapping[bytes, int], kept: dict[str, set[AssignablePartition]]
) -> None:
    """Members subscribe to different topics: free partitions go to the member with the fewest, then surplus moves."""
    subscribers: dict[bytes, list[str]] = defaultdict(list)
    for member_id in sorted(members):
        for topic in members[member_id].topics:
            subscribers[topic].append(member_id)
    # Topics that few want come first: others have more to choose from.
    topics = sorted(subscribers, key=lambda topic: (len(subscribers[topic]), topic))
    for partition in _free(frozenset(topics), counts, kept):
        kept[min(subscribers[partition[0]], key=lambda member_id: (len(kept[member_id]), member_id))].add(partition)
    moved = True
    while moved:
        # Every move makes the sum of squares of the shares smaller, so there is an end.
        moved = False
        for topic in topics:
            moved |= _level(topic, subscribers[topic], kept)


def _level(topic: bytes, subscribers: list[str], kept: dict[str, set[AssignablePartition]]) -> bool:
    """Moves partitions of one topic from those who have most to those who have least."""
    moved = False
    while True:
        taker = min(subscribers, key=lambda member_id: (len(kept[member_id]), member_id))
        # Only who has two more than the taker gives one away.
        rich = [subscriber for subscriber in subscribers if len(kept[subscriber]) > len(kept[taker]) + 1]
        givers = [giver for giver in rich if any(partition[0] == topic for partition in kept[giver])]
        if not givers:
            return moved
        giver = max(givers, key=lambda member_id: (len(kept[member_id]), member_id))
        partition = max(partition for partition in kept[giver] if partition[0] == topic)
        kept[giver].remove(partition)
        kept[taker].add(partition)
        moved = True


def range_(members: Mapping[str, MemberSpec], counts: Mapping[bytes, int]) -> TargetAssignment:
    """A contiguous range of each topic for each subscriber, static members first, so that topics are co-partitioned."""
    order = sorted(
        members,
        key=lambda member_id: (members[member_id].instance_id is None, members[member_id].instance_id or member_id),
    )
    assigned: dict[str, set[AssignablePartition]] = {member_id: set() for member_id in members}
    for topic in {topic for spec in members.values() for topic in spec.topics}:
        subscribers = [member_id for member_id in order if topic in members[member_id].topics]
        quota, extra = divmod(counts.get(topic, 0), len(subscribers))
        start = 0
        for at, member_id in enumerate(subscribers):
            end = start + quota + (at < extra)
            assigned[member_id].update((topic, index) for index in range(start, end))
            start = end
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


Assignor = Callable[[Mapping[str, MemberSpec], Mapping[bytes, int]], TargetAssignment]
ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": range_}
