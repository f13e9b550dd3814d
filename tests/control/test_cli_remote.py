"""`ebbline remote` against running brokers and their remote tier."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner, Result

from backend.cli.main import app
from backend.cli.remote import topic_reader
from backend.cli.remote.topic_reader import METADATA_TOPIC, MetadataTopicReader
from backend.cli.shared.api_session import Exit
from tests.control.site import TIERED
from tests.engine_cluster import EngineCluster
from tests.ports import free_ports

TOPIC = "remote-orders"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    """One broker whose topic has remote segments and is at rest."""
    with EngineCluster(tmp_path_factory.mktemp("remote"), brokers=1, tiering=True) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        config = {**TIERED, "segment.index.bytes": "48", "min.insync.replicas": "1"}
        admin.create_topics([NewTopic(TOPIC, 3, 1, config=config)])[TOPIC].result(30)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0})
        for number in range(60):
            producer.produce(TOPIC, b"x" * 400, partition=number % 3)
            producer.flush(30)
        cluster.wait_until("every partition is copied up to its last segment", lambda: all(copied(cluster)), 60)
        yield cluster


def copied(cluster: EngineCluster) -> list[bool]:
    """Of each partition, whether all but the segment that is written to is in the remote tier."""
    replicas = cluster.broker(1).broker_services.replica_manager
    logs = [replicas.partition(TOPIC, partition).log for partition in range(3)]
    return [0 <= log.highest_remote_offset == log.active_segment.base_offset - 1 for log in logs]


def run(site: EngineCluster, *arguments: str, bootstrap: str | None = None) -> Result:
    place = ["--bootstrap-server", bootstrap or site.bootstrap]
    result = CliRunner().invoke(app, ["remote", *arguments, *place])
    assert not result.exception or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def copied_tree(site: EngineCluster, folder: Path) -> Path:
    """The tier as it is now, to be damaged."""
    shutil.copytree(site.remote_folder, folder / "remote")
    return folder / "remote"


def test_decode_shows_each_record_once_in_the_order_of_its_partition(site: EngineCluster) -> None:
    shown = run(site, "decode", TOPIC, "--json")
    assert shown.exit_code == 0, shown.output
    records = [json.loads(text) for text in shown.stdout.splitlines()]
    assert {record["topic"] for record in records} == {TOPIC}
    places = [(record["partition"], record["offset"]) for record in records]
    assert places == sorted(set(places))
    started = [record["segment_id"] for record in records if record["state"] == "COPY_SEGMENT_STARTED"]
    finished = [record["segment_id"] for record in records if record["state"] == "COPY_SEGMENT_FINISHED"]
    assert started
    assert sorted(started) == sorted(finished)
    lines = run(site, "decode", TOPIC, "--property", "print.message.offset=true", "--max-messages", "3")
    assert [text.split(",")[0] for text in lines.stdout.splitlines()] == [
        f"message-offset:{record['offset']}" for record in records[:3]
    ]


def test_ls_lists_what_the_tier_holds(site: EngineCluster) -> None:
    listed = json.loads(run(site, "ls", TOPIC, "--json").stdout)["items"]
    logs = list(site.remote_folder.rglob(f"{TOPIC}-*/*.log"))
    assert {segment["segment_id"] for segment in listed} == {path.stem.split("-", 1)[1] for path in logs}
    assert sum(segment["segment_size_bytes"] for segment in listed) == sum(path.stat().st_size for path in logs)
    table = run(site, "ls", f"{TOPIC}-0")
    assert f"{TOPIC}-0" in table.stdout
    assert f"{TOPIC}-1" not in table.stdout
    assert "no such segment" in run(site, "ls", "nothing").stdout


def test_verify_is_quiet_about_a_sound_tier_and_names_what_is_wrong(site: EngineCluster, tmp_path: Path) -> None:
    sound = run(site, "verify", "--remote", str(site.remote_folder))
    assert (sound.exit_code, sound.stdout.startswith("All is there: ")) == (0, True), sound.output
    tree = copied_tree(site, tmp_path)
    first, second, *_ = sorted(tree.rglob(f"{TOPIC}-*/*.log"))
    first.with_suffix(".timeindex").unlink()
    second.write_bytes(second.read_bytes()[:-1])
    (tree / "kafka-tiered-storage" / "left.log").write_bytes(b"left")
    before = sorted(tree.rglob("*"))
    damaged = run(site, "verify", "--remote", str(tree), "--json")
    assert damaged.exit_code == Exit.ATTENTION
    problems = json.loads(damaged.stdout)["items"]
    assert [(problem["problem"], problem["object"].rsplit("/", 1)[1]) for problem in problems] == [
        ("missing", first.with_suffix(".timeindex").name),
        ("orphaned", "left.log"),
        ("size mismatch", second.name),
    ]
    assert sorted(tree.rglob("*")) == before
    table = run(site, "verify", TOPIC, "--remote", str(tree))
    assert "2 problems" in table.stdout
    assert "left.log" not in table.stdout


def test_follow_goes_on_with_what_comes(site: EngineCluster) -> None:
    with MetadataTopicReader(site.bootstrap) as reader:
        partitions = reader.partitions()
        read = list(reader.records(partitions))
        coming = reader.tail(partitions)
        producer = Producer({"bootstrap.servers": site.bootstrap})
        producer.produce(METADATA_TOPIC, None, partition=partitions[-1])
        producer.flush(30)
        topic_record = next(coming)
    assert (topic_record.partition, topic_record.type) == (partitions[-1], "Tombstone")
    assert (topic_record.partition, topic_record.offset) not in {(record.partition, record.offset) for record in read}


def test_what_cannot_be_asked_is_one_line_and_an_exit_code(
    site: EngineCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (silent,) = free_ports(1)
    with monkeypatch.context() as patch:
        patch.setattr(topic_reader, "REQUEST_TIMEOUT_S", 0.2)  # nobody answers, however long it waits
        nowhere = run(site, "ls", bootstrap=f"127.0.0.1:{silent}")
    assert (nowhere.exit_code, nowhere.output.count("\n")) == (Exit.AWAY, 1)
    lost = run(site, "verify", "--remote", str(tmp_path / "nothing"))
    assert (lost.exit_code, "no folder" in lost.output) == (Exit.NOT_FOUND, True)
    assert not (tmp_path / "nothing").exists()
    wrong = run(site, "decode", "--property", "print.all=true")
    assert (wrong.exit_code, "print.partition" in wrong.output) == (Exit.USAGE, True)
    (tmp_path / "client.properties").write_text("security.protocol=NONSENSE\n")
    settings = run(site, "ls", "--command-config", str(tmp_path / "client.properties"))
    assert (settings.exit_code, "client settings" in settings.output) == (Exit.AWAY, True)
