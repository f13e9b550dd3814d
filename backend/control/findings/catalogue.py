"""The rules there are. A slug names the incident and its page in docs/runbooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from backend.control.findings.finding_context import Candidate, FindingContext
from backend.control.findings.rules import (
    broker_rules,
    copy_rules,
    leader_rules,
    metadata_rules,
    own_data_rules,
    reader_rules,
    replica_rules,
)

FindingRule = Callable[[FindingContext], Iterable[Candidate]]

RULES: Final[tuple[FindingRule, ...]] = (
    broker_rules.brokers_away,
    leader_rules.offline,
    metadata_rules.without_elr,
    metadata_rules.voters_catching_up,
    broker_rules.disks,
    broker_rules.set_aside,
    leader_rules.unclean_recoveries,
    metadata_rules.metadata_unsafe,
    metadata_rules.metadata_loading,
    broker_rules.throttles_left,
    own_data_rules.lost_databases,
    copy_rules.open_copies,
    copy_rules.failing_copies,
    copy_rules.slow_copies,
    copy_rules.late_deletes,
    copy_rules.local_debt,
    copy_rules.leaked_segments,
    reader_rules.remote_read_storms,
    own_data_rules.unreadable_records,
    replica_rules.stuck_followers,
    replica_rules.refused_truncations,
    replica_rules.stalled_moves,
    replica_rules.thin_leaders,
    replica_rules.divergence,
)

SLUGS: Final[Mapping[str, str]] = {
    "broker-away": "A broker does not answer",
    "broker-fenced": "A broker is fenced",
    "copy-dangling": "A copy was begun by a broker that leads no more",
    "copy-failing": "Copies to the remote tier fail",
    "copy-hung": "A copy does not end",
    "copy-slow": "Copying falls behind",
    "database-lost": "The product's own database was lost",
    "delete-lag": "Deletions from the remote tier do not end",
    "disk-offline": "A log directory is offline",
    "disk-runway": "A disk is nearly full",
    "divergence": "Logs contradict each other",
    "elr-off": "Eligible leader replicas are off",
    "follower-stuck": "A replica does not join the ISR",
    "local-debt": "Local data past its retention",
    "metadata-failed": "A broker does not get the remote log's metadata",
    "metadata-loading": "A broker reads the remote log's metadata",
    "metadata-unsafe": "The remote log's metadata is not safe",
    "move-stalled": "A reassignment does not end",
    "offline": "A partition has no leader",
    "records-unreadable": "Records of internal topics that cannot be read",
    "remote-read-storm": "Consumers wait for the remote tier",
    "segment-leak": "Remote segments that retention does not see",
    "set-aside": "Replica folders are kept that nobody uses",
    "thin-leader": "A leader holds little local data",
    "throttle-left": "A throttle was left behind",
    "truncation-refused": "A leader lacks acknowledged records",
    "unclean-recovery": "Leaders were elected by comparing logs",
    "voter-catching-up": "A voter of the metadata quorum does not count yet",
}


def runbook(slug: str) -> str:
    """The page that says what to do, below the repository's root."""
    return f"docs/runbooks/{slug}.md"
