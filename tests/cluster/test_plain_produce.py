"""Produce by the short way and by the general one: the same answers, effects and meters.

A byte behind a request, which Kafka ignores, sends it the general way.
"""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from backend.protocol import frames
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.produce_fast_path import read_single_batch
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from tests.engine_cluster import EngineCluster
from tests.wire import ask, exactly

# One before topic ids, one with.
VERSIONS = (12, 13)


def batch(size: int = 10, **producer: Any) -> bytes:
    # Of today: producers that were last heard of long ago are forgotten.
    return bytes(build_batch([RecordData(time.time_ns() // 1_000_000, b"k", b"v" * size)], **producer))


def damaged() -> bytes:
    data = bytearray(batch())
    data[-1] ^= 1
    return bytes(data)


def exchange(connection: socket.socket, frame: bytes) -> bytes:
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    (size,) = struct.unpack(">i", exactly(connection, 4))
    return exactly(connection, size)


@pytest.mark.parametrize("acks", [1, -1])
def test_both_ways_answer_append_and_count_the_same(tmp_path: Path, acks: int) -> None:
    settings = {"auto.create.topics.enable": "false"}
    with EngineCluster(tmp_path, brokers=1, settings=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic("plain", num_partitions=2, replication_factor=1, config={"max.message.bytes": "1000"})
        admin.create_topics([topic])["plain"].result(30)
        broker = cluster.broker(1)
        topic_id = cluster.ask(lambda: broker.services.metadata.image.topic("plain").id)  # type: ignore[union-attr]
        idempotent = {"producer_id": 9, "producer_epoch": 0}
        cases = {
            "fits": (batch(), 0, 0),
            "corrupt": (damaged(), 0, ErrorCode.CORRUPT_MESSAGE),
            "too large": (batch(1000), 0, ErrorCode.MESSAGE_TOO_LARGE),
            "fits again": (batch(), 0, 0),
            "no such partition": (batch(), 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            "first of a producer": (batch(base_sequence=0, **idempotent), 0, 0),
            "its duplicate": (batch(base_sequence=0, **idempotent), 0, 0),
            "a gap": (batch(base_sequence=5, **idempotent), 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        }
        answers: dict[bool, list[bytes]] = {}
        counted: dict[bool, Any] = {}
        with socket.create_connection(("127.0.0.1", cluster.layout.ports[1]), timeout=30) as connection:
            for plain in (True, False):
                before = cluster.ask(lambda: meters(broker))
                for name, (records, index, error) in cases.items():
                    for version in VERSIONS:
                        # Each path has another partition, so that offsets and producers are the same.
                        place = index or (0 if plain else 1)
                        part = m.ProduceRequest.TopicData.PartitionData(index=place, records=records)
                        data = m.ProduceRequest.TopicData(name="plain", topic_id=topic_id, partition_data=[part])
                        request = m.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])
                        frame = b"".join(frames.encode_request(request, version, 5, "test"))[4:]
                        frame += b"" if plain else b"\0"
                        assert (read_single_batch(bytearray(frame)) is not None) == plain
                        raw = exchange(connection, frame)
                        _, answer = frames.decode_response(m.ProduceResponse, version, raw)
                        row = answer.responses[0].partition_responses[0]
                        assert row.error_code == error, name
                        row.index = 0
                        answers.setdefault(plain, []).append(repr(answer).encode())
                counted[plain] = {
                    name: value - before[name] for name, value in cluster.ask(lambda: meters(broker)).items()
                }
        assert [a.replace(b"plain-1", b"plain-0") for a in answers[False]] == answers[True]
        assert counted[True] == counted[False]
        served = cluster.ask(lambda: broker.services.metrics.request("Produce").count)
        # The broker's own events are among them.
        assert served >= 2 * len(cases) * len(VERSIONS)
        ends = [cluster.ask(lambda index=index: end(broker, index)) for index in (0, 1)]  # type: ignore[misc]
        assert ends[0] == ends[1] == 5


def test_both_ways_wait_for_the_followers_and_say_when_they_are_late(tmp_path: Path) -> None:
    # The follower that is killed stays in the ISR.
    settings = {"broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "60000"}
    with EngineCluster(tmp_path, brokers=3, settings=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        config = {"min.insync.replicas": "2"}
        topic = NewTopic("plain", 2, replica_assignment=[[1, 2], [1, 2]], config=config)
        admin.create_topics([topic])["plain"].result(30)
        broker = cluster.broker(1)

        def send(connection: socket.socket, *, plain: bool, timeout_ms: int) -> None:
            part = m.ProduceRequest.TopicData.PartitionData(index=0 if plain else 1, records=batch())
            data = m.ProduceRequest.TopicData(name="plain", partition_data=[part])
            request = m.ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[data])
            frame = b"".join(frames.encode_request(request, 12, 5, "test"))[4:] + (b"" if plain else b"\0")
            connection.sendall(struct.pack(">i", len(frame)) + frame)

        def answered(connection: socket.socket) -> Any:
            (size,) = struct.unpack(">i", exactly(connection, 4))
            _, answer = frames.decode_response(m.ProduceResponse, 12, exactly(connection, size))
            row = answer.responses[0].partition_responses[0]
            row.index = 0
            return row

        def both(timeout_ms: int) -> Any:
            """The responses of both paths, at the same time."""
            send(plain_connection, plain=True, timeout_ms=timeout_ms)
            send(general_connection, plain=False, timeout_ms=timeout_ms)
            short, general = answered(plain_connection), answered(general_connection)
            assert repr(short) == repr(general)
            return short

        address = ("127.0.0.1", cluster.layout.ports[1])
        with (
            socket.create_connection(address, timeout=60) as plain_connection,
            socket.create_connection(address, timeout=60) as general_connection,
        ):
            for offset in range(3):
                short = both(30_000)
                assert (short.error_code, short.base_offset) == (0, offset)
                marks = [cluster.ask(lambda i=i: high_watermark(broker, i)) for i in (0, 1)]  # type: ignore[misc]
                assert marks == [offset + 1, offset + 1], "it is acknowledged once the follower has it"
            cluster.kill_broker(2)
            short = both(300)
            assert (short.error_code, short.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 3)
            send(plain_connection, plain=True, timeout_ms=60_000)
            send(general_connection, plain=False, timeout_ms=60_000)
            waiting = [cluster.ask(lambda i=i: waiting_produces(broker, i)) for i in (0, 1)]  # type: ignore[misc]
            cluster.wait_until("both wait", lambda: all(map(len, waiting)))
            # A live broker gets it: a client asks the broker that metadata name as controller, one of those that
            # are alive (as in Kafka), which may be the one that was killed, and librdkafka waits for that one alone.
            gone = m.DeleteTopicsRequest(topic_names=["plain"], timeout_ms=30_000)
            deleted = ask(cluster.layout.ports[1], gone, 5, m.DeleteTopicsResponse)
            assert [response.error_code for response in deleted.responses] == [0]
            short, general = answered(plain_connection), answered(general_connection)
            assert repr(short) == repr(general)
            assert (short.error_code, short.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 4)


def high_watermark(broker: Any, index: int) -> int:
    offset: int = broker.broker_services.replica_manager.partition("plain", index).log.high_watermark
    return offset


def waiting_produces(broker: Any, index: int) -> Any:
    return broker.broker_services.replica_manager.partition("plain", index).delayed.produces


def meters(broker: Any) -> dict[str, int]:
    metrics = broker.services.metrics
    total, own = metrics.all_topics, metrics.topic("plain")
    return {
        "failed": total.failedproducerequests,
        "records": own.messagesin,
        "bytes": own.bytesin,
        "rejected": own.bytesrejected,
        "corrupt": total.invalidmessagecrcrecords,
    }


def end(broker: Any, index: int) -> int:
    log_end_offset: int = broker.broker_services.replica_manager.partition("plain", index).log.log_end_offset
    return log_end_offset
