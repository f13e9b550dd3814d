"""The fetchers of a broker, and their partitions when leaders move."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.unit.engine.replica.nodes import Nodes, play


def test_every_partition_of_a_leader_with_a_new_address_is_fetched_from_there(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, count=2) as nodes:
            nodes.create("orders", *([1, 2] for _ in range(4)))
            image = nodes.play.image
            leader = image.brokers[1]
            # The same life of the broker, and so the same leader epochs: no partition changes its role.
            moved = replace(leader, endpoints=tuple(replace(point, host="127.0.0.9") for point in leader.endpoints))
            nodes.play.image = replace(image, brokers=image.brokers.set(1, moved))
            nodes.publish()
            for index in range(4):
                row = await nodes.produce(1, "orders", b"value", index=index)
                assert row.error_code == 0, index
                assert nodes[2].offsets("orders", index)[3] == 1, index

    play(run)
