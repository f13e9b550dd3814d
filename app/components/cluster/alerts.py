"""Needs attention: what is wrong, worst first, our own blindness on top. Pure rules over rows of the database.

Findings that the control plane has stored come in as they are; a rule here steps back where a stored finding speaks
of the same thing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.components.cluster.health_text import BROKERS_SILENT, Blindness
from app.components.follower.stuck_follower import STUCK_MS, why_stuck
from app.components.partition.pending_limits import disk_share, disk_status, pending_bytes, pending_limit_bytes
from app.components.shared import format as fmt
from backend.store.queries.config import TopicRow
from backend.store.queries.overview import BrokerRow, FindingRow, LedgerTotals
from backend.store.queries.partitions import PartitionRow, ReplicaRow, SegmentRow
from backend.tiering.pending import PendingReason
from backend.tiering.segment_state import DELETE_OVERDUE_MS, HUNG_FACTOR, HUNG_MS_MIN, SegmentState

# The finding whose folders Config lists, with the plan that removes one.
SET_ASIDE: Final = "set-aside"
METADATA_TOPIC: Final = "__remote_log_metadata"
METADATA_REPLICATION: Final = 3
SEVERITIES: Final = ("critical", "warning", "notice")
ROWS_MAX: Final = 6
PHASE_LABELS: Final = {
    "TRUNCATING": "truncating",
    "WAITING_FOR_METADATA": "waiting for metadata",
    "BUILDING_REMOTE_AUX": "building remote state",
    "FETCHING": "fetching",
    "DELAYED": "stuck",
    "FAILED": "failed",
    "IN_SYNC": "in sync",
}


@dataclass(frozen=True, slots=True)
class Alert:
    """One line of the card. ``partition`` or ``page``, there a ``section``, is where its link leads."""

    slug: str
    object: str
    severity: str
    title: str
    detail: str
    link: str = ""
    page: str = ""
    partition: str = ""
    section: str = ""


@dataclass(frozen=True, slots=True)
class AlertFacts:
    """The facts that the rules judge. ``p99_ms``: duration of finished copies by (topic, partition); absent: not known.

    The cluster is judged as of ``now_ms``, the newest sample, and the ledger as of ``ledger_ms``: later changes are not
    known here, so no age may count the time since.
    """

    now_ms: int
    ledger_ms: int
    blindness: Sequence[Blindness]
    brokers: Sequence[BrokerRow]
    partitions: Sequence[PartitionRow]
    replicas_behind: Sequence[ReplicaRow]
    open_segments: Sequence[SegmentRow]
    p99_ms: Mapping[tuple[str, int], int]
    topics: Sequence[TopicRow]
    ledger: LedgerTotals
    findings: Sequence[FindingRow] = field(default_factory=tuple)


def problems(facts: AlertFacts) -> list[Alert]:
    """All that needs attention, our own blindness first, then by severity."""
    # Each silent broker has a separate line below.
    own = [
        Alert(b.slug, "ebbline", b.status, b.title.rstrip("."), f"{b.sentence} {b.note}".strip())
        for b in facts.blindness
        if b.slug != BROKERS_SILENT
    ]
    # A muted finding is not shown, and keeps the rule of the same thing from speaking instead of it.
    stored_keys = {(finding.slug, finding.object) for finding in facts.findings}
    stored = [_stored(finding) for finding in facts.findings if (finding.muted_until_ms or 0) <= facts.now_ms]
    ruled: list[Alert] = []
    for rule in RULES:
        ruled += [problem for problem in rule(facts) if (problem.slug, problem.object) not in stored_keys]
    rest = sorted([*stored, *ruled], key=lambda problem: SEVERITIES.index(problem.severity))
    return [*own, *rest]


def summary(alerts: Sequence[Alert]) -> str:
    """``4 problems, 2 notices · worst first``."""
    notices = sum(problem.severity == "notice" for problem in alerts)
    serious = len(alerts) - notices
    parts = [_count(serious, "problem")] if serious else []
    parts += [_count(notices, "notice")] if notices else []
    return ", ".join(parts) + (" · worst first" if len(alerts) > 1 else "")


def is_hung(segment: SegmentRow, p99_ms: int | None, now_ms: int) -> bool:
    """Has an open copy taken longer than three times the p99 of its partition's copies?"""
    age_ms = now_ms - segment.copy_started_ms
    return segment.state is SegmentState.COPY_SEGMENT_STARTED and age_ms > max(HUNG_MS_MIN, HUNG_FACTOR * (p99_ms or 0))


