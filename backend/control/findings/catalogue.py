"""The rules there are. A slug names the incident and its page in docs/runbooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from backend.control.findings import (
    rules_cluster,
    rules_copy,
    rules_database,
    rules_readers,
    rules_records,
    rules_replica,
)
from backend.control.findings.sight import Candidate, Sight

Rule = Callable[[Sight], Iterable[Candidate]]

RULES: Final[tuple[Rule, ...]] = (
    rules_cluster.brokers_away,
    rules_cluster.offline,
    rules_cluster.without_elr,
    rules_cluster.voters_catching_up,
    rules_cluster.disks,
    rules_cluster.set_aside,
    rules_cluster.unclean_recoveries,
    rules_cluster.metadata_unsafe,
    rules_cluster.metadata_loading,
    rules_cluster.throttles_left,
    rules_database.lost_databases,
    rules_copy.open_copies,
    rules_copy.failing_copies,
    rules_copy.slow_copies,
    rules_copy.late_deletes,
    rules_copy.local_debt,
    rules_copy.leaked_segments,
    rules_readers.remote_read_storms,
    rules_records.unreadable_records,
    rules_replica.stuck_followers,
    rules_replica.refused_truncations,
    rules_replica.stalled_moves,
    rules_replica.thin_leaders,
    rules_replica.divergence,
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
