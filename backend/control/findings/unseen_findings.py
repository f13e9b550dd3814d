"""Open findings about what cannot be seen now: they stay as they were, with when they were last seen. Pure.

A topic that our principal may not describe any more looks as one that was deleted; which of the two it is shows a
moment later. A right that is missing for good, as where rights are given by prefix, keeps a finding for a day.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from backend.control.findings.catalogue import OWN_SLUGS, FindingLane, lane_of
from backend.control.findings.evaluate import retained
from backend.control.findings.finding_context import Candidate, FindingKey
from backend.control.gateway.requests.rights_requests import CLUSTER, GROUPS, METADATA_TOPIC, TOPICS, MissingRight
from backend.store.queries.findings import Finding

# Rights are asked every few seconds: what is gone is taken to be gone when they had time to say otherwise.
GONE_AFTER_MS: Final = 10_000
# Somebody has granted the right by then, or lives without it: nobody can say that it is still so.
KEPT_MS: Final = 86_400_000
ABOUT_THE_VIEW: Final = OWN_SLUGS | {"broker-away", "rights-missing", "topics-gone"}
DESCRIBE_TOPICS: Final = MissingRight("Describe", TOPICS)
NEEDED_BY: Final[Mapping[MissingRight, frozenset[str]]] = {
    # Log directories with their sizes, the quorum, moves in progress.
    MissingRight("Describe", CLUSTER): frozenset(
        {
            "copy-slow",
            "disk-offline",
            "disk-runway",
            "local-debt",
            "move-foreign",
            "move-stalled",
            "set-aside",
            "voter-away",
            "voter-catching-up",
        }
    ),
    # Throttles.
    MissingRight("DescribeConfigs", CLUSTER): frozenset({"throttle-left"}),
    # Of the cluster as a whole; what names a topic is kept while that topic is not seen.
    DESCRIBE_TOPICS: frozenset(
        {
            "copy-slow",
            "group-below-log-start",
            "last-leader-behind",
            "leader-skew",
            "metadata-failed",
            "metadata-loading",
            "move-foreign",
            "remote-read-storm",
        }
    ),
    # The tiered topics, retention, min.insync.replicas, throttles.
    MissingRight("DescribeConfigs", TOPICS): frozenset(
        {
            "below-min-isr",
            "copy-slow",
            "divergence",
            "local-debt",
            "metadata-unsafe",
            "remote-read-storm",
            "thin-leader",
            "throttle-left",
        }
    ),
    # The ledger of remote segments.
    MissingRight("Read", f"Topic {METADATA_TOPIC}"): frozenset(
        {"copy-dangling", "copy-failing", "copy-hung", "delete-lag", "segment-leak"}
    ),
    MissingRight("Describe", GROUPS): frozenset({"group-below-log-start", "remote-read-storm"}),
}
"""Findings that cannot be seen without a right."""


def unseen(
    open_findings: Iterable[Finding],
    lane: FindingLane,
    visible: Collection[str],
    missing: Sequence[MissingRight],
    at_ms: int,
) -> dict[FindingKey, Candidate]:
    """Findings of the lane as they were seen last. `visible`: the topics of this moment."""
    kept = {}
    for finding in open_findings:
        if lane_of(finding.slug) is not lane or finding.slug in ABOUT_THE_VIEW or at_ms - finding.seen_ms > KEPT_MS:
            continue
        if _is_hidden(finding, visible, missing, at_ms):
            kept[finding.slug, finding.object] = replace(retained(finding), unseen=True)
    return kept


def _is_hidden(finding: Finding, visible: Collection[str], missing: Collection[MissingRight], at_ms: int) -> bool:
    if finding.topic is not None and finding.topic not in visible:
        return DESCRIBE_TOPICS in missing or at_ms - finding.seen_ms < GONE_AFTER_MS
    lacks = {right for right in missing if finding.slug in NEEDED_BY.get(right, ())}
    # Topics that other rights name are seen; a finding of the whole cluster rests on what is seen of it.
    if any(topic != METADATA_TOPIC for topic in visible):
        lacks.discard(DESCRIBE_TOPICS)
    return bool(lacks)
