"""One piece of client work in a separate process, so that client and broker never share a GIL.

    python -m tests.benchmarks.client produce BOOTSTRAP TOPIC RECORDS SIZE ACKS
    python -m tests.benchmarks.client consume BOOTSTRAP TOPIC RECORDS [READS]
    python -m tests.benchmarks.client single BOOTSTRAP TOPIC RECORDS CONNECTIONS
    python -m tests.benchmarks.client latency BOOTSTRAP TOPIC RECORDS ACKS

Prints one JSON object; of several reads the median one.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from backend.protocol import frames
from backend.protocol import messages as m
from backend.protocol.record_batches.record_batch import RecordData, build_batch

STALL_S = 60.0
LATENCY_RECORDS_PER_S = 1_000
PRODUCE_VERSION = 9
# Requests of one connection that have not been answered yet.
WINDOW = 32


def produce(bootstrap: str, topic: str, records: int, size: int, acks: str) -> dict[str, float]:
    """Sends ``records`` of ``size`` bytes as fast as they are taken."""
    failures: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error.str())

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 262_144,
        }
    )
    producer.list_topics(topic, timeout=30.0)
    # Incompressible but cheap: a window over random bytes.
    noise = os.urandom(size * 2)
    started_s = time.perf_counter()
    for number in range(records):
        offset = number % size
        while True:
            try:
                producer.produce(topic, noise[offset : offset + size], on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(STALL_S)
    seconds = time.perf_counter() - started_s
    if failures or left:
        raise SystemExit(f"{len(failures)} records failed, {left} were left: {failures[:1]}")
    return {"seconds": seconds, "bytes": records * size, "mb_per_s": records * size / seconds / 1e6}


def consume(bootstrap: str, topic: str, records: int) -> dict[str, float]:
    """Reads ``records`` from the beginning of every partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{os.getpid()}",
            "enable.auto.commit": False,
            "fetch.max.bytes": 52_428_800,
            "max.partition.fetch.bytes": 8_388_608,
            "queued.min.messages": 1_000_000,
            # With the client's own second it sleeps most of the time, whenever its queue of 64 MB was full, and that is
            # what would be measured: six partitions took three to four seconds, one of them work, whatever the broker.
            "fetch.queue.backoff.ms": 10,
            "check.crcs": False,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30.0).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    seen = size = 0
    started_s = last_s = time.perf_counter()
    first_s = 0.0
    while seen < records:
        batch = consumer.consume(min(10_000, records - seen), timeout=1.0)
        now_s = time.perf_counter()
        for message in batch:
            if (error := message.error()) is not None:
                raise SystemExit(f"consume failed: {error.str()}")
            size += len(message.value() or b"")
        if batch:
            first_s = first_s or now_s - started_s
            seen, last_s = seen + len(batch), now_s
        elif now_s - last_s > STALL_S:
            raise SystemExit(f"nothing came for {STALL_S:.0f} s after {seen} of {records} records")
    seconds = time.perf_counter() - started_s
    consumer.close()
    return {"seconds": seconds, "bytes": size, "mb_per_s": size / seconds / 1e6, "first_ms": first_s * 1e3}


