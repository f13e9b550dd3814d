"""DataFrame → DataFrame: what Spark does between source and sink."""

from __future__ import annotations

from pyspark.sql import DataFrame

from spark.schemas import RECORD_COLUMNS


def in_log_order(records: DataFrame) -> DataFrame:
    """Records ordered as their topic partitions hold them.

    A topic partition is read by one task, so the order inside tasks is enough: no shuffle, and
    every prefix of the result is a prefix of each topic partition. The sink relies on that when
    it commits a batch in several transactions.
    """
    return records.select(*RECORD_COLUMNS).sortWithinPartitions("metadata_partition", "metadata_offset")
