"""The metrics of the remote tier on a broker's `/metrics`, against the MBeans of a busy Apache Kafka 4.3.1 broker."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from backend.engine.metrics.collector import BrokerCollector
from tests.scenarios.tiering_lab import Lab, values

MBEANS: Final = Path(__file__).parents[1] / "fixtures" / "apache-kafka-4.3.1" / "mbeans.json"
OF_THE_TIER: Final = re.compile(r"[Rr]emote|RLM|RetentionSizeInPercent")
# Kafka's own older names of two others; the exporter's Kafka rules do not take them.
DEPRECATED: Final = "org.apache.kafka.storage.internals.log:"
# Other tests are for the purgatory's metrics.
REQUESTS_THAT_WAIT: Final = "Delayed"
# The attributes of an MBean without a name, of Kafka's other metrics library.
ATTRIBUTES: Final = {
    "kafka.server:type=RLMCopy": ("byte_rate",),
    "kafka.server:type=RLMFetch": ("byte_rate",),
    "kafka.server:type=RemoteLogManager": tuple(
        f"remote_{what}_throttle_time_{how}" for what in ("copy", "fetch") for how in ("avg", "max")
    ),
}

# The metrics of tiered storage, from Kafka's list. Meters and gauges of topics have a row for all together.
TOPIC_METERS: Final = (
    "RemoteFetchBytes", "RemoteFetchRequests", "RemoteFetchErrors", "RemoteCopyBytes", "RemoteCopyRequests",
    "RemoteCopyErrors", "RemoteDeleteRequests", "RemoteDeleteErrors", "BuildRemoteLogAuxStateRequests",
    "BuildRemoteLogAuxStateErrors",
)  # fmt: skip
TOPIC_GAUGES: Final = (
    "RemoteCopyLagBytes", "RemoteCopyLagSegments", "RemoteDeleteLagBytes", "RemoteDeleteLagSegments",
    "RemoteLogSizeBytes", "RemoteLogMetadataCount", "RemoteLogSizeComputationTime",
)  # fmt: skip
# Name and labels of a row that is there from the start.
BROKER_WIDE: Final = (
    ("kafka_server_delayedremotefetchmetrics_expires", {}),
    ("kafka_server_delayedremotelistoffsetsmetrics_expires", {"topic": "", "partition": ""}),
    *(
        (f"kafka_server_delayedoperationpurgatory_{what}", {"delayedoperation": operation})
        for what in ("purgatorysize", "numdelayedoperations")
        for operation in ("RemoteFetch", "RemoteListOffsets")
    ),
    ("kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent", {}),
    ("kafka_log_remote_remotelogmanager_remotelogreaderfetchrateandtimems", {"quantile": "0.99"}),
    ("kafka_log_remote_remotelogmanager_remotelogreaderfetchrateandtimems_count", {}),
    ("kafka_log_remote_remotestoragethreadpool_remotelogreadertaskqueuesize", {}),
    ("kafka_log_remote_remotestoragethreadpool_remotelogreaderavgidlepercent", {}),
    *((f"kafka_server_remotelogmanager_{name}", {}) for name in ATTRIBUTES["kafka.server:type=RemoteLogManager"]),
    ("kafka_server_rlmcopy_byte_rate", {}),
    ("kafka_server_rlmfetch_byte_rate", {}),
)
OF_PARTITIONS: Final = (
    "kafka_log_remote_remotelogmanager_retentionsizeinpercent",
    "kafka_log_remote_remotelogmanager_localretentionsizeinpercent",
    "kafka_log_log_retentionsizeinpercent",
)


def missing(samples: dict[str, list[tuple[dict[str, str], float]]], topic: str) -> list[tuple[str, dict[str, str]]]:
    """Rows of the list that are not there, with their labels."""
    requested: list[tuple[str, dict[str, str]]] = [
        (f"kafka_server_brokertopicmetrics_{name.lower()}", {"topic": label_value})
        for name in (*TOPIC_METERS, *TOPIC_GAUGES)
        for label_value in ("", topic)
    ]
    requested += [*BROKER_WIDE, *((name, {"topic": topic, "partition": "0"}) for name in OF_PARTITIONS)]
    return [
        (name, labels)
        for name, labels in requested
        if not any(labels.items() <= row.items() for row, _ in samples.get(name, ()))
    ]


def exported(mbean: str) -> tuple[list[str], dict[str, str]]:
    """Names and labels that the JMX exporter's sample rules for Kafka give an MBean, lower case."""
    domain, _, rest = mbean.partition(":")
    tags = dict(pair.split("=", 1) for pair in rest.split(","))
    prefix = f"{domain.replace('.', '_')}_{tags.pop('type')}"
    name = tags.pop("name", None)
    names = ATTRIBUTES[mbean] if name is None else (name.removesuffix("PerSec"),)
    labels = {key.lower(): value for key, value in tags.items()}
    return [f"{prefix}_{metric_name}".lower() for metric_name in names], labels


def scraped(running: Lab, node: int) -> dict[str, list[tuple[dict[str, str], float]]]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BrokerCollector(running.cluster.broker(node).services.metrics))
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            samples.setdefault(family.name, []).append((dict(sample.labels), sample.value))
    return samples


def of_topic(samples: dict[str, list[tuple[dict[str, str], float]]], name: str, topic: str) -> float:
    [value] = [value for labels, value in samples[name] if labels.get("topic") == topic]
    return value


def test_everything_kafka_shows_of_the_tier_is_there_under_its_name(running: Lab) -> None:
    topic = "jmx"
    running.create(topic, [(1, 2)], batches=1, local_retention_bytes=1)
    running.produce(topic, *values(*range(5)))
    running.wait_offsets(topic, (0, 4, 5, 3))
    assert running.fetch(topic, 0).error == 0
    prefix = "kafka_server_brokertopicmetrics_remote"
    for name, value in (("logmetadatacount", 4), ("copylagbytes", 0)):
        running.wait(f"{name} is {value}", lambda n=name, v=value: of_topic(
            scraped(running, 1), f"{prefix}{n}", topic) == v)  # fmt: skip
    result = scraped(running, 1)
    mbeans = [mbean for mbean in json.loads(MBEANS.read_text())["all_kafka_mbean_names"] if OF_THE_TIER.search(mbean)]
    assert len(mbeans) > 40
    assert missing(result, topic) == []
    absent = []
    for mbean in [*mbeans, "kafka.server:type=RemoteLogManager"]:
        if mbean.startswith(DEPRECATED) or REQUESTS_THAT_WAIT in mbean:
            continue
        names, labels = exported(mbean)
        for name in names:
            rows = [row for row, _ in result.get(name, ()) if labels.items() <= row.items()]
            if not rows:
                absent.append(f"{name}{labels}")
    assert absent == []
    gauge = "kafka_log_remote_remotelogmanager_localretentionsizeinpercent"
    # Local segments go after their copies; the gauge follows with the next task.
    running.wait(
        "local retention has taken its part", lambda: of_topic(scraped(running, 1), gauge, topic)
        == 100 * running.log(topic).size_bytes)  # fmt: skip
    assert of_topic(result, f"{prefix}copyrequests", topic) == 4
    assert of_topic(result, f"{prefix}copybytes", topic) == of_topic(result, f"{prefix}logsizebytes", topic) > 0
    assert of_topic(result, f"{prefix}fetchrequests", topic) == 1
    assert of_topic(result, "kafka_log_remote_remotelogmanager_retentionsizeinpercent", topic) == 0  # without a limit
    assert of_topic(result, "kafka_log_log_retentionsizeinpercent", topic) == 0  # set by the remote log manager