def single(bootstrap: str, topic: str, records: int, connections: int) -> dict[str, float]:
    """Sends records of 100 bytes, each in one request, `WINDOW` in flight on each connection.

    The requests are copies of one frame: a client that builds each costs more than the broker that serves it.
    """
    batch = build_batch([RecordData(time.time_ns() // 1_000_000, None, os.urandom(100))])
    part = m.ProduceRequest.TopicData.PartitionData(index=0, records=batch)
    request = m.ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[m.ProduceRequest.TopicData(name=topic, partition_data=[part])]
    )
    frame = b"".join(bytes(chunk) for chunk in frames.encode_request(request, PRODUCE_VERSION, 1, "bench"))
    pipes = [_Pipe(_leader_of(bootstrap, topic), frame, records // connections) for _ in range(connections)]
    started_s = time.perf_counter()
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe.socket, selectors.EVENT_READ, pipe)
            pipe.send(min(WINDOW, pipe.records))
        while any(pipe.answered < pipe.records for pipe in pipes):
            ready = selector.select(STALL_S)
            if not ready:
                raise SystemExit(f"nothing came for {STALL_S:.0f} s")
            for key, _ in ready:
                key.data.receive()
    seconds = time.perf_counter() - started_s
    return {"seconds": seconds, "records_per_s": sum(pipe.answered for pipe in pipes) / seconds}


class _Pipe:
    """One connection with copies of a frame on the way."""

    def __init__(self, address: tuple[str, int], frame: bytes, records: int) -> None:
        self.socket = socket.create_connection(address, timeout=STALL_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.records, self.sent, self.answered = records, 0, 0
        self._frame, self._rest, self._answer_bytes = frame, b"", 0

    def send(self, count: int) -> None:
        self.socket.sendall(self._frame * count)
        self.sent += count

    def receive(self) -> None:
        """Takes what has come and sends as many again."""
        data = self._rest + self.socket.recv(65_536)
        if data == self._rest:
            raise SystemExit("the broker closed the connection")
        at = count = 0
        while len(data) - at >= 4 and len(data) - at - 4 >= (size := int.from_bytes(data[at : at + 4], "big")):
            if not self.answered + count:
                _check_answer(data[at + 4 : at + 4 + size])
            elif size != self._answer_bytes:
                raise SystemExit(f"an answer of {size} bytes after one of {self._answer_bytes}: a record was refused")
            self._answer_bytes = size
            at, count = at + 4 + size, count + 1
        self._rest = data[at:]
        self.answered += count
        if self.sent < self.records and count:
            self.send(min(count, self.records - self.sent))


def _check_answer(frame: bytes) -> None:
    answer = frames.decode_response(m.ProduceResponse, PRODUCE_VERSION, frame)[1]
    row = answer.responses[0].partition_responses[0]
    if row.error_code:
        raise SystemExit(f"the first record was refused with error {row.error_code}: {row.error_message}")


def _leader_of(bootstrap: str, topic: str) -> tuple[str, int]:
    producer = Producer({"bootstrap.servers": bootstrap})
    deadline_s = time.monotonic() + STALL_S
    while time.monotonic() < deadline_s:
        topics = producer.list_topics(topic, timeout=30.0)
        partition = topics.topics[topic].partitions.get(0)
        if partition is not None and partition.leader in topics.brokers:
            leader = topics.brokers[partition.leader]
            return leader.host, leader.port
        time.sleep(0.05)
    raise SystemExit(f"{topic} had no leader for {STALL_S:.0f} s")


def latency(bootstrap: str, topic: str, records: int, acks: str) -> dict[str, float]:
    """Sends 1 KB records at 1,000 a second; time of each until a consumer has it, the first tenth left out."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"bench-{os.getpid()}", "fetch.wait.max.ms": 100})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0})
    producer.list_topics(topic, timeout=30.0)
    times_ms: list[float] = []

    def read() -> None:
        while len(times_ms) < records:
            message = consumer.poll(STALL_S)
            if message is None or message.error() is not None:
                return
            times_ms.append((time.perf_counter_ns() - int.from_bytes((message.value() or b"")[:8], "big")) / 1e6)

    # The consumer is at work before the clock runs.
    producer.produce(topic, b"ready")
    producer.flush(STALL_S)
    if consumer.poll(STALL_S) is None:
        raise SystemExit("the first record did not come")
    reader = threading.Thread(target=read)
    reader.start()
    rest = os.urandom(1016)
    started_s = time.perf_counter()
    for number in range(records):
        pause_s = started_s + number / LATENCY_RECORDS_PER_S - time.perf_counter()
        if pause_s > 0:
            time.sleep(pause_s)
        producer.produce(topic, time.perf_counter_ns().to_bytes(8, "big") + rest)
        producer.poll(0)
    producer.flush(STALL_S)
    reader.join(2 * STALL_S)
    consumer.close()
    if len(times_ms) < records:
        raise SystemExit(f"{records - len(times_ms)} of {records} records did not come")
    times_ms = sorted(times_ms[records // 10 :])
    return {"p50_ms": times_ms[len(times_ms) // 2], "p99_ms": times_ms[int(len(times_ms) * 0.99)]}


def main(words: list[str]) -> None:
    """Runs the work that the first word names."""
    kind, bootstrap, topic, records = words[0], words[1], words[2], int(words[3])
    if kind == "produce":
        result = produce(bootstrap, topic, records, int(words[4]), words[5])
    elif kind == "consume":
        reads = [consume(bootstrap, topic, records) for _ in range(int(words[4]) if words[4:] else 1)]
        result = sorted(reads, key=lambda read: read["mb_per_s"])[len(reads) // 2]
    elif kind == "single":
        result = single(bootstrap, topic, records, int(words[4]))
    else:
        result = latency(bootstrap, topic, records, words[4])
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
