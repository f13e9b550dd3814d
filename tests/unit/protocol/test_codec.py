"""The promises of the codec about single fields; whole messages are compared in tests/properties/protocol."""

import pytest

from backend.protocol import codec
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError, EncodeError

Partitions = m.FetchResponse.Responses.Partitions


def test_a_nullable_struct_is_preceded_by_a_byte() -> None:
    """KIP-893."""
    absent = m.DescribeTopicPartitionsRequest(cursor=None)
    present = m.DescribeTopicPartitionsRequest(
        cursor=m.DescribeTopicPartitionsRequest.Cursor(topic_name="a", partition_index=7)
    )
    assert codec.encode(absent, 0).hex() == "01000007d0ff00"
    assert codec.encode(present, 0).hex() == "01000007d0010261000000070000"
    for message in (absent, present):
        assert codec.decode(m.DescribeTopicPartitionsRequest, 0, codec.encode(message, 0))[0] == message


def test_tagged_fields_are_written_only_when_they_differ_from_their_default() -> None:
    plain = Partitions()
    assert plain.current_leader.leader_id == -1
    response = m.FetchResponse(responses=[m.FetchResponse.Responses(partitions=[plain])])
    length = len(codec.encode(response, 17))
    plain.current_leader.leader_id = 3
    tagged = codec.encode(response, 17)
    assert len(tagged) == length + len(bytes.fromhex("01 09 00000003 ffffffff 00"))
    assert bytes.fromhex("01 01 09 00000003 ffffffff 00") in tagged
    decoded, _ = codec.decode(m.FetchResponse, 17, tagged)
    assert decoded == response
    assert decoded.responses[0].partitions[0].current_leader.leader_id == 3
    assert decoded.responses[0].partitions[0].diverging_epoch == Partitions.DivergingEpoch()


def test_tagged_structs_of_two_messages_are_never_shared() -> None:
    partition, two = Partitions(), Partitions()
    partition.current_leader.leader_id = 5
    assert two.current_leader.leader_id == -1
    assert partition != two


def test_a_tagged_nullable_struct_may_be_absent_null_or_empty() -> None:
    cls = m.ConsumerGroupMemberMetadataValue
    empty = cls.ClassicMemberMetadata()
    assert cls().classic_member_metadata == empty
    for value in (None, empty, cls.ClassicMemberMetadata(supported_protocols=[])):
        message = cls(classic_member_metadata=value)
        assert codec.decode(cls, 0, codec.encode(message, 0))[0] == message
    assert codec.encode(cls(), 0)[-1:] == b"\x00"
    # As a real broker writes it: the presence byte of a tagged field is an unsigned varint.
    assert codec.encode(cls(classic_member_metadata=None), 0)[-4:].hex() == "01000100"


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = codec.encode(m.MetadataRequest(), 12)
    tagged = plain[:-1] + bytes.fromhex("02 4d02 6162 ff01 00")
    assert codec.decode(m.MetadataRequest, 12, tagged) == (m.MetadataRequest(), len(tagged))


@pytest.mark.parametrize("section", ["01", "01 4d", "01 4d 05 6162", "ffffffff0f", "01 4d ffffffffff01", "80"])
def test_a_tag_section_that_is_cut_off_is_refused(section: str) -> None:
    plain = codec.encode(m.MetadataRequest(), 12)
    with pytest.raises(DecodeError):
        codec.decode(m.MetadataRequest, 12, plain[:-1] + bytes.fromhex(section))


def test_a_message_has_a_limit_of_elements_however_they_are_nested() -> None:
    tags = 60_000
    section = bytes.fromhex("e0d403") + bytes.fromhex("4d00") * tags
    topic = bytes(16) + b"\x02a"
    flags = b"\x01\x00"
    one_section = b"\x02" + topic + section + flags + b"\x00"
    assert codec.decode(m.MetadataRequest, 12, one_section)[1] == len(one_section)
    with pytest.raises(DecodeError, match="more than 100000 elements"):
        codec.decode(m.MetadataRequest, 12, b"\x02" + topic + section + flags + section)


def test_an_array_above_the_limit_is_refused_before_anything_is_read() -> None:
    count = 100_001
    body = b"\x00" + bytes(6) + bytes.fromhex("a28d06") + bytes(3 * count)
    with pytest.raises(DecodeError, match="more than 100000 elements"):
        codec.decode(m.ProduceRequest, 9, body)


