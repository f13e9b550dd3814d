"""Gauges of the metadata quorum and its snapshots under Kafka's MBean names, and the names that KIP-630 gave them."""

from __future__ import annotations

from backend.engine.controller.commands.cluster_bootstrap import METADATA_VERSION
from backend.engine.controller.metadata.node_metadata import NodeMetadata
from backend.engine.metrics import BrokerMetrics
from backend.engine.metrics.broker_metrics import MetricValue
from backend.engine.ports import Clock
from backend.engine.raft.raft_node import RaftNode


def add_quorum_gauges(metrics: BrokerMetrics, metadata: NodeMetadata, clock: Clock) -> None:
    """kafka.server:type=raft-metrics, SnapshotEmitter and MetadataLoader, kafka.controller:type=KafkaController's of
    KIP-630, and ebbline_quorum_*, of any node.
    """
    raft, log, snapshotter, committed = metadata.raft, metadata.log, metadata.snapshotter, metadata.committed
    prefix = "kafka_server_raft_metrics"
    for name, doc, read in (
        ("current_leader", "Leader of the metadata quorum, -1 when unknown", lambda: raft.leader_id),
        ("current_vote", "Whom this node has voted for in its epoch, -1 for nobody", lambda: raft.state.voted_id),
        ("current_epoch", "Epoch of the metadata quorum as this node knows it", lambda: raft.epoch),
        ("high_watermark", "Offset up to which the metadata log is committed", lambda: log.high_watermark),
        ("log_end_offset", "End of this node's metadata log", lambda: log.end_offset),
        ("log_end_epoch", "Epoch of the last record of this node's metadata log", lambda: log.last_epoch),
        ("number_of_voters", "Voters of the metadata quorum", lambda: len(raft.voters)),
    ):
        metrics.add_gauge(f"{prefix}_{name}", doc, lambda read=read: float(read()))  # type: ignore[misc]  # the loop variable as it is now
    metrics.add_counter("ebbline_quorum_elections_won", "Elections that this node won", lambda: float(raft.elections))
    metrics.add_gauge("ebbline_quorum_lag_records", "Records that a voter lacks, on the leader", lambda: _lag(raft))

    def age_ms() -> float:
        latest = snapshotter.latest_generated_ms
        return -1.0 if latest is None else float(max(0, clock.time_ms() - latest))

    def size_bytes() -> float:
        return float(snapshotter.latest_generated_bytes)

    emitter = "kafka_server_snapshotemitter"
    metrics.add_gauge(f"{emitter}_latestsnapshotgeneratedbytes", "Size of the last snapshot written", size_bytes)
    metrics.add_gauge(f"{emitter}_latestsnapshotgeneratedagems", "Age of the last snapshot written, -1: none", age_ms)
    loader = "kafka_server_metadataloader"
    metrics.add_gauge(
        f"{loader}_handleloadsnapshotcount", "Snapshots loaded", lambda: float(committed.snapshots_loaded)
    )
    metrics.add_gauge(
        f"{loader}_currentmetadataversion",
        "Level of metadata.version",
        lambda: float(committed.image.features.get(METADATA_VERSION, 0)),
    )
    controller_prefix = "kafka_controller_kafkacontroller"
    metrics.add_gauge(
        f"{controller_prefix}_gensnapshotlatencyms",
        "How long the last snapshot took to write (KIP-630)",
        lambda: snapshotter.generation_latency_ms,
    )
    metrics.add_gauge(
        f"{controller_prefix}_loadsnapshotlatencyms",
        "How long the last snapshot took to load (KIP-630)",
        lambda: committed.load_latency_ms,
    )
    metrics.add_gauge(
        f"{controller_prefix}_snapshotsizebytes", "Size of the last snapshot written (KIP-630)", size_bytes
    )


def _lag(raft: RaftNode) -> MetricValue:
    state, end = raft.state, raft.log.end_offset
    if not state.is_leader:
        return []
    # A voter that this leader has not heard from yet has no lag: after an election that would be the whole log.
    return [
        ({"voter": str(voter)}, float(end - progress.end_offset))
        for voter, progress in sorted(state.progress.items())
        if progress.end_offset >= 0
    ]
