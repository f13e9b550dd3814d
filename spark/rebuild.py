"""Forgets a cluster's ledger, so that the pipeline reads the topic from its beginning (`ebbline pipeline rebuild`).

The way out after a gap: what the topic has lost cannot be told any more, what it still holds can.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import delete, func, select

from backend.store import migrate
from backend.store import tables as t
from backend.store.engine import create_engine, writing
from backend.store.writes import data_changed
from spark.lock import only_one
from spark.sinks.ledger_sink import PROCESS

# Everything that was made of the topic's records, and the offsets that say how far it was read.
LEDGER: Final = (
    t.segment_event,
    t.segment,
    t.segment_interval,
    t.remote_partition,
    t.quarantine,
    t.source_offsets,
    t.pipeline_batch,
)


def forget_ledger(spark_dir: Path, database_url: str, cluster_id: str) -> int:
    """Delete the ledger in one transaction; returns how many events it held.

    Raises Busy while a pipeline runs in the data folder, StoreError for a database that cannot be used.
    """
    migrate.require_current(database_url)
    engine = create_engine(database_url)
    try:
        with only_one(spark_dir), writing(engine) as connection:
            events = t.segment_event
            counted = select(func.count()).select_from(events).where(events.c.cluster_id == cluster_id)
            forgotten = int(connection.execute(counted).scalar_one())
            for table in LEDGER:
                connection.execute(delete(table).where(table.c.cluster_id == cluster_id))
            data_changed(connection, cluster_id, PROCESS)
            return forgotten
    finally:
        engine.dispose()
