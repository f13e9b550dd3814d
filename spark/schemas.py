"""The one record shape of the pipeline, for Spark and for Arrow.

A row is a record of `__remote_log_metadata`. When ``problem`` is null it is an event, decoded;
otherwise it could not be understood, and key and raw value are kept for the quarantine.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

KIND_SEGMENT, KIND_UPDATE, KIND_PARTITION_DELETE = 0, 1, 2  # the record's apiKey

_FIELDS: Final[tuple[tuple[str, DataType, pa.DataType, bool], ...]] = (
    ("metadata_partition", IntegerType(), pa.int32(), False),
    ("metadata_offset", LongType(), pa.int64(), False),
    ("record_timestamp_ms", LongType(), pa.int64(), False),
    ("kind", ShortType(), pa.int16(), True),
    ("topic", StringType(), pa.string(), True),
    ("topic_id", StringType(), pa.string(), True),
    ("partition", IntegerType(), pa.int32(), True),
    ("segment_id", StringType(), pa.string(), True),
    ("state", ShortType(), pa.int16(), True),
    ("broker_id", IntegerType(), pa.int32(), True),
    ("event_timestamp_ms", LongType(), pa.int64(), True),
    ("start_offset", LongType(), pa.int64(), True),
    ("end_offset", LongType(), pa.int64(), True),
    ("max_timestamp_ms", LongType(), pa.int64(), True),
    ("segment_size_bytes", IntegerType(), pa.int32(), True),
    ("leader_epochs", StringType(), pa.string(), True),  # JSON: [[epoch, start offset], ...]
    ("custom_metadata", BinaryType(), pa.binary(), True),
    ("txn_index_empty", BooleanType(), pa.bool_(), True),
    ("problem", StringType(), pa.string(), True),
    ("raw_key", BinaryType(), pa.binary(), True),
    ("raw_value", BinaryType(), pa.binary(), True),
)

RECORD_SCHEMA: Final = StructType([StructField(name, spark, nullable) for name, spark, _, nullable in _FIELDS])
RECORD_ARROW: Final = pa.schema([pa.field(name, arrow, nullable) for name, _, arrow, nullable in _FIELDS])
RECORD_COLUMNS: Final = tuple(name for name, _, _, _ in _FIELDS)
EVENT_COLUMNS: Final = RECORD_COLUMNS[: RECORD_COLUMNS.index("problem")]
