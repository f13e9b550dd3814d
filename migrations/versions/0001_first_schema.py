"""The first schema: cluster, samples, ledger, operations."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None
phase = "pre"

JSON_VALUE = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "api_token",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False, comment="viewer | operator | app"),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "name", name=op.f("pk_api_token")),
        sa.UniqueConstraint("cluster_id", "hash", name=op.f("uq_api_token_cluster_id_hash")),
    )
    op.create_table(
        "broker",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("broker_id", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("rack", sa.String(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=True),
        sa.Column("fenced", sa.Boolean(), nullable=False),
        sa.Column("reachable", sa.Boolean(), nullable=False, comment="did it answer the last sample"),
        sa.Column("error", sa.String(), nullable=True, comment="why it did not answer"),
        sa.Column("log_dirs", JSON_VALUE, nullable=True, comment="list of {path, total_bytes, usable_bytes, error}"),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False, comment="last time it answered"),
        sa.Column("sampled_ms", sa.BigInteger(), nullable=False, comment="last time it was asked"),
        sa.PrimaryKeyConstraint("cluster_id", "broker_id", name=op.f("pk_broker")),
    )
    op.create_table(
        "cluster",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False, comment="embedded | attached"),
        sa.Column("bootstrap_servers", sa.String(), nullable=False),
        sa.Column("controller_id", sa.Integer(), nullable=True),
        sa.Column("features", JSON_VALUE, nullable=True, comment="finalized feature levels, name to level"),
        sa.Column("first_seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("sample_interval_ms", sa.BigInteger(), server_default=sa.text("2000"), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", name=op.f("pk_cluster")),
    )
    op.create_table(
        "cluster_sample",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("sampled_ms", sa.BigInteger(), nullable=False),
        sa.Column("partitions", sa.Integer(), nullable=False),
        sa.Column("tiered_partitions", sa.Integer(), nullable=False),
        sa.Column("offline_partitions", sa.Integer(), nullable=False),
        sa.Column("replicas", sa.Integer(), nullable=False),
        sa.Column("replicas_not_in_sync", sa.Integer(), nullable=False),
        sa.Column("brokers", sa.Integer(), nullable=False),
        sa.Column("brokers_reachable", sa.Integer(), nullable=False),
        sa.Column(
            "log_end_offset_sum",
            sa.BigInteger(),
            nullable=True,
            comment="of tiered partitions; its slope is the produce rate",
        ),
        sa.Column(
            "tiered_offset_sum", sa.BigInteger(), nullable=True, comment="latest tiered + 1; its slope is the copy rate"
        ),
        sa.Column("pending_offsets", sa.BigInteger(), nullable=True, comment="records not uploaded, tiered partitions"),
        sa.Column("pending_bytes", sa.BigInteger(), nullable=True, comment="estimate, from bytes per record"),
        sa.Column("local_log_bytes", sa.BigInteger(), nullable=True, comment="all replicas"),
        sa.Column("remote_log_bytes", sa.BigInteger(), nullable=True, comment="finished copies of the ledger"),
        sa.Column("open_copies", sa.Integer(), nullable=True, comment="segments in COPY_SEGMENT_STARTED"),
        sa.Column("oldest_open_copy_ms", sa.BigInteger(), nullable=True, comment="age"),
        sa.Column("open_deletes", sa.Integer(), nullable=True, comment="segments in DELETE_SEGMENT_STARTED"),
        sa.Column("oldest_open_delete_ms", sa.BigInteger(), nullable=True, comment="age"),
        sa.PrimaryKeyConstraint("cluster_id", "sampled_ms", name=op.f("pk_cluster_sample")),
    )
    op.create_table(
        "config_value",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("resource_type", sa.String(), nullable=False, comment="topic | broker"),
        sa.Column(
            "resource",
            sa.String(),
            nullable=False,
            comment="topic name or broker id; '' = the cluster default of brokers",
        ),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=True),
        sa.Column("source", sa.String(), nullable=False, comment="Kafka's ConfigSource, e.g. DYNAMIC_BROKER_CONFIG"),
        sa.Column("is_sensitive", sa.Boolean(), nullable=False),
        sa.Column("is_read_only", sa.Boolean(), nullable=False),
        sa.Column("config_type", sa.String(), nullable=True, comment="Kafka's ConfigType, e.g. BOOLEAN"),
        sa.Column("synonyms", JSON_VALUE, nullable=True, comment="list of {name, value, source}, the winner first"),
        sa.Column("sampled_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "resource_type", "resource", "name", name=op.f("pk_config_value")),
    )
    op.create_index(op.f("ix_config_value_cluster_id_name"), "config_value", ["cluster_id", "name"], unique=False)
    op.create_table(
        "engine_event",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("source_partition", sa.Integer(), nullable=False, comment="of __ebbline_events"),
        sa.Column("source_offset", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("broker_id", sa.Integer(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("topic", sa.String(), nullable=True),
        sa.Column("topic_id", sa.String(), nullable=True),
        sa.Column("partition", sa.Integer(), nullable=True),
        sa.Column("body", JSON_VALUE, nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "source_partition", "source_offset", name=op.f("pk_engine_event")),
    )
    op.create_index(op.f("ix_engine_event_cluster_id_at_ms"), "engine_event", ["cluster_id", "at_ms"], unique=False)
    op.create_index(
        op.f("ix_engine_event_cluster_id_topic_partition_at_ms"),
        "engine_event",
        ["cluster_id", "topic", "partition", "at_ms"],
        unique=False,
    )
    op.create_table(
        "finding",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("slug", sa.String(), nullable=False),
        sa.Column("object", sa.String(), nullable=False, comment="what it is about, e.g. orders-3 or broker 2"),
        sa.Column("opened_ms", sa.BigInteger(), nullable=False),
        sa.Column("severity", sa.String(), nullable=False, comment="critical | warning | notice"),
        sa.Column("sentence", sa.String(), nullable=False),
        sa.Column("evidence", JSON_VALUE, nullable=True),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("closed_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("cluster_id", "slug", "object", "opened_ms", name=op.f("pk_finding")),
    )
    op.create_index(op.f("ix_finding_cluster_id_closed_ms"), "finding", ["cluster_id", "closed_ms"], unique=False)
    op.create_table(
        "operation",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column(
            "state",
            sa.String(),
            nullable=False,
            comment="draft, checked, requested, accepted, running, paused, or how it ended",
        ),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("inputs", JSON_VALUE, nullable=False),
        sa.Column("snapshot", JSON_VALUE, nullable=True, comment="the state before, for the revert"),
        sa.Column("diff", JSON_VALUE, nullable=True),
        sa.Column("checks", JSON_VALUE, nullable=True),
        sa.Column("cli", JSON_VALUE, nullable=True),
        sa.Column("estimate", JSON_VALUE, nullable=True),
        sa.Column("result", JSON_VALUE, nullable=True),
        sa.Column("idempotency_key", sa.String(), nullable=True),
        sa.Column("reverts_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), nullable=False),
        sa.Column("requested_ms", sa.BigInteger(), nullable=True),
        sa.Column("finished_ms", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["reverts_id"], ["operation.id"], name=op.f("fk_operation_reverts_id_operation")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operation")),
        sa.UniqueConstraint("cluster_id", "idempotency_key", name=op.f("uq_operation_cluster_id_idempotency_key")),
    )
    op.create_index(op.f("ix_operation_cluster_id_created_ms"), "operation", ["cluster_id", "created_ms"], unique=False)
    op.create_index(op.f("ix_operation_cluster_id_state"), "operation", ["cluster_id", "state"], unique=False)
    op.create_table(
        "partition_current",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("topic_id", sa.String(), nullable=False),
        sa.Column("leader", sa.Integer(), nullable=False, comment="-1: none"),
        sa.Column("leader_epoch", sa.Integer(), nullable=False),
        sa.Column("replicas", JSON_VALUE, nullable=False),
        sa.Column("isr", JSON_VALUE, nullable=False),
        sa.Column("log_start_offset", sa.BigInteger(), nullable=True, comment="ListOffsets -2"),
        sa.Column("local_log_start_offset", sa.BigInteger(), nullable=True, comment="ListOffsets -4"),
        sa.Column(
            "latest_tiered_offset", sa.BigInteger(), nullable=True, comment="ListOffsets -5, inclusive; -1: none"
        ),
        sa.Column(
            "earliest_pending_upload_offset", sa.BigInteger(), nullable=True, comment="ListOffsets -6; -1 as answered"
        ),
        sa.Column("high_watermark", sa.BigInteger(), nullable=True, comment="ListOffsets -1 by a consumer"),
        sa.Column("log_end_offset", sa.BigInteger(), nullable=True, comment="ListOffsets -1 with replica id -2"),
        sa.Column("local_log_bytes", sa.BigInteger(), nullable=True, comment="the leader's log dir size"),
        sa.Column(
            "remote_log_bytes", sa.BigInteger(), nullable=True, comment="as known to the observer; the ledger is exact"
        ),
        sa.Column("tiered", sa.Boolean(), nullable=False),
        sa.Column("adding_replicas", JSON_VALUE, nullable=True),
        sa.Column("removing_replicas", JSON_VALUE, nullable=True),
        sa.Column(
            "pending_reason",
            sa.String(),
            nullable=True,
            comment="what a -1 of ListOffsets -6 means: not_tiered | leader_does_not_know | all_copied | changing",
        ),
        sa.Column("error", sa.String(), nullable=True, comment="why offsets are not known"),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False, comment="last time a fact changed"),
        sa.Column("sampled_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "topic", "partition", name=op.f("pk_partition_current")),
    )
    op.create_table(
        "partition_sample",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("sampled_ms", sa.BigInteger(), nullable=False),
        sa.Column("topic_id", sa.String(), nullable=False),
        sa.Column("leader", sa.Integer(), nullable=False, comment="-1: none"),
        sa.Column("leader_epoch", sa.Integer(), nullable=False),
        sa.Column("replicas", JSON_VALUE, nullable=False),
        sa.Column("isr", JSON_VALUE, nullable=False),
        sa.Column("log_start_offset", sa.BigInteger(), nullable=True, comment="ListOffsets -2"),
        sa.Column("local_log_start_offset", sa.BigInteger(), nullable=True, comment="ListOffsets -4"),
        sa.Column(
            "latest_tiered_offset", sa.BigInteger(), nullable=True, comment="ListOffsets -5, inclusive; -1: none"
        ),
        sa.Column(
            "earliest_pending_upload_offset", sa.BigInteger(), nullable=True, comment="ListOffsets -6; -1 as answered"
        ),
        sa.Column("high_watermark", sa.BigInteger(), nullable=True, comment="ListOffsets -1 by a consumer"),
        sa.Column("log_end_offset", sa.BigInteger(), nullable=True, comment="ListOffsets -1 with replica id -2"),
        sa.Column("local_log_bytes", sa.BigInteger(), nullable=True, comment="the leader's log dir size"),
        sa.Column(
            "remote_log_bytes", sa.BigInteger(), nullable=True, comment="as known to the observer; the ledger is exact"
        ),
        sa.PrimaryKeyConstraint("cluster_id", "topic", "partition", "sampled_ms", name=op.f("pk_partition_sample")),
    )
    op.create_index(
        op.f("ix_partition_sample_cluster_id_sampled_ms"),
        "partition_sample",
        ["cluster_id", "sampled_ms"],
        unique=False,
    )
    op.create_table(
        "pipeline_batch",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column(
            "batch_id", sa.BigInteger(), nullable=False, comment="Spark's; starts over when the checkpoint is lost"
        ),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("replayed_records", sa.BigInteger(), nullable=False, comment="below the watermark, dropped"),
        sa.Column("illegal_events", sa.BigInteger(), nullable=False),
        sa.Column("quarantined_records", sa.BigInteger(), nullable=False),
        sa.Column("newest_event_ms", sa.BigInteger(), nullable=True),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("finished_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pipeline_batch")),
    )
    op.create_index(
        op.f("ix_pipeline_batch_cluster_id_finished_ms"), "pipeline_batch", ["cluster_id", "finished_ms"], unique=False
    )
    op.create_table(
        "process_status",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("process", sa.String(), nullable=False, comment="backend | observer | pipeline | app"),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), nullable=False),
        sa.Column("interval_ms", sa.BigInteger(), nullable=False, comment="promised gap between heartbeats"),
        sa.Column("state", sa.String(), nullable=False, comment="starting | running | waiting | failed | stopped"),
        sa.Column("message", sa.String(), nullable=True, comment="one sentence for people"),
        sa.Column("detail", JSON_VALUE, nullable=True),
        sa.Column(
            "data_version",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="grows with each write of data",
        ),
        sa.PrimaryKeyConstraint("cluster_id", "process", name=op.f("pk_process_status")),
    )
    op.create_table(
        "quarantine",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("topic", sa.String(), nullable=False, comment="the topic it was read from"),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=True),
        sa.Column("value", sa.LargeBinary(), nullable=True),
        sa.Column("record_timestamp_ms", sa.BigInteger(), nullable=False),
        sa.Column("ingested_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "topic", "partition", "offset", name=op.f("pk_quarantine")),
    )
    op.create_table(
        "remote_partition",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("topic_id", sa.String(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("copy_started_segments", sa.BigInteger(), nullable=False),
        sa.Column("copy_started_bytes", sa.BigInteger(), nullable=False),
        sa.Column("copy_finished_segments", sa.BigInteger(), nullable=False),
        sa.Column("copy_finished_bytes", sa.BigInteger(), nullable=False),
        sa.Column("delete_started_segments", sa.BigInteger(), nullable=False),
        sa.Column("delete_started_bytes", sa.BigInteger(), nullable=False),
        sa.Column("delete_finished_segments", sa.BigInteger(), nullable=False),
        sa.Column("delete_finished_bytes", sa.BigInteger(), nullable=False),
        sa.Column(
            "highest_copied_offset",
            sa.BigInteger(),
            nullable=True,
            comment="inclusive end of the furthest finished copy; only grows",
        ),
        sa.Column("illegal_events", sa.BigInteger(), nullable=False),
        sa.Column(
            "delete_state", sa.SmallInteger(), nullable=True, comment="PartitionDeleteState; NULL: not being deleted"
        ),
        sa.Column("delete_state_ms", sa.BigInteger(), nullable=True),
        sa.Column("last_event_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "topic_id", "partition", name=op.f("pk_remote_partition")),
    )
    op.create_index(
        op.f("ix_remote_partition_cluster_id_topic_partition"),
        "remote_partition",
        ["cluster_id", "topic", "partition"],
        unique=False,
    )
    op.create_table(
        "replica_current",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("broker_id", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(), nullable=False, comment="leader | follower"),
        sa.Column("in_isr", sa.Boolean(), nullable=False),
        sa.Column("log_start_offset", sa.BigInteger(), nullable=True),
        sa.Column("local_log_start_offset", sa.BigInteger(), nullable=True),
        sa.Column("latest_tiered_offset", sa.BigInteger(), nullable=True),
        sa.Column("log_end_offset", sa.BigInteger(), nullable=True),
        sa.Column("local_log_bytes", sa.BigInteger(), nullable=True),
        sa.Column("phase", sa.String(), nullable=True, comment="backend.tiering.follower_phase.FollowerPhase"),
        sa.Column("phase_since_ms", sa.BigInteger(), nullable=True),
        sa.Column("phase_source", sa.String(), nullable=True, comment="exact | inferred"),
        sa.Column("leader_epochs", JSON_VALUE, nullable=True, comment="list of [epoch, start_offset]"),
        sa.Column("log_dir", sa.String(), nullable=True),
        sa.Column("evidence", JSON_VALUE, nullable=True, comment="what the phase was concluded from"),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.Column("sampled_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "topic", "partition", "broker_id", name=op.f("pk_replica_current")),
    )
    op.create_table(
        "replica_sample",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("broker_id", sa.Integer(), nullable=False),
        sa.Column("sampled_ms", sa.BigInteger(), nullable=False),
        sa.Column("role", sa.String(), nullable=False, comment="leader | follower"),
        sa.Column("in_isr", sa.Boolean(), nullable=False),
        sa.Column("log_start_offset", sa.BigInteger(), nullable=True),
        sa.Column("local_log_start_offset", sa.BigInteger(), nullable=True),
        sa.Column("latest_tiered_offset", sa.BigInteger(), nullable=True),
        sa.Column("log_end_offset", sa.BigInteger(), nullable=True),
        sa.Column("local_log_bytes", sa.BigInteger(), nullable=True),
        sa.Column("phase", sa.String(), nullable=True, comment="backend.tiering.follower_phase.FollowerPhase"),
        sa.Column("phase_since_ms", sa.BigInteger(), nullable=True),
        sa.Column("phase_source", sa.String(), nullable=True, comment="exact | inferred"),
        sa.PrimaryKeyConstraint(
            "cluster_id", "topic", "partition", "broker_id", "sampled_ms", name=op.f("pk_replica_sample")
        ),
    )
    op.create_index(
        op.f("ix_replica_sample_cluster_id_sampled_ms"), "replica_sample", ["cluster_id", "sampled_ms"], unique=False
    )
    op.create_table(
        "segment",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("topic_id", sa.String(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("segment_id", sa.String(), nullable=False),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False, comment="inclusive"),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("segment_size_bytes", sa.Integer(), nullable=False, comment="the .log only"),
        sa.Column("max_timestamp_ms", sa.BigInteger(), nullable=False),
        sa.Column("leader_epochs", JSON_VALUE, nullable=False, comment="list of [epoch, start_offset]"),
        sa.Column("custom_metadata", sa.LargeBinary(), nullable=True),
        sa.Column("txn_index_empty", sa.Boolean(), nullable=False),
        sa.Column("copy_broker_id", sa.Integer(), nullable=False, comment="who started the copy"),
        sa.Column("broker_id", sa.Integer(), nullable=False, comment="who wrote the last event"),
        sa.Column("copy_started_ms", sa.BigInteger(), nullable=False),
        sa.Column("copy_finished_ms", sa.BigInteger(), nullable=True),
        sa.Column("delete_started_ms", sa.BigInteger(), nullable=True),
        sa.Column("delete_finished_ms", sa.BigInteger(), nullable=True),
        sa.Column("metadata_partition", sa.Integer(), nullable=False),
        sa.Column("last_event_offset", sa.BigInteger(), nullable=False),
        sa.Column("last_event_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("end_offset >= start_offset", name=op.f("ck_segment_range")),
        sa.CheckConstraint("state BETWEEN 0 AND 3", name=op.f("ck_segment_state")),
        sa.PrimaryKeyConstraint("cluster_id", "topic_id", "partition", "segment_id", name=op.f("pk_segment")),
    )
    op.create_index(
        op.f("ix_segment_cluster_id_topic_partition_start_offset"),
        "segment",
        ["cluster_id", "topic", "partition", "start_offset"],
        unique=False,
    )
    op.create_index(
        "ix_segment_open",
        "segment",
        ["cluster_id", "state", "last_event_ms"],
        unique=False,
        sqlite_where=sa.text("state IN (0, 2)"),
        postgresql_where=sa.text("state IN (0, 2)"),
    )
    op.create_table(
        "segment_event",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("metadata_partition", sa.Integer(), nullable=False),
        sa.Column("metadata_offset", sa.BigInteger(), nullable=False),
        sa.Column(
            "kind",
            sa.SmallInteger(),
            nullable=False,
            comment="the record's apiKey: 0 segment, 1 update, 2 partition delete",
        ),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("topic_id", sa.String(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("segment_id", sa.String(), nullable=True, comment="NULL for a partition delete"),
        sa.Column("state", sa.SmallInteger(), nullable=False, comment="segment state, or partition delete state"),
        sa.Column("broker_id", sa.Integer(), nullable=False),
        sa.Column("event_timestamp_ms", sa.BigInteger(), nullable=False),
        sa.Column("record_timestamp_ms", sa.BigInteger(), nullable=False),
        sa.Column("start_offset", sa.BigInteger(), nullable=True),
        sa.Column("end_offset", sa.BigInteger(), nullable=True, comment="inclusive"),
        sa.Column("max_timestamp_ms", sa.BigInteger(), nullable=True),
        sa.Column("segment_size_bytes", sa.Integer(), nullable=True),
        sa.Column("leader_epochs", JSON_VALUE, nullable=True, comment="list of [epoch, start_offset]"),
        sa.Column("custom_metadata", sa.LargeBinary(), nullable=True),
        sa.Column("txn_index_empty", sa.Boolean(), nullable=True),
        sa.Column("legal", sa.Boolean(), nullable=False, comment="did the ledger follow it"),
        sa.Column("illegal_reason", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("cluster_id", "metadata_partition", "metadata_offset", name=op.f("pk_segment_event")),
    )
    op.create_index(
        op.f("ix_segment_event_cluster_id_topic_id_partition_segment_id"),
        "segment_event",
        ["cluster_id", "topic_id", "partition", "segment_id"],
        unique=False,
    )
    op.create_index(
        "ix_segment_event_illegal",
        "segment_event",
        ["cluster_id", "metadata_partition", "metadata_offset"],
        unique=False,
        sqlite_where=sa.text("legal = 0"),
        postgresql_where=sa.text("NOT legal"),
    )
    op.create_table(
        "source_offsets",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=False, comment="rows below it are already in the tables"),
        sa.Column("updated_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "job", "topic", "partition", name=op.f("pk_source_offsets")),
    )
    op.create_table(
        "topic",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("topic_id", sa.String(), nullable=False),
        sa.Column("partition_count", sa.Integer(), nullable=False),
        sa.Column("replication_factor", sa.Integer(), nullable=False),
        sa.Column("internal", sa.Boolean(), nullable=False),
        sa.Column("tiered", sa.Boolean(), nullable=False, comment="remote.storage.enable"),
        sa.Column("config", JSON_VALUE, nullable=True, comment="effective values, name to value"),
        sa.Column("sampled_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "topic", name=op.f("pk_topic")),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("object", sa.String(), nullable=False),
        sa.Column("diff", JSON_VALUE, nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("operation_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("cli", JSON_VALUE, nullable=True),
        sa.Column("result", sa.String(), nullable=False, comment="accepted | verified | refused | failed"),
        sa.Column("detail", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["operation_id"], ["operation.id"], name=op.f("fk_audit_operation_id_operation")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index(op.f("ix_audit_cluster_id_at_ms"), "audit", ["cluster_id", "at_ms"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_audit_cluster_id_at_ms"), table_name="audit")
    op.drop_table("audit")
    op.drop_table("topic")
    op.drop_table("source_offsets")
    op.drop_index(
        "ix_segment_event_illegal",
        table_name="segment_event",
        sqlite_where=sa.text("legal = 0"),
        postgresql_where=sa.text("NOT legal"),
    )
    op.drop_index(op.f("ix_segment_event_cluster_id_topic_id_partition_segment_id"), table_name="segment_event")
    op.drop_table("segment_event")
    op.drop_index(
        "ix_segment_open",
        table_name="segment",
        sqlite_where=sa.text("state IN (0, 2)"),
        postgresql_where=sa.text("state IN (0, 2)"),
    )
    op.drop_index(op.f("ix_segment_cluster_id_topic_partition_start_offset"), table_name="segment")
    op.drop_table("segment")
    op.drop_index(op.f("ix_replica_sample_cluster_id_sampled_ms"), table_name="replica_sample")
    op.drop_table("replica_sample")
    op.drop_table("replica_current")
    op.drop_index(op.f("ix_remote_partition_cluster_id_topic_partition"), table_name="remote_partition")
    op.drop_table("remote_partition")
    op.drop_table("quarantine")
    op.drop_table("process_status")
    op.drop_index(op.f("ix_pipeline_batch_cluster_id_finished_ms"), table_name="pipeline_batch")
    op.drop_table("pipeline_batch")
    op.drop_index(op.f("ix_partition_sample_cluster_id_sampled_ms"), table_name="partition_sample")
    op.drop_table("partition_sample")
    op.drop_table("partition_current")
    op.drop_index(op.f("ix_operation_cluster_id_state"), table_name="operation")
    op.drop_index(op.f("ix_operation_cluster_id_created_ms"), table_name="operation")
    op.drop_table("operation")
    op.drop_index(op.f("ix_finding_cluster_id_closed_ms"), table_name="finding")
    op.drop_table("finding")
    op.drop_index(op.f("ix_engine_event_cluster_id_topic_partition_at_ms"), table_name="engine_event")
    op.drop_index(op.f("ix_engine_event_cluster_id_at_ms"), table_name="engine_event")
    op.drop_table("engine_event")
    op.drop_index(op.f("ix_config_value_cluster_id_name"), table_name="config_value")
    op.drop_table("config_value")
    op.drop_table("cluster_sample")
    op.drop_table("cluster")
    op.drop_table("broker")
    op.drop_table("api_token")
