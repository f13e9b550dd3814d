"""Rows as the queries return them, with everything in order unless a test says otherwise."""

from __future__ import annotations

from typing import Any

from backend.store.queries.config import TopicRow
from backend.store.queries.partitions import PartitionPoint, PartitionRow, ReplicaRow, SegmentRow
from backend.tiering.segment_state import SegmentState

NOW_MS = 1_800_000_000_000


def partition_row(**changed: Any) -> PartitionRow:
    """1000 offsets from 0: tiered to 700, local from 500; 10 bytes a record."""
    values: dict[str, Any] = {
        "topic": "orders",
        "partition": 7,
        "topic_id": "t",
        "leader": 1,
        "leader_epoch": 5,
        "replicas": [1, 2, 3],
        "isr": [1, 2, 3],
        "tiered": True,
        "log_start_offset": 0,
        "local_log_start_offset": 500,
        "latest_tiered_offset": 699,
        "earliest_pending_upload_offset": 700,
        "high_watermark": 990,
        "log_end_offset": 1000,
        "local_log_bytes": 5000,
        "remote_log_bytes": 7000,
        "adding_replicas": [],
        "removing_replicas": [],
        "pending_reason": None,
        "error": None,
        "changed_ms": NOW_MS,
        "sampled_ms": NOW_MS,
        "ledger_segments": 7,
        "ledger_bytes": 7000,
        "ledger_open_copies": 0,
    }
    return PartitionRow(**(values | changed))


def replica_row(broker_id: int = 1, **changed: Any) -> ReplicaRow:
    """The leader of :func:`partition_row` unless ``role`` says otherwise."""
    values: dict[str, Any] = {
        "topic": "orders",
        "partition": 7,
        "broker_id": broker_id,
        "role": "leader" if broker_id == 1 else "follower",
        "in_isr": True,
        "log_start_offset": 0,
        "local_log_start_offset": 500,
        "latest_tiered_offset": 699,
        "log_end_offset": 1000,
        "local_log_bytes": 5000,
        "phase": "IN_SYNC",
        "phase_since_ms": NOW_MS - 60_000,
        "phase_source": "exact",
        "leader_epochs": [[3, 0], [5, 400]],
        "log_dir": "/data",
        "evidence": None,
        "error": None,
        "changed_ms": NOW_MS,
        "sampled_ms": NOW_MS,
    }
    return ReplicaRow(**(values | changed))


def segment_row(start: int, following: int, **changed: Any) -> SegmentRow:
    """A finished segment ``[start, following)`` of epoch 3 below 400, of 5 from there on."""
    epochs = [[3, start]] if following <= 400 else ([[5, start]] if start >= 400 else [[3, start], [5, 400]])
    values: dict[str, Any] = {
        "topic": "orders",
        "partition": 7,
        "topic_id": "t",
        "segment_id": f"s{start}",
        "start_offset": start,
        "next_offset": following,
        "state": SegmentState.COPY_SEGMENT_FINISHED,
        "segment_size_bytes": 10 * (following - start),
        "max_timestamp_ms": NOW_MS - (1000 - following) * 1000,
        "leader_epochs": epochs,
        "copy_broker_id": 1,
        "broker_id": 1,
        "copy_started_ms": NOW_MS - 50_000,
        "copy_finished_ms": NOW_MS - 48_000,
        "delete_started_ms": None,
        "delete_finished_ms": None,
        "last_event_ms": NOW_MS - 48_000,
    }
    return SegmentRow(**(values | changed))


def point(age_ms: int, log_end: int | None, **changed: Any) -> PartitionPoint:
    """Offsets some time ago, tiered to 700."""
    values: dict[str, Any] = {
        "sampled_ms": NOW_MS - age_ms,
        "leader": 1,
        "leader_epoch": 5,
        "log_start_offset": 0,
        "local_log_start_offset": 500,
        "latest_tiered_offset": 699,
        "earliest_pending_upload_offset": 700,
        "high_watermark": log_end,
        "log_end_offset": log_end,
    }
    return PartitionPoint(**(values | changed))


def topic_row(**config: str) -> TopicRow:
    """A tiered topic with a local retention of 2000 bytes and these settings."""
    settings: dict[str, str | None] = {"local.retention.bytes": "2000", "retention.bytes": "-1", **config}
    return TopicRow("orders", "t", 8, 3, False, True, settings, NOW_MS)
