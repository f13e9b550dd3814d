"""Rules about metadata that must outlive a broker: eligible leaders, the remote log's metadata topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, Final

from backend.control.findings.finding_context import (
    CRITICAL,
    NOTICE,
    WARNING,
    Candidate,
    FindingContext,
    count,
    ids,
    setting,
)
from backend.control.findings.holds import default_for_ms
from backend.control.findings.kafka_commands import command
from backend.control.formatting import in_time
from backend.store.queries.config import TopicRow
from backend.store.writes.samples import PartitionSample
from backend.tiering.durability import ELIGIBLE_LEADER_REPLICAS
from backend.tiering.pending import PendingReason

METADATA_TOPIC: Final = "__remote_log_metadata"
LOADING_FOR_MS: Final = default_for_ms("metadata-loading")
RIGHTS_SEEN_MS: Final = default_for_ms("metadata-unsafe", "was deleted")
SETS: Final = f"--alter --topic {METADATA_TOPIC} --add-config"
UNLIMITED: Final = "retention.ms=-1,retention.bytes=-1"


def without_elr(context: FindingContext) -> Iterable[Candidate]:
    """The cluster could keep eligible leader replicas (KIP-966) and does not: one lost disk may lose everything."""
    feature = context.feature_levels.get(ELIGIBLE_LEADER_REPLICAS)
    if feature is None or feature.level >= 1 or feature.max_level < 1 or len(context.brokers) < 2:
        return
    yield Candidate(
        slug="elr-off",
        object="cluster",
        severity=WARNING,
        sentence="Eligible leader replicas are off: a disk that is lost while brokers are down stops partitions",
        why=f"{ELIGIBLE_LEADER_REPLICAS} is at level {feature.level}: the last broker in sync alone may lead. If its"
        " disk is lost while the others are down, nobody leads, whole as the other copies are.",
        action="Raise it once all brokers run this version: ebbline quorum upgrade.",
        facts={"level": feature.level, "max_level": feature.max_level},
    )


def metadata_unsafe(context: FindingContext) -> Iterable[Candidate]:
    """The remote tier's map must outlive a broker: replication, in-sync replicas, unlimited retention (KIP-405)."""
    topic = context.topic(METADATA_TOPIC)
    if topic is None:
        yield from _metadata_gone(context)
        return
    required = min(round(context.thresholds.metadata_replicas), len(context.brokers))
    few = topic.replication_factor < required
    lasting = _endangering_settings(topic)
    own = [row for row in context.partitions if row.topic == METADATA_TOPIC]
    behind = [row for row in own if len(row.isr) < len(row.replicas)]
    replicas = f"{topic.replication_factor} of {required} replicas"
    if lasting:
        yield _unsafe(
            topic,
            CRITICAL,
            f"{'; '.join([replicas, *lasting] if few else lasting)}: losing it loses the remote tier's map.",
            _safe_settings(context, topic) + (f" Then give it {_replicas(required)}." if few else ""),
            behind,
        )
    elif few:
        yield _unsafe(
            topic,
            WARNING,
            f"{replicas}: the next disk that is lost may take the remote tier's map with it.",
            f"Give it {_replicas(required)}.",
            behind,
            sentence="Remote log metadata has too few replicas",
        )
    elif behind:
        missing = frozenset(broker for row in behind for broker in set(row.replicas) - set(row.isr))
        yield _unsafe(
            topic,
            WARNING,
            f"{count(len(behind), 'partition')} under-replicated, without broker {ids(missing)}.",
            f"Bring its replicas on broker {ids(missing)} back in sync.",
            behind,
            missing,
            round(context.thresholds.metadata_joins_s * 1000),
        )


def _policy(topic: TopicRow) -> str:
    return (topic.config or {}).get("cleanup.policy") or "delete"


def _endangering_settings(topic: TopicRow) -> list[str]:
    """A retention counts at once where `cleanup.policy` has delete; beside compact alone it waits for that policy."""
    policy = _policy(topic)
    result = []
    for name in ("retention.ms", "retention.bytes"):
        limit = setting(topic, name)
        if limit is not None and limit >= 0:
            removes = "events are removed" if "delete" in policy else "cleanup.policy=delete would remove events"
            result.append(f"{name} is {limit}, so {removes} while their segments live")
    if "compact" in policy:
        return ["cleanup.policy has compact: its records have no keys, so brokers can write none", *result]
    return result


