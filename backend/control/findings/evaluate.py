"""Compares one round of rules with the open findings: some open, some stay, some close."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from backend.control.findings.catalogue import ALL_RULES, SLUGS, FindingRule
from backend.control.findings.causes import EXPLAINS, Silence, with_causes
from backend.control.findings.finding_context import CRITICAL, SEVERITIES, Candidate, FindingContext, FindingKey
from backend.control.findings.rule_settings import adjusted
from backend.store.queries.findings import Finding
from backend.store.storable import storable, storable_key

# More lines of one rule are of no use. Critical findings without a cause, and open ones, may be as many again: 42 rules
# of 1,000 objects are 42,000 rows of about 1 kB, 42 MB, if all rules are at their limit.
OBJECTS_MAX: Final = 500
WITH_CRITICAL_MAX: Final = 2 * OBJECTS_MAX
# The object of the finding that counts those of its kind that have no row, and how many of these it names.
MORE: Final = "more of this kind"
MORE_NAMED_MAX: Final = 10
# A finding that stays as it is is written this often all the same, so that its age can be trusted.
SEEN_INTERVAL_MS: Final = 10_000
# A broker that answers again is fenced for a moment, and its followers fetch what they lack: until then nothing that
# its absence has explained is a finding by itself.
OUTLASTS_MS: Final = 20_000
# Of the metadata topic they needed up to 40 s on a machine that others load; nothing is lost meanwhile.
REPLICAS_OUTLAST_MS: Final = 45_000
# Reads that failed with the store are counted for a minute; no consumer may have tried again since.
READS_OUTLAST_MS: Final = 60_000
READ_SLUGS: Final = frozenset({"remote-read-failing", "remote-read-slow"})
# A broker is asked every second: one that is away is away by itself as soon as another one answers.
BROKERS_OUTLAST_MS: Final = 5_000
# A backlog that a store has left behind is copied and deleted in about the time that the store was away.
BACKLOG_OUTLASTS_MS: Final = 120_000
# Offsets of partitions that rest are listed in some rounds only.
OFFSET_SLUGS: Final = frozenset(
    {
        "copy-slow",
        "divergence",
        "follower-stuck",
        "local-debt",
        "move-stalled",
        "segment-leak",
        "thin-leader",
        "transaction-open",
    }
)
BACKLOG_SLUGS: Final = frozenset({"copy-slow", "delete-lag", "local-debt"})


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of one round for the database. For the next round, by the clock of holds: `waiting`, since when each
    candidate has held, and `outlasting`, since when one is without the cause that it had; `unlisted`: the causes of the
    explained ones that got no row.
    """

    opened: Sequence[Candidate] = ()
    kept: Sequence[tuple[Finding, Candidate]] = ()  # of which something changed, or which are due
    closed: Sequence[Finding] = ()
    waiting: Mapping[FindingKey, int] = field(default_factory=dict)
    outlasting: Mapping[FindingKey, int] = field(default_factory=dict)
    unlisted: Mapping[FindingKey, FindingKey] = field(default_factory=dict)

    @property
    def holds(self) -> Changes:
        """The part that the next round needs: without the rows, which may be many."""
        return Changes(waiting=self.waiting, outlasting=self.outlasting, unlisted=self.unlisted)

    @property
    def worth_a_look(self) -> bool:
        """Whether a page that shows findings has something new to show."""
        return bool(self.opened or self.closed) or any(
            (finding.severity, finding.sentence, finding.cause)
            != (candidate.severity, candidate.sentence, candidate.cause)
            for finding, candidate in self.kept
        )


def candidates(context: FindingContext, rules: Iterable[FindingRule] = ALL_RULES) -> dict[FindingKey, Candidate]:
    """Candidates that hold now, one per slug and object: the first that a rule gives, as the settings of rules say."""
    result: dict[FindingKey, Candidate] = {}
    for rule in rules:
        for candidate in map(_as_stored, rule(context)):
            result.setdefault(candidate.key, _with_time(candidate, context))
    return adjusted(result, context.rule_settings)


def _with_time(candidate: Candidate, context: FindingContext) -> Candidate:
    """A candidate that offsets decide, with the time at which they were listed where that was an earlier round."""
    if candidate.slug not in OFFSET_SLUGS or candidate.topic is None or candidate.partition is None:
        return candidate
    listed_ms = context.listed_ms(candidate.topic, candidate.partition)
    return candidate if listed_ms >= context.at_ms else replace(candidate, seen_ms=listed_ms)


