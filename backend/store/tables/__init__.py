"""The schema, as SQLAlchemy Core tables: what every writer and reader of the database agrees on.

Rules that hold for every table:

* keyed by ``cluster_id`` (Kafka's cluster id), so one database can hold many clusters;
* times are epoch milliseconds (``*_ms``, ``BigInteger``), durations and sizes name their unit;
* offsets are ``BigInteger``. NULL means "not known" (the page shows "?"), never 0; -1 is kept
  where Kafka answered -1. ``end_offset`` of a segment is Kafka's: **inclusive**;
* topic and segment ids are Kafka's URL-safe base64 text (22 characters);
* segment states are ``backend.tiering.segment_state.SegmentState`` (0..3).

A change here needs a migration in ``migrations/versions``; a test compares the two.
"""

from __future__ import annotations

from backend.store.tables.control import (
    api_token,
    audit,
    finding,
    maintenance_window,
    operation,
)
from backend.store.tables.observer import (
    broker,
    cluster,
    cluster_sample,
    config_value,
    engine_event,
    partition_current,
    partition_sample,
    process_status,
    replica_current,
    replica_sample,
    topic,
)
from backend.store.tables.pipeline import (
    EVENTS_BY_PARTITION,
    FAILED_COPY,
    OPEN_SEGMENT,
    pipeline_batch,
    quarantine,
    remote_partition,
    segment,
    segment_event,
    segment_interval,
    source_offsets,
    source_topic,
    staged_record,
)
from backend.store.tables.shared import metadata

__all__ = [
    "EVENTS_BY_PARTITION",
    "FAILED_COPY",
    "OPEN_SEGMENT",
    "api_token",
    "audit",
    "broker",
    "cluster",
    "cluster_sample",
    "config_value",
    "engine_event",
    "finding",
    "maintenance_window",
    "metadata",
    "operation",
    "partition_current",
    "partition_sample",
    "pipeline_batch",
    "process_status",
    "quarantine",
    "remote_partition",
    "replica_current",
    "replica_sample",
    "segment",
    "segment_event",
    "segment_interval",
    "source_offsets",
    "source_topic",
    "staged_record",
    "topic",
]
