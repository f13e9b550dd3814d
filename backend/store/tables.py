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

from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeEngine

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


# Copies and deletions that have begun and not ended. As text, also in queries: SQLite uses the
# partial index only for a condition it can read at planning time, not for a bound value.
OPEN_SEGMENT = text("state IN (0, 2)")


def _json() -> TypeEngine[Any]:
    """JSON text on SQLite, jsonb on PostgreSQL; Python ``None`` is SQL NULL."""
    return JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def _row_id() -> Column[int]:
    """A number that only grows. SQLite numbers only INTEGER PRIMARY KEY columns by itself."""
    kind = BigInteger().with_variant(Integer(), "sqlite")
    return Column("id", kind, primary_key=True, autoincrement=True)


def _cluster_key() -> Column[str]:
    return Column("cluster_id", String, primary_key=True)


def _partition_key() -> Iterator[Column[str] | Column[int]]:
    yield _cluster_key()
    yield Column("topic", String, primary_key=True)
    yield Column("partition", Integer, primary_key=True)


# --- what the observer sees: the cluster and its parts ---------------------------------------

cluster = Table(
    "cluster",
    metadata,
    _cluster_key(),
    Column("name", String, nullable=False),
    Column("kind", String, nullable=False, comment="embedded | attached"),
    Column("bootstrap_servers", String, nullable=False),
    Column("controller_id", Integer),
    Column("features", _json(), comment="finalized feature levels, name to level"),
    Column("first_seen_ms", BigInteger, nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
    Column("sample_interval_ms", BigInteger, nullable=False, server_default=text("2000")),
)

broker = Table(
    "broker",
    metadata,
    _cluster_key(),
    Column("broker_id", Integer, primary_key=True),
    Column("host", String, nullable=False),
    Column("port", Integer, nullable=False),
    Column("rack", String),
    Column("epoch", BigInteger),
    Column("fenced", Boolean, nullable=False),
    Column("reachable", Boolean, nullable=False, comment="did it answer the last sample"),
    Column("error", String, comment="why it did not answer"),
    Column("log_dirs", _json(), comment="list of {path, total_bytes, usable_bytes, error}"),
    Column("seen_ms", BigInteger, nullable=False, comment="last time it answered"),
    Column("sampled_ms", BigInteger, nullable=False, comment="last time it was asked"),
)

process_status = Table(
    "process_status",
    metadata,
    _cluster_key(),
    Column("process", String, primary_key=True, comment="backend | observer | pipeline | app"),
    Column("pid", Integer),
    Column("started_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("interval_ms", BigInteger, nullable=False, comment="promised gap between heartbeats"),
    Column("state", String, nullable=False, comment="starting | running | waiting | failed | stopped"),
    Column("message", String, comment="one sentence for people"),
    Column("detail", _json()),
    Column(
        "data_version", BigInteger, nullable=False, server_default=text("0"), comment="grows with each write of data"
    ),
)

topic = Table(
    "topic",
    metadata,
    _cluster_key(),
    Column("topic", String, primary_key=True),
    Column("topic_id", String, nullable=False),
    Column("partition_count", Integer, nullable=False),
    Column("replication_factor", Integer, nullable=False),
    Column("internal", Boolean, nullable=False),
    Column("tiered", Boolean, nullable=False, comment="remote.storage.enable"),
    Column("config", _json(), comment="effective values, name to value"),
    Column("sampled_ms", BigInteger, nullable=False),
)


def _partition_facts() -> Iterator[Column[object]]:
    """Columns that a partition's latest row and its history share."""
    yield Column("topic_id", String, nullable=False)
    yield Column("leader", Integer, nullable=False, comment="-1: none")
    yield Column("leader_epoch", Integer, nullable=False)
    yield Column("replicas", _json(), nullable=False)
    yield Column("isr", _json(), nullable=False)
    yield Column("log_start_offset", BigInteger, comment="ListOffsets -2")
    yield Column("local_log_start_offset", BigInteger, comment="ListOffsets -4")
    yield Column("latest_tiered_offset", BigInteger, comment="ListOffsets -5, inclusive; -1: none")
    yield Column("earliest_pending_upload_offset", BigInteger, comment="ListOffsets -6; -1 as answered")
    yield Column("high_watermark", BigInteger, comment="ListOffsets -1 by a consumer")
    yield Column("log_end_offset", BigInteger, comment="ListOffsets -1 with replica id -2")
    yield Column("local_log_bytes", BigInteger, comment="the leader's log dir size")
    yield Column("remote_log_bytes", BigInteger, comment="as known to the observer; the ledger is exact")


partition_current = Table(
    "partition_current",
    metadata,
    *_partition_key(),
    *_partition_facts(),
    Column("tiered", Boolean, nullable=False),
    Column("adding_replicas", _json()),
    Column("removing_replicas", _json()),
    Column(
        "pending_reason",
        String,
        comment="what a -1 of ListOffsets -6 means: not_tiered | leader_does_not_know | all_copied | changing",
    ),
    Column("error", String, comment="why offsets are not known"),
    Column("changed_ms", BigInteger, nullable=False, comment="last time a fact changed"),
    Column("sampled_ms", BigInteger, nullable=False),
)

partition_sample = Table(
    "partition_sample",
    metadata,
    *_partition_key(),
    Column("sampled_ms", BigInteger, primary_key=True),
    *_partition_facts(),
    Index(None, "cluster_id", "sampled_ms"),
)


def _replica_facts() -> Iterator[Column[object]]:
    """Columns that a replica's latest row and its history share."""
    yield Column("role", String, nullable=False, comment="leader | follower")
    yield Column("in_isr", Boolean, nullable=False)
    yield Column("log_start_offset", BigInteger)
    yield Column("local_log_start_offset", BigInteger)
    yield Column("latest_tiered_offset", BigInteger)
    yield Column("log_end_offset", BigInteger)
    yield Column("local_log_bytes", BigInteger)
    yield Column("phase", String, comment="backend.tiering.phases.FollowerPhase")
    yield Column("phase_since_ms", BigInteger)
    yield Column("phase_source", String, comment="exact | inferred")


replica_current = Table(
    "replica_current",
    metadata,
    *_partition_key(),
    Column("broker_id", Integer, primary_key=True),
    *_replica_facts(),
    Column("leader_epochs", _json(), comment="list of [epoch, start_offset]"),
    Column("log_dir", String),
    Column("evidence", _json(), comment="what the phase was concluded from"),
    Column("error", String),
    Column("changed_ms", BigInteger, nullable=False),
    Column("sampled_ms", BigInteger, nullable=False),
)

replica_sample = Table(
    "replica_sample",
    metadata,
    *_partition_key(),
    Column("broker_id", Integer, primary_key=True),
    Column("sampled_ms", BigInteger, primary_key=True),
    *_replica_facts(),
    Index(None, "cluster_id", "sampled_ms"),
)

cluster_sample = Table(
    "cluster_sample",
    metadata,
    _cluster_key(),
    Column("sampled_ms", BigInteger, primary_key=True),
    Column("partitions", Integer, nullable=False),
    Column("tiered_partitions", Integer, nullable=False),
    Column("offline_partitions", Integer, nullable=False),
    Column("replicas", Integer, nullable=False),
    Column("replicas_not_in_sync", Integer, nullable=False),
    Column("brokers", Integer, nullable=False),
    Column("brokers_reachable", Integer, nullable=False),
    Column("log_end_offset_sum", BigInteger, comment="of tiered partitions; its slope is the produce rate"),
    Column("tiered_offset_sum", BigInteger, comment="latest tiered + 1; its slope is the copy rate"),
    Column("pending_offsets", BigInteger, comment="records not uploaded, tiered partitions"),
    Column("pending_bytes", BigInteger, comment="estimate, from bytes per record"),
    Column("local_log_bytes", BigInteger, comment="all replicas"),
    Column("remote_log_bytes", BigInteger, comment="finished copies of the ledger"),
    Column("open_copies", Integer, comment="segments in COPY_SEGMENT_STARTED"),
    Column("oldest_open_copy_ms", BigInteger, comment="age"),
    Column("open_deletes", Integer, comment="segments in DELETE_SEGMENT_STARTED"),
    Column("oldest_open_delete_ms", BigInteger, comment="age"),
    Column("produced_bytes", BigInteger, comment="counter of tiered partitions, each by its own bytes per record"),
)

config_value = Table(
    "config_value",
    metadata,
    _cluster_key(),
    Column("resource_type", String, primary_key=True, comment="topic | broker"),
    Column(
        "resource", String, primary_key=True, comment="topic name or broker id; '' = the cluster default of brokers"
    ),
    Column("name", String, primary_key=True),
    Column("value", String),
    Column("source", String, nullable=False, comment="Kafka's ConfigSource, e.g. DYNAMIC_BROKER_CONFIG"),
    Column("is_sensitive", Boolean, nullable=False),
    Column("is_read_only", Boolean, nullable=False),
    Column("config_type", String, comment="Kafka's ConfigType, e.g. BOOLEAN"),
    Column("synonyms", _json(), comment="list of {name, value, source}, the winner first"),
    Column("sampled_ms", BigInteger, nullable=False),
    Index(None, "cluster_id", "name"),
)

# --- what the pipeline reads from __remote_log_metadata --------------------------------------

segment_event = Table(
    "segment_event",
    metadata,
    _cluster_key(),
    Column("metadata_partition", Integer, primary_key=True),
    Column("metadata_offset", BigInteger, primary_key=True),
    Column(
        "kind", SmallInteger, nullable=False, comment="the record's apiKey: 0 segment, 1 update, 2 partition delete"
    ),
    Column("topic", String, nullable=False),
    Column("topic_id", String, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("segment_id", String, comment="NULL for a partition delete"),
    Column("state", SmallInteger, nullable=False, comment="segment state, or partition delete state"),
    Column("broker_id", Integer, nullable=False),
    Column("event_timestamp_ms", BigInteger, nullable=False),
    Column("record_timestamp_ms", BigInteger, nullable=False),
    Column("start_offset", BigInteger),
    Column("end_offset", BigInteger, comment="inclusive"),
    Column("max_timestamp_ms", BigInteger),
    Column("segment_size_bytes", Integer),
    Column("leader_epochs", _json(), comment="list of [epoch, start_offset]"),
    Column("custom_metadata", LargeBinary),
    Column("txn_index_empty", Boolean),
    Column("legal", Boolean, nullable=False, comment="did the ledger follow it"),
    Column("illegal_reason", String),
    Index(None, "cluster_id", "topic_id", "partition", "segment_id"),
    Index(
        "ix_segment_event_illegal",
        "cluster_id",
        "metadata_partition",
        "metadata_offset",
        sqlite_where=text("legal = 0"),
        postgresql_where=text("NOT legal"),
    ),
)

segment = Table(
    "segment",
    metadata,
    _cluster_key(),
    Column("topic_id", String, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("segment_id", String, primary_key=True),
    Column("topic", String, nullable=False),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False, comment="inclusive"),
    Column("state", SmallInteger, nullable=False),
    Column("segment_size_bytes", Integer, nullable=False, comment="the .log only"),
    Column("max_timestamp_ms", BigInteger, nullable=False),
    Column("leader_epochs", _json(), nullable=False, comment="list of [epoch, start_offset]"),
    Column("custom_metadata", LargeBinary),
    Column("txn_index_empty", Boolean, nullable=False),
    Column("copy_broker_id", Integer, nullable=False, comment="who started the copy"),
    Column("broker_id", Integer, nullable=False, comment="who wrote the last event"),
    Column("copy_started_ms", BigInteger, nullable=False),
    Column("copy_finished_ms", BigInteger),
    Column("delete_started_ms", BigInteger),
    Column("delete_finished_ms", BigInteger),
    Column("metadata_partition", Integer, nullable=False),
    Column("last_event_offset", BigInteger, nullable=False),
    Column("last_event_ms", BigInteger, nullable=False),
    CheckConstraint("state BETWEEN 0 AND 3", name="state"),
    CheckConstraint("end_offset >= start_offset", name="range"),
    Index(None, "cluster_id", "topic", "partition", "start_offset"),
    # How much was copied in a time is read from the index alone.
    Index(None, "cluster_id", "copy_finished_ms", "segment_size_bytes"),
    Index(
        "ix_segment_open",
        "cluster_id",
        "state",
        "last_event_ms",
        sqlite_where=OPEN_SEGMENT,
        postgresql_where=OPEN_SEGMENT,
    ),
)

segment_interval = Table(
    "segment_interval",
    metadata,
    _cluster_key(),
    Column("topic_id", String, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("segment_id", String, primary_key=True),
    Column("from_ms", BigInteger, nullable=False, comment="the copy was finished: readable from then on"),
    Column("to_ms", BigInteger, comment="the deletion began: not readable any more; NULL: still remote"),
    Column("node", BigInteger, nullable=False, comment="backend.tiering.intervals; 0: still remote"),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False, comment="inclusive"),
    Column("segment_size_bytes", Integer, nullable=False, comment="the .log only"),
    CheckConstraint("to_ms >= from_ms", name="times"),
    # "What was remote at time t" reads this index: some nodes, and of each the rows that began or end in time.
    Index(None, "cluster_id", "topic_id", "partition", "node", "from_ms", "to_ms"),
)

remote_partition = Table(
    "remote_partition",
    metadata,
    _cluster_key(),
    Column("topic_id", String, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("topic", String, nullable=False),
    Column("copy_started_segments", BigInteger, nullable=False),
    Column("copy_started_bytes", BigInteger, nullable=False),
    Column("copy_finished_segments", BigInteger, nullable=False),
    Column("copy_finished_bytes", BigInteger, nullable=False),
    Column("delete_started_segments", BigInteger, nullable=False),
    Column("delete_started_bytes", BigInteger, nullable=False),
    Column("delete_finished_segments", BigInteger, nullable=False),
    Column("delete_finished_bytes", BigInteger, nullable=False),
    Column("highest_copied_offset", BigInteger, comment="inclusive end of the furthest finished copy; only grows"),
    Column("illegal_events", BigInteger, nullable=False),
    Column("delete_state", SmallInteger, comment="PartitionDeleteState; NULL: not being deleted"),
    Column("delete_state_ms", BigInteger),
    Column("last_event_ms", BigInteger, nullable=False),
    Index(None, "cluster_id", "topic", "partition"),
)

quarantine = Table(
    "quarantine",
    metadata,
    _cluster_key(),
    Column("topic", String, primary_key=True, comment="the topic it was read from"),
    Column("partition", Integer, primary_key=True),
    Column("offset", BigInteger, primary_key=True),
    Column("reason", String, nullable=False),
    Column("key", LargeBinary),
    Column("value", LargeBinary),
    Column("record_timestamp_ms", BigInteger, nullable=False),
    Column("ingested_ms", BigInteger, nullable=False),
)

source_offsets = Table(
    "source_offsets",
    metadata,
    _cluster_key(),
    Column("job", String, primary_key=True),
    Column("topic", String, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("next_offset", BigInteger, nullable=False, comment="rows below it are already in the tables"),
    Column("updated_ms", BigInteger, nullable=False),
)

pipeline_batch = Table(
    "pipeline_batch",
    metadata,
    _row_id(),
    Column("cluster_id", String, nullable=False),
    Column("job", String, nullable=False),
    Column("batch_id", BigInteger, nullable=False, comment="Spark's; starts over when the checkpoint is lost"),
    Column("records", BigInteger, nullable=False),
    Column("replayed_records", BigInteger, nullable=False, comment="below the watermark, dropped"),
    Column("illegal_events", BigInteger, nullable=False),
    Column("quarantined_records", BigInteger, nullable=False),
    Column("newest_event_ms", BigInteger),
    Column("started_ms", BigInteger, nullable=False),
    Column("finished_ms", BigInteger, nullable=False),
    Index(None, "cluster_id", "finished_ms"),
)

# --- what the control plane decides and does -------------------------------------------------

operation = Table(
    "operation",
    metadata,
    _row_id(),
    Column("cluster_id", String, nullable=False),
    Column("kind", String, nullable=False),
    Column(
        "state",
        String,
        nullable=False,
        comment="draft, checked, requested, accepted, running, paused, or how it ended",
    ),
    Column("author", String, nullable=False),
    Column("role", String, nullable=False),
    Column("reason", String),
    Column("inputs", _json(), nullable=False),
    Column("snapshot", _json(), comment="the state before, for the revert"),
    Column("diff", _json()),
    Column("checks", _json()),
    Column("cli", _json()),
    Column("estimate", _json()),
    Column("result", _json()),
    Column("idempotency_key", String),
    Column("reverts_id", BigInteger().with_variant(Integer(), "sqlite"), ForeignKey("operation.id")),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("requested_ms", BigInteger),
    Column("finished_ms", BigInteger),
    Column("progress", _json(), comment="of a plan that takes time"),
    Column("intent", String, comment="stop: asked for, not yet reached"),
    Column("throttle_bytes_per_s", BigInteger, comment="limit that replaced the one of the inputs"),
    UniqueConstraint("cluster_id", "idempotency_key"),
    Index(None, "cluster_id", "state"),
    Index(None, "cluster_id", "created_ms"),
)

audit = Table(
    "audit",
    metadata,
    _row_id(),
    Column("cluster_id", String, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("actor", String, nullable=False),
    Column("role", String, nullable=False),
    Column("action", String, nullable=False),
    Column("object", String, nullable=False),
    Column("diff", _json()),
    Column("reason", String),
    Column("operation_id", BigInteger().with_variant(Integer(), "sqlite"), ForeignKey("operation.id")),
    Column("cli", _json()),
    Column("result", String, nullable=False, comment="accepted | verified | refused | failed"),
    Column("detail", String),
    Index(None, "cluster_id", "at_ms"),
)

api_token = Table(
    "api_token",
    metadata,
    _cluster_key(),
    Column("name", String, primary_key=True),
    Column("role", String, nullable=False, comment="viewer | operator | app"),
    Column("hash", String, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    UniqueConstraint("cluster_id", "hash"),
)

finding = Table(
    "finding",
    metadata,
    _row_id(),
    Column("cluster_id", String, nullable=False),
    Column("slug", String, nullable=False, comment="the rule, and its runbook"),
    Column("object", String, nullable=False, comment="what it is about, e.g. orders-3 or broker 2"),
    Column("topic", String),
    Column("partition", Integer),
    Column("broker_id", Integer),
    Column("severity", String, nullable=False, comment="critical | warning | notice"),
    Column("sentence", String, nullable=False),
    Column("action", String, nullable=False, comment="what to do next, one sentence"),
    Column("evidence", _json()),
    Column("opened_ms", BigInteger, nullable=False),
    Column("seen_ms", BigInteger, nullable=False, comment="last time that it was true"),
    Column("closed_ms", BigInteger),
    Column("acknowledged_ms", BigInteger),
    Column("acknowledged_by", String),
    Column("muted_until_ms", BigInteger, comment="also of the next finding of this slug and object"),
    UniqueConstraint("cluster_id", "slug", "object", "opened_ms"),
    Index(None, "cluster_id", "closed_ms"),
)

engine_event = Table(
    "engine_event",
    metadata,
    _cluster_key(),
    Column("source_partition", Integer, primary_key=True, comment="of __ebbline_events"),
    Column("source_offset", BigInteger, primary_key=True),
    Column("type", String, nullable=False),
    Column("broker_id", Integer, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("topic", String),
    Column("topic_id", String),
    Column("partition", Integer),
    Column("body", _json(), nullable=False),
    Index(None, "cluster_id", "topic", "partition", "at_ms"),
    Index(None, "cluster_id", "at_ms"),
)
