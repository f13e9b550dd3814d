"""Brokers that are killed, hang, or are restarted in order.

The common rig: brokers 1 to 3, each a voter; `orders` with three tiered partitions, one led by each, three replicas,
min.insync.replicas 2, under load; `quiet` with five partitions that nobody writes to.
"""

from __future__ import annotations

from typing import Final

from tests.incidents.expectations import BROKER_S, CRITICAL, NOTICE, WARNING, Allowed, Expected, Incident
from tests.incidents.steps import PAUSE, before, breaks, mends

LOSES: Final = ("unclean", "delete", "format")
RESTARTED: Final = Allowed(
    slug="broker-away",
    objects=("broker *",),
    severity=WARNING,
    because="a broker that starts again is away for some seconds; every partition is led and at its minimum meanwhile",
)

COMPARED: Final = Allowed(
    slug="unclean-recovery",
    objects=("cluster",),
    severity=NOTICE,
    because="the embedded engine compares logs of replicas that were killed, and says that it did",
)


def away(
    broker: int | str, severity: str, *says: str, at_worst: str = "", since: str = "", cleared_from: str = ""
) -> Expected:
    """The finding of a broker that is away; the first sentence says that it does not answer."""
    return Expected(
        slug="broker-away",
        objects=(f"broker {broker}",),
        severity=severity,
        at_worst=at_worst,
        says=(f"broker {broker}", "not answer", *says),
        action=("start|restart",),
        never=LOSES,
        within_s=BROKER_S,
        since=since,
        cleared_from=cleared_from,
    )


INCIDENTS: Final = (
    Incident(
        name="broker-killed",
        title="A broker is killed",
        steps=(breaks("kill", broker=2), mends("start", broker=2)),
        expected=(away(2, WARNING, "partition"),),
        quick=True,
    ),
    Incident(
        name="broker-killed-sole-replica",
        title="A broker is killed that has the only replica of a partition",
        steps=(
            before("create_topic", topic="solo", replicas=((3,),)),
            before("produce", topic="solo", records=100),
            before(PAUSE, seconds=5),
            breaks("kill", broker=3),
            mends("start", broker=3),
        ),
        expected=(away(3, CRITICAL, "without a leader|no leader"),),
    ),
    Incident(
        name="broker-hung",
        title="A broker hangs for 40 s (SIGSTOP)",
        steps=(breaks("hang", broker=2), breaks(PAUSE, seconds=40), mends("resume", broker=2)),
        expected=(away(2, WARNING),),
        hold_s=0,
    ),
    Incident(
        name="rolling-restart",
        title="All brokers are restarted in order, with 200 idle partitions",
        steps=(
            before("create_topic", topic="idle", replicas=((1, 2, 3), (2, 3, 1), (3, 1, 2)) * 67),
            before(PAUSE, seconds=15),
            *(breaks("restart", broker=broker) for broker in (1, 2, 3)),
            breaks(PAUSE, seconds=60),
        ),
        allowed=(RESTARTED,),
        hold_s=30,
    ),
    Incident(
        name="leaders-moved",
        title="All leaders are moved and moved back",
        steps=(
            breaks("rotate_leaders"),
            breaks(PAUSE, seconds=20),
            mends("restore_leaders"),
        ),
        hold_s=0,
        watch_s=30,
        quick=True,
    ),
    Incident(
        name="preferred-election",
        title="A restarted broker is given its leaders back by a preferred election",
        steps=(
            breaks("restart", broker=1),
            breaks(PAUSE, seconds=10),
            breaks("elect_preferred"),
            breaks(PAUSE, seconds=20),
        ),
        allowed=(RESTARTED,),
    ),
    Incident(
        name="leader-skew",
        title="Broker 3 is preferred by no partition and leads none",
        steps=(
            before("create_topic", topic="spread", replicas=((1, 2, 3), (2, 3, 1), (3, 1, 2)) * 10),
            before(PAUSE, seconds=10),
            breaks("prefer_others", broker=3),
            mends("restore_leaders"),
        ),
        expected=(
            Expected(
                slug="leader-skew",
                objects=("cluster|broker 3",),
                severity=WARNING,
                says=("broker 3", "lead"),
                action=("spread|swap|plan|move",),
                never=(*LOSES, "restart"),
            ),
        ),
    ),
)
