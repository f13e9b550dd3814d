"""The lost disks that a partition or a topic survives, as a note. Pure: rows and the backend's heartbeat → HTML."""

from __future__ import annotations

from collections.abc import Mapping

from app.components import markup
from app.state import View
from backend.store.queries.config import TopicRow
from backend.store.queries.partitions import PartitionRow
from backend.tiering.durability import copies_of, durability


def of_partition(view: View, row: PartitionRow, topic: TopicRow | None) -> str:
    """With what its ISR of now means; `topic` None: its settings are not known."""
    copies = copies_of(
        None if topic is None else topic.config,
        levels(view),
        replicas=len(row.replicas),
        embedded=view.cluster.kind == "embedded",
        tiered=row.tiered,
        isr=row.isr,
        leader=row.leader,
    )
    return _html(durability(copies).sentences)


def of_topic(view: View, topic: TopicRow) -> str:
    """The promise of its settings; the present ISRs are left out."""
    copies = copies_of(
        topic.config,
        levels(view),
        replicas=topic.replication_factor,
        embedded=view.cluster.kind == "embedded",
        tiered=topic.tiered,
    )
    return _html(durability(copies).sentences)


def levels(view: View) -> Mapping[str, int] | None:
    """The cluster's feature levels by name, as the backend tells them with the quorum; None: it has not."""
    backend = view.processes.get("backend")
    quorum = ((backend.detail if backend else None) or {}).get("quorum") or {}
    features = quorum.get("features")
    return {name: one["level"] for name, one in features.items()} if features else None


def _html(sentences: tuple[str, ...]) -> str:
    inner = "".join(f"<div>{markup.text(sentence)}</div>" for sentence in sentences)
    return f'<div class="eb-lines eb-durability">{inner}</div>'
