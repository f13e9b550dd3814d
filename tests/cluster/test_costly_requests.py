"""Requests that cost much: what they may ask for, and what other clients of the process wait meanwhile."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import cramjam
import pytest
from crc32c import crc32c

from backend.engine.apis.produce import produce_append
from backend.protocol import frames
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.record_batches.record_batch import iter_records, parse_header
from tests.engine_cluster import EngineCluster
from tests.loop_watch import LoopWatch
from tests.waiting import wait_until
from tests.wire import ask, exactly

MIB: Final = 1024 * 1024
# Processor time of the loop between two turns of others. A request stops after 20 ms; a garbage collection, another
# request and the answer's way out may fall into the same turn.
TURN_MS_MAX: Final = 120
# Until another client has its answer. Five turns at 50 ms are 250 ms on a quiet machine; this one runs other tests too.
ANSWER_MS_MAX: Final = 2000
PARTITIONS: Final = 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(tmp_path_factory.mktemp("costly"), brokers=1) as running:
        topic = m.CreateTopicsRequest.Topics
        request = m.CreateTopicsRequest(
            topics=[topic(name="wide", num_partitions=PARTITIONS, replication_factor=1)], timeout_ms=30_000
        )
        answer = ask(running.layout.ports[1], request, 7, m.CreateTopicsResponse)
        assert answer.topics[0].error_code == 0
        running.wait_until(
            "wide is led",
            lambda: all(running.broker(1).broker_services.replica_manager.find("wide", at) for at in range(PARTITIONS)),
        )
        yield running


def bomb(value_bytes: int, codec: int = 4) -> bytes:
    """A right batch of one record with so many zeros."""
    body = bytearray()
    for number in (0, 0, 0, -1, value_bytes):  # attributes, timestamp, offset, no key, value
        body += varint(number)
    body += bytes(value_bytes) + varint(0)
    record = varint(len(body)) + body
    packed = bytes({4: cramjam.zstd, 1: cramjam.gzip}[codec].compress(bytes(record)))
    batch, now_ms = bytearray(61) + packed, int(time.time() * 1000)
    head = (0, len(batch) - 12, -1, 2, 0, codec, 0, now_ms, now_ms, -1, -1, -1, 1)
    struct.pack_into(">qiibIhiqqqhii", batch, 0, *head)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def varint(value: int) -> bytes:
    number, out = (value << 1) ^ (value >> 63), bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def produce(cluster: EngineCluster, *batches: bytes, version: int = 9) -> list[tuple[int, int]]:
    """(code, base offset) of each; one partition after the other."""
    data = m.ProduceRequest.TopicData
    parts = [data.PartitionData(index=index, records=batch) for index, batch in enumerate(batches)]
    request = m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data(name="wide", partition_data=parts)])
    answer = ask(cluster.layout.ports[1], request, version, m.ProduceResponse, timeout_s=120)
    return [(row.error_code, row.base_offset) for row in answer.responses[0].partition_responses]


def test_batches_that_grow_are_validated_elsewhere_and_bounded_together(cluster: EngineCluster) -> None:
    large = bomb(120 * MIB)
    fitting = produce_append.REQUEST_BYTES_MAX // (120 * MIB)
    with LoopWatch(cluster.loop, cluster.layout.ports[1]) as other:
        codes = [code for code, _ in produce(cluster, *[large] * PARTITIONS)]
    assert codes == [0] * fitting + [ErrorCode.MESSAGE_TOO_LARGE] * (PARTITIONS - fitting)
    assert other.turn_ms_max < TURN_MS_MAX
    assert other.answer_ms_max < ANSWER_MS_MAX


@pytest.mark.parametrize("value_bytes", [1 * MIB, 6 * MIB, 30 * MIB])
@pytest.mark.parametrize("count", [1, 2], ids=["plain", "general"])
def test_a_batch_is_stored_whatever_it_holds(cluster: EngineCluster, value_bytes: int, count: int) -> None:
    batch = bomb(value_bytes)
    rows = produce(cluster, *[batch] * count)
    assert {code for code, _ in rows} == {0}
    log = cluster.broker(1).broker_services.replica_manager.partition("wide", 0).log
    assert log.log_end_offset == rows[0][1] + 1
    (record,) = iter_records(memoryview(batch))
    assert len(record.value or b"") == value_bytes
    assert parse_header(memoryview(batch)).record_count == 1


def test_a_batch_above_the_limit_of_one_is_refused(cluster: EngineCluster) -> None:
    assert produce(cluster, bomb(129 * MIB))[0][0] == ErrorCode.UNKNOWN_SERVER_ERROR


def test_requests_behind_a_large_one_are_appended_behind_it(cluster: EngineCluster, tmp_path: Path) -> None:
    """Pipelined ones of a connection: the large one waits for a worker, its successors for it."""
    data = m.ProduceRequest.TopicData
    with socket.create_connection(("127.0.0.1", cluster.layout.ports[1]), timeout=60) as connection:
        sent = b""
        for number, size in enumerate((40 * MIB, 10, 20 * MIB, 10)):
            part = data.PartitionData(index=3, records=bomb(size))
            request = m.ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data(name="wide", partition_data=[part])])
            sent += b"".join(bytes(chunk) for chunk in frames.encode_request(request, 9, number, "test"))
        connection.sendall(sent)
        offsets = []
        for number in range(4):
            (size,) = struct.unpack(">i", exactly(connection, 4))
            correlation_id, answer = frames.decode_response(m.ProduceResponse, 9, exactly(connection, size))
            assert correlation_id == number
            offsets.append(answer.responses[0].partition_responses[0].base_offset)
    assert offsets == list(range(offsets[0], offsets[0] + 4))


@pytest.mark.parametrize("retention_ms", [2**63 - 1, -(2**63), 0])
def test_offsets_may_be_kept_for_any_time(cluster: EngineCluster, retention_ms: int) -> None:
    topic = m.OffsetCommitRequest.Topics
    request = m.OffsetCommitRequest(
        group_id="long",
        generation_id_or_member_epoch=-1,
        retention_time_ms=retention_ms,
        topics=[topic(name="wide", partitions=[topic.Partitions(partition_index=0, committed_offset=1)])],
    )
    key = m.FindCoordinatorRequest(key="long", key_type=0)

    def is_committed() -> bool:
        # The first question makes the topic of offsets.
        ask(cluster.layout.ports[1], key, 1, m.FindCoordinatorResponse)
        answer = ask(cluster.layout.ports[1], request, 4, m.OffsetCommitResponse)
        return bool(answer.topics) and answer.topics[0].partitions[0].error_code == 0

    wait_until("the offset is committed", is_committed, 30)
