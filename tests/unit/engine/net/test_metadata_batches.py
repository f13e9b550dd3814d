"""The batches of a fetch of the metadata topic: malformed ones are passed over, partition by partition."""

from __future__ import annotations

import pytest

from backend.engine.net.metadata_topic_client import fetched_partitions
from backend.engine.remote.metadata.metadata_topic import UnreadableBatch
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from tests.unit.engine.log.broken_batches import broken_batch

PART = m.FetchResponse.Responses.Partitions


def answer(**partitions: bytes) -> m.FetchResponse:
    rows = [PART(partition_index=int(name[1:]), records=memoryview(data)) for name, data in partitions.items()]
    return m.FetchResponse(responses=[m.FetchResponse.Responses(topic="t", partitions=rows)])


def good(offset: int, value: bytes = b"value") -> bytearray:
    return build_batch([RecordData(0, None, value)], base_offset=offset)


@pytest.mark.parametrize("body", [b"\xff" * 40, bytes(40), b"", b"\x18\x00\x00\x00\x02k\x0avalue\x00" + bytes(9)])
@pytest.mark.parametrize("size", [10, 900])
def test_a_batch_that_is_none_is_passed_over_alone(body: bytes, size: int) -> None:
    """Few bytes are read one by one, many as columns."""
    values = bytes(size)
    data = good(7, values) + broken_batch(body, base_offset=8, count=3) + good(11, values)
    first, second = fetched_partitions(answer(p0=bytes(data), p4=bytes(good(2))), {0: 7, 4: 2})
    assert (first.error, first.next_offset) == (ErrorCode.NONE, 12)
    assert [record.offset for record in first.records] == [7, 11]
    assert [(unreadable_batch.first_offset, unreadable_batch.last_offset) for unreadable_batch in first.unreadable] == [
        (8, 10)
    ]
    assert isinstance(first.unreadable[0], UnreadableBatch)
    assert (second.next_offset, [record.value for record in second.records]) == (3, [b"value"])


def test_what_cannot_even_be_measured_is_an_error_of_its_partition() -> None:
    torn = good(0)
    torn[16] = 9  # the magic
    first, second = fetched_partitions(answer(p0=bytes(torn), p1=bytes(good(0))), {0: 0, 1: 0})
    assert (first.partition, first.error, first.next_offset) == (0, ErrorCode.CORRUPT_MESSAGE, 0)
    assert (second.partition, second.next_offset) == (1, 1)
    behind, _ = fetched_partitions(answer(p0=bytes(good(0) + torn), p1=bytes(good(0))), {0: 0, 1: 0})
    assert (behind.error, behind.next_offset, len(behind.records)) == (ErrorCode.NONE, 1, 1)
