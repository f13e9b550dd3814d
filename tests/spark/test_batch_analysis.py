"""`spark.read.format("rlmm")` and the worked example of the documentation, on a topic that a real Kafka wrote."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.kafka_peer import create_topic, produce
from tests.spark.records import captured, final_states, raw

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "segment_analysis.py"


@pytest.fixture
def example() -> Any:
    spec = importlib.util.spec_from_file_location("segment_analysis", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_worked_example_answers_from_the_topic_and_writes_parquet(
    spark_session: SparkSession, kafka_bootstrap: str, example: Any, tmp_path: Path
) -> None:
    lines = captured("metadata-records.jsonl")
    topic = f"rlm-{uuid4().hex}"
    create_topic(kafka_bootstrap, topic)
    odd = (4, 0, 1, b"key", b"not an event")
    produce(kafka_bootstrap, topic, [*raw(lines), odd])
    target = tmp_path / "segments.parquet"
    answers = example.analyse(spark_session, kafka_bootstrap, str(target), topic)
    rows = {name: answer.collect() for name, answer in answers.items()}
    stored = spark_session.read.parquet(str(target)).collect()
    assert {row.segment_id: row.state for row in stored} == final_states(lines)
    topics = rows["segments and bytes of each topic"]
    assert sum(row.copy_finished_segments for row in topics) == sum(s == 1 for s in final_states(lines).values())
    assert sum(row.segments for row in rows["copies by broker"]) == len(stored)
    assert rows["events that the ledger does not follow"] == []
    assert [(row.metadata_partition, row.raw_key) for row in rows["records that could not be read"]] == [(4, b"key")]


def test_an_empty_topic_is_read_as_nothing_and_a_missing_one_says_so(
    spark_session: SparkSession, kafka_bootstrap: str
) -> None:
    topic = f"rlm-{uuid4().hex}"
    reader = spark_session.read.format("rlmm").option("bootstrap.servers", kafka_bootstrap)
    with pytest.raises(PySparkException, match=f"the topic {topic} does not exist yet"):
        reader.option("topic", topic).load().count()
    create_topic(kafka_bootstrap, topic)
    assert reader.option("topic", topic).load().count() == 0
