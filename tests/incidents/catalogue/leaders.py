"""Partitions without a leader: who may lead, an unclean election, and a last known leader with a new disk."""

from __future__ import annotations

from typing import Final

from tests.incidents.catalogue.brokers import COMPARED, away
from tests.incidents.expectations import (
    BROKER_S,
    CRITICAL,
    NOTICE,
    WARNING,
    Allowed,
    Expected,
    Incident,
    RigForm,
    Where,
)
from tests.incidents.steps import PAUSE, before, breaks, mends

PAIR: Final = (
    before("create_topic", topic="pair", replicas=((2, 3),), config={"min.insync.replicas": "1"}),
    before("produce", topic="pair", records=100),
    before(PAUSE, seconds=5),
)


INCIDENTS: Final = (
    Incident(
        name="no-leader",
        title="A partition has no leader, and Kafka tells who may lead it: not the broker that was started first",
        steps=(
            *PAIR,
            breaks("kill", broker=3),
            breaks(PAUSE, seconds=12),
            breaks("produce", topic="pair", records=50),
            breaks("kill", label="last", broker=2),
            breaks("start", label="other", broker=3),
            breaks(PAUSE, seconds=15),
            mends("start", broker=2),
        ),
        expected=(
            away(2, CRITICAL, "without a leader|no leader", since="last"),
            away(3, WARNING, cleared_from="other"),
            Expected(
                slug="offline",
                objects=("pair-0",),
                severity=CRITICAL,
                says=("pair-0", "broker 2"),
                action=("start broker 2",),
                never=("start broker 2, 3", "start broker 3"),
                since="last",
                under="broker-away",
            ),
        ),
        allowed=(
            Allowed(
                slug="voter-away",
                objects=("quorum",),
                severity=CRITICAL,
                because="two of the three voters are killed until broker 3 starts",
            ),
            COMPARED,
        ),
    ),
    Incident(
        name="unclean-election",
        title="A leader is elected uncleanly, and the only broker with the newest records is about to come back",
        steps=(
            *PAIR,
            before("kill", broker=3),
            before(PAUSE, seconds=12),
            before("produce", topic="pair", records=50),
            before("kill", broker=2),
            before("start", broker=3),
            before(PAUSE, seconds=20),
            breaks("elect_unclean", topic="pair", partition=0),
        ),
        expected=(
            Expected(
                slug="unclean-recovery",
                # Of records that were acknowledged after the last sample the broker that was elected is named.
                objects=("cluster|pair-0|broker 3",),
                severity=CRITICAL,
                says=("pair-0", "50|broker 2"),
                action=("broker 2", "keep|copy|before"),
                cleared_within_s=None,
            ),
        ),
        allowed=(
            Allowed(
                slug="broker-away",
                objects=("broker 2", "broker 3"),
                severity=CRITICAL,
                because="both were killed to get there",
            ),
            Allowed(
                slug="below-min-isr", objects=("*",), severity=CRITICAL, because="broker 2 is away while 3 comes back"
            ),
        ),
        spoils=True,
        loses=True,
    ),
    Incident(
        name="last-leader-behind",
        title="The last known leader came back with a new disk: it will lead, and every record will be gone",
        steps=(
            before("create_topic", topic="clock", replicas=((3, 1, 2),), config={"min.insync.replicas": "2"}),
            before("produce", topic="clock", records=1_000),
            # With one replica in sync it would write what is lost with that replica's disk.
            before("stop_load", topic="orders"),
            before(PAUSE, seconds=10),
            breaks("lose_all_then_format", broker=3),
            breaks(PAUSE, label="offline", seconds=5),
            mends("save_by_hand", empty=3),
        ),
        expected=(
            Expected(
                slug="last-leader-behind",
                objects=("broker 3",),
                severity=CRITICAL,
                says=("broker 3", "broker 1|broker 2", "record", "any moment", "at the latest|within"),
                # The steps in their order: only a stopped broker is passed over by an unclean election.
                action=("stop broker 3", "first", "then"),
                # At no time before the election: it would lead without them.
                never=("restart broker 3", "start broker 3", "start it again", "delete"),
                within_s=BROKER_S,
                since="offline",
            ),
        ),
        allowed=(
            Allowed(slug="cluster-away", severity=CRITICAL, because="all brokers were killed to get there"),
            Allowed(
                slug="broker-away",
                severity=CRITICAL,
                because="all are killed and start one by one; broker 3 has a new disk, and is stopped then",
                times=3,
            ),
            Allowed(slug="metadata-loading", severity=NOTICE, because="the brokers have just started"),
            Allowed(slug="unclean-recovery", severity=WARNING, because="the unclean election is the way out"),
        ),
        on=frozenset({Where.KAFKA}),
        why_not={
            Where.EMBEDDED: "a replica leads there only with the log that metadata speaks of: the broker has another"
            " directory id (docs/durability.md, tests/cluster/test_lost_disks.py)"
        },
        # The controller stays, so that the brokers leave the ISR in the order in which they end.
        form=RigForm(controllers=1),
        spoils=True,
    ),
)
