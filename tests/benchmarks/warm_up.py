"""Load that is not measured: a JVM compiles what it has done often, and until then one record takes it up to seconds.

    python -m tests.benchmarks.warm_up warm-up BOOTSTRAP TOPIC SECONDS

Single records, each acknowledged by all replicas and read by a consumer, as fast as they go. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

# Sent and not read yet.
WINDOW = 500
STALL_S = 60.0


def warm_up(bootstrap: str, topic: str, seconds: float) -> int:
    """How many records it was."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "warm-up", "fetch.wait.max.ms": 100})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "batch.num.messages": 1})
    sent = read = 0
    began_s = came_s = time.monotonic()
    while (now_s := time.monotonic()) - began_s < seconds or read < sent:
        if now_s - came_s > STALL_S:
            raise SystemExit(f"nothing came for {STALL_S:.0f} s after {read} of {sent} records")
        while sent - read < WINDOW and now_s - began_s < seconds:
            producer.produce(topic, bytes(1024))
            sent += 1
        producer.poll(0)
        messages = consumer.consume(WINDOW, timeout=0.1)
        read += len(messages)
        if messages:
            came_s = time.monotonic()
    consumer.close()
    return read


if __name__ == "__main__":
    print(json.dumps({"records": warm_up(sys.argv[2], sys.argv[3], float(sys.argv[4]))}))
