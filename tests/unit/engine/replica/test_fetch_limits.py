"""How much a Fetch answers: limits of the request and of each partition, the first batch in spite of both (KIP-74)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from backend.protocol import messages as m
from backend.protocol.batch import iter_batches
from tests.unit.engine.replica.nodes import Nodes, play

BATCHES: Final = 3
VALUE: Final = b"v" * 1000
MUCH: Final = 1 << 20


async def batches(nodes: Nodes, topic_id: bytes, *, max_bytes: int = MUCH, partition_bytes: int = MUCH) -> list[int]:
    """Whole batches of both partitions in one answer."""
    topics = m.FetchRequest.Topics
    request = m.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[
            topics(
                topic_id=topic_id,
                partitions=[
                    topics.Partitions(partition=index, fetch_offset=0, partition_max_bytes=partition_bytes)
                    for index in (0, 1)
                ],
            )
        ],
    )
    answer = await nodes[1].ask(request, 17)
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
        # What the first partition takes is not there for the second.
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
