"""Disks that fill, that are full, and that are gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.incidents.catalogue.brokers import LOSES
from tests.incidents.expectations import CRITICAL, WARNING, Allowed, Expected, Incident, RigForm, Where
from tests.incidents.steps import PAUSE, before, breaks, mends

SMALL: Final = RigForm(small_disk_mb=800)
TWO: Final = RigForm(two_directories=True)
OF_BROKER_3: Final = ("*broker 3*|*brokers/3*|*broker-3*",)


def runway(severity: str, *says: str, at_worst: str = "") -> Expected:
    """The finding of broker 3's disk."""
    return Expected(
        slug="disk-runway",
        objects=OF_BROKER_3,
        severity=severity,
        at_worst=at_worst,
        says=("broker 3", "free", *says),
        action=("retention|room|space|larger|copy",),
        never=("unclean", "quota"),
    )


INCIDENTS: Final = (
    Incident(
        name="disk-runway",
        title="A disk is nearly full",
        steps=(breaks("fill_disk", broker=3, percent=90), mends("free_disk", broker=3)),
        expected=(runway(WARNING),),
        form=SMALL,
    ),
    Incident(
        name="disk-almost-full",
        title="A disk has a few per cent left",
        steps=(breaks("fill_disk", broker=3, percent=97), mends("free_disk", broker=3)),
        expected=(runway(CRITICAL),),
        form=SMALL,
    ),
    Incident(
        name="disk-shared",
        title="The one disk of three brokers is nearly full: one finding, not three",
        steps=(breaks("fill_disk", broker=0, percent=90), mends("free_disk", broker=0)),
        expected=(
            Expected(
                slug="disk-runway",
                objects=("*",),
                severity=WARNING,
                says=("broker 1, 2, 3|brokers 1, 2, 3|brokers 1 to 3|3 brokers", "free"),
                action=("retention|room|space|larger|copy",),
                never=("unclean", "quota"),
            ),
        ),
        form=RigForm(shared_disk_mb=1_500),
    ),
    Incident(
        name="disk-full",
        title="The disk of a broker is full: it cannot write",
        # Apache Kafka ends at once when its disk takes no more: what its disk was like is seen before that.
        steps=(
            breaks("fill_disk", broker=3, percent=97),
            breaks(PAUSE, seconds=20),
            breaks("fill_disk", broker=3, percent=100),
            mends("free_disk", broker=3),
            mends("start_all"),
        ),
        expected=(replace(runway(CRITICAL), cleared_within_s=60),),
        allowed=(
            Allowed(slug="broker-away", objects=("broker 3",), because="Apache Kafka ends when its only disk fails"),
            Allowed(slug="disk-offline", objects=("broker 3",), because="a disk that takes no more is offline to it"),
        ),
        form=SMALL,
        spoils=True,
    ),
    Incident(
        name="disk-gone",
        title="A disk of a broker is gone: one of its two log directories is offline",
        steps=(
            before("create_topic", topic="two", replicas=((3, 1, 2), (1, 2, 3)) * 6),
            before("produce", topic="two", records=600),
            before(PAUSE, seconds=10),
            breaks("lose_directory", broker=3),
            mends("give_directory_back", broker=3),
        ),
        expected=(
            Expected(
                slug="disk-offline",
                objects=("broker 3",),
                # Its records are held twice elsewhere.
                severity=WARNING,
                says=("broker 3", "data-b|directory"),
                action=("disk", "restart|start"),
                never=LOSES,
                cleared_within_s=60,
            ),
        ),
        allowed=(Allowed(slug="broker-away", objects=("broker 3",), because="a restart gives it the disk back"),),
        on=frozenset({Where.KAFKA}),
        why_not={
            Where.EMBEDDED: "a broker of `ebbline up` has one log directory; tests/cluster/test_failed_log_dir.py has"
            " brokers with two"
        },
        form=TWO,
        spoils=True,
    ),
)