def limited(
    shown: Mapping[FindingKey, Candidate], open_keys: Collection[FindingKey] = frozenset()
) -> dict[FindingKey, Candidate]:
    """At most `OBJECTS_MAX` per slug, and as many again that are critical and have no cause.

    Open ones stay: a place that somebody else needs is no end. Of the others the worst come first that have no cause;
    those of them that get no place are counted by one finding more. A cause counts what it explains, listed or not.
    """
    if len(shown) <= OBJECTS_MAX:
        return dict(shown)
    kept = {key: candidate for key, candidate in shown.items() if key in open_keys}
    per_slug = Counter(slug for slug, _ in kept)
    uncaused = Counter(candidate.slug for candidate in kept.values() if candidate.cause is None)
    left_out: dict[str, list[Candidate]] = {}
    for key, candidate in sorted(shown.items(), key=lambda item: _rank(item[1])):
        slug = candidate.slug
        if key in kept:
            continue
        if per_slug[slug] < _places_of(candidate, uncaused[slug]):
            kept[key] = candidate
            per_slug[slug] += 1
            uncaused[slug] += candidate.cause is None
        elif candidate.cause is None:
            left_out.setdefault(slug, []).append(candidate)
    return kept | {more.key: more for more in map(_more, left_out.values())}


def _rank(candidate: Candidate) -> tuple[bool, int]:
    return candidate.cause is not None, SEVERITIES.index(candidate.severity)


def _places_of(candidate: Candidate, uncaused: int) -> int:
    """The number of rows of its slug below which a candidate gets one; `uncaused`: those of them that have no cause."""
    if candidate.cause is None and (candidate.severity == CRITICAL or uncaused < OBJECTS_MAX):
        return WITH_CRITICAL_MAX
    return OBJECTS_MAX


def _more(left_out: Sequence[Candidate]) -> Candidate:
    """The worst comes first."""
    slug, names = left_out[0].slug, [candidate.object for candidate in left_out[:MORE_NAMED_MAX]]
    return Candidate(
        slug=slug,
        object=MORE,
        severity=left_out[0].severity,
        sentence=f"{SLUGS.get(slug, slug)}: more than are listed",
        why=f"{len(left_out)} more of this kind: {', '.join(names)}{', …' if len(left_out) > len(names) else ''}.",
        action="Begin with those that are listed; the others are listed as these end.",
        facts={"count": len(left_out), "first": names},
    )


def _as_stored(candidate: Candidate) -> Candidate:
    """With the names as they come back from the database, with which it is compared."""
    current = (candidate.object, candidate.sentence, candidate.action)
    stored = (storable_key(candidate.object), storable(candidate.sentence), storable(candidate.action))
    if current == stored:
        return candidate
    return replace(candidate, object=stored[0], sentence=stored[1], action=stored[2])


def evaluate(
    context: FindingContext,
    open_findings: Iterable[Finding],
    waiting: Mapping[FindingKey, int],
    rules: Iterable[FindingRule] = ALL_RULES,
) -> Changes:
    """As `compare`, of the candidates that these rules give for the context."""
    clock_ms = context.at_ms if context.monotonic_ms is None else context.monotonic_ms
    return compare(candidates(context, rules), open_findings, waiting, context.at_ms, clock_ms)


