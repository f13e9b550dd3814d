"""One real Apache Kafka for what `make test` asks of one: it reads remote segments, their indexes and their metadata
records that only this engine wrote, and an attached `ebbline up` shows and changes it; the long form is
`tests/e2e/test_attach.py`.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from backend.cli.main import app
from backend.cli.remote.record_text import LineFormat, TopicRecord, line
from backend.cli.remote.segment_ledger import SegmentLedger
from backend.cli.remote.topic_reader import METADATA_TOPIC, MetadataTopicReader
from backend.engine.remote.manager.copy_task import CopyTask
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from backend.protocol.remote_log.metadata_serde import SegmentUpdate, encode
from backend.tiering.ids import TopicIdPartition, uuid_bytes, uuid_text
from backend.tiering.segment_state import SegmentState
from spark.reading import open_consumer
from tests.conformance.memory_topic import MemoryTopicLog
from tests.e2e import attached_site
from tests.e2e.attached_site import CLUSTER_NAME, FLAG, Site
from tests.e2e.up_process import UpProcess
from tests.interop.java_tools import JavaTools, libraries
from tests.oracle import apache_kafka
from tests.ports import free_ports
from tests.unit.engine.log.logs import NOW_MS, open_test_log, replicate
from tests.unit.engine.remote.tiers import TIERED, View, tier_broker
from tests.waiting import wait_until

TOPIC: Final = "orders"
RECORDS: Final = 6
# Only when a segment is older than this does the next record open another one.
SEGMENT_MS: Final = 50
SERDE: Final = "org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde"
FORMATTER: Final = f"{SERDE}$RemoteLogMetadataFormatter"


BROKERS: Final = (1, 2)
# The listener of an attached ebbline, with a password and the rights that docs/attach.md lists; all others come by
# PLAINTEXT as ANONYMOUS, who may do anything.
OUTSIDE_PORT_OFFSET: Final = 30
CREDENTIALS: Final = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "ebbline",
    "sasl.password": "watches",
}
SECURITY: Final = (
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms=PLAIN",
    "listener.name.outside.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required"
    f' user_{CREDENTIALS["sasl.username"]}="{CREDENTIALS["sasl.password"]}";',
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
)
DOCUMENTATION: Final = Path(__file__).parents[2] / "docs" / "attach.md"


@dataclass
class Kafka:
    """Two brokers of Apache Kafka with LocalTieredStorage; `outside` asks who comes."""

    folder: Path
    bootstrap: str
    outside: str
    libs: Path

    @property
    def local(self) -> Path:
        return self.folder / "broker-1" / "data" / f"{TOPIC}-0"

    @property
    def tree(self) -> Path:
        (path,) = (self.folder / "remote").rglob(f"{TOPIC}-0-*")
        return path


def listeners(port: int, broker: int) -> Iterator[str]:
    """A broker's own settings: where it listens."""
    places = f"PLAINTEXT://127.0.0.1:{port + broker - 1},OUTSIDE://127.0.0.1:{port + OUTSIDE_PORT_OFFSET + broker}"
    controller = f",CONTROLLER://127.0.0.1:{port + apache_kafka.CONTROLLER_PORT_OFFSET}"
    yield f"{broker}:listeners={places}{controller if broker == 1 else ''}"
    yield f"{broker}:advertised.listeners={places}"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    libs, folder = libraries(), tmp_path_factory.mktemp("apache-kafka") / "cluster"
    port = free_ports(apache_kafka.CONTROLLER_PORT_OFFSET + 1)[0]
    script = [sys.executable, apache_kafka.__file__]
    settings = ["remote.log.manager.task.interval.ms=200", "log.retention.check.interval.ms=200"]
    chosen = [word for setting in (*settings, *SECURITY) for word in ("--set", setting)]
    chosen += [word for broker in BROKERS for setting in listeners(port, broker) for word in ("--set-broker", setting)]
    up = [*script, "up", "--dir", str(folder), "--brokers", "2", "--tiered", "--port-base", str(port), *chosen]
    up += ["--jvm-arg=-XX:TieredStopAtLevel=1"]
    started = subprocess.run(up, capture_output=True, text=True, check=False)
    if started.returncode == apache_kafka.EXIT_UNAVAILABLE:
        pytest.skip(f"Apache Kafka is unavailable: {started.stderr.strip()}")
    try:
        assert started.returncode == 0, started.stderr
        outside = ",".join(f"127.0.0.1:{port + OUTSIDE_PORT_OFFSET + broker}" for broker in BROKERS)
        yield Kafka(folder, started.stdout.strip().splitlines()[-1], outside, libs)
    finally:
        subprocess.run([*script, "down", "--dir", str(folder)], capture_output=True, check=False)