def times_p99(age_ms: int, p99_ms: int | None) -> str:
    """``219× its p99``, or why that is not known."""
    if not p99_ms:
        return "p99 not known yet"
    return f"{fmt.count(round(age_ms / p99_ms))}× its p99" if age_ms >= 2 * p99_ms else "within its usual time"


def _count(number: int, noun: str) -> str:
    return f"{fmt.count(number)} {noun}{'' if number == 1 else 's'}"


def _stored(finding: FindingRow) -> Alert:
    severity = finding.severity if finding.severity in SEVERITIES else "warning"
    evidence = finding.evidence if isinstance(finding.evidence, dict) else {}
    names_partition = finding.topic is not None and finding.partition is not None
    name = f"{finding.topic}-{finding.partition}" if names_partition else ""
    link = "Open partition" if names_partition else ""
    detail = str(evidence.get("sentence", ""))
    if finding.slug == SET_ASIDE:
        link, page, section = "Folders", "config", "brokers"
        return Alert(finding.slug, finding.object, severity, finding.sentence, detail, link, page, section=section)
    return Alert(finding.slug, finding.object, severity, finding.sentence, detail, link, partition=name)


def _brokers_away(facts: AlertFacts) -> Iterable[Alert]:
    for broker in facts.brokers:
        if broker.reachable and broker.fenced:
            detail = "The controller keeps it from leading until it has caught up and its heartbeats arrive."
            name = f"broker {broker.broker_id}"
            yield Alert("broker-fenced", name, "warning", f"Broker {broker.broker_id} is fenced", detail)
        if broker.reachable:
            continue
        silent = fmt.duration(max(0, facts.now_ms - broker.seen_ms) / 1000)
        led = sum(row.leader == broker.broker_id for row in facts.partitions)
        detail = f"Silent for {silent}. {broker.error or ''}".strip()
        if led:
            detail += f" Leads {_count(led, 'partition')}."
        yield Alert(
            "broker-away",
            f"broker {broker.broker_id}",
            "critical",
            f"Broker {broker.broker_id} does not answer",
            detail,
            "Partitions",
            page="partitions",
        )


def _disks(facts: AlertFacts) -> Iterable[Alert]:
    for broker in facts.brokers:
        name = f"broker {broker.broker_id}"
        for directory in broker.log_dirs or []:
            if directory.get("error"):
                title = f"Log directory offline: {directory.get('path', '?')} on {name}"
                yield Alert("disk-offline", name, "critical", title, f"{directory['error']}")
        share = disk_share(broker)
        status = disk_status(share)
        if status is not None:
            detail = "A full disk stops its log directory; only local data that was copied to remote can be deleted."
            title = f"Disk {share:.0%} full: {name}"
            yield Alert("disk-runway", name, status, title, detail, "Partitions", page="partitions")


def _metadata_loading(facts: AlertFacts) -> Iterable[Alert]:
    led = [row for row in facts.partitions if row.pending_reason == PendingReason.LEADER_DOES_NOT_KNOW]
    for broker_id in sorted({row.leader for row in led}):
        count = sum(row.leader == broker_id for row in led)
        gap = f"It does not know yet what is in the remote tier for {_count(count, 'partition')}"
        detail = f"{gap}; it copies nothing until then."
        title = f"Broker {broker_id} reads the remote log's metadata"
        yield Alert("metadata-loading", f"broker {broker_id}", "notice", title, detail)


def _offline(facts: AlertFacts) -> Iterable[Alert]:
    for row in facts.partitions:
        if row.leader >= 0:
            continue
        name = f"{row.topic}-{row.partition}"
        isr = ", ".join(str(broker) for broker in row.isr) or "none"
        detail = f"Nobody can read or write it. Last in sync: broker {isr}."
        yield Alert("offline", name, "critical", f"No leader: {name}", detail, "Open partition", partition=name)


def _open_copies(facts: AlertFacts) -> Iterable[Alert]:
    leaders = {(row.topic, row.partition): (row.leader, row.topic_id) for row in facts.partitions}
    for segment in facts.open_segments:
        if segment.state is not SegmentState.COPY_SEGMENT_STARTED:
            continue
        key = (segment.topic, segment.partition)
        name, age_ms = f"{segment.topic}-{segment.partition}", facts.ledger_ms - segment.copy_started_ms
        leader = leaders.get(key)
        if leader is None or leader != (segment.copy_broker_id, segment.topic_id):
            if age_ms > HUNG_MS_MIN:
                now = "its partition is gone" if leader is None else f"broker {leader[0]} leads now"
                detail = f"Begun {fmt.duration(age_ms / 1000)} ago by broker {segment.copy_broker_id}; {now}"
                yield Alert("copy-dangling", name, "notice", f"Copy dangling: {name}", detail, "Ledger", "", name)
        elif is_hung(segment, facts.p99_ms.get(key), facts.ledger_ms):
            ratio = times_p99(age_ms, facts.p99_ms.get(key))
            yield Alert(
                "copy-hung",
                name,
                "critical",
                f"Copy hung: {name} on broker {segment.copy_broker_id}",
                f"Open for {fmt.duration(age_ms / 1000)}, {ratio}",
                "Open copy",
                partition=name,
            )


