"""Tables of the observer: the cluster and its parts, now and over time."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, Table, text

from backend.store.storable import KeyText, Text
from backend.store.tables.shared import cluster_key, json, metadata, partition_key

cluster = Table(
    "cluster",
    metadata,
    cluster_key(),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False, comment="embedded | attached"),
    Column("bootstrap_servers", Text, nullable=False),
    Column("controller_id", Integer),
    Column("features", json(), comment="finalized feature levels, name to level"),
    Column("first_seen_ms", BigInteger, nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
    Column("sample_interval_ms", BigInteger, nullable=False, server_default=text("2000")),
)

broker = Table(
    "broker",
    metadata,
    cluster_key(),
    Column("broker_id", Integer, primary_key=True),
    Column("host", Text, nullable=False),
    Column("port", Integer, nullable=False),
    Column("rack", Text),
    Column("epoch", BigInteger),
    Column("fenced", Boolean, nullable=False),
    Column("reachable", Boolean, nullable=False, comment="did it answer the last sample"),
    Column("error", Text, comment="why it did not answer"),
    Column("log_dirs", json(), comment="list of {path, total_bytes, usable_bytes, error}"),
    Column("seen_ms", BigInteger, nullable=False, comment="last time it answered"),
    Column("sampled_ms", BigInteger, nullable=False, comment="last time it was asked"),
)

process_status = Table(
    "process_status",
    metadata,
    cluster_key(),
    Column("process", Text, primary_key=True, comment="backend | observer | pipeline | app"),
    Column("pid", Integer),
    Column("started_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("interval_ms", BigInteger, nullable=False, comment="promised gap between heartbeats"),
    Column("state", Text, nullable=False, comment="starting | running | waiting | failed | stopped"),
    Column("message", Text, comment="one sentence for people"),
    Column("detail", json()),
    Column(
        "data_version", BigInteger, nullable=False, server_default=text("0"), comment="grows with each write of data"
    ),
)

topic = Table(
    "topic",
    metadata,
    cluster_key(),
    Column("topic", KeyText, primary_key=True),
    Column("topic_id", Text, nullable=False),
    Column("partition_count", Integer, nullable=False),
    Column("replication_factor", Integer, nullable=False),
    Column("internal", Boolean, nullable=False),
    Column("tiered", Boolean, nullable=False, comment="remote.storage.enable"),
    Column("config", json(), comment="effective values, name to value"),
    Column("sampled_ms", BigInteger, nullable=False),
)


def _partition_facts() -> Iterator[Column[object]]:
    """Columns that a partition's latest row and its history share."""
    yield Column("topic_id", Text, nullable=False)
    yield Column("leader", Integer, nullable=False, comment="-1: none")
    yield Column("leader_epoch", Integer, nullable=False)
    yield Column("replicas", json(), nullable=False)
    yield Column("isr", json(), nullable=False)
    yield Column("log_start_offset", BigInteger, comment="ListOffsets -2")
    yield Column("local_log_start_offset", BigInteger, comment="ListOffsets -4")
    yield Column("latest_tiered_offset", BigInteger, comment="ListOffsets -5, inclusive; -1: none")
    yield Column("earliest_pending_upload_offset", BigInteger, comment="ListOffsets -6; -1 as answered")
    yield Column("high_watermark", BigInteger, comment="ListOffsets -1 by a consumer")
    yield Column("log_end_offset", BigInteger, comment="ListOffsets -1 with replica id -2")
    yield Column("local_log_bytes", BigInteger, comment="the leader's log dir size")
    yield Column("remote_log_bytes", BigInteger, comment="as known to the observer; the ledger is exact")


def _last_stable_offset() -> Column[object]:
    """A later column than the others, so at the end of both tables."""
    return Column("last_stable_offset", BigInteger, comment="ListOffsets -1 by a reader of committed records")


partition_current = Table(
    "partition_current",
    metadata,
    *partition_key(),
    *_partition_facts(),
    Column("tiered", Boolean, nullable=False),
    Column("adding_replicas", json()),
    Column("removing_replicas", json()),
    Column(
        "pending_reason",
        Text,
        comment="what a -1 of ListOffsets -6 means: not_tiered | leader_does_not_know | all_copied | changing",
    ),
    Column("error", Text, comment="why offsets are not known"),
    Column("changed_ms", BigInteger, nullable=False, comment="last time a fact changed"),
    Column("sampled_ms", BigInteger, nullable=False),
    _last_stable_offset(),
)

partition_sample = Table(
    "partition_sample",
    metadata,
    *partition_key(),
    Column("sampled_ms", BigInteger, primary_key=True),
    *_partition_facts(),
    _last_stable_offset(),
    Index(None, "cluster_id", "sampled_ms"),
)


def _replica_facts() -> Iterator[Column[object]]:
    """Columns that a replica's latest row and its history share."""
    yield Column("role", Text, nullable=False, comment="leader | follower")
    yield Column("in_isr", Boolean, nullable=False)
    yield Column("log_start_offset", BigInteger)
    yield Column("local_log_start_offset", BigInteger)
    yield Column("latest_tiered_offset", BigInteger)
    yield Column("log_end_offset", BigInteger)
    yield Column("local_log_bytes", BigInteger)
    yield Column("phase", Text, comment="backend.tiering.follower_phase.FollowerPhase")
    yield Column("phase_since_ms", BigInteger)
    yield Column("phase_source", Text, comment="exact | inferred")


replica_current = Table(
    "replica_current",
    metadata,
    *partition_key(),
    Column("broker_id", Integer, primary_key=True),
    *_replica_facts(),
    Column("leader_epochs", json(), comment="list of [epoch, start_offset]"),
    Column("log_dir", Text),
    Column("evidence", json(), comment="what the phase was concluded from"),
    Column("error", Text),
    Column("changed_ms", BigInteger, nullable=False),
    Column("sampled_ms", BigInteger, nullable=False),
)

replica_sample = Table(
    "replica_sample",
    metadata,
    *partition_key(),
    Column("broker_id", Integer, primary_key=True),
    Column("sampled_ms", BigInteger, primary_key=True),
    *_replica_facts(),
    Index(None, "cluster_id", "sampled_ms"),
)

cluster_sample = Table(
    "cluster_sample",
    metadata,
    cluster_key(),
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
    cluster_key(),
    Column("resource_type", Text, primary_key=True, comment="topic | broker"),
    Column(
        "resource", KeyText, primary_key=True, comment="topic name or broker id; '' = the cluster default of brokers"
    ),
    Column("name", KeyText, primary_key=True),
    Column("value", Text),
    Column("source", Text, nullable=False, comment="Kafka's ConfigSource, e.g. DYNAMIC_BROKER_CONFIG"),
    Column("is_sensitive", Boolean, nullable=False),
    Column("is_read_only", Boolean, nullable=False),
    Column("config_type", Text, comment="Kafka's ConfigType, e.g. BOOLEAN"),
    Column("synonyms", json(), comment="list of {name, value, source}, the winner first"),
    Column("sampled_ms", BigInteger, nullable=False),
    Index(None, "cluster_id", "name"),
)


engine_event = Table(
    "engine_event",
    metadata,
    cluster_key(),
    Column("source_partition", Integer, primary_key=True, comment="of __ebbline_events"),
    Column("source_offset", BigInteger, primary_key=True),
    Column("type", Text, nullable=False),
    Column("broker_id", Integer, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("topic", Text),
    Column("topic_id", Text),
    Column("partition", Integer),
    Column("body", json(), nullable=False),
    Index(None, "cluster_id", "topic", "partition", "at_ms"),
    Index(None, "cluster_id", "at_ms"),
)
