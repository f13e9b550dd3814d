"""`__remote_log_metadata` of a real Apache Kafka, read by a plain consumer and by the pipeline."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition

from spark.decode import RawRecord
from spark.kafka import OffsetsHeld
from spark.reading import open_consumer
from spark.settings import PipelineSettings
from tests.oracle.apache_kafka import Unavailable, resolve_spark_jars
from tests.spark import running
from tests.waiting import wait_until


def records_of(settings: PipelineSettings, partition: int, held: OffsetsHeld) -> list[RawRecord]:
    """All records of a topic partition, by a new consumer."""
    consumer = open_consumer(settings.bootstrap_servers, {}).consumer
    consumer.assign([TopicPartition(settings.source_topic, partition, held.low)])
    records: list[RawRecord] = []

    def all_there() -> bool:
        for message in consumer.consume(500, 0.2):
            if message.error() is None:  # else the end of the partition
                records.append(
                    (partition, message.offset() or 0, message.timestamp()[1], message.key(), message.value())
                )
        return bool(records) and records[-1][1] == held.high - 1

    if held.high > held.low:
        wait_until(f"partition {partition} is read", all_there)
    consumer.close()
    return records


def by_spark(settings: PipelineSettings, connector: str, done: Callable[[], bool]) -> None:
    """Runs the pipeline as a process until everything is stored."""
    more = {"EBBLINE_PIPELINE_CONNECTOR": connector}
    if connector == "kafka":
        try:
            more["EBBLINE_PIPELINE_CONNECTOR_JARS"] = str(resolve_spark_jars())
        except Unavailable as reason:
            pytest.skip(f"Spark's Kafka connector is unavailable: {reason}")
    with running.pipeline_process(settings, **more):
        wait_until("everything is stored", done, running.WAIT_S)