@pytest.fixture(scope="module")
def tip(kafka: Kafka) -> TopicIdPartition:
    """A topic whose records Kafka has tiered, most of them one a segment, and deleted locally."""
    config = {
        "remote.storage.enable": "true",
        "segment.ms": str(SEGMENT_MS),
        "retention.ms": "-1",
        "local.retention.ms": "1",
        "file.delete.delay.ms": "1",
    }
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1]], config=config)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all", "linger.ms": 0})
    for number in range(RECORDS):
        producer.produce(TOPIC, f"kafka-{number}".encode())
        assert producer.flush(30) == 0
        time.sleep(2 * SEGMENT_MS / 1000)
    wait_until(
        "no record is local",
        lambda: min(path.name for path in kafka.local.glob("*.log")) >= f"{RECORDS:020d}.log",
        60,
    )
    return TopicIdPartition(TOPIC, uuid_bytes(kafka.tree.name[-22:]), 0)


def test_decode_prints_what_kafkas_own_formatter_prints(kafka: Kafka, tip: TopicIdPartition) -> None:
    with MetadataTopicReader(kafka.bootstrap) as reader:
        ours = list(reader.records())
    form = LineFormat().with_property("print.all.event.value.fields=true")
    texts = {
        (topic_record.partition, topic_record.offset): line(topic_record, form).partition("event-value:")[2]
        for topic_record in ours
    }
    words = ("--topic", METADATA_TOPIC, "--from-beginning", "--formatter", FORMATTER, "--max-messages", str(len(ours)))
    printed = JavaTools(kafka.libs, kafka.bootstrap).run("kafka-console-consumer", *words, "--timeout-ms", "30000")
    theirs = {}
    for text in filter(None, printed.splitlines()):
        partition, offset, value = text.split(", ", 2)
        theirs[int(partition.split(": ")[1]), int(offset.split(": ")[1])] = value.removeprefix("value: ")
    assert len(theirs) == len(ours)
    assert {place: texts[place] for place in theirs} == theirs


def test_ls_and_verify_know_kafkas_own_segments(kafka: Kafka, tip: TopicIdPartition) -> None:
    def remote_command(*words: str) -> Any:
        place = ("--bootstrap-server", kafka.bootstrap, "--json")
        return json.loads(CliRunner().invoke(app, ["remote", *words, *place]).stdout)

    logs = {path.stem.split("-", 1)[1]: path.stat().st_size for path in kafka.tree.glob("*.log")}
    listed = remote_command("ls", TOPIC)["items"]
    assert {segment["segment_id"]: segment["segment_size_bytes"] for segment in listed} == logs
    assert {segment["topic_id"] for segment in listed} == {uuid_text(tip.topic_id)}
    sound = remote_command("verify", TOPIC, "--remote", str(kafka.folder / "remote"))
    assert (sound["segments"], sound["items"]) == (len(logs), [])
    # A folder without any of the objects.
    verdict = remote_command("verify", TOPIC, "--remote", str(kafka.local))
    assert {problem["problem"] for problem in verdict["items"]} == {"missing"}
    assert len({problem["object"] for problem in verdict["items"] if problem["object"].endswith(".log")}) == len(logs)


def test_a_consumer_of_kafka_reads_from_offset_0_what_only_our_tree_holds(
    kafka: Kafka, tip: TopicIdPartition, tmp_path: Path
) -> None:
    with MetadataTopicReader(kafka.bootstrap) as reader:
        records, partitions = list(reader.records()), len(reader.partitions())
    for path in kafka.tree.iterdir():
        path.unlink()
    publish(kafka, removals(records))
    written = asyncio.run(written_by_us(kafka.folder, tmp_path, tip, partitions))
    publish(kafka, written)
    assert {path.suffix for path in kafka.tree.iterdir()} >= {".log", ".index", ".timeindex", ".snapshot"}
    assert read_values(kafka, timeout_s=60) == [f"ours-{number}".encode() for number in range(RECORDS)]


def removals(records: list[TopicRecord]) -> list[tuple[int, bytes]]:
    """Records that take every segment of Kafka's own out of its ledger."""
    ledger = SegmentLedger()
    ledger.apply(records)
    where = {record.topic_id_partition: record.partition for record in records}
    return [
        (
            where[segment.topic_id_partition],
            encode(SegmentUpdate(segment.topic_id_partition, segment.segment_id, 1, NOW_MS, None, state)),
        )
        for segment in ledger.segments()
        for state in (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED)
    ]


async def written_by_us(remote: Path, local: Path, tip: TopicIdPartition, partitions: int) -> list[tuple[int, bytes]]:
    """Copies two segments, 0 to 2 and 3 to 5, into Kafka's tree; the metadata records that tell of them."""
    log = open_test_log(local, TIERED, remote=True, tip=tip)
    for number in range(RECORDS):
        if number == 3:
            log.roll()
        value = RecordData(NOW_MS + number, None, f"ours-{number}".encode())
        log.append_as_leader(memoryview(build_batch([value])), 0, now_ms=NOW_MS)
    log.roll()
    replicate(log)
    topic = MemoryTopicLog()
    settings = {"rlmm.config.remote.log.metadata.topic.num.partitions": str(partitions)}
    async with tier_broker(remote, topic=topic, settings=settings, partitions=(tip,)) as broker:
        await CopyTask(View(log), broker.tier).run()
    return [(number, value) for number, values in enumerate(topic.partitions) for value in values if value is not None]


