"""The object store: it refuses writes, is slow or away; a copy hangs, a failed copy leaves something behind.

On the embedded cluster the store is an S3 server of the rig's, on Apache Kafka a plug-in around LocalTieredStorage that
obeys the rig: both refuse, wait and hang as they are asked to.
"""

from __future__ import annotations

from typing import Final

from tests.incidents.expectations import CRITICAL, NOTICE, REST_S, WARNING, Allowed, Expected, Incident
from tests.incidents.steps import PAUSE, before, breaks, mends

# A round of samples, and the read of its findings.
ROUND_S: Final = 5
ASTRAY: Final = ("quota", "delete records", "move leadership")
DANGLING: Final = Allowed(
    slug="copy-dangling",
    severity=NOTICE,
    because="a copy that failed leaves an entry that goes when retention passes it",
)


def failing(*says: str) -> Expected:
    """The one finding of a store that takes no copies."""
    return Expected(
        slug="copy-failing",
        objects=("remote storage",),
        severity=CRITICAL,
        says=says,
        action=("store|remote storage",),
        never=ASTRAY,
        within_s=REST_S,
    )


INCIDENTS: Final = (
    Incident(
        name="store-refuses-writes",
        title="The store refuses every write",
        steps=(breaks("fault_store", fault="refuse-writes"), breaks(PAUSE, seconds=40), mends("heal_store")),
        expected=(failing("fail", "cop"),),
        allowed=(DANGLING,),
        # Later than a minute: a copy that failed was then said to hang.
        watch_s=90,
        quick=True,
    ),
    Incident(
        name="store-away",
        title="The store is away for a minute and comes back",
        steps=(breaks("fault_store", fault="away"), breaks(PAUSE, seconds=60), mends("heal_store")),
        # The brokers' client of the store tries again by itself before a copy has failed.
        expected=(failing("fail", "cop"),),
        allowed=(DANGLING,),
        watch_s=90,
    ),
    Incident(
        name="store-slow",
        title="The store takes 25 s for each write: copies end, slower than records come",
        steps=(
            breaks("fault_store", fault="slow-writes", delay_ms=25_000),
            breaks(PAUSE, seconds=60),
            mends("heal_store"),
        ),
        expected=(
            Expected(
                slug="copy-slow",
                objects=("remote storage",),
                severity=WARNING,
                says=("behind|slow", "store|remote storage"),
                action=("store|remote storage",),
                never=ASTRAY,
                # A copy of 20 s is slow, whatever it copies; then the same as of everything else.
                within_s=50,
                cleared_within_s=60,
            ),
        ),
        watch_s=60,
    ),
    Incident(
        name="copy-hangs",
        title="A copy never ends: the store takes the bytes of one partition and does not answer",
        steps=(
            before("create_topic", topic="hang", replicas=((1, 2, 3),), tiered=True),
            before("produce", topic="hang", records=4_000),
            before(PAUSE, seconds=10),
            breaks("fault_store", fault="hang-writes", topic="hang"),
            breaks("produce", topic="hang", records=3_000),
            mends("heal_store"),
        ),
        expected=(
            Expected(
                slug="copy-hung|copy-failing",
                objects=("hang-0",),
                severity=WARNING,
                says=("hang-0", "broker 1"),
                action=("store|remote storage",),
                never=("quota", "delete records"),
                # Two of Kafka's task intervals: a slow store takes as long for a healthy copy.
                within_s=2 * 30 + ROUND_S,
            ),
        ),
        allowed=(DANGLING,),
        watch_s=90,
    ),
    Incident(
        name="failed-copy-leftover",
        title="A copy fails, and what it left cannot be removed either; the store heals",
        steps=(
            breaks("fault_store", fault="refuse-writes-and-deletes"),
            breaks(PAUSE, seconds=8),
            mends("heal_store"),
        ),
        allowed=(
            DANGLING,
            Allowed(
                slug="copy-failing",
                objects=("remote storage",),
                severity=CRITICAL,
                because="copies failed for 8 s, which is as long as it may take to be told",
            ),
        ),
        hold_s=0,
        # A deletion is overdue after a minute or more.
        watch_s=150,
    ),
)
