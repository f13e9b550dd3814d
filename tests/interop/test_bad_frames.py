"""Malformed and refused requests end as with a real Kafka 4.3.1: same answer or same silence (bad-frames.json)."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest

from backend.protocol import frames
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.messages import Message
from backend.protocol.messages.base import Struct
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from tests.engine_cluster import EngineCluster

FIXTURE: Final = Path(__file__).parents[1] / "fixtures" / "apache-kafka-4.3.1" / "bad-frames.json"
COMPATIBILITY: Final = Path(__file__).parents[2] / "docs" / "compatibility.md"
CASES: Final[list[dict[str, Any]]] = json.loads(FIXTURE.read_text())
# The topic id of the fixture's cluster, and its leader epoch when it answered.
THEIR_TOPIC_ID: Final = bytes.fromhex("3303e678398f4bf3a6edd57b31b7c342")
THEIR_EPOCH: Final = 6
LATEST_WAIT_S: Final = 1.5
ANSWER_WAIT_S: Final = 20.0

# ApiVersions' lists are compared by `test_api_versions_serves_what_kafka_serves`.
LARGE_BATCH: Final = "Produce record batch larger than max.message.bytes"
TO_A_FOLLOWER: Final = "Produce to a follower"
IN_THE_FUTURE: Final = "Produce timestamp 2 h in the future"
METADATA: Final = 3
# Kafka 4.3.1 leaves the client without any answer here; an error is what its handler meant to send.
ANSWERED_HERE: Final = {"Produce null records": [ErrorCode.INVALID_RECORD]}
HALF_CLOSE: Final = "truncated frame, client half-closes"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(tmp_path_factory.mktemp("bad-frames"), brokers=3) as running:
        topic = m.CreateTopicsRequest.Topics
        assignments = [
            topic.Assignments(partition_index=index, broker_ids=brokers)
            for index, brokers in enumerate(([1, 2, 3], [2, 3, 1]))
        ]
        request = m.CreateTopicsRequest(
            topics=[
                topic(
                    name="orders",
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=assignments,
                    # The batches of the cases are of 2023.
                    configs=[topic.Configs(name="retention.ms", value="-1")],
                )
            ],
            timeout_ms=10_000,
        )
        created = exchange(running.layout.ports[1], b"".join(frames.encode_request(request, 7, 1, "setup")))
        assert error_codes(frames.decode_response(m.CreateTopicsResponse, 7, created.data[4:])[1]) == [0]
        running.wait_until("orders has leaders", lambda: leader_of(running, 0) == 1)
        yield running


def leader_of(cluster: EngineCluster, partition: int) -> int:
    registration = cluster.broker(1).services.metadata.image.partition("orders", partition)
    return -1 if registration is None else registration.leader


def topic_id(cluster: EngineCluster) -> bytes:
    topic = cluster.ask(lambda: cluster.broker(1).services.metadata.image.topic("orders"))
    assert topic is not None
    return topic.id


class Answer:
    """Returns the bytes that came back on a connection."""

    def __init__(self, result: str, data: bytes = b"") -> None:
        self.result = result
        self.data = data


def exchange(port: int, data: bytes, *, half_close: bool = False, patience_s: float = ANSWER_WAIT_S) -> Answer:
    """Sends bytes; waits for one frame, the end of the connection, or for the patience to end."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(data)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        deadline = time.monotonic() + patience_s
        while len(received) < 4 or len(received) < 4 + struct.unpack_from(">i", received)[0]:
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                chunk = connection.recv(1 << 20)
            except TimeoutError:
                return Answer("no answer, connection stays open")
            except ConnectionResetError:
                return Answer("closed")
            if not chunk:
                return Answer("closed")
            received += chunk
        return Answer("answered", received)


def error_codes(value: object) -> list[int]:
    """Every error code of a decoded response in the order of its fields, ours or the fixture's."""
    if isinstance(value, Struct):
        pairs = [(name, getattr(value, name)) for name in value.FIELDS]
    elif isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, (list, tuple)):
        return [code for item in value for code in error_codes(item)]
    else:
        return []
    codes: list[int] = []
    for name, inner in pairs:
        if name in ("error_code", "ErrorCode"):
            codes.append(int(inner))
        else:
            codes.extend(error_codes(inner))
    return codes


def request_of(case: dict[str, Any], cluster: EngineCluster) -> bytes:
    """The case's bytes with what belongs to the fixture's cluster replaced."""
    if case["sent_hex"] is None:
        assert case["case"] == LARGE_BATCH, case["case"]
        return large_batch()
    data = bytes.fromhex(case["sent_hex"]).replace(THEIR_TOPIC_ID, topic_id(cluster))
    name = case["case"]
    if name == IN_THE_FUTURE:
        return produce(build_batch([RecordData(int(time.time() * 1000) + 7_200_000, b"k", b"v")]))
    if name.startswith("Fetch stale"):
        data = with_leader_epoch(data, -2)
    elif name.startswith("Fetch future"):
        data = with_leader_epoch(data, 99)
    return data


