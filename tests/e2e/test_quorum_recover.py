"""Most voters' disks are gone for good: `ebbline quorum recover` goes on from the metadata that is left."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.test_up_refuses import refused
from tests.e2e.up_process import UpProcess
from tests.effort import effort

RECORDS = 200


def create(up: UpProcess, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": up.bootstrap})
    client.create_topics([NewTopic(topic, 1, 3)])[topic].result(30)


def topics(up: UpProcess) -> set[str]:
    topics_by_name = AdminClient({"bootstrap.servers": up.bootstrap}).list_topics(timeout=30).topics
    return {name for name in topics_by_name if not name.startswith("__")}


def produce(up: UpProcess, topic: str, values: Sequence[str]) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": up.bootstrap, "enable.idempotence": True, "delivery.timeout.ms": 60_000})
    for value in values:
        producer.produce(topic, value.encode(), on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(70) == 0
    assert not failed


def consumed(up: UpProcess, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": up.bootstrap, "group.id": "look", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    try:
        while len(values) < count:
            messages = consumer.consume(count, 30)
            assert messages, f"{len(values)} of {count} records"
            values += [str((message.value() or b"").decode()) for message in messages if not message.error()]
    finally:
        consumer.close()
    return values


def recover(data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "backend.cli.entry", "quorum", "recover", "--data", str(data), *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    return done


def metadata(up: UpProcess, node_id: int) -> Path:
    return up.data / f"brokers/{node_id}/log/__cluster_metadata-0"


@pytest.mark.parametrize(
    "older", effort([True], [False, True]), ids=lambda older: "older copy" if older else "newest copy"
)
def test_two_of_three_voters_are_lost_for_good_and_the_cluster_goes_on(tmp_path: Path, older: bool) -> None:
    up = UpProcess(tmp_path / "data", options=("--no-pipeline", "--no-ui", "--no-demo"))
    first = [f"first {n}" for n in range(RECORDS)]
    with up:
        create(up, "before")
        produce(up, "before", first)
        done = recover(up.data, "--yes", "--reason", "it runs")
        assert (done.returncode, "Another `ebbline up` is using" in done.stderr) == (2, True)
    refusal = recover(up.data)
    assert refusal.returncode == 6
    assert "3 of 3 voters have all their metadata" in refusal.stderr
    shutil.copytree(metadata(up, 3), tmp_path / "copy")
    with up:
        create(up, "after")
        produce(up, "after", ["lost to the metadata"])
    for node_id in (1, 2):
        shutil.rmtree(metadata(up, node_id))
    if older:
        shutil.rmtree(metadata(up, 3))
        shutil.copytree(tmp_path / "copy", metadata(up, 3))
        shown = recover(up.data)  # what `up` cannot see from outside: it would wait for voters that never come
    else:
        assert "`ebbline quorum recover` shows what is left" in refused(up)
        shown = recover(up.data)
    assert shown.returncode == 0
    assert "All 3 voters get the metadata of node 3" in shown.stdout
    assert ("brokers/3/log/after-0" in shown.stdout) is older
    assert ("It is not the newest" in shown.stdout) is older
    assert "Nothing has been changed" in shown.stderr
    assert not metadata(up, 1).exists()
    assert recover(up.data, "--yes").returncode == 2
    done = recover(up.data, "--yes", "--reason", "both disks are gone")
    assert done.returncode == 0, done.stderr
    (kept,) = metadata(up, 3).parent.glob("__cluster_metadata-0.*.replaced")
    assert str(kept) in done.stderr
    with up:
        assert topics(up) == {"before"} | (set() if older else {"after"})
        assert consumed(up, "before", RECORDS) == first
        produce(up, "before", ["second"])
        assert consumed(up, "before", RECORDS + 1) == [*first, "second"]
        create(up, "new")
        headers = {"Authorization": f"Bearer {up.operator_token}"}
        audit = httpx.get(f"{up.api_url}/v1/audit", headers=headers).text
        assert "recover quorum" in audit
        assert "both disks are gone" in audit
    strays = [path for node_id in (1, 2, 3) for path in metadata(up, node_id).parent.glob("after-0.*-stray")]
    assert len(strays) == (3 if older else 0)
    (noted,) = (up.data / "logs" / "quorum-recover.log").read_text().splitlines()
    assert json.loads(noted)["plan"]["from_node"] == 3
    assert recover(up.data).returncode == 6
