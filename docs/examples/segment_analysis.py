"""What does the metadata topic say? A worked example of batch analysis, to run or to paste into a notebook.

    python docs/examples/segment_analysis.py 127.0.0.1:19092 /tmp/segments.parquet

It reads `__remote_log_metadata` as it is now, with the same source and rules as the pipeline, needs no database and
changes nothing in the cluster; beside the target Spark keeps a folder `spark`. Options of the source: docs/pipeline.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark import transforms
from spark.notebook import session


def analyse(
    spark: SparkSession, bootstrap: str, target: str, topic: str = "__remote_log_metadata"
) -> dict[str, DataFrame]:
    """The answers by name; all segments are written to ``target`` as Parquet, one folder a topic."""
    # %% Every record of the topic, decoded. `problem` is null for what could be read.
    records = spark.read.format("rlmm").options(**{"bootstrap.servers": bootstrap, "topic": topic}).load()

    # %% The life of every segment by the ledger's rules. Cached: all that follows reads it.
    followed = transforms.followed(transforms.events(records)).cache()
    segments = transforms.segment_states(followed)
    segments.write.mode("overwrite").partitionBy("topic").parquet(target)

    # %% Which broker copies slowly? From the Parquet files, which any tool reads from now on.
    stored = spark.read.parquet(target)
    took = (F.col("copy_finished_ms") - F.col("copy_started_ms")) / 1000
    by_broker = stored.groupBy("copy_broker_id").agg(
        F.count("*").alias("segments"),
        F.percentile(took, 0.5).alias("copy_p50_s"),
        F.percentile(took, 0.99).alias("copy_p99_s"),
    )
    return {
        "segments and bytes of each topic": transforms.summaries(segments, transforms.BY_TOPIC),
        "copies by broker": by_broker.orderBy("copy_broker_id"),
        "overlaps and gaps": transforms.overlaps_and_gaps(segments),
        "events that the ledger does not follow": followed.where(~F.col("legal")),
        "records that could not be read": transforms.quarantined(records),
    }


if __name__ == "__main__":
    place = Path(sys.argv[2])
    for name, answer in analyse(session(place.parent / "spark"), sys.argv[1], str(place)).items():
        sys.stdout.write(f"{name}\n")
        answer.show(truncate=False)