def with_leader_epoch(data: bytes, epoch: int) -> bytes:
    header, message = frames.decode_request(bytearray(data[4:]))
    request: Any = message
    request.topics[0].partitions[0].current_leader_epoch = epoch
    return b"".join(frames.encode_request(request, header.api_version, header.correlation_id, header.client_id))


def large_batch() -> bytes:
    return produce(build_batch([RecordData(int(time.time() * 1000), None, bytes(1_100_000))]))


def produce(batch: bytearray) -> bytes:
    topic = m.ProduceRequest.TopicData
    request = m.ProduceRequest(
        acks=-1,
        timeout_ms=3000,
        topic_data=[topic(name="orders", partition_data=[topic.PartitionData(index=0, records=batch)])],
    )
    return b"".join(frames.encode_request(request, 9, 1, "probe"))


@pytest.mark.parametrize("case", [case for case in CASES if "sent_hex" in case], ids=lambda case: str(case["case"]))
def test_a_bad_frame_ends_as_with_kafka(cluster: EngineCluster, case: dict[str, Any]) -> None:
    node = 2 if case["case"] == TO_A_FOLLOWER else 1
    silent = case["result"].startswith("no answer")
    answer = exchange(
        cluster.layout.ports[node],
        request_of(case, cluster),
        half_close=case["case"] == HALF_CLOSE,
        patience_s=LATEST_WAIT_S if silent else ANSWER_WAIT_S,
    )
    if case["case"] in ANSWERED_HERE:
        _, refused = frames.decode_response(m.ProduceResponse, 9, bytearray(answer.data[4:]))
        assert error_codes(refused) == ANSWERED_HERE[case["case"]]
        return
    assert answer.result == case["result"]
    if case["decoded"] is None:
        return
    if "version" in case["case"] and "unsupported" in case["case"]:
        assert answer.data.hex() == case["answered_hex"]
        return
    header, _ = frames.decode_request_header(bytearray(request_of(case, cluster)[4:]))
    cls: type[Message] = frames.response_class(header.api_key)
    _, message = frames.decode_response(cls, header.api_version, bytearray(answer.data[4:]))
    ours, theirs = error_codes(message), error_codes(case["decoded"])
    if header.api_key == METADATA:
        # The top-level code is of version 13; and when all topics are asked for, each cluster has its own.
        ours = error_codes(cast(m.MetadataResponse, message).topics)
        if set(theirs) <= {0}:
            ours, theirs = sorted({0, *ours}), [0]
    assert ours == theirs


def test_api_versions_serves_what_kafka_serves(cluster: EngineCluster) -> None:
    theirs = json.loads((FIXTURE.parent / "api-versions.json").read_text())["broker"]["api_keys"]
    data = bytes.fromhex(CASES[0]["sent_hex"])
    _, message = frames.decode_response(
        frames.response_class(18), 3, bytearray(exchange(cluster.layout.ports[1], data).data[4:])
    )
    answer: Any = message
    ours = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
    their_versions = {key: (low, high) for key, _, low, high in theirs}
    assert ours.items() <= their_versions.items()
    assert answer.error_code == ErrorCode.NONE


def test_two_requests_in_one_packet_are_answered_in_order(cluster: EngineCluster) -> None:
    requests = [
        b"".join(frames.encode_request(m.MetadataRequest(topics=None), 12, correlation_id, "probe"))
        for correlation_id in (1, 2)
    ]
    with socket.create_connection(("127.0.0.1", cluster.layout.ports[1]), timeout=5) as connection:
        connection.sendall(b"".join(requests))
        answers = connection.makefile("rb")
        correlation_ids = []
        for _ in requests:
            (size,) = struct.unpack(">i", answers.read(4))
            correlation_ids.append(frames.decode_response(m.MetadataResponse, 12, answers.read(size))[0])
        answers.close()
    assert correlation_ids == [1, 2]


def test_users_are_told_where_an_answer_differs() -> None:
    rows = [line for line in COMPATIBILITY.read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) <= 20
    assert list(ANSWERED_HERE) == ["Produce null records"]
    assert sum(row.startswith("| Produce with null records") for row in rows) == 1


def test_the_check_notices_another_error_code() -> None:
    assert error_codes({"Topics": [{"ErrorCode": 3}]}) != error_codes({"Topics": [{"ErrorCode": 0}]})