def test_a_response_may_tell_of_more_than_a_request_may_ask() -> None:
    topics = m.MetadataResponse.Topics
    response = m.MetadataResponse(topics=[topics(name=None, partitions=[topics.Partitions()] * 150_000)])
    decoded, _ = codec.decode(m.MetadataResponse, 12, codec.encode(response, 12))
    assert len(decoded.topics[0].partitions) == 150_000


def test_a_known_tagged_field_must_have_the_size_it_claims() -> None:
    request = m.FetchRequest(cluster_id="abc")
    data = codec.encode(request, 17)
    assert data.endswith(bytes.fromhex("01 00 04 04616263"))
    with pytest.raises(DecodeError):
        codec.decode(m.FetchRequest, 17, data[:-7] + bytes.fromhex("01 00 05 04616263 00"))


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (1, "7fffffff"),  # an array of 2^31 - 1 topics
        (1, "00000001fffe"),  # a name of -2 bytes
        (1, "000000017fff61"),
        (1, "00000001ffff"),  # a null name
        (12, "ffffffff0f"),  # a compact array of 2^32 - 2 topics
        (12, "ffffffffff7f"),
        (12, "0200000000000000000000000000000000ffffffff0f"),
        (12, "ff"),
        (9, "0200"),  # a null name
        (9, "0202ff00000000"),  # a name that is not UTF-8
    ],
)
def test_lengths_that_cannot_be_are_refused(version: int, data: str) -> None:
    with pytest.raises(DecodeError) as caught:
        codec.decode(m.MetadataRequest, version, bytes.fromhex(data))
    assert f"MetadataRequest v{version}" in str(caught.value)


@pytest.mark.parametrize("length", ["ffffffff", "fffffffb", "80000000"])
def test_any_negative_length_is_null_where_null_may_stand(length: str) -> None:
    request, end = codec.decode(m.MetadataRequest, 1, bytes.fromhex(length))
    assert (request.topics, end) == (None, 4)


def test_fields_a_version_does_not_have_are_left_out_and_come_back_as_defaults() -> None:
    request = m.MetadataRequest(topics=[m.MetadataRequest.Topics(name="a", topic_id=bytes(range(16)))])
    decoded, _ = codec.decode(m.MetadataRequest, 9, codec.encode(request, 9))
    assert decoded.topics is not None
    assert decoded.topics[0] == m.MetadataRequest.Topics(name="a")


def test_records_may_be_given_in_pieces_and_come_back_as_one() -> None:
    cases: list[list[bytes | bytearray | memoryview]] = [[b"ab", memoryview(b"cd")], [bytes(3000), bytearray(5)], []]
    for pieces in cases:
        response = m.FetchResponse(responses=[m.FetchResponse.Responses(partitions=[Partitions(records=list(pieces))])])
        for version in (4, 11, 12, 18):
            decoded, _ = codec.decode(m.FetchResponse, version, codec.encode(response, version))
            assert decoded.responses[0].partitions[0].records == b"".join(pieces)


def test_a_value_that_does_not_fit_its_field_is_an_encode_error() -> None:
    topics = m.MetadataRequest.Topics
    for message in (
        m.HeartbeatRequest(generation_id=1 << 31),
        m.HeartbeatRequest(group_id=None),  # type: ignore[arg-type]  # what a careless caller does
        m.HeartbeatRequest(group_id=b"bytes"),  # type: ignore[arg-type]  # the same
        m.MetadataRequest(topics=[topics(name="a", topic_id=b"short")]),
        m.MetadataRequest(topics=5),  # type: ignore[arg-type]  # the same
    ):
        with pytest.raises(EncodeError):
            codec.encode(message, message.MAX_VERSION)
    with pytest.raises(EncodeError):
        codec.encode(m.HeartbeatRequest(group_id="g" * 40_000), 3)


def test_a_version_that_does_not_exist_is_refused() -> None:
    for version in (-1, 14):
        with pytest.raises(EncodeError):
            codec.encode(m.MetadataRequest(), version)
        with pytest.raises(DecodeError):
            codec.decode(m.MetadataRequest, version, bytes(50))


def test_an_unsigned_16_bit_port_reaches_its_end() -> None:
    endpoint = m.BrokerRegistrationRequest.Listeners(name="L", host="h", port=65535)
    request, _ = codec.decode(
        m.BrokerRegistrationRequest, 4, codec.encode(m.BrokerRegistrationRequest(listeners=[endpoint]), 4)
    )
    assert request.listeners[0].port == 65535
