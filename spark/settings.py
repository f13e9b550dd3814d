"""Settings of the pipeline, all from the environment that `ebbline up` hands over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SOURCE_TOPIC: Final = "__remote_log_metadata"
JOB: Final = "remote-log-metadata"
RLMM, KAFKA = "rlmm", "kafka"
LOCAL: Final = "local[2]"
# The argument of `spark.job` that has it start Spark and wait for a line on its standard input.
WAIT_FOR_START: Final = "--wait-for-start"
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_MASTER: Final = re.compile(r"local\[(\d{1,4}|\*)(,\d{1,4})?\]|local-cluster\[[\d, ]+\]|yarn|(spark|k8s)://[^\s@]+")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_MEMORY: Final = re.compile(r"[1-9][0-9]{0,8}[kmgt]?", re.IGNORECASE)
_HOST: Final = re.compile(r"[A-Za-z0-9.:_-]{1,253}")


class SettingsError(Exception):
    """The environment is not complete or not sound. The message is one sentence for people."""


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """One run of the pipeline."""

    data_dir: Path
    cluster_id: str
    bootstrap_servers: str
    database_url: str
    source_topic: str = SOURCE_TOPIC
    client_properties: Mapping[str, str] = field(default_factory=dict)  # librdkafka's names
    records_per_batch: int = 50_000  # of about 700 bytes in the driver: 35 MB
    poll_interval_ms: int = 200  # five requests a second to the brokers while nothing happens

    history_days: int = 0  # 0: events and deleted segments stay for ever
    connector: str = RLMM  # the source: ours, or Spark's own
    connector_jars: Path | None = None  # the folder of Spark's own
    spark_master: str = LOCAL  # of a Spark cluster: PostgreSQL only, executors write to it
    tasks: int = 2  # that read at once
    ui_port: int = 0  # of Spark's own pages, on the loopback address; 0: none

    @property
    def spark_dir(self) -> Path:
        return self.data_dir / "spark"

    @property
    def on_cluster(self) -> bool:
        """Whether executors are other processes, which store what they read by themselves."""
        return not self.spark_master.startswith("local[")

    @property
    def life_file(self) -> Path:
        """Its time says when the pipeline last gave a sign of life."""
        return self.data_dir / "run" / "pipeline.life"


def from_environment(environment: Mapping[str, str]) -> PipelineSettings:
    """Read the ``EBBLINE_*`` variables; raises SettingsError naming the one that is wrong."""

    def required(name: str) -> str:
        value = environment.get(name, "").strip()
        if not value:
            raise SettingsError(f"{name} is not set: `ebbline up` runs the pipeline and hands it over.")
        return value

    def number(name: str, default: int, low: int, high: int) -> int:
        text = environment.get(name, "").strip() or str(default)
        if not _NUMBER.fullmatch(text) or not low <= int(text) <= high:
            raise SettingsError(f"{name} is not a number from {low} to {high}.")
        return int(text)

    connector = environment.get("EBBLINE_PIPELINE_CONNECTOR", "").strip() or RLMM
    if connector not in (RLMM, KAFKA):
        raise SettingsError(f"EBBLINE_PIPELINE_CONNECTOR is neither {RLMM} nor {KAFKA}.")
    jars = environment.get("EBBLINE_PIPELINE_CONNECTOR_JARS", "").strip()
    if connector == KAFKA and not jars:
        raise SettingsError("EBBLINE_PIPELINE_CONNECTOR_JARS is not set: the folder of Spark's Kafka connector.")
    master = environment.get("EBBLINE_PIPELINE_SPARK_MASTER", "").strip() or LOCAL
    if not _MASTER.fullmatch(master):
        raise SettingsError(
            "EBBLINE_PIPELINE_SPARK_MASTER is no address of a Spark cluster, such as spark://host:7077."
        )
    if not master.startswith("local[") and not required("EBBLINE_DATABASE_URL").startswith("postgres"):
        raise SettingsError(
            "EBBLINE_PIPELINE_SPARK_MASTER needs PostgreSQL: executors of a cluster cannot share a file."
        )
    topic = environment.get("EBBLINE_PIPELINE_TOPIC", "").strip() or SOURCE_TOPIC
    if not _TOPIC.fullmatch(topic):
        raise SettingsError("EBBLINE_PIPELINE_TOPIC is no name of a topic: letters, digits, '.', '_' and '-'.")
    if jars and not Path(jars).is_dir():
        raise SettingsError("EBBLINE_PIPELINE_CONNECTOR_JARS is no folder: name the one of Spark's Kafka connector.")
    executor_memory(environment)
    driver_host(environment)
    return PipelineSettings(
        data_dir=Path(required("EBBLINE_DATA_DIR")).absolute(),
        cluster_id=required("EBBLINE_CLUSTER_ID"),
        bootstrap_servers=required("EBBLINE_BOOTSTRAP_SERVERS"),
        database_url=required("EBBLINE_DATABASE_URL"),
        source_topic=topic,
        client_properties=_client_properties(environment.get("EBBLINE_CLIENT_PROPERTIES", "").strip()),
        records_per_batch=number("EBBLINE_PIPELINE_RECORDS_PER_BATCH", 50_000, 1, 500_000),
        history_days=number("EBBLINE_PIPELINE_HISTORY_DAYS", 0, 0, 36_500),
        poll_interval_ms=number("EBBLINE_PIPELINE_POLL_INTERVAL_MS", 200, 10, 60_000),
        connector=connector,
        connector_jars=Path(jars) if jars else None,
        spark_master=master,
        tasks=number("EBBLINE_PIPELINE_TASKS", 2, 1, 1_000),
        ui_port=number("EBBLINE_PIPELINE_SPARK_UI_PORT", 0, 0, 65_535),
    )


def executor_memory(environment: Mapping[str, str]) -> str:
    """Of each executor of a Spark cluster, as the JVM names it. Raises SettingsError."""
    text = environment.get("EBBLINE_PIPELINE_SPARK_EXECUTOR_MEMORY", "").strip() or "1g"
    if not _MEMORY.fullmatch(text):
        raise SettingsError("EBBLINE_PIPELINE_SPARK_EXECUTOR_MEMORY is no size such as 512m or 2g.")
    return text


def driver_host(environment: Mapping[str, str]) -> str:
    """Where the executors of a Spark cluster find the driver. Raises SettingsError."""
    text = environment.get("EBBLINE_PIPELINE_SPARK_HOST", "").strip() or "127.0.0.1"
    if not _HOST.fullmatch(text):
        raise SettingsError("EBBLINE_PIPELINE_SPARK_HOST is no name or address of a host.")
    return text


def _client_properties(file: str) -> dict[str, str]:
    if not file:
        return {}
    try:
        lines = Path(file).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"The file {file} of EBBLINE_CLIENT_PROPERTIES cannot be read: {error}.") from error
    pairs = (line.split("=", 1) for line in map(str.strip, lines) if line and not line.startswith("#"))
    try:
        return {name.strip(): value.strip() for name, value in pairs}
    except ValueError as error:
        raise SettingsError(f"The file {file} of EBBLINE_CLIENT_PROPERTIES has a line without '='.") from error
