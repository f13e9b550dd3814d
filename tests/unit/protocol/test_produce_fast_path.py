"""The short way of a Produce says and answers what the generated codec does, or leaves the frame to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.protocol import frames
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError, ErrorCode
from backend.protocol.produce_fast_path import (
    FIRST_VERSION,
    LAST_VERSION,
    SingleBatchProduce,
    encode_single_batch,
    read_single_batch,
)
from backend.protocol.record_batches.record_batch import RecordData, build_batch

BATCH = bytes(build_batch([RecordData(1, b"k", b"v" * 100)]))
TOPIC_ID = bytes(range(16))
INT64 = st.integers(-(2**63), 2**63 - 1)
VERSIONS = st.integers(FIRST_VERSION, LAST_VERSION)


def request(name: str = "orders", index: int = 3, records: Any = BATCH, **fields: Any) -> m.ProduceRequest:
    part = m.ProduceRequest.TopicData.PartitionData(index=index, records=records)
    topic = m.ProduceRequest.TopicData(name=name, topic_id=TOPIC_ID, partition_data=[part])
    usual: dict[str, Any] = {"acks": 1, "timeout_ms": 30_000, "topic_data": [topic]}
    return m.ProduceRequest(**(usual | fields))


def frame_of(message: m.ProduceRequest, version: int, client_id: str | None = "client", number: int = 7) -> bytearray:
    return bytearray(b"".join(frames.encode_request(message, version, number, client_id))[4:])


def same(plain: SingleBatchProduce, frame: bytearray) -> None:
    """The fast path reads the same values as the codec."""
    header, message = frames.decode_request(frame)
    assert isinstance(message, m.ProduceRequest)
    (topic,) = message.topic_data
    (part,) = topic.partition_data
    assert (plain.version, plain.correlation_id, plain.client_id) == header[1:]
    assert (plain.acks, plain.timeout_ms, None) == (message.acks, message.timeout_ms, message.transactional_id)
    records: Any = part.records
    assert (plain.partition, bytes(plain.records)) == (part.index, bytes(records))
    assert plain.topic_id == topic.topic_id if plain.version >= 13 else plain.topic_name == topic.name


@given(
    VERSIONS,
    st.text(max_size=40),
    st.integers(0, 2**31 - 1),
    st.none() | st.text(max_size=20),
    st.integers(0, 9000),
    st.sampled_from((1, -1)),
)
def test_the_usual_request_is_read_as_the_codec_reads_it(
    version: int, name: str, index: int, client_id: str | None, more: int, acks: int
) -> None:
    frame = frame_of(request(name, index, BATCH + bytes(more), acks=acks), version, client_id)
    plain = read_single_batch(frame)
    short_enough = 1 <= len(name.encode()) <= 126
    assert (plain is not None) == (version >= 13 or short_enough)
    if plain is not None:
        same(plain, frame)


@given(VERSIONS, st.data())
def test_a_damaged_frame_is_left_alone_or_read_as_the_codec_reads_it(version: int, data: st.DataObject) -> None:
    frame = frame_of(request(), version)
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(0, len(frame)) | st.just(len(frame)))]
    plain = read_single_batch(frame)
    if plain is not None:
        try:
            same(plain, frame)
        except DecodeError as error:
            raise AssertionError(f"the codec refuses what was read: {error}") from error


@pytest.mark.parametrize(
    "message",
    [
        request(acks=0),
        request(acks=2),
        request(transactional_id="t"),
        request(topic_data=[]),
        request(topic_data=request().topic_data * 2),
        request(records=None),
        request(records=b""),
        request(records=BATCH[:60]),
        request(records=build_batch([RecordData(1, None, b"v")], producer_id=1, producer_epoch=0, base_sequence=0,
                                    transactional=True)),
    ],
    ids=["acks 0", "acks 2", "transactional id", "no topic", "two topics", "null", "empty", "short", "transaction"],
)  # fmt: skip
def test_other_requests_go_the_general_way(message: m.ProduceRequest) -> None:
    assert read_single_batch(frame_of(message, 12)) is None
    assert read_single_batch(frame_of(request(), 12)) is not None


def test_versions_before_9_and_other_apis_go_the_general_way() -> None:
    assert read_single_batch(frame_of(request(), 8)) is None
    other = b"".join(frames.encode_request(m.HeartbeatRequest(group_id="g"), 4, 1, "c"))[4:]
    assert read_single_batch(bytearray(other)) is None


@given(VERSIONS, st.integers(-(2**31), 2**31 - 1), INT64, INT64, INT64, st.sampled_from(ErrorCode))
def test_the_answer_has_the_bytes_of_the_codec(
    version: int, number: int, base: int, time_ms: int, start: int, error: ErrorCode
) -> None:
    plain = read_single_batch(frame_of(request(), version, number=number))
    assert plain is not None
    row = m.ProduceResponse.Responses.PartitionResponses(
        index=3, error_code=error, base_offset=base, log_append_time_ms=time_ms, log_start_offset=start
    )
    topic = m.ProduceResponse.Responses(name="orders", topic_id=TOPIC_ID, partition_responses=[row])
    expected = frames.encode_response(m.ProduceResponse(responses=[topic]), version, number)
    assert encode_single_batch(plain, base, time_ms, start, error) == b"".join(map(bytes, expected))