def _followers(facts: AlertFacts) -> Iterable[Alert]:
    for replica in facts.replicas_behind:
        name = f"{replica.topic}-{replica.partition}"
        since_ms = facts.now_ms - (replica.phase_since_ms or replica.changed_ms)
        stuck = why_stuck(replica, facts.now_ms) is not None
        evidence = replica.evidence if isinstance(replica.evidence, dict) else {}
        detail = str(evidence.get("sentence") or replica.error or _not_in_isr(replica.phase))
        lasting = f" For {fmt.duration(since_ms / 1000)}." if since_ms >= 1000 else ""
        yield Alert(
            "follower-stuck" if stuck else "follower-behind",
            f"{name} on broker {replica.broker_id}",
            "critical" if stuck else ("warning" if since_ms > STUCK_MS else "notice"),
            f"Follower {'stuck' if stuck else 'catching up'}: {name} on broker {replica.broker_id}",
            detail + lasting,
            "Replicas",
            partition=name,
        )


def _not_in_isr(phase: str | None) -> str:
    word = PHASE_LABELS.get(phase or "")
    return f"{word.capitalize()}, not in the ISR." if word and phase != "IN_SYNC" else "Not in the ISR."


def _deletes(facts: AlertFacts) -> Iterable[Alert]:
    for segment in facts.open_segments:
        if segment.state is not SegmentState.DELETE_SEGMENT_STARTED or segment.delete_started_ms is None:
            continue
        age_ms = facts.ledger_ms - segment.delete_started_ms
        if age_ms > DELETE_OVERDUE_MS:
            name = f"{segment.topic}-{segment.partition}"
            detail = f"{fmt.size(segment.segment_size_bytes)} asked to be removed {fmt.duration(age_ms / 1000)} ago"
            yield Alert("delete-lag", name, "warning", f"Deletion overdue: {name}", detail, "Ledger", "", name)


def _pending(facts: AlertFacts) -> Iterable[Alert]:
    topics = {topic.topic: topic for topic in facts.topics}
    hung = {
        (s.topic, s.partition)
        for s in facts.open_segments
        if is_hung(s, facts.p99_ms.get((s.topic, s.partition)), facts.ledger_ms)
    }
    for row in facts.partitions:
        pending, topic = pending_bytes(row), topics.get(row.topic)
        limit = None if topic is None else pending_limit_bytes(topic)
        if pending is None or limit is None or pending < limit or (row.topic, row.partition) in hung:
            continue
        name = f"{row.topic}-{row.partition}"
        detail = f"{fmt.size(pending)} not uploaded; local retention is {fmt.size(limit)}, so nothing local can go"
        yield Alert("copy-slow", name, "warning", f"Copying is behind: {name}", detail, "Open partition", "", name)


def _metadata_topic(facts: AlertFacts) -> Iterable[Alert]:
    for topic in facts.topics:
        required = min(METADATA_REPLICATION, len(facts.brokers))
        if topic.topic == METADATA_TOPIC and topic.replication_factor < required:
            detail = (
                f"{topic.replication_factor} of {required} replicas: losing one broker may lose the remote tier's map"
            )
            yield Alert("metadata-unsafe", METADATA_TOPIC, "critical", "Remote log metadata is not safe", detail)


def _quarantine(facts: AlertFacts) -> Iterable[Alert]:
    count = facts.ledger.quarantined_records
    if count:
        detail = "They could not be read and are kept aside; the ledger may miss their segments."
        title = f"{_count(count, 'record')} of {METADATA_TOPIC} quarantined"
        yield Alert("quarantine", METADATA_TOPIC, "warning", title, detail)
    if facts.ledger.illegal_events:
        title = f"{_count(facts.ledger.illegal_events, 'event')} against the segment life cycle"
        detail = "They were stored and not followed, as Kafka's own cache does."
        yield Alert("illegal-events", METADATA_TOPIC, "notice", title, detail)


RULES: Final = (
    _brokers_away,
    _disks,
    _offline,
    _open_copies,
    _followers,
    _deletes,
    _pending,
    _metadata_topic,
    _metadata_loading,
    _quarantine,
)
