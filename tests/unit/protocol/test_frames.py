"""Frames of a real Kafka and its clients, byte for byte, and what a broker refuses."""

import json

import pytest

from backend.protocol import frames
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError, EncodeError
from tests.unit.protocol.kafka_fixtures import ROOT, wire_rows

ROWS = wire_rows()


def test_every_recorded_request_is_read_and_written_back_byte_for_byte() -> None:
    for row in ROWS:
        frame = bytes.fromhex(row["request"])
        for buffer in (frame, bytearray(frame), memoryview(frame)):
            header, message = frames.decode_request(buffer)
            assert (header.api_key, header.api_version) == (row["api_key"], row["version"])
            assert header.client_id == row["client_id"]
            chunks = frames.encode_request(message, header.api_version, header.correlation_id, header.client_id)
            assert b"".join(chunks) == len(frame).to_bytes(4, "big") + frame, (row["api"], row["version"])


def test_every_recorded_response_is_read_and_written_back_byte_for_byte() -> None:
    for row in ROWS:
        frame = bytes.fromhex(row["response"])
        header, _ = frames.decode_request_header(bytes.fromhex(row["request"]))
        for buffer in (frame, bytearray(frame), memoryview(frame)):
            cls = frames.response_class(row["api_key"])
            correlation_id, message = frames.decode_response(cls, row["version"], buffer)
            assert correlation_id == header.correlation_id
            chunks = frames.encode_response(message, row["version"], correlation_id)
            assert b"".join(map(bytes, chunks)) == len(frame).to_bytes(4, "big") + frame, (row["api"], row["version"])


def test_the_recordings_cover_most_of_what_a_broker_serves() -> None:
    assert len({(row["api_key"], row["version"]) for row in ROWS}) >= 250


def test_the_recorded_versions_are_those_of_the_message_table() -> None:
    served = json.loads((ROOT / "api-versions.json").read_text())
    compared = 0
    for listener in ("broker", "controller"):
        for api_key, name, first, last in served[listener]["api_keys"]:
            cls = frames.request_class(api_key)
            assert name + "Request" == cls.NAME
            assert name + "Response" == frames.response_class(api_key).NAME
            # Kafka says 0 for Produce for the sake of old clients, and closes the connection when it is used.
            assert first == cls.MIN_VERSION or api_key == 0, name
            assert last <= cls.MAX_VERSION, name
            compared += 1
    assert compared > 90


# These frames are sound; the broker closes for reasons outside the frame.
CLOSED_LATER = {"controller-only api 59 on a broker", "Produce acks=0 wrong CRC"}


def test_a_frame_is_refused_when_a_real_broker_closes_the_connection() -> None:
    refused = 0
    for row in json.loads((ROOT / "bad-frames.json").read_text()):
        sent = bytes.fromhex(row.get("sent_hex") or "")
        if int.from_bytes(sent[:4], "big", signed=True) != len(sent) - 4 or row["case"] in CLOSED_LATER:
            continue
        if row["result"] == "closed":
            refused += 1
            with pytest.raises(DecodeError):
                frames.decode_request(sent[4:])
        else:
            frames.decode_request(sent[4:])
    assert refused >= 10


def test_an_api_versions_request_of_any_version_is_let_through_to_be_answered() -> None:
    for hexed in ("0012000900000007000178000278027900", "0012ffff00000007000178"):
        header, message = frames.decode_request(bytes.fromhex(hexed))
        assert message == m.ApiVersionsRequest()
        assert header.correlation_id == 7
        assert header.client_id == "x"
        assert header.api_version in (9, -1)
    answer = m.ApiVersionsResponse(
        error_code=35, api_keys=[m.ApiVersionsResponse.ApiKeys(api_key=18, min_version=0, max_version=4)]
    )
    frame = b"".join(map(bytes, frames.encode_response(answer, 0, 7)))
    assert frame.hex() == "0000001000000007002300000001001200000004"
    assert frames.decode_response(m.ApiVersionsResponse, 4, frame[4:]) == (7, answer)


