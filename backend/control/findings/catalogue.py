"""The rules there are. A slug names the incident and its page in docs/runbooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final

from backend.control.findings.finding_context import Candidate, FindingContext
from backend.control.findings.rules import (
    broker_rules,
    copy_rules,
    disk_rules,
    election_rules,
    failing_copy_rules,
    last_leader_rules,
    late_delete_rules,
    leader_rules,
    liveness_rules,
    metadata_rules,
    metered_copy_rules,
    move_rules,
    own_data_rules,
    quorum_rules,
    reader_rules,
    remote_read_rules,
    replica_rules,
    rights_rules,
    slow_copy_rules,
    throttle_rules,
    transaction_rules,
)

FindingRule = Callable[[FindingContext], Iterable[Candidate]]


class FindingLane(StrEnum):
    """The facts that rules rest on: each lane is judged when its facts are new, and speaks of other slugs."""

    LIVENESS = "liveness"
    """Brokers that are alive, leaders and replicas in sync: every second or two (`liveness_watch`)."""
    ROUND = "round"
    """A round of samples: offsets, sizes, the ledger, settings."""


LIVENESS_RULES: Final[tuple[FindingRule, ...]] = (
    liveness_rules.cluster_away,
    rights_rules.missing_rights,
    rights_rules.vanished_topics,
    liveness_rules.silent_observer,
    liveness_rules.pipelines,
    broker_rules.brokers_away,
    last_leader_rules.last_leaders_behind,
    leader_rules.offline,
    leader_rules.below_min_isr,
    quorum_rules.silent_quorum,
    quorum_rules.voters_away,
    quorum_rules.voters_catching_up,
)

LIVENESS_SLUGS: Final = frozenset(
    {
        "below-min-isr",
        "broker-away",
        "broker-fenced",
        "cluster-away",
        "database-away",
        "last-leader-behind",
        "observer-down",
        "offline",
        "pipeline-behind",
        "pipeline-down",
        "rights-missing",
        "topics-gone",
        "voter-away",
        "voter-catching-up",
    }
)
OWN_SLUGS: Final = frozenset({"cluster-away", "database-away", "observer-down", "pipeline-behind", "pipeline-down"})
"""Slugs that need no broker to be seen."""

RULES: Final[tuple[FindingRule, ...]] = (
    metadata_rules.without_elr,
    disk_rules.offline_directories,
    disk_rules.full_disks,
    broker_rules.set_aside,
    election_rules.unclean_elections,
    election_rules.unclean_recoveries,
    leader_rules.leader_skew,
    metadata_rules.metadata_unsafe,
    metadata_rules.metadata_loading,
    throttle_rules.throttles_left,
    own_data_rules.lost_databases,
    copy_rules.open_copies,
    failing_copy_rules.failing_copies,
    metered_copy_rules.metered_failures,
    slow_copy_rules.slow_copies,
    transaction_rules.held_copies,
    late_delete_rules.late_deletes,
    copy_rules.local_debt,
    copy_rules.leaked_segments,
    remote_read_rules.failing_reads,
    remote_read_rules.slow_reads,
    reader_rules.remote_read_storms,
    reader_rules.lost_records,
    own_data_rules.unreadable_records,
    replica_rules.stuck_followers,
    replica_rules.refused_truncations,
    replica_rules.stalled_moves,
    move_rules.foreign_moves,
    replica_rules.thin_leaders,
    replica_rules.divergence,
)

ALL_RULES: Final = (*LIVENESS_RULES, *RULES)

SLUGS: Final[Mapping[str, str]] = {
    "below-min-isr": "A partition has too few replicas in sync",
    "broker-away": "A broker does not answer",
    "broker-fenced": "A broker is fenced",
    "cluster-away": "The cluster does not answer",
    "copy-dangling": "A copy was begun and will never finish",
    "copy-failing": "Copies to the remote tier fail",
    "copy-hung": "A copy does not end",
    "copy-slow": "Copying falls behind",
    "database-away": "The product's own database is away",
    "database-lost": "The product's own database was lost",
    "delete-lag": "Deletions from the remote tier do not end",
    "disk-offline": "A log directory is offline",
    "disk-runway": "A disk is nearly full",
    "divergence": "Logs contradict each other",
    "elr-off": "Eligible leader replicas are off",
    "follower-stuck": "A replica does not join the ISR",
    "group-below-log-start": "A group has lost records",
    "last-leader-behind": "A broker without records may lead",
    "leader-skew": "A broker leads too little",
    "local-debt": "Local data past its retention",
    "metadata-failed": "A broker does not get the remote log's metadata",
    "metadata-loading": "A broker reads the remote log's metadata",
    "metadata-unsafe": "The remote log's metadata is not safe",
    "move-foreign": "Another tool moves replicas",
    "move-stalled": "A reassignment does not end",
    "observer-down": "The observer ends no round of samples",
    "offline": "A partition has no leader",
    "pipeline-behind": "The pipeline is behind",
    "pipeline-down": "The pipeline does not work",
    "records-unreadable": "Records of internal topics that cannot be read",
    "remote-read-failing": "Reads from the remote tier fail",
    "remote-read-slow": "Reads from the remote tier take too long",
    "remote-read-storm": "Consumers wait for the remote tier",
    "rights-missing": "Rights of the product are missing",
    "segment-leak": "Remote segments that retention does not see",
    "set-aside": "Replica folders are kept that nobody uses",
    "thin-leader": "A leader holds little local data",
    "throttle-left": "A throttle was left behind",
    "topics-gone": "Many topics are gone",
    "transaction-open": "Copying waits for a transaction",
    "truncation-refused": "A leader lacks acknowledged records",
    "unclean-recovery": "Leaders were not elected from the ISR",
    "voter-away": "A voter of the metadata quorum is away",
    "voter-catching-up": "A voter of the metadata quorum does not count yet",
}


def lane_of(slug: str) -> FindingLane:
    """The lane whose rules give findings of the slug."""
    return FindingLane.LIVENESS if slug in LIVENESS_SLUGS else FindingLane.ROUND


def runbook(slug: str) -> str:
    """The page that says what to do, below the repository's root."""
    return f"docs/runbooks/{slug}.md"
