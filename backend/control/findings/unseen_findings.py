"""Open findings about what cannot be seen now: they stay as they were, with when they were last seen. Pure.

A topic that our principal may not describe any more looks as one that was deleted; which of the two it is shows a
moment later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from backend.control.findings.catalogue import OWN_SLUGS, FindingLane, lane_of
from backend.control.findings.evaluate import retained
from backend.control.findings.finding_context import Candidate, FindingKey
from backend.control.gateway.requests.rights_requests import CLUSTER, GROUPS, TOPICS, MissingRight
from backend.store.queries.findings import Finding

# Rights are asked every few seconds: what is gone is taken to be gone when they had time to say otherwise.
GONE_AFTER_MS: Final = 10_000
GROUP_SLUGS: Final = frozenset({"group-below-log-start", "remote-read-storm"})
ABOUT_THE_VIEW: Final = OWN_SLUGS | {"broker-away", "rights-missing", "topics-gone"}


def unseen(
    open_findings: Iterable[Finding],
    lane: FindingLane,
    visible: Collection[str],
    missing: Sequence[MissingRight],
    at_ms: int,
) -> dict[FindingKey, Candidate]:
    """Findings of the lane as they were seen last. `visible`: the topics of this moment."""
    resources = {right.resource for right in missing}
    kept = {}
    for finding in open_findings:
        if lane_of(finding.slug) is not lane or finding.slug in ABOUT_THE_VIEW:
            continue
        if finding.topic is not None:
            gone = finding.topic not in visible
            hidden = gone and (TOPICS in resources or at_ms - finding.seen_ms < GONE_AFTER_MS)
        else:
            hidden = (GROUPS if finding.slug in GROUP_SLUGS else CLUSTER) in resources
        if hidden:
            kept[finding.slug, finding.object] = retained(finding)
    return kept
