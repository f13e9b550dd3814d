"""How long it must be so before a rule's candidate is a finding: the default of each rule, and its reason. Pure.

`for_s` of a rule's settings replaces it in both directions, and all of them where a rule has several. Thresholds in
seconds (`THRESHOLDS`) are such times as well. A rule that has neither speaks at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from backend.control.findings.thresholds import RuleSettings
from backend.tiering.segment_state import DELETE_OVERDUE_MS, HUNG_MS_MIN


@dataclass(frozen=True, slots=True)
class Hold:
    """The default hold of a rule; `case`: of its findings that this is about, "" for all others."""

    slug: str
    case: str
    for_ms: int
    reason: str


AFTER_OUTAGE: Final = "after all brokers were away"

HOLDS: Final = (
    Hold(
        "below-min-isr", "", 2_000,
        "A new topic's replicas join within a second; a restarted broker is out for as long as it takes to be seen.",
    ),
    Hold(
        "broker-away", "while no broker answers", 4_000,
        "Of a cluster that is away as a whole one message goes out, 2 to 4 s after it was seen last.",
    ),
    Hold(
        "broker-away", AFTER_OUTAGE, 3_000,
        "A broker that answers is in Metadata a second later, once it is registered again.",
    ),
    Hold("broker-fenced", "", 15_000, "A broker that starts is fenced until it has caught up, which takes seconds."),
    Hold(
        "cluster-away", "", 1_500,
        "One question that got lost is no outage: the next one is asked a second later.",
    ),
    Hold(
        "copy-dangling", "of a deleted topic", HUNG_MS_MIN,
        "By the copy's age: brokers end what they have begun within a minute.",
    ),
    Hold(
        "copy-dangling", "of topics that are there", 600_000,
        "After the first minute: retention that is short removes them meanwhile; those that stay cost room.",
    ),
    Hold(
        "copy-failing", "of one broker", 20_000,
        "By the failures' age: several without a success are no accident. The next try is waited for in any case.",
    ),
    Hold(
        "copy-failing", "of several brokers", 10_000,
        "A store that asks to go slower does so for seconds.",
    ),
    Hold(
        "copy-hung", "", HUNG_MS_MIN,
        "By the copy's age, and at least: three times what copies take at worst, or 1 MB a second, where that is more.",
    ),
    Hold(
        "copy-slow", "more waits than local retention allows", 10_000,
        "A peak passes. Where nothing is copied at all still_s or full_still_s counts first.",
    ),
    Hold("copy-slow", AFTER_OUTAGE, 60_000, "Producers held records back meanwhile; these come at once."),
    Hold("database-away", "", 10_000, "A restart of a PostgreSQL server takes some seconds."),
    Hold(
        "delete-lag", "", DELETE_OVERDUE_MS,
        "By the deletion's age: Kafka deletes within seconds; a minute means that the remote tier does not do it.",
    ),
    Hold(
        "delete-lag", "of one broker or partition", 10_000,
        "Once a store takes deletions again they end broker by broker: the last ones are over within seconds.",
    ),
    Hold(
        "group-below-log-start", "", 20_000,
        "Longer than from one reading of the groups to the next, 15 s: a group may have gone on since it was read.",
    ),
    Hold(
        "leader-skew", "leads less than it should", 660_000,
        "Kafka moves leaders back every 5 min (leader.imbalance.check.interval.seconds): two of them have passed.",
    ),
    Hold("leader-skew", "is to lead too little", 15_000, "A move of replicas passes through such orders."),
    Hold(
        "local-debt", "", 600_000,
        "Twice the log cleaner's interval (log.retention.check.interval.ms, 5 min).",
    ),
    Hold(
        "metadata-loading", "", 35_000,
        "Longer than a task interval: each new leader, and each newly tiered topic, waits for the next one.",
    ),
    Hold(
        "metadata-unsafe", "was deleted", 10_000,
        "Rights are asked for every 4 s: one that was taken away is seen by then. gone_s where that is longer.",
    ),
    Hold("offline", AFTER_OUTAGE, 15_000, "Leaders are elected one partition after another, some by comparing logs."),
    Hold(
        "observer-down", "", 20_000,
        "After samples are stale (10 s, or three intervals): a backend that was frozen ends a round within this time.",
    ),
    Hold(
        "pipeline-behind", "", 10_000,
        "It waits for a leader of the metadata topic for 9 s at most, where that was killed.",
    ),
    Hold(
        "pipeline-behind", "in the minute after a start", 60_000,
        "After its start, or that of all brokers, it reads what has come meanwhile: a minute on a loaded machine.",
    ),
    Hold(
        "pipeline-down", "", 15_000,
        "A crashed one that `ebbline up` starts again at once reports within 15 s; a dead one must be seen within 30.",
    ),
    Hold("pipeline-down", "waits", 25_000, "It waits for a new leader for 9 s, and for a database that restarts."),
    Hold(
        "remote-read-storm", "", 40_000,
        "Longer than two readings of the groups: one read of an old offset is what the remote tier is for.",
    ),
    Hold(
        "segment-leak", "", 20_000,
        "Longer than two readings of the segments, 15 s apart.",
    ),
    Hold("thin-leader", "", 15_000, "Local retention cuts the leader first, and its followers a fetch or two later."),
    Hold("voter-away", "one voter", 10_000, "A voter that restarts fetches some seconds after its broker answers."),
    Hold(
        "voter-away", "majority lost with its brokers", 4_000,
        "A cluster that ends as a whole loses its quorum just before its last broker: cluster-away tells of that.",
    ),
    Hold("voter-away", "no active controller answers", 15_000, "An election takes 2 to 8 s."),
    Hold(
        "voter-away", "its leader's broker hangs", 45_000,
        "Brokers wait 30 s (controller.socket.timeout.ms) for a controller that hangs, although another leads by then.",
    ),
    Hold("voter-away", AFTER_OUTAGE, 60_000, "Nodes start one after another: the first has no majority yet."),
)  # fmt: skip

# Rules that measure it themselves, by the age of what they see, so that a restart of the product begins no new one.
BY_AGE: Final = frozenset({"copy-dangling", "copy-failing", "copy-hung", "delete-lag", "transaction-open"})


def default_for_ms(slug: str, case: str = "") -> int:
    """The hold that the table declares."""
    [for_ms] = [hold.for_ms for hold in HOLDS if (hold.slug, hold.case) == (slug, case)]
    return for_ms


def holds_in_force(settings: RuleSettings) -> Iterator[tuple[Hold, int]]:
    """Each hold with its value for all topics."""
    for hold in HOLDS:
        setting = settings.of(hold.slug, None)
        yield hold, hold.for_ms if setting is None or setting.for_ms is None else setting.for_ms
