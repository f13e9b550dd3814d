"""Kafka's own dump tool finds nothing wrong with the indexes that a broker has written, also after a crash."""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.engine_cluster import EngineCluster
from tests.interop.java_tools import JavaTools, libraries

TOPIC: Final = "indexed"
ROUNDS: Final = 60
RECORDS: Final = 5
# An entry for every batch, and segments of 30 of them.
CONFIG: Final = {"index.interval.bytes": "1", "segment.index.bytes": "240"}
SUFFIXES: Final = (".index", ".timeindex")
WAIT_S: Final = 30.0


def write(bootstrap: str) -> None:
    """Transactions, every third of them aborted, in both partitions."""
    quiet: dict[str, Any] = {"bootstrap.servers": bootstrap, "logger": logging.Logger("quiet")}
    admin = AdminClient(quiet)
    admin.create_topics([NewTopic(TOPIC, 2, 1, config=CONFIG)])[TOPIC].result(WAIT_S)
    producer = Producer({**quiet, "transactional.id": "indexer", "linger.ms": 0})
    producer.init_transactions(WAIT_S)
    for number in range(ROUNDS):
        producer.begin_transaction()
        for partition in (0, 1):
            for _ in range(RECORDS):
                producer.produce(TOPIC, b"x" * 100, partition=partition)
        producer.flush(WAIT_S)
        (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)(WAIT_S)


@pytest.fixture(scope="module", params=["stopped", "killed"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The first partition's, of a broker that was stopped, or killed and started and stopped again."""
    libraries()
    with EngineCluster(tmp_path_factory.mktemp("indexes"), brokers=1) as cluster:
        write(cluster.bootstrap)
        if request.param == "killed":
            cluster.kill_broker(1)
            cluster.start_broker(1)
        cluster.stop_broker(1)
        yield Path(cluster.layout.log_dirs[1]) / f"{TOPIC}-0"


@pytest.fixture(scope="module")
def tools() -> JavaTools:
    return JavaTools(libraries(), "")


def files(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in suffixes)


def test_indexes_are_sane_and_lead_to_their_batches(folder: Path, tools: JavaTools) -> None:
    indexes = files(folder, *SUFFIXES)
    assert len(indexes) >= 2 * 3
    assert sum(path.stat().st_size for path in indexes) > 1000
    names = ",".join(map(str, indexes))
    sane = tools.run("kafka-dump-log", "--files", names, "--index-sanity-check", errors=True)
    # A segment's first batch has no entry, and the newest segment may hold no other.
    empty = [path for path in indexes if path.stat().st_size == 0]
    assert empty in ([], files(folder, ".index")[-1:])
    assert sane.count("passed sanity check.") == len(indexes) - len(empty)
    assert sane.count("is empty.") == len(empty)
    for words in (["--verify-index-only"], []):
        verified = tools.run("kafka-dump-log", "--files", names, *words, errors=True)
        assert not re.search("mismatch|not found|out of order|Error|Exception", verified, re.IGNORECASE), verified


def test_aborted_transactions_are_indexed(folder: Path, tools: JavaTools) -> None:
    names = ",".join(map(str, files(folder, ".txnindex")))
    matches = re.findall(r"firstOffset: (\d+) lastOffset: (\d+)", tools.run("kafka-dump-log", "--files", names))
    # Each transaction is its records and a marker.
    size = RECORDS + 1
    expected = [(str(number * size), str(number * size + RECORDS)) for number in range(0, ROUNDS, 3)]
    assert matches == expected


def test_the_tool_sees_an_index_that_leads_to_another_batch(folder: Path, tools: JavaTools, tmp_path: Path) -> None:
    first = files(folder, ".index")[0]
    log = first.with_suffix(".log")
    (tmp_path / log.name).write_bytes(log.read_bytes())
    entries = bytearray(first.read_bytes())
    (offset,) = struct.unpack_from(">i", entries)
    struct.pack_into(">i", entries, 0, offset + 1)
    (tmp_path / first.name).write_bytes(entries)
    output = tools.run("kafka-dump-log", "--files", str(tmp_path / first.name), "--verify-index-only", errors=True)
    assert "Mismatches in :" in output
