"""Possible leaders of a partition, and the lost disks that it survives. Pure: from rows and
the backend's heartbeat.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from app.components.shared import markup
from app.state import ClusterView
from backend.store.queries.config import TopicRow
from backend.store.queries.partitions import PartitionRow
from backend.tiering.durability import ELIGIBLE_LEADER_REPLICAS, NO_LEADER, copies_of, durability
from backend.tiering.eligible_leaders import below_min_isr, eligible_leaders, next_leader
from backend.tiering.ids import TopicPartition


def of_partition(view: ClusterView, row: PartitionRow, topic: TopicRow | None) -> str:
    """With what its ISR of now means; `topic` None: its settings are not known."""
    copies = copies_of(
        None if topic is None else topic.config,
        feature_levels_of(view),
        replicas=len(row.replicas),
        embedded=view.cluster.kind == "embedded",
        tiered=row.tiered,
        isr=row.isr,
        leader=row.leader,
    )
    return _html(durability(copies).sentences)


def leaders_of(view: ClusterView, row: PartitionRow, topic: TopicRow | None) -> str:
    """Its ISR, its eligible leader replicas and the last known ones (KIP-966), and who leads after a loss."""
    backend = view.processes.get("backend")
    config = None if topic is None else topic.config
    feature_levels = feature_levels_of(view)
    candidates = eligible_leaders(
        ((backend.detail if backend else None) or {}).get("eligible"),
        TopicPartition(row.topic, row.partition),
        kept=row.leader == NO_LEADER or below_min_isr(config, row.replicas, row.isr),
        elr_level=None if feature_levels is None else feature_levels.get(ELIGIBLE_LEADER_REPLICAS, 0),
    )
    pills = (
        ("In-sync replicas (ISR)", row.isr),
        ("Eligible leader replicas (ELR)", candidates.eligible_leader_replicas),
        ("Last known ELR", candidates.last_known_elr),
    )
    labels = "".join(markup.pill(f"{name} {_listed(brokers)}") for name, brokers in pills)
    lines = [next_leader(row.isr, row.leader, candidates)]
    if candidates.cause:
        lines.insert(
            0, candidates.cause if candidates.eligible_leader_replicas is not None else f"? {candidates.cause}"
        )
    return f'<div class="eb-pills">{labels}</div>' + _html(tuple(lines))


def _listed(brokers: Collection[int] | None) -> str:
    return "?" if brokers is None else ", ".join(map(str, sorted(brokers))) or "none"


def of_topic(view: ClusterView, topic: TopicRow) -> str:
    """The promise of its settings; the present ISRs are left out."""
    copies = copies_of(
        topic.config,
        feature_levels_of(view),
        replicas=topic.replication_factor,
        embedded=view.cluster.kind == "embedded",
        tiered=topic.tiered,
    )
    return _html(durability(copies).sentences)


def feature_levels_of(view: ClusterView) -> Mapping[str, int] | None:
    """The cluster's feature levels by name, as the backend reports them with the quorum; None: it has not."""
    backend = view.processes.get("backend")
    quorum = ((backend.detail if backend else None) or {}).get("quorum") or {}
    features = quorum.get("features")
    return {name: feature["level"] for name, feature in features.items()} if features else None


def _html(sentences: tuple[str, ...]) -> str:
    inner = "".join(f"<div>{markup.text(sentence)}</div>" for sentence in sentences)
    return f'<div class="eb-lines eb-durability">{inner}</div>'
