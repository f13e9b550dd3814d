"""Contexts for rules, with every fact that a test does not set at an ordinary value: nothing needs attention."""

from __future__ import annotations

from typing import Any

from backend.control.findings.finding_context import Candidate, FindingContext
from backend.store.queries.config import TopicRow
from backend.store.queries.copy_attempts import FailedAttempt, FinishedCopy
from backend.store.queries.findings import Finding, StoredCopyEvent
from backend.store.queries.lineage import FinishedSegment
from backend.store.queries.overview import BrokerRow
from backend.store.queries.partitions import SegmentRow
from backend.store.writes.samples import PartitionSample, ReplicaSample
from backend.tiering.segment_state import SegmentState

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000
GIB = 1 << 30


def broker(broker_id: int = 1, **more: Any) -> BrokerRow:
    row: dict[str, Any] = {
        "broker_id": broker_id,
        "host": "127.0.0.1",
        "port": 9092,
        "rack": None,
        "epoch": None,
        "fenced": False,
        "reachable": True,
        "error": None,
        "log_dirs": [disk()],
        "seen_ms": NOW_MS,
        "sampled_ms": NOW_MS,
    }
    return BrokerRow(**row | more)


def disk(used: float = 0.4, **more: Any) -> dict[str, Any]:
    """A log directory on a disk of 1000 bytes."""
    return {"path": "/data", "total_bytes": 1000, "usable_bytes": round(1000 * (1 - used)), "error": None, **more}


def topic(name: str = "orders", *, replication_factor: int = 3, **config: str) -> TopicRow:
    """Settings as keywords with underscores."""
    values: dict[str, str | None] = {
        "local.retention.bytes": "1000",
        "retention.bytes": "-1",
        "retention.ms": "-1",
        "segment.bytes": "100",
        "cleanup.policy": "delete",
        "remote.log.copy.disable": "false",
    }
    values |= {key.replace("_", "."): value for key, value in config.items()}
    return TopicRow(name, f"id-{name}", 1, replication_factor, False, True, values, NOW_MS)


def partition(name: str = "orders", index: int = 0, **more: Any) -> PartitionSample:
    """Offsets [0, 1000): [0, 800) remote, [500, 1000) local of 1 byte each, [800, 1000) pending; broker 1 leads."""
    row: dict[str, Any] = {
        "topic": name,
        "partition": index,
        "topic_id": f"id-{name}",
        "leader": 1,
        "leader_epoch": 3,
        "replicas": (1, 2, 3),
        "isr": (1, 2, 3),
        "tiered": True,
        "log_start_offset": 0,
        "local_log_start_offset": 500,
        "latest_tiered_offset": 799,
        "earliest_pending_upload_offset": 800,
        "high_watermark": 1000,
        "log_end_offset": 1000,
        "local_log_bytes": 500,
        "remote_log_bytes": 800,
    }
    return PartitionSample(**row | more)


def replica(broker_id: int = 2, name: str = "orders", index: int = 0, **more: Any) -> ReplicaSample:
    row: dict[str, Any] = {
        "topic": name,
        "partition": index,
        "broker_id": broker_id,
        "role": "leader" if broker_id == 1 else "follower",
        "in_isr": True,
        "log_start_offset": 0,
        "local_log_start_offset": 500,
        "latest_tiered_offset": 799,
        "log_end_offset": 1000,
        "local_log_bytes": 500,
        "leader_epochs": ((0, 0), (2, 400)),
        "phase": "IN_SYNC",
        "phase_since_ms": NOW_MS - MINUTE_MS,
        "phase_source": "exact",
        "evidence": {},
    }
    return ReplicaSample(**row | more)


def segment(*, age_ms: int = 0, **more: Any) -> SegmentRow:
    """An open copy by broker 1 of [800, 900)."""
    row: dict[str, Any] = {
        "topic": "orders",
        "partition": 0,
        "topic_id": "id-orders",
        "segment_id": "open",
        "start_offset": 800,
        "next_offset": 900,
        "state": SegmentState.COPY_SEGMENT_STARTED,
        "segment_size_bytes": 100,
        "max_timestamp_ms": NOW_MS,
        "leader_epochs": [[2, 800]],
        "copy_broker_id": 1,
        "broker_id": 1,
        "copy_started_ms": NOW_MS - age_ms,
        "copy_finished_ms": None,
        "delete_started_ms": None,
        "delete_finished_ms": None,
        "last_event_ms": NOW_MS - age_ms,
    }
    return SegmentRow(**row | more)


def finished(segment_id: str, start: int, end: int, epochs: list[list[int]], **more: Any) -> FinishedSegment:
    row: dict[str, Any] = {"segment_size_bytes": 100, "copy_finished_ms": NOW_MS - MINUTE_MS}
    return FinishedSegment("orders", 0, segment_id, start, end, epochs, **row | more)


def copy_event(outcome: str, *, age_ms: int = 0, broker_id: int = 1, error: str | None = None) -> StoredCopyEvent:
    return StoredCopyEvent("orders", 0, broker_id, NOW_MS - age_ms, outcome, error)


def attempt(age_ms: int = 0, *, broker_id: int = 1, index: int = 0, **more: Any) -> FailedAttempt:
    """A copy of [800, 900) that failed, by the ledger."""
    row: dict[str, Any] = {"topic": "orders", "topic_id": "id-orders", "end_offset": 899}
    return FailedAttempt(**row | {"partition": index, "broker_id": broker_id, "at_ms": NOW_MS - age_ms} | more)


def finished_copy(age_ms: int = 0, *, broker_id: int = 1, index: int = 0, **more: Any) -> FinishedCopy:
    row: dict[str, Any] = {"topic": "orders", "topic_id": "id-orders"}
    return FinishedCopy(**row | {"partition": index, "broker_id": broker_id, "at_ms": NOW_MS - age_ms} | more)


def context(**more: Any) -> FindingContext:
    """Three brokers, one healthy tiered partition."""
    row: dict[str, Any] = {
        "at_ms": NOW_MS,
        "brokers": [broker(1), broker(2), broker(3)],
        "topics": {"orders": topic(), "__remote_log_metadata": topic("__remote_log_metadata")},
        "partitions": [partition()],
        "replicas": [replica(1), replica(2), replica(3)],
        "ledger_ms": NOW_MS,
        "finished": [],
    }
    return FindingContext(**row | more)


def stored(candidate: Candidate, finding_id: int = 1, **more: Any) -> Finding:
    """The finding that a candidate became a minute ago."""
    row: dict[str, Any] = {
        "id": finding_id,
        "evidence": candidate.evidence,
        "opened_ms": NOW_MS - MINUTE_MS,
        "seen_ms": NOW_MS,
        "closed_ms": None,
        "acknowledged_ms": None,
        "acknowledged_by": None,
        "muted_until_ms": None,
        "cause_slug": None if candidate.cause is None else candidate.cause[0],
        "cause_object": None if candidate.cause is None else candidate.cause[1],
    }
    names = ("slug", "object", "topic", "partition", "broker_id", "severity", "sentence", "action")
    return Finding(**{name: getattr(candidate, name) for name in names} | row | more)
