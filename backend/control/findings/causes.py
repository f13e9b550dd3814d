"""Causes of findings: the table of which finding explains which, and the causes of one round's candidates. Pure.

A broker that is away explains the partitions that wait for it and the followers that do not join: one finding is to be
read and one notice sent. The explained findings stay in the table under their cause; one that outlasts its cause is a
finding by itself then. A cause that is muted or in maintenance keeps what it explained before; a critical finding that
comes later and that nobody has silenced goes under another cause, or stands for itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from backend.control.findings.catalogue import SLUGS
from backend.control.findings.finding_context import (
    CRITICAL,
    NOT_ALLOWED,
    READING_ENDS,
    SEVERITIES,
    THROTTLED,
    Candidate,
    FindingKey,
    count,
)

# Objects of explained findings that the evidence of a cause names.
NAMED_MAX: Final = 10


class Link(StrEnum):
    """The relation of a cause with what it explains."""

    CLUSTER = "cluster"
    """All findings of the slug, where the cause names no broker."""
    BROKER = "broker"
    """Findings that depend on the cause's broker."""
    TOPIC = "topic"
    """Findings of the cause's topic."""
    PARTITION = "partition"
    """Findings of the cause's partition."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One row of the table: a finding of the slug `cause` explains findings of these slugs that it is linked with.

    `unseen_only`: of these only what is kept as it was seen last; what a rule sees now has another cause. `rules`: of
    these only what has such a rule in its facts; None: all. `cause_rule`: only of a cause with this rule; None: of any.
    """

    cause: str
    link: Link
    consequences: tuple[str, ...]
    unseen_only: bool = False
    rules: frozenset[str] | None = None
    cause_rule: str | None = None

    def causes(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The candidates of its slug that the row is about."""
        return [c for c in candidates if self.cause_rule is None or c.facts.get("rule") == self.cause_rule]

    def is_of(self, candidate: Candidate) -> bool:
        """Whether the row is about this candidate of one of its slugs."""
        if self.unseen_only and not candidate.unseen:
            return False
        return self.rules is None or candidate.facts.get("rule") in self.rules


@dataclass(frozen=True, slots=True)
class Silence:
    """Findings that are muted or in maintenance, and the causes that the open findings have."""

    withheld: Collection[FindingKey] = frozenset()
    before: Mapping[FindingKey, FindingKey] = field(default_factory=dict)

    def lets_explain(self, cause: FindingKey, candidate: Candidate) -> bool:
        """Whether a candidate may go under this cause, as the module says."""
        return (
            cause not in self.withheld
            or candidate.severity != CRITICAL
            or candidate.key in self.withheld
            or self.before.get(candidate.key) == cause
        )


NO_SILENCE: Final = Silence()


CLUSTER_AWAY: Final = "cluster-away"
EXPLAINS: Final = "explains"
"""The fact of a cause that counts its consequences."""
# Everything that brokers tell; the database and the pipeline are seen without them.
CLUSTER_FACTS: Final = tuple(
    sorted(SLUGS.keys() - {CLUSTER_AWAY, "database-away", "database-lost", "pipeline-behind", "pipeline-down"})
)
# Findings about topics, groups and the ledger that are kept while a right is missing (`unseen_findings`).
RIGHTS_FACTS: Final = (
    "copy-dangling",
    "copy-failing",
    "copy-slow",
    "delete-lag",
    "group-below-log-start",
    "local-debt",
    "metadata-unsafe",
    "records-unreadable",
    "remote-read-storm",
    "segment-leak",
    "throttle-left",
    "voter-away",
    "voter-catching-up",
)
# Findings of copies, deletions and reads that need the store, or a broker's way to it.
STORE_FACTS: Final = (
    "copy-dangling",
    "copy-hung",
    "copy-slow",
    "delete-lag",
    "local-debt",
    "remote-read-failing",
    "remote-read-slow",
    "remote-read-storm",
)
# The first row that fits is the cause; a cause that is explained itself hands on to its own cause.
EXPLANATIONS: Final[tuple[Explanation, ...]] = (
    Explanation(CLUSTER_AWAY, Link.CLUSTER, CLUSTER_FACTS),
    # A pipeline that cannot write gives no sign of life.
    Explanation("database-away", Link.CLUSTER, ("observer-down", "pipeline-behind", "pipeline-down")),
    Explanation("rights-missing", Link.CLUSTER, RIGHTS_FACTS, unseen_only=True),
    Explanation("rights-missing", Link.CLUSTER, ("pipeline-behind", "pipeline-down"), rules=frozenset({NOT_ALLOWED})),
    # Its advice is the only one that loses nothing: a broker that it asks to stop is away, and must not be started.
    Explanation("last-leader-behind", Link.BROKER, ("broker-away", "metadata-unsafe", "offline")),
    Explanation(
        "broker-away",
        Link.BROKER,
        (
            "below-min-isr",
            "copy-hung",
            "follower-stuck",
            "metadata-failed",
            "metadata-loading",
            "metadata-unsafe",
            "move-stalled",
            "leader-skew",
            "observer-down",
            "offline",
            "pipeline-behind",
            "pipeline-down",
            "remote-read-failing",
            "remote-read-slow",
            "voter-away",
            "voter-catching-up",
        ),
    ),
    Explanation(
        "disk-offline",
        Link.BROKER,
        ("below-min-isr", "disk-runway", "follower-stuck", "metadata-unsafe", "move-stalled", "offline"),
    ),
    Explanation(
        "broker-fenced", Link.BROKER, ("below-min-isr", "follower-stuck", "metadata-unsafe", "move-stalled", "offline")
    ),
    Explanation("offline", Link.PARTITION, ("follower-stuck", "move-stalled")),
    Explanation("throttle-left", Link.PARTITION, ("below-min-isr",)),
    # One that a throttle holds back; a follower with a lost folder has its own finding.
    Explanation("throttle-left", Link.PARTITION, ("follower-stuck",), rules=frozenset({THROTTLED})),
    Explanation("follower-stuck", Link.PARTITION, ("below-min-isr", "move-stalled")),
    Explanation("metadata-failed", Link.BROKER, ("copy-slow",)),
    Explanation("pipeline-down", Link.CLUSTER, ("pipeline-behind",)),
    # A pipeline that waits for a topic which was deleted.
    Explanation("metadata-unsafe", Link.TOPIC, ("pipeline-down",)),
    # A segment is copied once its metadata was read back.
    Explanation("records-unreadable", Link.CLUSTER, ("copy-failing", *STORE_FACTS), cause_rule=READING_ENDS),
    Explanation("copy-failing", Link.CLUSTER, STORE_FACTS),
    Explanation("copy-failing", Link.BROKER, STORE_FACTS),
    Explanation("copy-hung", Link.PARTITION, ("copy-slow",)),
    # Of the store as a whole: it names no broker, and is slow for deletions, too.
    Explanation("copy-slow", Link.CLUSTER, ("delete-lag", "local-debt")),
    Explanation("remote-read-failing", Link.CLUSTER, ("remote-read-slow", "remote-read-storm")),
    Explanation("remote-read-slow", Link.CLUSTER, ("remote-read-storm",)),
    Explanation("transaction-open", Link.PARTITION, ("local-debt",)),
)

NOUNS: Final[Mapping[str, tuple[str, str]]] = {
    "below-min-isr": ("partition below its minimum of replicas in sync", "partitions below their minimum in sync"),
    "broker-away": ("broker that does not answer", "brokers that do not answer"),
    "copy-dangling": ("leftover of copies", "leftovers of copies"),
    "copy-failing": ("source of failed copies", "sources of failed copies"),
    "copy-hung": ("copy that does not end", "copies that do not end"),
    "copy-slow": ("partition whose copies are behind", "partitions whose copies are behind"),
    "delete-lag": ("overdue deletion", "overdue deletions"),
    "disk-runway": ("full disk", "full disks"),
    "follower-stuck": ("replica outside the ISR", "replicas outside the ISR"),
    "leader-skew": ("broker that leads too little", "brokers that lead too little"),
    "local-debt": ("partition with local data past its retention", "partitions with local data past their retention"),
    "metadata-failed": ("broker without the remote log's metadata", "brokers without the remote log's metadata"),
    "metadata-loading": ("broker that reads the remote log's metadata", "brokers that read the remote log's metadata"),
    "metadata-unsafe": ("topic of metadata with a missing replica", "topics of metadata with a missing replica"),
    "move-stalled": ("move that waits", "moves that wait"),
    "group-below-log-start": ("group below the log start", "groups below the log start"),
    "observer-down": ("observer that ends no round", "observers that end no round"),
    "offline": ("partition without a leader", "partitions without a leader"),
    "pipeline-behind": ("pipeline that is behind", "pipelines that are behind"),
    "pipeline-down": ("pipeline that does not work", "pipelines that do not work"),
    "records-unreadable": ("reader of unreadable records", "readers of unreadable records"),
    "remote-read-failing": ("source of failed remote reads", "sources of failed remote reads"),
    "remote-read-slow": ("source of slow remote reads", "sources of slow remote reads"),
    "remote-read-storm": ("group that waits for the remote tier", "groups that wait for the remote tier"),
    "segment-leak": ("leaked segment", "leaked segments"),
    "throttle-left": ("set of throttles", "sets of throttles"),
    "voter-away": ("voter of the metadata quorum", "voters of the metadata quorum"),
    "voter-catching-up": ("voter that does not count", "voters that do not count"),
}
"""One and several findings of a slug, as the evidence of their cause counts them."""


def with_causes(
    candidates: Mapping[FindingKey, Candidate], silence: Silence = NO_SILENCE
) -> dict[FindingKey, Candidate]:
    """The candidates with the cause of each that has one; a cause counts what it explains, and is as severe as that."""
    causes = _roots(candidates, silence)
    explained: dict[FindingKey, list[Candidate]] = {}
    for key, cause in causes.items():
        explained.setdefault(cause, []).append(candidates[key])
    result = {}
    for key, candidate in candidates.items():
        if key in causes:
            result[key] = replace(candidate, cause=causes[key])
        elif key in explained:
            result[key] = _summing_up(candidate, explained[key])
        else:
            result[key] = candidate
    return result


def _roots(candidates: Mapping[FindingKey, Candidate], silence: Silence) -> dict[FindingKey, FindingKey]:
    """The cause that nothing explains, for each candidate that has a cause."""
    direct = _direct(candidates)
    roots: dict[FindingKey, FindingKey | None] = {}
    for key in direct:
        _find_root(key, candidates, direct, silence, roots)
    return {key: root for key, root in roots.items() if root is not None}


def _direct(candidates: Mapping[FindingKey, Candidate]) -> dict[FindingKey, list[FindingKey]]:
    """The causes that the table has for each candidate, in its order."""
    by_slug: dict[str, list[Candidate]] = {}
    for candidate in candidates.values():
        by_slug.setdefault(candidate.slug, []).append(candidate)
    direct: dict[FindingKey, list[FindingKey]] = {}
    for row in EXPLANATIONS:
        causes = _linked(row.causes(by_slug.get(row.cause, ())), row.link)
        if not causes:
            continue
        for slug in row.consequences:
            for candidate in by_slug.get(slug, ()):
                if not row.is_of(candidate):
                    continue
                linked = (causes[place] for place in _places(candidate, row.link) if place in causes)
                direct.setdefault(candidate.key, []).extend(cause for cause in linked if cause != candidate.key)
    return direct


def _find_root(
    key: FindingKey,
    candidates: Mapping[FindingKey, Candidate],
    direct: Mapping[FindingKey, Sequence[FindingKey]],
    silence: Silence,
    roots: dict[FindingKey, FindingKey | None],
) -> FindingKey | None:
    """The last cause of a candidate, put into `roots`; one that nobody has silenced comes first."""
    # The table has no circles; a test walks it.
    if key not in roots:
        last = [_find_root(cause, candidates, direct, silence, roots) or cause for cause in direct.get(key, ())]
        unsilenced = next((cause for cause in last if cause not in silence.withheld), None)
        roots[key] = unsilenced or next((cause for cause in last if silence.lets_explain(cause, candidates[key])), None)
    return roots[key]


def _linked(causes: Iterable[Candidate], link: Link) -> dict[object, FindingKey]:
    """The causes by what links them; of several the first by name."""
    result: dict[object, FindingKey] = {}
    for cause in sorted(causes, key=lambda candidate: candidate.object):
        own: Sequence[object] = (cause.broker_id,) if link is Link.BROKER else _places(cause, link)
        if link is Link.CLUSTER and cause.broker_id is not None:
            own = ()
        for place in own:
            if place is not None:
                result.setdefault(place, cause.key)
    return result


def _places(candidate: Candidate, link: Link) -> Sequence[object]:
    match link:
        case Link.CLUSTER:
            return ("cluster",)
        case Link.BROKER:
            own = () if candidate.broker_id is None else (candidate.broker_id,)
            return (*sorted(candidate.depends_on), *own)
        case Link.TOPIC:
            return (candidate.topic,)
        case Link.PARTITION:
            partition = () if candidate.partition is None else ((candidate.topic, candidate.partition),)
            return (*partition, *candidate.also_about)


def _summing_up(cause: Candidate, explained: Sequence[Candidate]) -> Candidate:
    counts = Counter(candidate.slug for candidate in explained)
    if cause.slug == CLUSTER_AWAY:
        text = f"{count(len(explained), 'finding')} of before cannot be seen any more."
    else:
        text = f"Explains {', '.join(count(number, *NOUNS[slug]) for slug, number in sorted(counts.items()))}."
    worst = min((cause, *explained), key=lambda candidate: SEVERITIES.index(candidate.severity)).severity
    facts = {
        "count": len(explained),
        "by_slug": dict(sorted(counts.items())),
        "first": [candidate.object for candidate in sorted(explained, key=lambda c: (c.slug, c.object))][:NAMED_MAX],
    }
    return replace(cause, severity=worst, why=f"{cause.why} {text}", facts={**cause.facts, EXPLAINS: facts})
