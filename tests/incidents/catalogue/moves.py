"""Throttles that were left behind, and moves that another tool has begun."""

from __future__ import annotations

from typing import Final

from tests.incidents.expectations import NOTICE, WARNING, Allowed, Expected, Incident
from tests.incidents.steps import PAUSE, before, breaks, mends

# 24 MB on brokers 1 and 2, of which broker 3 gets a replica.
MOVED: Final = (
    before("create_topic", topic="moved", replicas=((1, 2), (2, 1))),
    before("produce", topic="moved", records=24_000),
    before(PAUSE, seconds=10),
)
CLEAR: Final = ("remove|clear",)


def foreign(*says: str, cleared_from: str = "") -> Expected:
    """The one finding of a move by others, however many partitions it has."""
    return Expected(
        slug="move-foreign",
        objects=("cluster",),
        severity=NOTICE,
        says=("moved", "another tool|not planned here|not by ebbline", *says),
        action=("cancel|wait",),
        never=("unclean", "delete"),
        cleared_from=cleared_from,
    )


INCIDENTS: Final = (
    Incident(
        name="throttles-left",
        title="Throttles are left behind on a topic, on brokers, on the default and between log directories",
        steps=(
            breaks("set_topic", topic="orders", name="leader.replication.throttled.replicas", value="*"),
            breaks("set_topic", topic="orders", name="follower.replication.throttled.replicas", value="*"),
            breaks("set_broker", broker=1, name="leader.replication.throttled.rate", value="50000000"),
            breaks("set_broker", broker=2, name="follower.replication.throttled.rate", value="50000000"),
            breaks("set_brokers", name="leader.replication.throttled.rate", value="60000000"),
            breaks("set_broker", broker=3, name="replica.alter.log.dirs.io.max.bytes.per.second", value="50000000"),
            mends("clear_throttles"),
        ),
        expected=(
            Expected(
                slug="throttle-left",
                objects=("cluster",),
                severity=WARNING,
                says=(
                    "leader.replication.throttled",
                    "replica.alter.log.dirs.io.max.bytes.per.second",
                    "orders",
                    "6|six",
                ),
                action=CLEAR,
                never=("restart", "unclean"),
            ),
        ),
    ),
    Incident(
        name="move-by-others",
        title="Another tool moves replicas, with a limit, and ends in order",
        steps=(
            *MOVED,
            breaks("reassign", topic="moved", replicas=((1, 2, 3), (2, 1, 3)), throttle=600_000),
            mends("wait_moved", topic="moved"),
            mends("clear_throttles"),
        ),
        expected=(foreign(),),
    ),
    Incident(
        name="move-stalled",
        title="A move that another tool began stalls: its limit lets nothing through; it is cancelled",
        steps=(
            *MOVED,
            breaks("reassign", topic="moved", replicas=((1, 2, 3), (2, 1)), throttle=1),
            mends("cancel_move", topic="moved"),
            mends("clear_throttles"),
        ),
        expected=(
            foreign(),
            Expected(
                slug="move-stalled",
                objects=("moved-0|cluster",),
                severity=WARNING,
                says=("moved-0", "broker 3", "throttl|limit"),
                action=("raise|cancel",),
                never=("unclean", "delete"),
                # Stalled means without progress for 30 s; then the same as of everything else.
                within_s=60,
            ),
        ),
    ),
    Incident(
        name="throttle-keeps-out",
        title="A limit that was left behind keeps the replicas of a restarted broker out of the ISR",
        steps=(
            before("create_topic", topic="starved", replicas=((1, 2, 3),)),
            before("produce", topic="starved", records=500),
            before(PAUSE, seconds=5),
            before("kill", broker=2),
            before(PAUSE, seconds=12),
            before("produce", topic="starved", records=20_000),
            breaks("set_topic", topic="starved", name="leader.replication.throttled.replicas", value="*"),
            breaks("set_broker", broker=1, name="leader.replication.throttled.rate", value="1"),
            breaks("start", broker=2),
            breaks(PAUSE, label="back", seconds=30),
            mends("clear_throttles"),
        ),
        expected=(
            Expected(
                slug="throttle-left",
                objects=("cluster",),
                severity=WARNING,
                says=("leader.replication.throttled.rate", "starved"),
                action=CLEAR,
                never=("restart", "unclean"),
            ),
            Expected(
                slug="follower-stuck",
                objects=("starved-0 on broker 2",),
                # Two of three replicas are in sync.
                severity=WARNING,
                says=("starved-0", "broker 2", "throttl|limit"),
                action=("throttl|limit|leader.replication.throttled",),
                never=("restart", "unclean"),
                # Outside the ISR without progress for 30 s; then the same as of everything else.
                within_s=60,
                since="back",
                under="throttle-left",
            ),
        ),
        allowed=(Allowed(slug="broker-away", objects=("broker 2",), because="it was killed to get there"),),
    ),
)