def _replicas(required: int) -> str:
    return f"{count(required, 'replica')}: ebbline plan replication-factor {required} {METADATA_TOPIC}"


def _safe_settings(context: FindingContext, topic: TopicRow) -> str:
    """Retention before the policy: in the other order the first look of the log cleaner deletes the map."""
    unlimited = command(context, "kafka-configs.sh", f"{SETS} {UNLIMITED}")
    if "compact" in _policy(topic):
        return f"First {unlimited}; then, not before, the same with cleanup.policy=delete."
    return f"Give it unlimited retention: {unlimited}."


def _unsafe(
    topic: TopicRow,
    severity: str,
    why: str,
    action: str,
    behind: Collection[PartitionSample],
    missing: frozenset[int] = frozenset(),
    for_ms: int = 0,
    sentence: str | None = None,
) -> Candidate:
    return Candidate(
        slug="metadata-unsafe",
        object=METADATA_TOPIC,
        severity=severity,
        sentence=sentence
        or ("Remote log metadata is not safe" if severity == CRITICAL else "Remote log metadata lacks a replica"),
        why=why,
        action=action,
        facts={"replication_factor": topic.replication_factor, "under_replicated": len(behind)},
        topic=METADATA_TOPIC,
        for_ms=for_ms,
        depends_on=missing,
    )


def _metadata_gone(context: FindingContext) -> Iterable[Candidate]:
    """The topic was deleted: running brokers have its records in memory, a restarted one does not.

    Apache Kafka lets a client delete it, and creates it again, empty, at a broker's next start. An attached cluster
    may keep this metadata elsewhere: then the ledger has none of its segments. A topic that our principal may not
    describe looks deleted, too.
    """
    lost = sum((row.latest_tiered_offset or -1) >= 0 for row in context.tiered)
    seen_before = not context.kafka_rules or context.finished
    if not context.topics or not lost or not seen_before or context.missing_rights:
        return
    yield Candidate(
        slug="metadata-unsafe",
        object=METADATA_TOPIC,
        severity=CRITICAL,
        sentence=f"{METADATA_TOPIC} was deleted",
        why=f"The brokers that run still know the remote segments of {count(lost, 'partition')}; one that is"
        " restarted creates the topic again, empty, and cannot read them any more. Nothing more is copied.",
        action="Restart no broker. Copy what must be kept out of the tiered topics while it can still be read.",
        facts={"partitions": lost},
        topic=METADATA_TOPIC,
        for_ms=max(RIGHTS_SEEN_MS, round(context.thresholds.metadata_gone_s * 1000)),
    )


def metadata_loading(context: FindingContext) -> Iterable[Candidate]:
    """Leaders that do not know what is in the remote tier: after a start for a while, or for good."""
    unknowing = Counter(
        row.leader for row in context.partitions if row.pending_reason == PendingReason.LEADER_DOES_NOT_KNOW
    )
    failed_ms = round(context.thresholds.metadata_failed_s * 1000)
    for broker_id, partitions in sorted(unknowing.items()):
        rates = f"It does not know yet what is in the remote tier for {count(partitions, 'partition')}"
        about: dict[str, Any] = {
            "object": f"broker {broker_id}",
            "facts": {"partitions": partitions},
            "broker_id": broker_id,
        }
        yield Candidate(
            slug="metadata-loading",
            severity=NOTICE,
            sentence=f"Broker {broker_id} reads the remote log's metadata",
            why=f"{rates}; until then it copies nothing and answers -1 for the latest tiered offset.",
            action="Wait: the first look at the remote tier comes within one task interval (30 s).",
            for_ms=LOADING_FOR_MS,
            **about,
        )
        yield Candidate(
            slug="metadata-failed",
            severity=CRITICAL,
            sentence=f"Broker {broker_id} does not get the remote log's metadata",
            why=f"For more than {in_time(failed_ms)}. {rates}; it copies nothing.",
            action=f"Look at its log for errors of {METADATA_TOPIC}; when the topic is in order, restart the broker.",
            for_ms=failed_ms,
            replaces="metadata-loading",
            **about,
        )
