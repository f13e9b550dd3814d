"""Tables of the pipeline: the records of `__remote_log_metadata` and the ledger made of them."""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    event,
    text,
)

from backend.store.storable import Text
from backend.store.tables.shared import cluster_key, json, metadata, row_id

# Copies and deletions that have begun and not ended. As text, also in queries: SQLite uses the
# partial index only for a condition it can read at planning time, not for a bound value.
OPEN_SEGMENT = text("state IN (0, 2)")
# Attempts to copy that failed: Kafka 4.3 deletes such a segment without ever having finished it.
FAILED_COPY = text("copy_finished_ms IS NULL AND delete_started_ms IS NOT NULL")


# Events of a partition, and of a segment among them. In the order in which they come: by the random ids of segments
# first, each would change another page. Only on SQLite, whose history is pruned by the key.
EVENTS_BY_PARTITION = Index(
    "ix_segment_event_by_partition", "cluster_id", "topic_id", "partition", "metadata_offset", "segment_id"
).ddl_if(dialect="sqlite")

# On PostgreSQL partitioned by the month of event_timestamp_ms (`backend.store.history.event_months`), which SQLite
# cannot, and with another primary key (below).
segment_event = Table(
    "segment_event",
    metadata,
    cluster_key(),
    Column("metadata_partition", Integer, primary_key=True),
    Column("metadata_offset", BigInteger, primary_key=True),
    Column(
        "kind", SmallInteger, nullable=False, comment="the record's apiKey: 0 segment, 1 update, 2 partition delete"
    ),
    Column("topic", Text, nullable=False),
    Column("topic_id", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("segment_id", Text, comment="NULL for a partition delete"),
    Column("state", SmallInteger, nullable=False, comment="segment state, or partition delete state"),
    Column("broker_id", Integer, nullable=False),
    Column("event_timestamp_ms", BigInteger, nullable=False),
    Column("record_timestamp_ms", BigInteger, nullable=False),
    Column("start_offset", BigInteger),
    Column("end_offset", BigInteger, comment="inclusive"),
    Column("max_timestamp_ms", BigInteger),
    Column("segment_size_bytes", Integer),
    Column("leader_epochs", json(), comment="list of [epoch, start_offset]"),
    Column("custom_metadata", LargeBinary),
    Column("txn_index_empty", Boolean),
    Column("legal", Boolean, nullable=False, comment="did the ledger follow it"),
    Column("illegal_reason", Text),
    EVENTS_BY_PARTITION,
    Index(
        "ix_segment_event_illegal",
        "cluster_id",
        "topic",
        "partition",
        "metadata_offset",
        sqlite_where=text("legal = 0"),
        postgresql_where=text("NOT legal"),
    ),
)
# On PostgreSQL one index does the work of the key and of EVENTS_BY_PARTITION: two thirds of its server's time for an
# event are spent in indexes. An event is known by its place in the metadata topic as before, the other columns never
# change; the last must be there, since it says the month. A key has no NULL, so the segment's id only comes along.
event.listen(
    segment_event,
    "after_create",
    DDL(  # type: ignore[no-untyped-call]  # the library left it out
        "ALTER TABLE segment_event DROP CONSTRAINT pk_segment_event, ADD CONSTRAINT pk_segment_event PRIMARY KEY "
        "(cluster_id, topic_id, partition, metadata_offset, metadata_partition, event_timestamp_ms) "
        "INCLUDE (segment_id)"
    ).execute_if(dialect="postgresql"),
)

segment = Table(
    "segment",
    metadata,
    cluster_key(),
    Column("topic_id", Text, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("segment_id", Text, primary_key=True),
    Column("topic", Text, nullable=False),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False, comment="inclusive"),
    Column("state", SmallInteger, nullable=False),
    Column("segment_size_bytes", Integer, nullable=False, comment="the .log only"),
    Column("max_timestamp_ms", BigInteger, nullable=False),
    Column("leader_epochs", json(), nullable=False, comment="list of [epoch, start_offset]"),
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
    Index(
        "ix_segment_failed_copy",
        "cluster_id",
        "delete_started_ms",
        sqlite_where=FAILED_COPY,
        postgresql_where=FAILED_COPY,
    ),
)

segment_interval = Table(
    "segment_interval",
    metadata,
    Column("cluster_id", Text),
    Column("topic_id", Text),
    Column("partition", Integer),
    Column("segment_id", Text),
    Column("from_ms", BigInteger, nullable=False, comment="the copy was finished: readable from then on"),
    Column("to_ms", BigInteger, comment="the deletion began: not readable any more; NULL: still remote"),
    Column("node", BigInteger, nullable=False, comment="backend.tiering.intervals; 0: still remote"),
    Column("start_offset", BigInteger),
    Column("end_offset", BigInteger, nullable=False, comment="inclusive"),
    Column("segment_size_bytes", Integer, nullable=False, comment="the .log only"),
    # One row a segment; the offset, which never changes, is in the key so that rows come in its order.
    PrimaryKeyConstraint("cluster_id", "topic_id", "partition", "start_offset", "segment_id"),
    CheckConstraint("to_ms >= from_ms", name="times"),
    # "Remote at time t" reads this index: some nodes, and of each the rows that began or end in time.
    Index(None, "cluster_id", "topic_id", "partition", "node", "from_ms", "to_ms"),
)

remote_partition = Table(
    "remote_partition",
    metadata,
    cluster_key(),
    Column("topic_id", Text, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("topic", Text, nullable=False),
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
    Column(
        "failed_copy_segments",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="of delete_finished_segments: copies that never finished, so nothing of them was reclaimed",
    ),
    Column("failed_copy_bytes", BigInteger, nullable=False, server_default=text("0"), comment="of these segments"),
    Index(None, "cluster_id", "topic", "partition"),
)

quarantine = Table(
    "quarantine",
    metadata,
    cluster_key(),
    Column("topic", Text, primary_key=True, comment="the topic it was read from"),
    Column("partition", Integer, primary_key=True),
    Column("offset", BigInteger, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("key", LargeBinary),
    Column("value", LargeBinary),
    Column("record_timestamp_ms", BigInteger, nullable=False),
    Column("ingested_ms", BigInteger, nullable=False),
)

source_offsets = Table(
    "source_offsets",
    metadata,
    cluster_key(),
    Column("job", Text, primary_key=True),
    Column("topic", Text, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("next_offset", BigInteger, nullable=False, comment="rows below it are already in the tables"),
    Column("updated_ms", BigInteger, nullable=False),
)

source_topic = Table(
    "source_topic",
    metadata,
    cluster_key(),
    Column("job", Text, primary_key=True),
    Column("topic", Text, primary_key=True),
    Column("topic_id", Text, nullable=False, comment="of the topic that the ledger was made of"),
)

# Where executors of a Spark cluster leave what they read, until the driver stores it with the offsets. Unlogged on
# PostgreSQL: what a crash takes is read again.
staged_record = Table(
    "staged_record",
    metadata,
    Column("attempt", Text, primary_key=True, comment="one task of Spark, one try"),
    Column("metadata_partition", Integer, primary_key=True),
    Column("metadata_offset", BigInteger, primary_key=True),
    Column("cluster_id", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("record_timestamp_ms", BigInteger, nullable=False),
    Column("kind", SmallInteger),
    Column("topic", Text),
    Column("topic_id", Text),
    Column("partition", Integer),
    Column("segment_id", Text),
    Column("state", SmallInteger),
    Column("broker_id", Integer),
    Column("event_timestamp_ms", BigInteger),
    Column("start_offset", BigInteger),
    Column("end_offset", BigInteger),
    Column("max_timestamp_ms", BigInteger),
    Column("segment_size_bytes", Integer),
    Column("leader_epochs", Text),
    Column("custom_metadata", LargeBinary),
    Column("txn_index_empty", Boolean),
    Column("problem", Text, comment="why it cannot be read; NULL: an event"),
    Column("raw_key", LargeBinary),
    Column("raw_value", LargeBinary),
)

pipeline_batch = Table(
    "pipeline_batch",
    metadata,
    row_id(),
    Column("cluster_id", Text, nullable=False),
    Column("job", Text, nullable=False),
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
