"""DataFrame → DataFrame: what Spark does between source and sink, and for analysis of what the topic holds.

    records (`spark.schemas`) ─ events ─ followed ─► segment_states ─► summaries, overlaps_and_gaps

The streaming job folds events into rows that are in the database already (`spark.ledger`). These here see the whole
topic at once, in a batch, and give the same states by the same rules. Values that depend on
the clock or on the cluster's leader epochs are computed by the control plane, from the stored rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from backend.tiering.segment_state import SegmentState
from spark.ledger import Event, Ledger
from spark.schemas import (
    EVENT_COLUMNS,
    KIND_PARTITION_DELETE,
    KIND_SEGMENT,
    RECORD_ARROW,
    RECORD_SCHEMA,
)

BY_PARTITION: Final = ("topic", "topic_id", "partition")
BY_TOPIC: Final = ("topic", "topic_id")
SEGMENT_KEY: Final = ("topic_id", "partition", "segment_id")
_EVENT_FIELDS: Final = [RECORD_SCHEMA[name] for name in EVENT_COLUMNS]
FOLLOWED_SCHEMA: Final = StructType(
    [*_EVENT_FIELDS, StructField("legal", BooleanType(), False), StructField("illegal_reason", StringType(), True)]
)
_FOLLOWED_ARROW: Final = pa.schema(
    [*(RECORD_ARROW.field(name) for name in EVENT_COLUMNS), pa.field("legal", pa.bool_(), False),
     pa.field("illegal_reason", pa.string())]
)  # fmt: skip
FOLLOW_ROWS: Final = 5_000


def events(records: DataFrame) -> DataFrame:
    """The records that could be read, without the columns of the others."""
    return records.where(F.col("problem").isNull()).select(*EVENT_COLUMNS)


def quarantined(records: DataFrame) -> DataFrame:
    """The records that could not be read: place, reason, and what is kept of key and value."""
    columns = ("metadata_partition", "metadata_offset", "record_timestamp_ms", "problem", "raw_key", "raw_value")
    return records.where(F.col("problem").isNotNull()).select(*columns)


def followed(events: DataFrame) -> DataFrame:
    """Events with ``legal`` and ``illegal_reason``: whether the ledger follows them (`spark.ledger.Ledger`).

    All events from the topic's beginning are needed. Each task holds the segments of its partitions, about 1 KB each.
    """
    # A partition's events are in one topic partition, so that its offset is their order.
    ordered = events.repartition("topic_id", "partition").sortWithinPartitions("metadata_partition", "metadata_offset")
    return ordered.mapInArrow(_apply, FOLLOWED_SCHEMA)


def _apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    ledger = Ledger()
    for batch in batches:
        for at in range(0, batch.num_rows, FOLLOW_ROWS):
            part = batch.slice(at, FOLLOW_ROWS)
            rows = zip(*(column.to_pylist() for column in part.columns), strict=True)
            reasons = [ledger.apply(Event._make(row)) for row in rows]
            legal = [reason is None for reason in reasons]
            columns = [*part.columns, pa.array(legal, pa.bool_()), pa.array(reasons, pa.string())]
            # Spark's own batches say that columns may be null that are not.
            yield pa.RecordBatch.from_arrays(
                [column.cast(field.type) for column, field in zip(columns, _FOLLOWED_ARROW, strict=True)],
                schema=_FOLLOWED_ARROW,
            )


def segment_states(followed: DataFrame) -> DataFrame:
    """One row a segment, as the ledger has it after these events. ``end_offset`` is inclusive."""
    at = F.col("metadata_offset")
    at_segment = F.when(F.col("kind") == KIND_SEGMENT, at)  # max_by and min_by pass over null

    def first_said(state: SegmentState) -> Column:
        return F.min_by("event_timestamp_ms", F.when(F.col("state") == int(state), at))

    legal = followed.where(F.col("legal") & (F.col("kind") != KIND_PARTITION_DELETE))
    return legal.groupBy(*SEGMENT_KEY).agg(
        F.max_by("topic", at_segment).alias("topic"),
        F.max_by("start_offset", at_segment).alias("start_offset"),
        F.max_by("end_offset", at_segment).alias("end_offset"),
        F.max_by("state", at).alias("state"),
        F.max_by("segment_size_bytes", at_segment).alias("segment_size_bytes"),
        F.max_by("max_timestamp_ms", at_segment).alias("max_timestamp_ms"),
        F.max_by("leader_epochs", at_segment).alias("leader_epochs"),
        F.max_by("broker_id", at_segment).alias("copy_broker_id"),
        F.max_by("broker_id", at).alias("broker_id"),
        first_said(SegmentState.COPY_SEGMENT_STARTED).alias("copy_started_ms"),
        first_said(SegmentState.COPY_SEGMENT_FINISHED).alias("copy_finished_ms"),
        first_said(SegmentState.DELETE_SEGMENT_STARTED).alias("delete_started_ms"),
        first_said(SegmentState.DELETE_SEGMENT_FINISHED).alias("delete_finished_ms"),
        F.max("metadata_offset").alias("last_event_offset"),
    )


def summaries(states: DataFrame, by: tuple[str, ...] = BY_PARTITION) -> DataFrame:
    """Segments and bytes by state, times of copies and deletions, how far the remote log reaches, its leader epochs.

    Per partition, or with `BY_TOPIC` per topic. Times are exact percentiles in ms, null where there is none; ``lag`` is
    how long after its newest record a segment was remote.
    """
    copied = F.col("state") == int(SegmentState.COPY_SEGMENT_FINISHED)
    size = F.col("segment_size_bytes").cast("long")
    parts: list[Column] = []
    for state in SegmentState:
        here = F.col("state") == int(state)
        name = state.name.lower().replace("_segment", "")
        parts.append(F.count_if(here).alias(f"{name}_segments"))
        parts.append(F.sum(F.when(here, size).otherwise(0)).alias(f"{name}_bytes"))
    took = {what: F.col(f"{what}_finished_ms") - F.col(f"{what}_started_ms") for what in ("copy", "delete")}
    # A segment without a record's time says -1.
    took["lag"] = F.when(F.col("max_timestamp_ms") >= 0, F.col("copy_finished_ms") - F.col("max_timestamp_ms"))
    for what, time_ms in took.items():
        for percent in (50, 99):
            parts.append(F.percentile(time_ms, percent / 100).alias(f"{what}_p{percent}_ms"))
    epochs = F.from_json("leader_epochs", "array<array<bigint>>")
    return states.groupBy(*by).agg(
        *parts,
        F.min(F.when(copied, F.col("start_offset"))).alias("first_remote_offset"),
        F.max(F.when(F.col("copy_finished_ms").isNotNull(), F.col("end_offset"))).alias("highest_copied_offset"),
        F.min(F.element_at(F.element_at(epochs, 1), 1)).alias("first_leader_epoch"),
        F.max(F.element_at(F.element_at(epochs, -1), 1)).alias("last_leader_epoch"),
    )


def overlaps_and_gaps(states: DataFrame) -> DataFrame:
    """Where finished segments of a partition hold an offset twice, or leave one out between two of them.

    Rows: partition, ``what`` (overlap, gap), ``from_offset`` and ``to_offset`` (half-open), and the segment that begins
    there. Both are normal after unclean elections; by themselves they are not data loss.
    """
    here = Window.partitionBy("topic_id", "partition").orderBy("start_offset", "end_offset", "segment_id")
    so_far = here.rowsBetween(Window.unboundedPreceding, -1)
    finished = states.where(F.col("state") == int(SegmentState.COPY_SEGMENT_FINISHED))
    reached = finished.withColumn("reached", F.max("end_offset").over(so_far) + 1)
    start, end = F.col("start_offset"), F.least("reached", F.col("end_offset") + 1)
    overlap, gap = F.col("reached") > start, F.col("reached") < start
    columns: list[Any] = [
        *BY_PARTITION,
        F.when(overlap, "overlap").otherwise("gap").alias("what"),
        F.when(overlap, start).otherwise(F.col("reached")).alias("from_offset"),
        F.when(overlap, end).otherwise(start).alias("to_offset"),
        "segment_id",
    ]
    return reached.where(overlap | gap).select(*columns)
