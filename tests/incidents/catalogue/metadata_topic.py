"""The topic that is the map of the remote tier, `__remote_log_metadata`, and settings that endanger it."""

from __future__ import annotations

from typing import Final

from tests.incidents.catalogue.brokers import away
from tests.incidents.expectations import CRITICAL, WARNING, Allowed, Expected, Incident
from tests.incidents.steps import PAUSE, breaks, mends

TOPIC: Final = "__remote_log_metadata"
MOVED: Final = Allowed(
    slug="move-foreign",
    severity="notice",
    because="the replicas are taken away and given back by reassignments of another tool",
    times=2,
)


def unsafe(severity: str, *says: str, action: tuple[str, ...]) -> Expected:
    """The finding of the topic."""
    return Expected(
        slug="metadata-unsafe",
        objects=(TOPIC,),
        severity=severity,
        says=says,
        action=action,
        never=("delete the topic", "delete records", "restart"),
    )


INCIDENTS: Final = (
    Incident(
        name="metadata-one-replica",
        title="The metadata topic has one replica of each partition",
        steps=(
            breaks("set_replication", topic=TOPIC, factor=1),
            mends("set_replication", topic=TOPIC, factor=3),
        ),
        # The next lost disk loses it; this moment nothing is lost.
        expected=(unsafe(WARNING, "1 of 3 replicas|one replica|1 replica", action=("replica", "3|three")),),
        allowed=(MOVED,),
    ),
    Incident(
        name="metadata-retention",
        title="The metadata topic gets a retention: the map is deleted while its segments live",
        steps=(
            breaks("set_topic", topic=TOPIC, name="retention.ms", value="3600000"),
            mends("set_topic", topic=TOPIC, name="retention.ms", value="-1"),
        ),
        expected=(unsafe(CRITICAL, "retention.ms", "3600000|1 h|60 min", action=("retention.ms", "-1|unlimited")),),
    ),
    Incident(
        name="metadata-compact",
        title="The metadata topic is compacted: its records have no keys, and every copy fails",
        steps=(
            breaks("set_topic", topic=TOPIC, name="cleanup.policy", value="compact"),
            mends("set_topic", topic=TOPIC, name="cleanup.policy", value="delete"),
        ),
        # In this order: the policy first would let a finite retention delete the map.
        expected=(
            unsafe(
                CRITICAL,
                "cleanup.policy",
                "compact",
                action=("retention.ms=-1", "retention.bytes=-1", "cleanup.policy=delete"),
            ),
        ),
    ),
    Incident(
        name="metadata-leader-away",
        title="A broker is killed that leads partitions of the metadata topic",
        steps=(
            breaks("kill_leader_of", topic=TOPIC, partition=0),
            breaks(PAUSE, seconds=30),
            mends("start_all"),
        ),
        # Nothing of the map is at risk: two replicas are in sync.
        expected=(away("{leader}", WARNING),),
    ),
)
