"""The pipeline's work on the ledger without Spark: the same decoder and sink, fed once by an ordinary consumer."""

from __future__ import annotations

import os
import time

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from backend.store.connection.database import create_engine, writing
from backend.store.writes import cluster_rows
from spark.decode import RawRecord, to_batch
from spark.sinks.ledger_sink import LedgerSink
from tests.control.site import ControlSite
from tests.engine_cluster import CLUSTER_ID

TOPIC = "__remote_log_metadata"


def feed_ledger(site: ControlSite) -> None:
    """Brings the ledger up to the present end of the metadata topic, and gives the pipeline's sign of life."""
    records = _records(site)
    engine = create_engine(site.database_url)
    try:
        sink = LedgerSink(engine, cluster_id=CLUSTER_ID, job="ledger", source_topic=TOPIC)
        sink.write(1, pa.Table.from_batches([to_batch(records)]))
        now_ms = time.time_ns() // 1_000_000
        with writing(engine) as connection:
            cluster_rows.heartbeat(
                connection,
                CLUSTER_ID,
                "pipeline",
                pid=os.getpid(),
                started_ms=now_ms,
                now_ms=now_ms,
                interval_ms=600_000,  # it feeds when the test says so
                state="running",
            )
    finally:
        engine.dispose()


def _records(site: ControlSite) -> list[RawRecord]:
    consumer = Consumer({"bootstrap.servers": site.cluster.bootstrap, "group.id": "feed", "log_level": 0})
    try:
        partitions = consumer.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
        ends = {p: consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=10)[1] for p in partitions}
        consumer.assign([TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in partitions])
        records: list[RawRecord] = []
        expected = sum(ends.values())
        until_s = time.monotonic() + 30
        while len(records) < expected and time.monotonic() < until_s:
            for message in consumer.consume(min(500, expected - len(records)), timeout=1):
                assert message.error() is None, message.error()
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                records.append((partition, offset, message.timestamp()[1], message.key(), message.value()))
        return sorted(records, key=lambda record: record[:2])
    finally:
        consumer.close()
