"""The size of a Fetch response: limits of the request and its partitions, the first batch in spite of both (KIP-74)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from backend.engine.log.local_log import RANGE_BYTES_MIN
from backend.engine.ports.file_range import OsFileRange
from backend.protocol import messages as m
from backend.protocol.codegen.encoder import JOIN_BYTES
from backend.protocol.frames import encode_response
from backend.protocol.record_batches.record_batch import iter_batches
from tests.unit.engine.replica.nodes import Nodes, play

BATCHES: Final = 3
VALUE: Final = b"v" * 1000
MUCH: Final = 1 << 20


def request(
    topic_id: bytes, *, max_bytes: int = MUCH, partition_bytes: int = MUCH, min_bytes: int = 1, max_wait_ms: int = 0
) -> m.FetchRequest:
    """Of both partitions from their beginning."""
    topics = m.FetchRequest.Topics
    parts = [
        topics.Partitions(partition=index, fetch_offset=0, partition_max_bytes=partition_bytes) for index in (0, 1)
    ]
    return m.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[topics(topic_id=topic_id, partitions=parts)],
    )


async def batches(nodes: Nodes, topic_id: bytes, **limits: int) -> list[int]:
    """Whole batches of both partitions in one answer."""
    answer = await nodes[1].ask(request(topic_id, **limits), 17)
    rows = {row.partition_index: row for topic in answer.responses for row in topic.partitions}
    assert [rows[index].error_code for index in (0, 1)] == [0, 0]
    return [len(list(iter_batches(rows[index].records or b""))) for index in (0, 1)]


@pytest.mark.parametrize(
    ("max_bytes", "partition_bytes", "expected"),
    [
        (MUCH, MUCH, [BATCHES, BATCHES]),
        # The first batch there is comes whole, however small the limits; the second partition has no such right.
        (1, MUCH, [1, 0]),
        (MUCH, 1, [1, 0]),
        (MUCH, 2500, [2, 2]),
        # Bytes that the first partition takes are not there for the second.
        (5500, MUCH, [BATCHES, 2]),
        (0, 0, [1, 0]),
    ],
)
def test_an_answer_keeps_to_its_limits_but_for_the_first_batch(
    tmp_path: Path, max_bytes: int, partition_bytes: int, expected: list[int]
) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, count=1) as nodes:
            topic_id = nodes.create("orders", [1], [1])
            for index in (0, 1):
                for _ in range(BATCHES):
                    await nodes.produce(1, "orders", VALUE, index=index)
            assert await batches(nodes, topic_id, max_bytes=max_bytes, partition_bytes=partition_bytes) == expected

    play(run)


def test_a_batch_that_does_not_fit_counts_as_there_when_enough_is_awaited(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, count=1) as nodes:
            topic_id = nodes.create("orders", [1], [1])
            await nodes.produce(1, "orders", VALUE, index=0)
            await nodes.produce(1, "orders", VALUE * 200, index=1)
            # Every request that waits for the two has been answered.
            await asyncio.sleep(0.3)
            requested = batches(nodes, topic_id, partition_bytes=100_000, min_bytes=50_000, max_wait_ms=60_000)
            assert await asyncio.wait_for(requested, 20) == [1, 0]

    play(run)


def test_an_answer_of_many_bytes_leaves_them_in_their_file(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, count=1) as nodes:
            topic_id = nodes.create("orders", [1], [1])
            await nodes.produce(1, "orders", VALUE * 100, index=0)
            await nodes.produce(1, "orders", VALUE, index=1)
            answer = nodes[1].begin(request(topic_id), 17)
            rows = {row.partition_index: row for topic in answer.responses for row in topic.partitions}
            chunks = encode_response(answer, 17, 1)
            assert [type(rows[index].records) for index in (0, 1)] == [OsFileRange, bytes]
            assert [type(chunk) for chunk in chunks].count(OsFileRange) == 1
            assert RANGE_BYTES_MIN >= JOIN_BYTES, "the encoder joins what is shorter, which a range cannot be"

    play(run)
