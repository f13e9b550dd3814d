"""All incidents, by subject. Written from the issue, before the rules: no rule may be the reason of an expectation."""

from __future__ import annotations

from typing import Final

from tests.incidents.catalogue import (
    blindness,
    brokers,
    disks,
    durability,
    leaders,
    metadata_topic,
    moves,
    partitions,
    quiet_hour,
    quorum,
    readers,
    rights,
    second_stranger,
    store,
)
from tests.incidents.expectations import Incident

INCIDENTS: Final[tuple[Incident, ...]] = (
    *brokers.INCIDENTS,
    *quorum.INCIDENTS,
    *store.INCIDENTS,
    *partitions.INCIDENTS,
    *leaders.INCIDENTS,
    *metadata_topic.INCIDENTS,
    *moves.INCIDENTS,
    *disks.INCIDENTS,
    *readers.INCIDENTS,
    *rights.INCIDENTS,
    *blindness.INCIDENTS,
    *durability.INCIDENTS,
    *second_stranger.INCIDENTS,
    *quiet_hour.INCIDENTS,
)