def test_an_api_versions_response_has_the_oldest_header_in_every_version() -> None:
    for version in range(5):
        chunks = frames.encode_response(m.ApiVersionsResponse(), version, 0x01020304)
        assert bytes(chunks[0])[4:10] == bytes.fromhex("010203040000")


@pytest.mark.parametrize("client_id", [None, "", "ünï", "c" * 500])
@pytest.mark.parametrize("version", [0, 12, 13])
def test_a_client_id_may_be_absent_empty_or_long(client_id: str | None, version: int) -> None:
    request = m.MetadataRequest(topics=None if version else [])
    frame = b"".join(frames.encode_request(request, version, -5, client_id))
    header, message = frames.decode_request(frame[4:])
    assert header == frames.RequestHeader(3, version, -5, client_id)
    assert message == request


def test_the_message_of_a_header_agrees_with_the_hand_written_header() -> None:
    from backend.protocol import codec

    for version, api_version in ((1, 8), (2, 9)):
        header = m.RequestHeaderData(
            request_api_key=3, request_api_version=api_version, correlation_id=9, client_id="me"
        )
        request_header, position = frames.decode_request_header(codec.encode(header, version))
        assert request_header == frames.RequestHeader(3, api_version, 9, "me")
        assert position == len(codec.encode(header, version))


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    plain = b"".join(frames.encode_request(m.MetadataRequest(), 12, 1, "me"))[4:]
    tagged = plain[:12] + bytes.fromhex("024d02aabb4e00") + plain[13:]
    assert frames.decode_request(tagged) == frames.decode_request(plain)
    with pytest.raises(DecodeError):
        frames.decode_request(plain[:12] + bytes.fromhex("01 4d ff01 aa") + plain[13:])


@pytest.mark.parametrize("frame", [b"", b"\x00\x03", bytes(9), bytes.fromhex("0003000c00000001fffe00")])
def test_a_header_that_is_cut_off_or_has_a_negative_length_is_refused(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        frames.decode_request_header(frame)
    with pytest.raises(DecodeError):
        frames.decode_response(m.MetadataResponse, 12, frame[:4])


@pytest.mark.parametrize("head", ["03e70000", "ffff0000", "00040000", "00030063", "0003ffff", "00010003", "00000002"])
def test_an_api_or_version_that_does_not_exist_is_told_apart(head: str) -> None:
    with pytest.raises(frames.UnsupportedRequest):
        frames.decode_request(bytes.fromhex(head) + bytes.fromhex("00000007000178") + bytes(20))


def test_large_records_travel_without_being_copied() -> None:
    records = bytearray(100_000)
    partition = m.FetchResponse.Responses.Partitions(partition_index=1, records=records)
    response = m.FetchResponse(responses=[m.FetchResponse.Responses(topic_id=bytes(range(16)), partitions=[partition])])
    chunks = frames.encode_response(response, 17, 5)
    assert any(chunk is records for chunk in chunks)
    assert int.from_bytes(bytes(chunks[0])[:4], "big") == sum(map(len, chunks)) - 4
    frame = bytearray(b"".join(map(bytes, chunks))[4:])
    _, decoded = frames.decode_response(m.FetchResponse, 17, frame)
    view = decoded.responses[0].partitions[0].records
    assert isinstance(view, memoryview)
    view[0] = 0x55
    assert frame.count(0x55) == 1, "the records are a part of the frame itself, which a leader patches in place"


def test_a_correlation_id_that_does_not_fit_is_an_encode_error() -> None:
    with pytest.raises(EncodeError):
        frames.encode_response(m.HeartbeatResponse(), 4, 1 << 31)
    with pytest.raises(EncodeError):
        frames.encode_request(m.HeartbeatRequest(), 4, 1, "c" * 40_000)
