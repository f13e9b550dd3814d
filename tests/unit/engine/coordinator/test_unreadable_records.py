"""A record of a coordinator's log that cannot be read loses its own content and affects nothing else."""

from __future__ import annotations

import logging
import struct
from pathlib import Path

import pytest

from backend.engine.coordinator.group.group_records import OFFSETS_TOPIC, coordinator_partition
from backend.engine.coordinator.transaction.transaction_records import TRANSACTIONS_TOPIC
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from backend.tiering.ids import TopicPartition
from tests.unit.engine.coordinator.group.group_nodes import PARTITIONS, Client, GroupNodes, run
from tests.unit.engine.coordinator.transaction import transaction_nodes
from tests.unit.engine.coordinator.transaction.transaction_nodes import TransactionNodes
from tests.unit.engine.log.broken_batches import broken_batch

# A commit whose value has no bytes behind its version; a key that is none; a value of a version that does not exist.
COMMIT_KEY = struct.pack(">h", m.OffsetCommitKey.KEY) + b"\0\1g\0\1t\0\0\0\0"
UNREADABLE = (
    RecordData(0, COMMIT_KEY, b"\x00\x03"),
    RecordData(0, COMMIT_KEY, b"\x00\x63" + bytes(40)),
    RecordData(0, b"\x00", b"v"),
    RecordData(0, None, b"v"),
)


async def spoil(nodes: GroupNodes, topic: str, index: int) -> int:
    """Puts a batch that is none, and records that say nothing, into a partition; how many cannot be read."""
    replicas = nodes.node(1).replicas
    for batch in (broken_batch(), *(build_batch([record]) for record in UNREADABLE)):
        await replicas.append(TopicPartition(topic, index), memoryview(batch), timeout_ms=1000)
    return 1 + len(UNREADABLE)


def test_groups_are_loaded_though_records_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", [1])
        client = Client(nodes, "g")
        assert await client.join() == 0
        assert await client.sync() == 0
        assert await client.commit("orders", 42) == 0
        count = await spoil(nodes, OFFSETS_TOPIC, coordinator_partition("g", PARTITIONS))
        assert await client.commit("orders", 43) == 0
        await nodes.stop(1)
        await nodes.restart(1)
        await nodes.pass_ms(100)
        assert await client.committed("orders") == 43
        assert await client.heartbeat() == 0
        assert nodes.node(1).metrics.unreadable_records.counts == {OFFSETS_TOPIC: count}

    with caplog.at_level(logging.WARNING):
        run(tmp_path, play)
    assert [record.getMessage()[:60] for record in caplog.records].count("Passed over record 3") <= 1
    assert sum("Passed over" in record.getMessage() for record in caplog.records) == 1
    assert not any(record.exc_info for record in caplog.records)


def test_transactions_are_loaded_though_records_cannot_be_read(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        nodes.create("t", [1])
        client = transaction_nodes.Client(nodes, "x")
        await client.init()
        assert await client.write("t", "a") == 0
        await spoil(nodes, TRANSACTIONS_TOPIC, coordinator_partition("x", PARTITIONS))
        await nodes.stop(1)
        await nodes.restart(1)
        await nodes.pass_ms(1_000)
        assert await client.end(commit=True) == 0
        assert nodes.node(1).metrics.unreadable_records.counts[TRANSACTIONS_TOPIC] >= 2

    transaction_nodes.run(tmp_path, play)


def test_a_partition_that_cannot_be_read_at_all_has_no_coordinator(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        index = coordinator_partition("g", PARTITIONS)
        client = Client(nodes, "g")
        await spoil(nodes, OFFSETS_TOPIC, index)
        await nodes.stop(1)
        (path,) = tmp_path.rglob(f"{OFFSETS_TOPIC}-{index}/*.log")
        data = bytearray(path.read_bytes())
        data[16] = 7  # the magic of the first batch
        path.write_bytes(data)
        await nodes.restart(1)
        await nodes.pass_ms(100)
        assert await client.join() == ErrorCode.NOT_COORDINATOR

    run(tmp_path, play)
