"""Rules about the metadata quorum and the remote log's metadata topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from backend.control.findings.finding_context import (
    CRITICAL,
    NOTICE,
    WARNING,
    Candidate,
    FindingContext,
    count,
    setting,
)
from backend.control.formatting import in_time
from backend.tiering.durability import ELIGIBLE_LEADER_REPLICAS
from backend.tiering.pending import PendingReason

METADATA_TOPIC: Final = "__remote_log_metadata"
METADATA_REPLICATION: Final = 3
# A leader looks at the remote tier within a task interval (30 s); ten of them are not a start any more.
# A first start makes the topic within seconds, but has copied nothing then.
METADATA_GONE_MS: Final = 5_000
METADATA_FAILED_MS: Final = 300_000
# A voter with a new disk fetches a snapshot of 100,000 partitions and counts again within seconds.
CATCHING_UP_FOR_MS: Final = 10_000


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


def voters_catching_up(context: FindingContext) -> Iterable[Candidate]:
    """A voter of the metadata quorum that lost its copy and does not count yet: the others are all there is."""
    voters = [replica for replica in context.quorum_replicas if replica.role == "voter"]
    counted = sum(replica.counted for replica in voters)
    majority = len(voters) // 2 + 1
    for voter in voters:
        if voter.counted:
            continue
        name = f"broker {voter.node_id}"
        last = "" if counted > majority else " If one more is lost, there is no majority, and no metadata can change."
        yield Candidate(
            slug="voter-catching-up",
            object=name,
            severity=WARNING if counted > majority else CRITICAL,
            sentence=f"Voter {voter.node_id} of the metadata quorum does not count yet",
            why=f"It has lost its copy of the metadata, or got an older one. {counted} of {len(voters)} voters count,"
            f" {majority} must agree.{last}",
            action=f"Keep the other voters running and touch none of their folders until ebbline quorum describe shows"
            f" voter {voter.node_id} as caught up; if it does not move, look at its log.",
            facts={"voters": len(voters), "counted": counted, "log_end_offset": voter.log_end_offset},
            broker_id=voter.node_id,
            for_ms=CATCHING_UP_FOR_MS,
        )


def metadata_unsafe(context: FindingContext) -> Iterable[Candidate]:
    """The remote tier's map must outlive a broker: replication, in-sync replicas, unlimited retention (KIP-405)."""
    topic = context.topic(METADATA_TOPIC)
    if topic is None:
        yield from _metadata_gone(context)
        return
    required = min(METADATA_REPLICATION, len(context.brokers))
    reasons = []
    if topic.replication_factor < required:
        reasons.append(f"{topic.replication_factor} of {required} replicas")
    own = [row for row in context.partitions if row.topic == METADATA_TOPIC]
    behind = sum(len(row.isr) < len(row.replicas) for row in own)
    if behind:
        reasons.append(f"{count(behind, 'partition')} under-replicated")
    for name in ("retention.ms", "retention.bytes"):
        limit = setting(topic, name)
        if limit is not None and limit >= 0 and "delete" in ((topic.config or {}).get("cleanup.policy") or "delete"):
            reasons.append(f"{name} is {limit}, so events are removed while their segments live")
    if reasons:
        lasting = topic.replication_factor >= required and len(reasons) == (1 if behind else 0)
        yield Candidate(
            slug="metadata-unsafe",
            object=METADATA_TOPIC,
            severity=CRITICAL,
            sentence="Remote log metadata is not safe",
            why=f"{'; '.join(reasons)}: losing it loses the remote tier's map.",
            action="Bring all its replicas in sync; give it 3 replicas and unlimited retention.",
            facts={"replication_factor": topic.replication_factor, "under_replicated": behind},
            topic=METADATA_TOPIC,
            for_ms=5_000 if lasting else 0,
        )


def _metadata_gone(context: FindingContext) -> Iterable[Candidate]:
    """The topic was deleted: running brokers have its records in memory, a restarted one does not.

    Apache Kafka lets a client delete it, and creates it again, empty, at a broker's next start. An attached cluster
    may keep this metadata elsewhere.
    """
    lost = sum((row.latest_tiered_offset or -1) >= 0 for row in context.tiered)
    if not context.topics or not lost or context.kafka_rules:
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
        for_ms=METADATA_GONE_MS,
    )


def metadata_loading(context: FindingContext) -> Iterable[Candidate]:
    """Leaders that do not know what is in the remote tier: after a start for a while, or for good."""
    unknowing = Counter(
        row.leader for row in context.partitions if row.pending_reason == PendingReason.LEADER_DOES_NOT_KNOW
    )
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
            **about,
        )
        yield Candidate(
            slug="metadata-failed",
            severity=CRITICAL,
            sentence=f"Broker {broker_id} does not get the remote log's metadata",
            why=f"For more than {in_time(METADATA_FAILED_MS)}. {rates}; it copies nothing.",
            action=f"Look at its log for errors of {METADATA_TOPIC}; when the topic is in order, restart the broker.",
            for_ms=METADATA_FAILED_MS,
            replaces="metadata-loading",
            **about,
        )