def compare(
    current: Mapping[FindingKey, Candidate],
    open_findings: Iterable[Finding],
    waiting: Mapping[FindingKey, int],
    at_ms: int,
    clock_ms: int,
    outlasting: Mapping[FindingKey, int] | None = None,
    withheld: Collection[FindingKey] = frozenset(),
    unlisted: Mapping[FindingKey, FindingKey] | None = None,
) -> Changes:
    """Compares candidates with open findings; an open one stays open without waiting its `for_ms` again, and an
    explained one keeps its cause for `OUTLASTS_MS` after that has ended, a backlog for `BACKLOG_OUTLASTS_MS`.

    Holds are measured by the monotonic clock (`clock_ms`): the wall clock may be set while a candidate waits.
    `withheld`: candidates that are muted or in maintenance. `outlasting` and `unlisted`: of the changes before.
    """
    open_by_key = {(finding.slug, finding.object): finding for finding in open_findings}
    since = {key: waiting.get(key, clock_ms) for key in current}
    ripe = {key for key, c in current.items() if key in open_by_key or clock_ms - since[key] >= c.for_ms}
    superfluous = {(c.replaces, c.object) for key, c in current.items() if key in ripe and c.replaces}
    causes = dict(unlisted or {})
    causes |= {key: finding.cause for key, finding in open_by_key.items() if finding.cause is not None}
    silence = Silence(withheld, causes)
    shown = with_causes({key: c for key, c in current.items() if key in ripe and key not in superfluous}, silence)
    explained = {key: c.cause for key, c in shown.items() if c.cause is not None}
    unripe = {key: c for key, c in current.items() if key not in ripe and key not in superfluous}
    explained |= _causes_of_unripe(unripe, shown, silence)
    alone_ms = {
        key: (outlasting or {}).get(key, clock_ms)
        for key in current
        if key in causes and key not in explained and key not in superfluous
    }
    for key, since_ms in alone_ms.items():
        alone_for_ms, evidence_ms = clock_ms - since_ms, current[key].evidence_ms
        # A cause that is still there and explains it no more: it has become something else, which somebody has to see.
        # So it is where it has shown in a whole period since the cause ended.
        happens_alone = causes[key] in shown or (evidence_ms is not None and 0 <= at_ms - evidence_ms < alone_for_ms)
        if not happens_alone and alone_for_ms < _outlasts_ms(key[0]):
            explained[key] = causes[key]
            if key in shown:
                shown[key] = replace(shown[key], cause=causes[key])
    shown = limited(shown, open_by_key.keys())
    return Changes(
        opened=[candidate for key, candidate in shown.items() if key not in open_by_key],
        kept=[
            (open_by_key[key], candidate)
            for key, candidate in shown.items()
            if key in open_by_key and _to_write(open_by_key[key], candidate, at_ms)
        ],
        closed=[finding for key, finding in open_by_key.items() if key not in shown],
        waiting=since,
        outlasting=alone_ms,
        unlisted={key: cause for key, cause in explained.items() if key not in shown},
    )


def _causes_of_unripe(
    unripe: Mapping[FindingKey, Candidate], shown: Mapping[FindingKey, Candidate], silence: Silence
) -> dict[FindingKey, FindingKey]:
    """The causes of held candidates: one may end just before they ripen, and explains them for a while then."""
    if not unripe:
        return {}
    # Of thousands that are shown few have no cause, and only those explain.
    roots = {key: candidate for key, candidate in shown.items() if candidate.cause is None}
    causes = {key: with_cause.cause for key, with_cause in with_causes({**roots, **unripe}, silence).items()}
    return {key: cause for key, cause in causes.items() if key in unripe and cause is not None and cause in roots}


def _outlasts_ms(slug: str) -> int:
    """How long a finding of this slug keeps its cause after that has ended."""
    if slug in BACKLOG_SLUGS:
        return BACKLOG_OUTLASTS_MS
    if slug in READ_SLUGS:
        return READS_OUTLAST_MS
    if slug == "metadata-unsafe":
        return REPLICAS_OUTLAST_MS
    return BROKERS_OUTLAST_MS if slug == "broker-away" else OUTLASTS_MS


def retained(finding: Finding) -> Candidate:
    """An open finding as the candidate that it was when it was last seen: nobody can see now whether it is still so."""
    evidence = dict(finding.evidence or {})
    return Candidate(
        slug=finding.slug,
        object=finding.object,
        severity=finding.severity,
        sentence=finding.sentence,
        why=str(evidence.pop("sentence", "")),
        action=finding.action,
        facts=evidence,
        topic=finding.topic,
        partition=finding.partition,
        broker_id=finding.broker_id,
        seen_ms=finding.seen_ms,
    )


def _to_write(finding: Finding, candidate: Candidate, at_ms: int) -> bool:
    now = (candidate.severity, candidate.sentence, candidate.action, candidate.cause)
    before = (finding.severity, finding.sentence, finding.action, finding.cause)
    explains, explained = candidate.facts.get(EXPLAINS), (finding.evidence or {}).get(EXPLAINS)
    seen_ms = at_ms if candidate.seen_ms is None else candidate.seen_ms
    # A wall clock that was set back leaves `seen_ms` in the future.
    return now != before or explains != explained or abs(seen_ms - finding.seen_ms) >= SEEN_INTERVAL_MS
