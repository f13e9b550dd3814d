"""Client work on tiered topics that needs raw requests: a library's own batching and retries would hide the latency.

    python -m tests.benchmarks.tier_client first-byte BOOTSTRAP TOPIC FETCHES
    python -m tests.benchmarks.tier_client times BOOTSTRAP TOPIC LOOK_UPS
    python -m tests.benchmarks.tier_client produce BOOTSTRAP TOPIC RECORDS
    python -m tests.benchmarks.tier_client cold-readers BOOTSTRAP TOPIC READERS
    python -m tests.benchmarks.tier_client searchers BOOTSTRAP TOPIC SEARCHERS

The first three print one JSON object; the last two go on until their standard input ends and print what they did.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka.admin import AdminClient

from backend.protocol import frames
from backend.protocol import messages as m
from backend.protocol.messages import Message
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from tests.wire import exactly

R = TypeVar("R", bound=Message)
TIMEOUT_S = 60.0
FIRST_BYTES = 64 * 1024
PRODUCE_PER_S = 200
EARLIEST_LOCAL = -4
# Timestamps of `topic_of_times`: one record every 10 s.
START_MS = 1_700_000_000_000
STEP_MS = 10_000


class Connection:
    """One connection to a partition's leader, one request at a time."""

    def __init__(self, bootstrap: str, topic: str, partition: int = 0) -> None:
        metadata = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(topic, timeout=30.0)
        leader = metadata.brokers[metadata.topics[topic].partitions[partition].leader]
        self.partitions = len(metadata.topics[topic].partitions)
        self._socket = socket.create_connection((leader.host, leader.port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: Message, version: int, response: type[R]) -> tuple[R, float]:
        """The answer, and the milliseconds until its first byte came."""
        data = b"".join(bytes(chunk) for chunk in frames.encode_request(request, version, 1, "bench"))
        started_s = time.perf_counter()
        self._socket.sendall(data)
        head = exactly(self._socket, 4)
        first_ms = (time.perf_counter() - started_s) * 1e3
        (size,) = struct.unpack(">i", head)
        return frames.decode_response(response, version, exactly(self._socket, size))[1], first_ms


def fetch_request(topic: str, offset: int, size: int, partition: int = 0) -> m.FetchRequest:
    topics = m.FetchRequest.Topics
    requested = topics.Partitions(
        partition=partition, current_leader_epoch=-1, fetch_offset=offset, last_fetched_epoch=-1, log_start_offset=-1,
        partition_max_bytes=size,
    )  # fmt: skip
    return m.FetchRequest(
        replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=size, session_epoch=-1,
        topics=[topics(topic=topic, partitions=[requested])],
    )  # fmt: skip


def times_request(topic: str, partition: int, timestamp: int, timeout_ms: int = 60_000) -> m.ListOffsetsRequest:
    topics = m.ListOffsetsRequest.Topics
    requested = topics.Partitions(partition_index=partition, current_leader_epoch=-1, timestamp=timestamp)
    return m.ListOffsetsRequest(
        replica_id=-1, topics=[topics(name=topic, partitions=[requested])], timeout_ms=timeout_ms
    )


def ask_offset(connection: Connection, topic: str, partition: int, timestamp: int) -> tuple[int, float]:
    """(offset, ms); SystemExit for an error."""
    response, spent_ms = connection.ask(times_request(topic, partition, timestamp), 10, m.ListOffsetsResponse)
    row = response.topics[0].partitions[0]
    if row.error_code:
        raise SystemExit(f"ListOffsets of {topic}-{partition} at {timestamp} failed with error {row.error_code}")
    return row.offset, spent_ms


def first_byte(bootstrap: str, topic: str, fetches: int) -> dict[str, float]:
    """Fetches of offsets spread over what is only remote: milliseconds until the answer begins."""
    connection = Connection(bootstrap, topic)
    local_start, _ = ask_offset(connection, topic, 0, EARLIEST_LOCAL)
    spent_ms = []
    for number in range(fetches):
        offset = local_start * number // fetches
        response, first_ms = connection.ask(fetch_request(topic, offset, FIRST_BYTES), 12, m.FetchResponse)
        row = response.responses[0].partitions[0]
        if row.error_code or not row.records:
            raise SystemExit(f"fetch at {offset} of {topic} returned error {row.error_code} and no records")
        spent_ms.append(first_ms)
    return quantiles(spent_ms)


def times(bootstrap: str, topic: str, look_ups: int) -> dict[str, float]:
    """Look-ups by time in random order, each one of another segment, then the same ones again."""
    connection = Connection(bootstrap, topic)
    connections = {partition: Connection(bootstrap, topic, partition) for partition in range(connection.partitions)}
    ends = {partition: ask_offset(at, topic, partition, EARLIEST_LOCAL)[0] for partition, at in connections.items()}
    requested = [(partition, offset) for partition, end in ends.items() for offset in range(end)]
    random.Random(5).shuffle(requested)
    figures: dict[str, float] = {"segments": len(requested)}
    for name in ("first", "again"):
        spent_ms = []
        for partition, expected in requested[:look_ups]:
            offset, ms = ask_offset(connections[partition], topic, partition, START_MS + STEP_MS * expected)
            if offset != expected:
                raise SystemExit(f"time {expected} of {topic}-{partition} is at offset {offset}")
            spent_ms.append(ms)
        figures |= {f"{name}_{key}": value for key, value in quantiles(spent_ms).items()}
    return figures


def write_times(bootstrap: str, topic: str, records: int) -> dict[str, float]:
    """One-record batches, STEP_MS apart, to every partition in turn."""
    connection = Connection(bootstrap, topic)
    connections = [Connection(bootstrap, topic, partition) for partition in range(connection.partitions)]
    for number in range(records):
        partition = number % len(connections)
        timestamp = START_MS + STEP_MS * (number // len(connections))
        _produce(connections[partition], topic, partition, build_batch([RecordData(timestamp, None, b"x" * 100)]))
    return {"records": records}


def produce(bootstrap: str, topic: str, records: int) -> dict[str, float]:
    """1 KB records at a fixed rate, each acknowledged before the next is due: milliseconds of each."""
    connection = Connection(bootstrap, topic)
    spent_ms = []
    started_s = time.perf_counter()
    for number in range(records):
        pause_s = started_s + number / PRODUCE_PER_S - time.perf_counter()
        if pause_s > 0:
            time.sleep(pause_s)
        batch = build_batch([RecordData(int(time.time() * 1e3), None, bytes(1000))])
        spent_ms.append(_produce(connection, topic, 0, batch))
    return quantiles(spent_ms[records // 10 :])


def _produce(connection: Connection, topic: str, partition: int, batch: bytes | bytearray) -> float:
    data = m.ProduceRequest.TopicData
    parts = [data.PartitionData(index=partition, records=bytes(batch))]
    request = m.ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data(name=topic, partition_data=parts)])
    response, spent_ms = connection.ask(request, 9, m.ProduceResponse)
    error = response.responses[0].partition_responses[0].error_code
    if error:
        raise SystemExit(f"produce to {topic}-{partition} failed with error {error}")
    return spent_ms


def cold_reads(bootstrap: str, topic: str, readers: int) -> dict[str, float]:
    """Consumers that read what is only remote over and over."""

    def read(number: int, counts: Counter[str], running: Callable[[], bool]) -> None:
        connection = Connection(bootstrap, topic)
        end, _ = ask_offset(connection, topic, 0, EARLIEST_LOCAL)
        chosen = random.Random(number)
        while running():
            response, _ = connection.ask(fetch_request(topic, chosen.randrange(end), 1 << 20), 12, m.FetchResponse)
            row = response.responses[0].partitions[0]
            counts["errors" if row.error_code else "records" if row.records else "expired"] += 1

    return _many(readers, read)


def searches(bootstrap: str, topic: str, searchers: int) -> dict[str, float]:
    """Clients that look for a time which only the remote tier has, over and over."""

    def search(number: int, counts: Counter[str], running: Callable[[], bool]) -> None:
        connection = Connection(bootstrap, topic)
        while running():
            response, _ = connection.ask(times_request(topic, 0, number), 10, m.ListOffsetsResponse)
            counts["errors" if response.topics[0].partitions[0].error_code else "found"] += 1

    return _many(searchers, search)


def _many(count: int, work: Callable[[int, Counter[str], Callable[[], bool]], None]) -> dict[str, float]:
    """The work in so many threads until standard input ends; counts."""
    ended = threading.Event()
    counts: Counter[str] = Counter()
    threads = [
        threading.Thread(target=work, args=(number, counts, lambda: not ended.is_set()), daemon=True)
        for number in range(count)
    ]
    for thread in threads:
        thread.start()
    print("running", flush=True)
    sys.stdin.read()
    ended.set()
    return dict(counts)


def quantiles(spent_ms: list[float]) -> dict[str, float]:
    """Median and 99th percentile."""
    ordered = sorted(spent_ms)
    return {"p50_ms": ordered[len(ordered) // 2], "p99_ms": ordered[int(len(ordered) * 0.99)]}


WORKS: dict[str, Callable[[str, str, int], dict[str, float]]] = {
    "first-byte": first_byte,
    "times": times,
    "write-times": write_times,
    "produce": produce,
    "cold-readers": cold_reads,
    "searchers": searches,
}


if __name__ == "__main__":
    kind, bootstrap, topic, count = sys.argv[1:5]
    print(json.dumps(WORKS[kind](bootstrap, topic, int(count))))
