"""One piece of client work in a process of its own, so that client and broker never share a GIL.

    python -m tests.benchmarks.client produce BOOTSTRAP TOPIC RECORDS SIZE ACKS
    python -m tests.benchmarks.client consume BOOTSTRAP TOPIC RECORDS
    python -m tests.benchmarks.client latency BOOTSTRAP TOPIC RECORDS ACKS

Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

STALL_S = 60.0


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
            "check.crcs": False,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30.0).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    seen = size = 0
    started_s = last_s = time.perf_counter()
    first_s = 0.0
    while seen < records:
        batch = consumer.consume(10_000, timeout=1.0)
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


def latency(bootstrap: str, topic: str, records: int, acks: str) -> dict[str, float]:
    """Sends 1 KB records one at a time; time until each is acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0})
    producer.list_topics(topic, timeout=30.0)
    payload = os.urandom(1024)
    times_ms: list[float] = []
    for _ in range(records):
        started_s = time.perf_counter()
        producer.produce(topic, payload)
        if producer.flush(STALL_S):
            raise SystemExit("a record was not acknowledged in time")
        times_ms.append((time.perf_counter() - started_s) * 1e3)
    times_ms = sorted(times_ms[records // 10 :])
    return {"p50_ms": times_ms[len(times_ms) // 2], "p99_ms": times_ms[int(len(times_ms) * 0.99)]}


def main(words: list[str]) -> None:
    """Runs the work that the first word names."""
    kind, bootstrap, topic, records = words[0], words[1], words[2], int(words[3])
    if kind == "produce":
        result = produce(bootstrap, topic, records, int(words[4]), words[5])
    elif kind == "consume":
        result = consume(bootstrap, topic, records)
    else:
        result = latency(bootstrap, topic, records, words[4])
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