def publish(kafka: Kafka, records: list[tuple[int, bytes]]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all"})
    failures: list[Any] = []
    for partition, value in records:
        producer.produce(METADATA_TOPIC, value, partition=partition, on_delivery=lambda e, _: failures.append(e))
    assert producer.flush(30) == 0
    assert json.dumps([str(error) for error in failures if error]) == "[]"


def read_values(kafka: Kafka, timeout_s: float) -> list[bytes | None]:
    """Values from offset 0 on, as far as they come in time."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "cold", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values: list[bytes | None] = []
    deadline = time.monotonic() + timeout_s
    while len(values) < RECORDS and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value())
        elif message is not None:
            # Until Kafka has read our metadata records the offset does not exist: ask again from where we are.
            consumer.assign([TopicPartition(TOPIC, 0, len(values))])
    consumer.close()
    return values


def documented_rights() -> Iterator[AclBinding]:
    """The rights that the commands of docs/attach.md grant."""
    kinds = {
        "--cluster": (ResourceType.BROKER, "kafka-cluster"),
        "--topic": (ResourceType.TOPIC, ""),
        "--group": (ResourceType.GROUP, ""),
    }
    for command in re.findall(r"^ *kafka-acls.sh .*$", DOCUMENTATION.read_text(), re.MULTILINE):
        words = shlex.split(command)
        (flag,) = kinds.keys() & set(words)
        kind, name = kinds[flag]
        for operation in (words[at + 1] for at, word in enumerate(words) if word == "--operation"):
            yield AclBinding(
                kind, name or words[words.index(flag) + 1], ResourcePatternType.LITERAL,
                words[words.index("--allow-principal") + 1], "*",
                AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()], AclPermissionType.ALLOW,
            )  # fmt: skip


@pytest.fixture(scope="module")
def allowed(kafka: Kafka) -> None:
    """The user has the rights that the documentation lists, and no others."""
    rights = list(documented_rights())
    assert len(rights) == 10
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})  # held: it ends the calls of one that nobody holds
    for done in admin.create_acls(rights).values():
        done.result(30)


@pytest.fixture(scope="module")
def attached(kafka: Kafka, allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An ebbline that may change the cluster, as a user with the rights that the documentation lists."""
    folder = tmp_path_factory.mktemp("up")
    properties = folder / "client.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in CREDENTIALS.items()))
    place = ("--attach", kafka.outside, "--client-properties", str(properties), "--allow-changes")
    options = (*place, "--cluster-name", CLUSTER_NAME, "--no-ui", "--no-pipeline")
    with UpProcess(folder / "data", options=options) as up:
        yield Site(up)


def test_the_ledger_is_read_with_the_rights_that_the_documentation_lists(
    kafka: Kafka, tip: TopicIdPartition, allowed: None
) -> None:
    consumer = open_consumer(kafka.outside, CREDENTIALS).consumer
    with MetadataTopicReader(kafka.bootstrap) as reader:
        consumer.assign([TopicPartition(METADATA_TOPIC, number, 0) for number in reader.partitions()])

    def read() -> bool:
        messages = [message for message in consumer.consume(100, 0.2) if message.error() is None]
        return any(message.value() for message in messages)

    wait_until("a record is read", read)
    consumer.close()


def test_an_attached_ebbline_shows_kafkas_own_numbers_and_takes_back_what_it_changed(
    kafka: Kafka, attached: Site
) -> None:
    tools, topic = JavaTools(kafka.libs, kafka.bootstrap), "attached"
    attached_site.create(kafka.bootstrap, topic, [[1]], attached_site.TIERED)
    attached_site.produce(kafka.bootstrap, topic, partitions=1)
    attached_site.wait_until_quiet(attached, topic)
    row = attached.row(topic) or {}
    for name in ("local_log_start_offset", "latest_tiered_offset", "earliest_pending_upload_offset"):
        assert attached_site.offsets(tools, topic, attached_site.OFFSETS[name]) == {(topic, 0): row[name]}, name

    toggled = attached.done(attached.plan("toggle_bootstrap", {"enable": True}))
    assert attached_site.set_on(kafka.bootstrap, "broker", "2")[FLAG] == "true"
    attached.revert(toggled)
    assert FLAG not in attached_site.set_on(kafka.bootstrap, "broker", "2")

    inputs = {"action": "add", "topics": [topic], "brokers": [2], "throttle_bytes_per_s": 50_000_000}
    moved = attached.done(attached.plan("reassign", inputs))
    assert attached_site.replicas(kafka.bootstrap, topic) == {0: [1, 2]}
    foreseen = moved["estimate"]["in_effect_bytes"]
    assert abs(moved["progress"]["copied_bytes"] - foreseen) <= 0.15 * foreseen
    attached.revert(moved)
    assert attached_site.replicas(kafka.bootstrap, topic) == {0: [1]}
    wait_until("no limit is left", lambda: not attached_site.limits(kafka.bootstrap, topic, brokers=(1, 2)))

    attached.done(attached.plan("delete_records", {"partitions": [{"topic": topic, "partition": 0, "offset": 1000}]}))
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "looks"})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)[0] == 1000
    consumer.close()
