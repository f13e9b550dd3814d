"""A damaged replica that is set aside and copied again counts for the controller again."""

from __future__ import annotations

from pathlib import Path

from backend.tiering.ids import TopicPartition
from tests.unit.engine.replica.nodes import Nodes, play


def test_it_is_told_to_be_usable_although_its_loss_is_on_its_way_yet(tmp_path: Path) -> None:
    """The first image says that it leads, so its log is reported lost; the next one, still without that report, that
    another does.
    """

    async def run() -> None:
        async with Nodes(tmp_path, 2) as nodes:
            [directory] = nodes[2].logs.directories.directory_ids.values()
            nodes.play.register(2, incarnation=2, directories=[directory])
            nodes.play.heartbeat(2)
            topic_id = nodes.create("orders", [2, 1])
            await nodes.in_sync("orders", 1, 2)
            assert (await nodes.produce(2, "orders", b"a")).error_code == 0
            led_by_2 = nodes.play.image
            await nodes.stop(2)
            (tmp_path / "2" / "orders-0" / f"{0:020d}.log").write_bytes(b"")
            node = nodes.renew(2)
            node.has_others = True
            await node.start()
            node.publish(led_by_2)
            assert list(node.logs.offline_partitions) == [TopicPartition("orders", 0)]
            node.publish(nodes.play.image)
            registration = nodes.play.image.partition("orders", 0)
            assert registration is not None
            assert registration.directory_of(2) == directory
            await nodes.until("the directory is told", lambda: nodes.assigned.get((2, topic_id, 0)) == directory)

    play(run)
