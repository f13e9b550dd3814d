"""Open findings that nobody can see now: those that a missing right keeps, and for how long."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from backend.control.findings.catalogue import SLUGS, lane_of
from backend.control.findings.finding_context import Candidate
from backend.control.findings.unseen_findings import ABOUT_THE_VIEW, GONE_AFTER_MS, KEPT_MS, NEEDED_BY, unseen
from backend.control.gateway.requests.rights_requests import CLUSTER, GROUPS, METADATA_TOPIC, TOPICS, MissingRight
from tests.unit.control.findings.sights import NOW_MS, stored

DESCRIBE_CLUSTER = MissingRight("Describe", CLUSTER)
DESCRIBE_TOPICS = MissingRight("Describe", TOPICS)
DESCRIBE_GROUPS = MissingRight("Describe", GROUPS)
READ_METADATA = MissingRight("Read", f"Topic {METADATA_TOPIC}")


def kept(
    slug: str,
    *missing: MissingRight,
    topic: str | None = None,
    visible: Collection[str] = ("orders", METADATA_TOPIC),
    after_ms: int = GONE_AFTER_MS,
) -> bool:
    """Whether a finding of `after_ms` ago is kept."""
    given = Candidate(slug=slug, object="it", severity="critical", sentence="So.", why="So.", action="Do.", topic=topic)
    result = unseen([stored(given)], lane_of(slug), visible, missing, NOW_MS + after_ms)
    assert all(candidate.unseen and candidate.seen_ms == NOW_MS for candidate in result.values())
    return bool(result)


@pytest.mark.parametrize("slug", ["copy-failing", "remote-read-failing", "elr-off", "database-lost"])
def test_what_needs_no_right_on_the_cluster_ends_without_one(slug: str) -> None:
    assert not kept(slug, DESCRIBE_CLUSTER)


@pytest.mark.parametrize(
    ("slug", "right"),
    [
        ("disk-runway", DESCRIBE_CLUSTER),
        ("voter-away", DESCRIBE_CLUSTER),
        ("throttle-left", MissingRight("DescribeConfigs", CLUSTER)),
        ("copy-failing", READ_METADATA),
        ("remote-read-storm", DESCRIBE_GROUPS),
    ],
)
def test_what_the_missing_right_shows_stays(slug: str, right: MissingRight) -> None:
    assert kept(slug, right)
    assert not kept(slug)
    assert kept(slug, right, topic="orders"), "its topic is seen, and what it says of it is not"


def test_a_topic_that_is_not_seen_keeps_its_findings_while_topics_are_not_to_be_seen() -> None:
    assert kept("offline", DESCRIBE_TOPICS, topic="bills")
    assert not kept("offline", DESCRIBE_TOPICS, topic="orders")
    assert not kept("offline", DESCRIBE_GROUPS, topic="bills")
    assert kept("offline", topic="bills", after_ms=GONE_AFTER_MS - 1)


def test_a_finding_of_the_whole_cluster_rests_on_the_topics_that_other_rights_name() -> None:
    assert not kept("leader-skew", DESCRIBE_TOPICS)
    assert kept("leader-skew", DESCRIBE_TOPICS, visible=[METADATA_TOPIC])


@pytest.mark.parametrize(("slug", "right"), [("offline", DESCRIBE_TOPICS), ("disk-runway", DESCRIBE_CLUSTER)])
def test_what_nobody_has_seen_for_a_day_ends(slug: str, right: MissingRight) -> None:
    topic = "bills" if slug == "offline" else None
    assert kept(slug, right, topic=topic, after_ms=KEPT_MS)
    assert not kept(slug, right, topic=topic, after_ms=KEPT_MS + 1)


def test_the_table_names_rules_that_there_are() -> None:
    for slugs in NEEDED_BY.values():
        assert slugs <= SLUGS.keys() - ABOUT_THE_VIEW
