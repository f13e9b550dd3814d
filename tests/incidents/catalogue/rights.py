"""Rights of the product's principal on a secured cluster: missing at the start, taken away while it watches.

The rights are the five lines of docs/attach.md and, since changes are allowed, those of its second table.
"""

from __future__ import annotations

from typing import Final

from tests.incidents.expectations import CRITICAL, WARNING, Allowed, Expected, Incident, Where
from tests.incidents.steps import PAUSE, before, breaks, mends

NO_AUTHORIZER: Final = "the embedded brokers have no authorizer yet"
ON: Final = frozenset({Where.KAFKA})
WHY_NOT: Final = {Where.EMBEDDED: NO_AUTHORIZER}


STARTS: Final = Allowed(slug="backend-down", severity=CRITICAL, because="the product is being started")

OPENS_ITS_DATABASE: Final = Allowed(slug="database-away", severity=CRITICAL, because="the product is being started")


def missing(severity: str, *says: str, since: str = "") -> Expected:
    """The one finding of all rights that are missing; it names them as docs/attach.md does, with the command."""
    return Expected(
        slug="rights-missing",
        objects=("cluster",),
        severity=severity,
        says=says,
        action=("kafka-acls|grant|docs/attach.md",),
        never=("restart",),
        since=since,
    )


def taken(name: str, title: str, severity: str, *says: str, resource: str) -> Incident:
    """Rights on a resource that are taken away while the product watches, and given back."""
    return Incident(
        name=name,
        title=title,
        steps=(breaks("revoke", resource=resource), breaks(PAUSE, seconds=30), mends("grant", resource=resource)),
        expected=(missing(severity, *says),),
        on=ON,
        why_not=WHY_NOT,
    )


INCIDENTS: Final = (
    Incident(
        name="rights-none",
        title="The product is started with a user that has no rights",
        steps=(
            before("stop_product"),
            before("revoke", resource="all"),
            breaks("start_product"),
            breaks(PAUSE, label="up", seconds=1),
            mends("grant", resource="all"),
        ),
        expected=(missing(CRITICAL, "Describe", "Cluster", "Topic", "Group", "__remote_log_metadata", since="up"),),
        allowed=(STARTS, OPENS_ITS_DATABASE),
        on=ON,
        why_not=WHY_NOT,
    ),
    taken(
        "rights-cluster-lost",
        "Rights on the cluster are taken away: sizes, disks, quorum are not seen",
        CRITICAL,
        "Describe",
        "Cluster",
        resource="cluster",
    ),
    taken(
        "rights-topics-lost",
        "Rights on the topics are taken away: a cluster that seems to be empty",
        CRITICAL,
        "Describe",
        "Topic",
        resource="topics",
    ),
    taken(
        "rights-groups-lost",
        "Rights on the groups are taken away: nobody seems to read",
        WARNING,
        "Describe",
        "Group",
        resource="groups",
    ),
    taken(
        "rights-metadata-lost",
        "The right to read the metadata topic is taken away: the ledger stands still",
        CRITICAL,
        "Read",
        "__remote_log_metadata",
        resource="metadata",
    ),
    Incident(
        name="topics-gone",
        title="Most partitions are gone within a moment: somebody has deleted 60 of the topics",
        steps=(
            before("create_topics", prefix="many", count=60),
            before(PAUSE, seconds=15),
            breaks("delete_topics", prefix="many", count=60),
            breaks(PAUSE, seconds=20),
        ),
        expected=(
            Expected(
                slug="topics-gone",
                objects=("cluster",),
                severity=WARNING,
                says=("60", "partition|topic"),
                action=("rights|delete",),
                cleared_within_s=None,
            ),
        ),
        allowed=(
            Allowed(slug="copy-dangling", severity="notice", because="the topics took entries of the ledger with them"),
        ),
        spoils=True,
        loses=True,
    ),
)
