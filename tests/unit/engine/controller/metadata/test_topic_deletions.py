"""Deleted partitions of which the remote tier has to be informed, and when no replica of theirs is online."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from backend.engine.controller.commands.brokers import fence_broker
from backend.engine.controller.commands.topic_commands import delete_topics
from backend.engine.controller.metadata.topic_deletions import TopicDeletions
from backend.protocol import messages as m
from tests.unit.engine.controller.clusters import Play, broker_config
from tests.unit.engine.controller.controller_node import HandlerChannel, cluster, run, until

TIERING: Final = {"remote_log_storage_system_enable": "true"}


def removed(play: Play, *topics: str) -> tuple[TopicDeletions, int]:
    """The topics' removal, and its offset."""
    before, topic_deletions = play.image, TopicDeletions()
    states = [m.DeleteTopicsRequest.Topics(name=name) for name in topics]
    play.do(partial(delete_topics, request=m.DeleteTopicsRequest(topics=states), config=play.config, version=6))
    topic_deletions.add(before, play.last, play.image.offset)
    return topic_deletions, play.image.offset


def two_topics() -> Play:
    play = Play(broker_config(**TIERING)).start_brokers(1, 2, 3)
    play.create("tiered", [[1, 2], [2, 3]], remote_storage_enable="true")
    play.create("plain", [[1, 2]])
    return play


def test_a_partition_is_offline_once_every_replica_has_applied_the_removal() -> None:
    play = two_topics()
    topic_deletions, offset = removed(play, "tiered", "plain")
    applied = {1: offset, 2: offset - 1, 3: offset}

    def offline() -> list[tuple[str, int]]:
        return [
            (partition.tip.topic, partition.tip.partition)
            for partition in topic_deletions.offline(play.image, lambda node: applied[node])
        ]

    assert offline() == []
    applied[2] = offset
    assert offline() == [("tiered", 0), ("tiered", 1)]
    topic_deletions.mark_informed(topic_deletions.offline(play.image, lambda node: offset)[0].tip)
    assert offline() == [("tiered", 1)]


def test_a_broker_that_is_fenced_or_gone_is_not_waited_for() -> None:
    play = two_topics()
    topic_deletions, offset = removed(play, "tiered")
    play.do(partial(fence_broker, broker_id=3, config=play.config))
    offline = topic_deletions.offline(play.image, lambda node: offset if node == 2 else -1)
    assert [partition.tip.partition for partition in offline] == [1]


def test_a_topic_that_was_tiered_once_counts() -> None:
    play = Play(broker_config(**TIERING)).start_brokers(1)
    play.create("once", [[1]], remote_storage_enable="false")
    topic_deletions, offset = removed(play, "once")
    assert len(topic_deletions.offline(play.image, lambda node: offset)) == 1


def test_a_controller_that_comes_back_remembers_what_it_may_not_have_told(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 1, remote_log_storage_system_enable="true") as (node, _):
            topic = m.CreateTopicsRequest.Topics
            created = m.CreateTopicsRequest(
                topics=[
                    topic(
                        name="tiered",
                        num_partitions=2,
                        replication_factor=1,
                        configs=[topic.Configs(name="remote.storage.enable", value="true")],
                    )
                ]
            )
            answer = await HandlerChannel(node).send(created, 7, timeout_ms=1000)
            assert isinstance(answer, m.CreateTopicsResponse)
            assert answer.topics[0].error_code == 0, answer
            gone = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.Topics(name="tiered")])
            await HandlerChannel(node).send(gone, 6, timeout_ms=1000)
            await until(lambda: len(node.controller.deleted_partitions_offline()) == 2)
            assert not any(partition.replayed for partition in node.controller.deleted_partitions_offline())
            await node.stop()
            await node.start()
            await until(lambda: len(node.controller.deleted_partitions_offline()) == 2)
            assert all(partition.replayed for partition in node.controller.deleted_partitions_offline())

    run(play)
