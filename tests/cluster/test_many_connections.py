"""Clients that only take room: thousands that say nothing more, and one that asks without ever reading."""

from __future__ import annotations

import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.cimpl import NewTopic

from backend.protocol import frames
from backend.protocol import messages as m
from tests.cluster.broker_process import BrokerProcesses
from tests.effort import effort
from tests.wire import ask, exactly

CONNECTIONS = effort(1_000, 10_000)
# About 4 KB, measured; what a connection reads into is shared. Kernel buffers are not the broker's.
BYTES_PER_CONNECTION_MAX = 16 * 1024
# The bytes that a listener queues for one reader before it stops to read its requests, twice over (`ports.network`).
SLOW_READER_BYTES_MAX = 2 * 16 * 1024 * 1024 + 32 * 1024 * 1024
TOPIC = "wide"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path_factory.mktemp("many"), brokers=1) as running:
        yield running


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} is gone")


def versions_request() -> bytes:
    request = m.ApiVersionsRequest(client_software_name="idle", client_software_version="1")
    return b"".join(bytes(chunk) for chunk in frames.encode_request(request, 3, 1, "idle"))


def test_thousands_of_idle_connections_cost_little_and_hold_up_nobody(nodes: BrokerProcesses) -> None:
    needed = CONNECTIONS + 500
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < needed * 4 // 3:
        pytest.skip(f"{needed * 4 // 3} open files are not allowed here (ulimit -n)")
    port, said = nodes.layout.ports[1], versions_request()
    before = resident_bytes(nodes.pid(1))
    with ExitStack() as open_ones:
        for _ in range(CONNECTIONS):
            connection = open_ones.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            connection.sendall(said)
            (size,) = struct.unpack(">i", exactly(connection, 4))
            exactly(connection, size)
        grown = resident_bytes(nodes.pid(1)) - before
        assert grown < CONNECTIONS * BYTES_PER_CONNECTION_MAX
        assert ask(port, m.MetadataRequest(topics=None), 12, m.MetadataResponse).brokers
    # All have gone: others find room as before.
    assert ask(port, m.MetadataRequest(topics=None), 12, m.MetadataResponse).brokers


def test_a_reader_that_never_reads_is_not_answered_for_ever(nodes: BrokerProcesses) -> None:
    port = nodes.layout.ports[1]
    nodes.admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": nodes.bootstrap})
    for _ in range(64):
        producer.produce(TOPIC, b"x" * 500_000)
    assert producer.flush(60) == 0
    fetch = m.FetchRequest
    request = fetch(
        max_wait_ms=0, min_bytes=0, max_bytes=32 << 20,
        topics=[fetch.Topics(topic=TOPIC, partitions=[
            fetch.Topics.Partitions(partition=0, fetch_offset=0, partition_max_bytes=32 << 20)])],
    )  # fmt: skip
    frame = b"".join(bytes(chunk) for chunk in frames.encode_request(request, 12, 1, "slow"))
    before = resident_bytes(nodes.pid(1))
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.setblocking(False)
        sent, until = 0, time.monotonic() + 60
        # 100 requests ask for 3 GB in all.
        while sent < 100 and time.monotonic() < until:
            try:
                sent += slow.send(frame) == len(frame)
            except BlockingIOError:
                break
            assert ask(port, m.MetadataRequest(topics=None), 12, m.MetadataResponse).brokers
        assert resident_bytes(nodes.pid(1)) - before < SLOW_READER_BYTES_MAX


def test_thousands_that_begin_a_small_frame_cost_what_they_have_sent(nodes: BrokerProcesses) -> None:
    """64 KiB announced and 5 bytes sent; then some of them send the rest and are answered."""
    needed = CONNECTIONS + 500
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < needed * 4 // 3:
        pytest.skip(f"{needed * 4 // 3} open files are not allowed here (ulimit -n)")
    port, said = nodes.layout.ports[1], versions_request()
    announced = struct.pack(">i", 64 * 1024 - 4) + said[4:5]
    before = resident_bytes(nodes.pid(1))
    with ExitStack() as open_ones:
        whole = open_ones.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        whole.sendall(said[:5])
        for _ in range(CONNECTIONS):
            connection = open_ones.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            connection.sendall(announced)
        assert ask(port, m.MetadataRequest(topics=None), 12, m.MetadataResponse).brokers
        grown = resident_bytes(nodes.pid(1)) - before
        assert grown < CONNECTIONS * BYTES_PER_CONNECTION_MAX
        for byte in said[5:]:
            whole.sendall(bytes([byte]))
        (size,) = struct.unpack(">i", exactly(whole, 4))
        exactly(whole, size)
