"""The same records by Spark's own Kafka connector: ``ebbline pipeline run --connector kafka``.

The connector is a few jars that the wheel does not carry (docs/pipeline.md). Its records are decoded in Python workers
by the same code as the source's, so that everything behind it is the same. Spark keeps no offsets for us here
either: the stream begins where ``source_offsets`` ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark.decode import to_batch
from spark.packed import PACKED_SCHEMA, pack
from spark.settings import PipelineSettings, SettingsError

CONNECTOR_JAR: Final = "spark-sql-kafka-0-10_*.jar"
JARS_MIN: Final = 4  # the connector, its token provider, kafka-clients, commons-pool2
# Without these the consumer of each task asks for 500 records at a time and waits half a second: a third of the speed.
_CONSUMER: Final = {"kafka.max.poll.records": "10000", "kafka.fetch.max.wait.ms": "10"}
# librdkafka's names and Java's, where both mean the same by the same values.
_SAME: Final = frozenset({"security.protocol", "sasl.mechanism", "client.id", "ssl.endpoint.identification.algorithm"})
_RENAMED: Final = {"sasl.mechanisms": "sasl.mechanism", "ssl.ca.location": "ssl.truststore.location"}
# Files of librdkafka, whose text Java takes.
_TEXTS: Final = {
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
_PKCS8: Final = "BEGIN PRIVATE KEY"
_LOGIN: Final = ("sasl.username", "sasl.password")
_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def jars_in(folder: Path) -> list[Path]:
    """The jars of a folder that has the connector; raises SettingsError where it is not there."""
    jars = sorted(folder.glob("*.jar"))
    if not any(folder.glob(CONNECTOR_JAR)) or len(jars) < JARS_MIN:
        raise SettingsError(
            f"The folder {folder} of EBBLINE_PIPELINE_CONNECTOR_JARS does not have the jars of Spark's Kafka "
            "connector: docs/pipeline.md names them."
        )
    return jars


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """librdkafka settings in the words of Kafka's Java client; raises SettingsError for one that has none here."""
    translated: dict[str, str] = {}
    for name, value in properties.items():
        if name in _SAME:
            translated[name] = "" if (name, value) == ("ssl.endpoint.identification.algorithm", "none") else value
        elif name in _RENAMED:
            translated[_RENAMED[name]] = value
        elif name in _TEXTS:
            translated[_TEXTS[name]] = _pem(name, value)
        elif name not in _LOGIN:
            raise SettingsError(
                f"EBBLINE_CLIENT_PROPERTIES has {name}, which Spark's Kafka connector does not know: "
                "take it out, or use `--connector rlmm`."
            )
    if "ssl.truststore.location" in translated:
        translated["ssl.truststore.type"] = "PEM"
    if "ssl.keystore.key" in translated:
        translated["ssl.keystore.type"] = "PEM"
    if any(name in properties for name in _LOGIN):
        translated["sasl.jaas.config"] = _login(
            translated.get("sasl.mechanism", ""), *(properties.get(n, "") for n in _LOGIN)
        )
    return translated


def _pem(name: str, file: str) -> str:
    try:
        text = Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"The file {file} of {name} in EBBLINE_CLIENT_PROPERTIES cannot be read: {error}."
        ) from error
    if name == "ssl.key.location" and _PKCS8 not in text:
        raise SettingsError(
            f"The key {file} of ssl.key.location is not PKCS #8 in plain text, which Spark's Kafka connector needs: "
            f"`openssl pkcs8 -topk8 -nocrypt -in {file} -out NEW` makes one."
        )
    return text


def _login(mechanism: str, user: str, password: str) -> str:
    if mechanism not in _MODULES:
        raise SettingsError(f"sasl.mechanism={mechanism} has no user and password: one of {', '.join(_MODULES)}.")
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in (user, password))
    return '{} required username="{}" password="{}";'.format(_MODULES[mechanism], *quoted)


def stream(
    session: SparkSession, settings: PipelineSettings, start: Mapping[int, int], records_per_batch: int
) -> DataFrame:
    """Records of the topic, packed (`spark.packed`), from these offsets on, which must name every partition."""
    topic = settings.source_topic
    reader = session.readStream.format("kafka").options(
        **{"kafka.bootstrap.servers": settings.bootstrap_servers, "subscribe": topic},
        startingOffsets=json.dumps({topic: {str(partition): offset for partition, offset in start.items()}}),
        maxOffsetsPerTrigger=str(records_per_batch),
        failOnDataLoss="true",
        **_CONSUMER,
        **{f"kafka.{name}": value for name, value in java_properties(settings.client_properties).items()},
    )
    columns = ("partition", "offset", "unix_millis(timestamp)", "key", "value")
    # Spark gives each topic partition a task; 50 of them on two cores would be 50 Python workers to talk to.
    raw = reader.load().selectExpr(*columns).coalesce(settings.tasks)
    return raw.mapInArrow(_decode, PACKED_SCHEMA)


def _decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = (zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in batches)
    return pack(map(to_batch, rows))
