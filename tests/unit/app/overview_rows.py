"""Rows behind the Overview, with every field a test does not speak of at an ordinary value."""

from __future__ import annotations

from typing import Any

from app.components.cluster.overview_facts import OverviewFacts
from app.state import ClusterView
from backend.store.queries.config import TopicRow
from backend.store.queries.health import ClusterRow, ProcessHealth, SourceAges
from backend.store.queries.overview import BrokerRow, ClusterSample, LedgerTotals
from backend.store.queries.partitions import PartitionRow, ReplicaRow, SegmentRow
from backend.tiering.segment_state import SegmentState

NOW_MS = 1_800_000_000_000  # 2027-01-15 08:00:00 UTC


def cluster(**more: Any) -> ClusterRow:
    row: dict[str, Any] = {
        "cluster_id": "c1",
        "name": "prod",
        "kind": "embedded",
        "bootstrap_servers": "127.0.0.1:9092",
        "controller_id": 1,
        "features": None,
        "first_seen_ms": 0,
        "seen_ms": NOW_MS,
        "sample_interval_ms": 2_000,
    }
    return ClusterRow(**{**row, **more})


def process(name: str, **more: Any) -> ProcessHealth:
    row: dict[str, Any] = {
        "process": name,
        "pid": 1,
        "started_ms": 0,
        "updated_ms": NOW_MS - more.get("age_ms", 1_000),
        "interval_ms": 2_000,
        "state": "running",
        "message": None,
        "detail": None,
        "data_version": 1,
        "age_ms": 1_000,
    }
    return ProcessHealth(**{**row, **more})


def view(*processes: ProcessHealth, age_ms: int | None = 1_000, **more: Any) -> ClusterView:
    healths = processes or tuple(process(name) for name in ("backend", "observer", "pipeline"))
    row: dict[str, Any] = {
        "cluster": cluster(),
        "own": True,
        "clusters": [cluster()],
        "processes": {process_health.process: process_health for process_health in healths},
        "ages": SourceAges(age_ms, age_ms, age_ms, age_ms),
        "version": 1,
        "now_ms": NOW_MS,
        "read_ms": NOW_MS,
    }
    return ClusterView(**{**row, **more})


def broker(broker_id: int = 1, **more: Any) -> BrokerRow:
    row: dict[str, Any] = {
        "broker_id": broker_id,
        "host": "127.0.0.1",
        "port": 9092,
        "rack": None,
        "epoch": 1,
        "fenced": False,
        "reachable": True,
        "error": None,
        "log_dirs": [disk(0.4)],
        "seen_ms": NOW_MS,
        "sampled_ms": NOW_MS,
    }
    return BrokerRow(**{**row, **more})


def disk(used: float, **more: Any) -> dict[str, Any]:
    """A log directory on a disk of 1000 bytes."""
    return {"path": "/data", "total_bytes": 1000, "usable_bytes": round(1000 * (1 - used)), "error": None, **more}


def partition(topic: str = "orders", index: int = 0, **more: Any) -> PartitionRow:
    """Offsets [0, 1000): [0, 800) remote, [500, 1000) local of 1 byte each, [800, 1000) pending."""
    row: dict[str, Any] = dict.fromkeys(PartitionRow.__slots__)
    row |= {
        "topic": topic,
        "partition": index,
        "topic_id": f"id-{topic}",
        "leader": 1,
        "leader_epoch": 3,
        "replicas": [1, 2, 3],
        "isr": [1, 2, 3],
        "tiered": True,
        "log_start_offset": 0,
        "local_log_start_offset": 500,
        "latest_tiered_offset": 799,
        "earliest_pending_upload_offset": 800,
        "high_watermark": 1000,
        "log_end_offset": 1000,
        "local_log_bytes": 500,
        "remote_log_bytes": 800,
        "changed_ms": NOW_MS,
        "sampled_ms": NOW_MS,
    }
    return PartitionRow(**{**row, **more})


def replica(topic: str = "orders", index: int = 0, broker_id: int = 2, **more: Any) -> ReplicaRow:
    row: dict[str, Any] = dict.fromkeys(ReplicaRow.__slots__)
    row |= {
        "topic": topic,
        "partition": index,
        "broker_id": broker_id,
        "role": "follower",
        "in_isr": False,
        "phase": "FETCHING",
        "phase_since_ms": NOW_MS - 5_000,
        "changed_ms": NOW_MS,
        "sampled_ms": NOW_MS,
    }
    return ReplicaRow(**{**row, **more})


def segment(topic: str = "orders", index: int = 0, *, age_ms: int = 10_000, **more: Any) -> SegmentRow:
    """A copy by broker 1 that began ``age_ms`` ago and is open."""
    row: dict[str, Any] = dict.fromkeys(SegmentRow.__slots__)
    row |= {
        "topic": topic,
        "partition": index,
        "topic_id": f"id-{topic}",
        "segment_id": "s1",
        "start_offset": 800,
        "next_offset": 900,
        "state": SegmentState.COPY_SEGMENT_STARTED,
        "segment_size_bytes": 100,
        "max_timestamp_ms": NOW_MS,
        "leader_epochs": [[3, 800]],
        "copy_broker_id": 1,
        "broker_id": 1,
        "copy_started_ms": NOW_MS - age_ms,
        "last_event_ms": NOW_MS - age_ms,
    }
    return SegmentRow(**{**row, **more})


def topic(name: str = "orders", *, replication: int = 3, **config: str) -> TopicRow:
    """A topic; settings by their name with underscores."""
    settings: dict[str, str | None] = {key.replace("_", "."): value for key, value in config.items()}
    return TopicRow(name, f"id-{name}", 1, replication, False, True, settings, NOW_MS)


def ledger(**more: Any) -> LedgerTotals:
    row: dict[str, Any] = dict.fromkeys(LedgerTotals.__slots__, 0)
    return LedgerTotals(**{**row, "oldest_open_copy_ms": None, "oldest_open_delete_ms": None, **more})


def sample(at_ms: int, **more: Any) -> ClusterSample:
    row: dict[str, Any] = dict.fromkeys(ClusterSample.__slots__, 0)
    return ClusterSample(**{**row, "sampled_ms": at_ms, "oldest_open_copy_ms": None, **more})


def facts(**more: Any) -> OverviewFacts:
    """A healthy cluster of three brokers."""
    row: dict[str, Any] = {
        "now_ms": NOW_MS,
        "ledger_ms": NOW_MS,
        "blindness": [],
        "brokers": [broker(1), broker(2), broker(3)],
        "partitions": [partition()],
        "replicas_behind": {},
        "open_segments": [],
        "p99_ms": {},
        "topics": [topic()],
        "ledger": ledger(),
    }
    return OverviewFacts(**{**row, **more})
