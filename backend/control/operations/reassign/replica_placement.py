"""From a wish ("drain broker 3") to replica lists: few moves, even load, no rack twice where that can be. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from backend.tiering.ids import TopicPartition

ReplicaList = tuple[int, ...]


class PlacementImpossible(Exception):
    """The wish cannot be met; one sentence why."""


@dataclass(frozen=True, slots=True)
class BrokerRack:
    """A broker that may take replicas."""

    broker_id: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ReplicaLayout:
    """Replica lists now, and the brokers that can take replicas."""

    replicas: Mapping[TopicPartition, ReplicaList]
    places: Sequence[BrokerRack]
    counts: Counter[int] = field(default_factory=Counter)

    @staticmethod
    def of(replicas: Mapping[TopicPartition, ReplicaList], places: Sequence[BrokerRack]) -> ReplicaLayout:
        return ReplicaLayout(replicas, places, Counter(broker for replica in replicas.values() for broker in replica))


def add(
    layout: ReplicaLayout, chosen: Iterable[TopicPartition], brokers: Sequence[int]
) -> dict[TopicPartition, ReplicaList]:
    """Each of `brokers` joins each partition."""
    return {tp: (*now, *(b for b in brokers if b not in now)) for tp in chosen for now in (layout.replicas[tp],)}


def remove(
    layout: ReplicaLayout, chosen: Iterable[TopicPartition], brokers: Sequence[int]
) -> dict[TopicPartition, ReplicaList]:
    """Each of `brokers` leaves each partition that it has. Raises Impossible when none would be left."""
    result = {}
    for tp in chosen:
        left = tuple(b for b in layout.replicas[tp] if b not in brokers)
        if not left:
            raise PlacementImpossible(f"{tp.topic}-{tp.partition} would have no replica left: leave it one.")
        result[tp] = left
    return result


def move(
    layout: ReplicaLayout, chosen: Iterable[TopicPartition], source: int, to: int
) -> dict[TopicPartition, ReplicaList]:
    """`to` takes the place of `source` in each list that has `source`. Raises Impossible when it has both."""
    result = {}
    for tp in chosen:
        now = layout.replicas[tp]
        if source not in now:
            continue
        if to in now:
            raise PlacementImpossible(
                f"{tp.topic}-{tp.partition} has a replica on broker {to} already: remove it from {source}."
            )
        result[tp] = tuple(to if b == source else b for b in now)
    return result


def replication_factor(
    layout: ReplicaLayout, chosen: Iterable[TopicPartition], factor: int
) -> dict[TopicPartition, ReplicaList]:
    """`factor` replicas each: the last ones of a list leave, the least loaded brokers join. Raises Impossible."""
    counts = Counter(layout.counts)
    result = {}
    for tp in chosen:
        now = list(layout.replicas[tp])
        while len(now) > factor:
            counts[now.pop()] -= 1
        while len(now) < factor:
            joining = _least_loaded(layout.places, now, counts, tp, leaving=())
            now.append(joining)
            counts[joining] += 1
        result[tp] = tuple(now)
    return result


def drain(
    layout: ReplicaLayout, chosen: Iterable[TopicPartition], brokers: Sequence[int]
) -> dict[TopicPartition, ReplicaList]:
    """Nothing stays on `brokers`: the least loaded of the others take their places in the lists. Raises Impossible."""
    counts = Counter(layout.counts)
    result = {}
    for tp in chosen:
        now = list(layout.replicas[tp])
        for leaving in [b for b in now if b in brokers]:
            receiving = _least_loaded(layout.places, now, counts, tp, leaving=brokers)
            now[now.index(leaving)] = receiving
            counts[receiving] += 1
            counts[leaving] -= 1
        result[tp] = tuple(now)
    return result


def spread_leaders(layout: ReplicaLayout, chosen: Iterable[TopicPartition]) -> dict[TopicPartition, ReplicaList]:
    """No broker is the preferred leader much oftener than another; replicas stay where they are.

    The fullest first: a partition goes to the replica that leads least so far. Ties stay with the present first one.
    """
    alive = {place.broker_id for place in layout.places}
    leads: Counter[int] = Counter()
    result = {}
    # Partitions with the least choice first, so that the others can make up for them.
    for tp in sorted(chosen, key=lambda tp: (len(layout.replicas[tp]), tp.topic, tp.partition)):
        now = layout.replicas[tp]
        able = [b for b in now if b in alive] or list(now)
        first = min(able, key=lambda b: (leads[b], b != now[0], now.index(b)))
        leads[first] += 1
        result[tp] = (first, *(b for b in now if b != first))
    return result


def swap_leaders(
    layout: ReplicaLayout, chosen: Iterable[TopicPartition], broker: int, other: int
) -> dict[TopicPartition, ReplicaList]:
    """The two brokers change places in each list that has both and that one of them leads; nothing is copied.

    Raises Impossible when there is no such partition.
    """
    result = {}
    places = {broker: other, other: broker}
    for tp in chosen:
        now = layout.replicas[tp]
        if now[0] in places and places[now[0]] in now:
            result[tp] = tuple(places.get(b, b) for b in now)
    if not result:
        raise PlacementImpossible(
            f"No partition has replicas on brokers {broker} and {other} with one of them first in its list."
        )
    return result


def _least_loaded(
    places: Sequence[BrokerRack], now: Sequence[int], counts: Counter[int], tp: TopicPartition, leaving: Sequence[int]
) -> int:
    racks = {place.rack for place in places if place.broker_id in now and place.broker_id not in leaving}
    able = [place for place in places if place.broker_id not in now and place.broker_id not in leaving]
    if not able:
        raise PlacementImpossible(
            f"No broker is left for another replica of {tp.topic}-{tp.partition}: start one, or ask for fewer replicas."
        )
    best = min(able, key=lambda p: (p.rack is not None and p.rack in racks, counts[p.broker_id], p.broker_id))
    return best.broker_id
