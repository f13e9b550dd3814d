"""Records of `__cluster_metadata`: those of a real Kafka's snapshot, and unknown and broken ones."""

import pytest

from backend.protocol import cluster_metadata
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError, EncodeError
from backend.protocol.record_batches.record_batch import iter_batches, iter_records
from tests.unit.protocol.kafka_fixtures import ROOT


def test_every_record_of_a_real_snapshot_is_read_and_written_back_byte_for_byte() -> None:
    types: dict[str, int] = {}
    for path in (ROOT / "kraft").glob("*.checkpoint"):
        buffer = path.read_bytes()
        for position, header in iter_batches(buffer):
            for record in iter_records(buffer, position) if not header.is_control else ():
                message, version = cluster_metadata.decode(record.value)
                assert isinstance(message, m.Message)
                assert cluster_metadata.encode(message, version) == record.value
                types[message.NAME] = types.get(message.NAME, 0) + 1
    assert types["TopicRecord"] > 3
    assert types["PartitionRecord"] > 5
    assert types["RegisterBrokerRecord"] == 3


def test_a_type_or_version_that_is_not_known_is_handed_back() -> None:
    assert cluster_metadata.decode(bytes.fromhex("01 7f 00 aabb")) == (
        cluster_metadata.UnknownRecord(127, 0, b"\xaa\xbb"),
        0,
    )
    record, version = cluster_metadata.decode(memoryview(bytes.fromhex("01 02 63 aabb")))
    assert record == cluster_metadata.UnknownRecord(2, 99, b"\xaa\xbb")
    assert version == 99


@pytest.mark.parametrize(
    "text", ["", "01", "0102", "00 02 00", "02 02 00", "01 02 00", "01 02 00 02", "01 14 00 00 00"]
)
def test_a_broken_record_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        cluster_metadata.decode(bytes.fromhex(text))


def test_only_metadata_records_can_be_written() -> None:
    assert cluster_metadata.encode(m.NoOpRecord(), 0).hex() == "01140000"
    with pytest.raises(EncodeError):
        cluster_metadata.encode(m.MetadataRequest(), 0)
    with pytest.raises(EncodeError):
        cluster_metadata.encode(m.NoOpRecord(), 1)
    with pytest.raises(DecodeError):
        cluster_metadata.decode(None)
