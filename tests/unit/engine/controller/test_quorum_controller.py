"""The controller as it runs: commands, commits, sessions, restarts; and the brokers that follow it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from backend.engine.controller.broker_sessions import BrokerSessions
from backend.engine.controller.commands.command import ControllerResult
from backend.engine.controller.commands.topic_commands import create_topics
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.controller.quorum_controller import QUEUED_COMMANDS_MAX
from backend.engine.controller.registration.producer_id_manager import ProducerIdManager
from backend.engine.log.log_errors import CorruptLog
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from tests.unit.engine.controller.clusters import Play
from tests.unit.engine.controller.controller_node import (
    CONTROLLER_ID,
    BrokerHalf,
    ControllerNode,
    HandlerChannel,
    cluster,
    run,
    until,
)
from tests.unit.engine.virtual_time import LoopClock, loop_here

Topic = m.CreateTopicsRequest.Topics


async def create(
    node: ControllerNode, name: str, partitions: int = 1, factor: int = 1
) -> m.CreateTopicsResponse.Topics:
    topic = Topic(name=name, num_partitions=partitions, replication_factor=factor)
    answer = await HandlerChannel(node).send(m.CreateTopicsRequest(topics=[topic]), 7, timeout_ms=1000)
    assert isinstance(answer, m.CreateTopicsResponse)
    return answer.topics[0]


def epoch_of(broker: BrokerHalf) -> int:
    return broker.lifecycle.broker_epoch


def content(image: MetadataImage) -> MetadataImage:
    """An image without its place in the log and without what every start of a controller writes again."""
    return replace(image, offset=0, epoch=0, controllers=type(image.controllers)())


def test_an_empty_log_becomes_a_cluster(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path) as (node, _):
            image = node.controller.image
            assert dict(image.features) == {
                "eligible.leader.replicas.version": 1, "group.version": 1, "metadata.version": 30,
                "transaction.version": 2,
            }  # fmt: skip
            assert dict(image.broker_config(1)) == {"min.insync.replicas": "1"}
            assert set(image.controllers) == {CONTROLLER_ID}
            assert image.offset == node.controller.log.high_watermark - 1

    run(play)


def test_brokers_are_unfenced_and_their_images_equal_the_controllers(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 3) as (node, brokers):
            assert (await create(node, "orders", 6, 3)).error_code == 0
            final = node.controller.image
            for broker in brokers:
                assert await broker.cache.wait_for(lambda image: image.offset == final.offset, 5000)
                assert broker.cache.image == final
                assert broker.cache.applied_offset == final.offset
            assert [alive_broker.id for alive_broker in final.alive_brokers()] == [1, 2, 3]

    run(play)


def test_a_restart_gives_the_same_image_in_a_new_epoch(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 2) as (node, brokers):
            for number in range(5):
                await create(node, f"t{number}", 3, 2)
            for broker in brokers:
                await broker.stop()
            before = node.controller.image
            await node.stop()
            await node.start()
            assert content(node.controller.image) == content(before)
            assert node.controller.raft.epoch == 2
            assert node.controller.image.offset > before.offset

    run(play)


def test_brokers_follow_a_controller_that_comes_back(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 2, broker_session_timeout_ms="20000") as (node, brokers):
            await create(node, "before")
            await node.stop()
            await asyncio.sleep(0.05)
            await node.start()
            await create(node, "after", 1, 2)
            for broker in brokers:
                assert await broker.cache.wait_for(lambda image: "after" in image.topic_ids, 5000)
                assert broker.cache.image == node.controller.image

    run(play)


def test_commands_that_wait_together_share_a_flush_and_keep_their_order(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 1) as (node, _):
            offsets = await asyncio.gather(*(create(node, f"t{number:02}") for number in range(50)))
            assert [offset.error_code for offset in offsets] == [0] * 50
            names = [topic.name for topic in node.controller.image.topics.values()]
            assert sorted(names) == [f"t{number:02}" for number in range(50)]

    run(play)


def test_a_command_sees_what_the_one_before_it_wrote(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 1) as (node, _):
            first, second = await asyncio.gather(create(node, "same"), create(node, "same"))
            assert {first.error_code, second.error_code} == {0, ErrorCode.TOPIC_ALREADY_EXISTS}

    run(play)


def test_a_control_record_that_comes_while_a_worker_evaluates_a_command_shifts_its_records(tmp_path: Path) -> None:
    """The image counted from where the log ended before: it got the command's records twice, and followers once."""

    async def play() -> None:
        async with cluster(tmp_path, 1) as (node, [broker]):
            assert (await create(node, "orders")).error_code == 0
            controller, raft = node.controller, node.raft

            def command(image: MetadataImage) -> ControllerResult[None]:
                # As a voter's fetch with a new directory does meanwhile (`RaftNode.voter_fetched`).
                raft.log.append_voters(raft.state.directories.set(7, bytes(15) + b"7"), raft.epoch, 0)
                change = m.PartitionChangeRecord(topic_id=image.topic_ids["orders"], partition_id=0, isr=[1])
                return ControllerResult((change,), None)

            before = controller.image.partition("orders", 0)
            assert before is not None
            await controller.submit("change", command, by_worker=True)
            assert controller.image.offset == controller.log.end_offset - 1
            assert (await create(node, "payments")).error_code == 0
            after = controller.image.partition("orders", 0)
            assert after is not None
            assert after.partition_epoch == before.partition_epoch + 1
            final = controller.image
            assert await broker.cache.wait_for(lambda image: image.offset == final.offset, 5000)
            assert broker.cache.image == final

    run(play)


def test_records_that_are_applied_already_stop_the_node_instead_of_being_applied_again(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 1) as (node, _):
            assert (await create(node, "orders", 3)).error_code == 0
            committed = node.metadata.committed
            end = committed.image.offset
            committed.image = replace(committed.image, offset=end - 1)
            with pytest.raises(CorruptLog, match=f"to {end} has records that are applied already"):
                await committed.catch_up()
            committed.image = replace(committed.image, offset=end)

    run(play)


def test_a_command_that_fails_writes_nothing_and_the_next_one_works(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 1) as (node, _):
            end = node.controller.log.end_offset

            def bug(image: MetadataImage) -> ControllerResult[None]:
                raise ZeroDivisionError

            def remove_unknown_topic(image: MetadataImage) -> ControllerResult[None]:
                return ControllerResult((m.RemoveTopicRecord(topic_id=bytes(16)),), None)

            for command in (bug, remove_unknown_topic):
                with pytest.raises(KafkaError) as error:
                    await node.controller.submit("test", command)
                assert error.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert node.controller.log.end_offset == end
            assert (await create(node, "orders")).error_code == 0

    run(play)


def test_a_full_queue_refuses(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path) as (node, _):
            nothing = [node.controller.submit("nothing", lambda image: ControllerResult((), None)) for _ in range(10)]
            waiting = [asyncio.ensure_future(submission) for submission in nothing]
            many = [
                asyncio.ensure_future(node.controller.submit("nothing", lambda image: ControllerResult((), None)))
                for _ in range(QUEUED_COMMANDS_MAX)
            ]
            outcomes = await asyncio.gather(*waiting, *many, return_exceptions=True)
            refused = [outcome for outcome in outcomes if isinstance(outcome, KafkaError)]
            assert len(refused) == 10
            assert {error.code for error in refused} == {ErrorCode.REQUEST_TIMED_OUT}

    run(play)


def test_after_a_stop_commands_are_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path) as (node, _):
            controller = node.controller
            waiting = asyncio.ensure_future(controller.submit("nothing", lambda image: ControllerResult((), None)))
            await node.stop()
            with pytest.raises(KafkaError) as error:
                await waiting
            assert error.value.code == ErrorCode.NOT_CONTROLLER
            with pytest.raises(KafkaError):
                await controller.submit("nothing", lambda image: ControllerResult((), None))

    run(play)


def test_a_silent_broker_is_fenced_and_unfenced_when_it_speaks_again(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 2) as (node, brokers):
            await create(node, "orders", 4, 2)
            brokers[1].lifecycle_channel.broken = True
            await until(lambda: node.controller.image.brokers[2].fenced)
            assert {partition.leader for partition in node.controller.image.topics[
                node.controller.image.topic_ids["orders"]].partitions.values()} == {1}  # fmt: skip
            brokers[1].lifecycle_channel.broken = False
            await until(lambda: not node.controller.image.brokers[2].fenced)

    run(play)


class JumpingClock(LoopClock):
    """The loop's clock, and the time that a process misses while it is stopped."""

    missed_ms = 0.0

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.missed_ms


def test_a_controller_that_was_held_up_itself_fences_nobody(tmp_path: Path) -> None:
    async def play() -> None:
        clock = JumpingClock(loop_here())
        # No heartbeat comes between the jump and the check of the sessions.
        properties = {"broker_heartbeat_interval_ms": "60000", "broker_session_timeout_ms": "4000"}
        async with cluster(tmp_path, 1, clock=clock, **properties) as (node, _):
            controller = node.controller
            end = controller.log.end_offset
            clock.missed_ms = 10_000
            assert not controller._sessions.alive(1, clock.monotonic_ms())
            await until(
                lambda: controller.image.brokers[1].fenced or controller._sessions.alive(1, clock.monotonic_ms())
            )
            assert controller.log.end_offset == end
            # It is silent from now on, and that counts.
            await until(lambda: controller.image.brokers[1].fenced)

    run(play)


def test_time_nobody_could_be_heard_in_makes_no_session_longer_than_a_full_one() -> None:
    play = Play()
    play.start_brokers(1, 2)
    image = play.image
    sessions = BrokerSessions(1000)
    sessions.update(image, 0)
    sessions.touch(1, image.brokers[1].epoch, 900)
    sessions.extend(800, 1000)
    assert sessions.expired(image, 1799) == []
    assert sessions.expired(image, 1800) == [2]
    assert sessions.expired(image, 2000) == [2, 1]


def test_brokers_that_died_with_the_controller_are_fenced_after_its_restart(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 2) as (node, brokers):
            await brokers[1].stop()
            await brokers[0].stop()
            await node.stop()
            await node.start()
            assert not node.controller.image.brokers[2].fenced
            # A broker that starts again at once need not wait for the session of its former life.
            again = BrokerHalf(node, 1, tmp_path)
            await again.start()
            await until(lambda: node.controller.image.brokers[2].fenced)
            assert not node.controller.image.brokers[1].fenced
            await again.stop()

    run(play)


def test_allowing_unclean_elections_elects_at_once(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 2) as (node, brokers):
            topic = Topic(
                name="orders",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[Topic.Assignments(partition_index=0, broker_ids=[1, 2])],
            )
            channel = HandlerChannel(node)
            await channel.send(m.CreateTopicsRequest(topics=[topic]), 7, timeout_ms=1000)
            await brokers[1].lifecycle.leave(10_000)
            await brokers[0].stop()
            await until(lambda: node.controller.image.brokers[1].fenced)
            again = BrokerHalf(node, 2, tmp_path)
            await again.start()
            partition = node.controller.image.partition("orders", 0)
            assert partition is not None
            assert (partition.leader, partition.isr, partition.elr) == (-1, (), (1,))
            resource = m.IncrementalAlterConfigsRequest.Resources
            change = resource.Configs(name="unclean.leader.election.enable", config_operation=0, value="true")
            resources = [resource(resource_type=2, resource_name="orders", configs=[change])]
            await channel.send(m.IncrementalAlterConfigsRequest(resources=resources), 1, timeout_ms=1000)
            await until(lambda: led_by(node, "orders") == 2)
            await again.stop()

    run(play)


def led_by(node: ControllerNode, topic: str) -> int:
    partition = node.controller.image.partition(topic, 0)
    assert partition is not None
    return partition.leader


def test_a_second_broker_with_the_same_id_waits_for_the_first_ones_session(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 1) as (node, brokers):
            twin = BrokerHalf(node, 1, tmp_path, initial_broker_registration_timeout_ms="100")
            with pytest.raises(KafkaError) as error:
                await twin.lifecycle.start()
            assert error.value.code == ErrorCode.REQUEST_TIMED_OUT
            assert "another broker runs as node.id 1: stop that one" in error.value.message
            await twin.lifecycle.stop()
            epoch = brokers[0].lifecycle.broker_epoch
            await brokers[0].stop()
            successor = BrokerHalf(node, 1, tmp_path)
            assert await successor.start() > epoch
            await successor.stop()

    run(play)


def test_a_broker_of_another_cluster_is_refused_for_good(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path) as (node, _):
            stranger = BrokerHalf(node, 5, tmp_path)
            stranger.lifecycle._registration.cluster_id = "other"
            with pytest.raises(KafkaError) as error:
                await stranger.lifecycle.start()
            assert error.value.code == ErrorCode.INCONSISTENT_CLUSTER_ID
            await stranger.lifecycle.stop()

    run(play)


def test_controlled_shutdown_waits_until_others_know_and_no_longer(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 2) as (node, brokers):
            await create(node, "orders", 4, 2)
            assert await brokers[0].lifecycle.leave(10_000)
            image = node.controller.image
            assert image.brokers[1].fenced
            assert image.brokers[1].in_controlled_shutdown
            orders = image.topics[image.topic_ids["orders"]]
            assert {(partition.leader, partition.isr) for partition in orders.partitions.values()} == {(2, (2,))}
            assert await brokers[1].lifecycle.leave(10_000)

    run(play)


def test_a_broker_that_the_controller_forgot_registers_again(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 1) as (node, _):
            epoch = node.controller.image.brokers[1].epoch
            request = m.UnregisterBrokerRequest(broker_id=1)
            await HandlerChannel(node).send(request, 0, timeout_ms=1000)
            await until(lambda: 1 in node.controller.image.brokers)
            await until(lambda: not node.controller.image.brokers[1].fenced)
            assert node.controller.image.brokers[1].epoch > epoch

    run(play)


def test_a_failing_publisher_does_not_stop_the_others(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path) as (node, _):
            half = BrokerHalf(node, 1, tmp_path)
            seen: list[tuple[int, int]] = []

            class Publisher:
                def __init__(self, name: str) -> None:
                    self.name = name

                async def on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
                    if self.name == "broken":
                        raise ValueError("broken")
                    await asyncio.sleep(0)
                    seen.append((old.offset, new.offset))

                def on_applied(self, old: MetadataImage, new: MetadataImage) -> None:
                    assert half.cache.applied_offset == new.offset

            half.publishers += [Publisher("broken"), Publisher("slow")]
            await half.start()
            await until(lambda: half.cache.applied_offset == node.controller.image.offset)
            assert seen[0][0] == -1
            assert [new_offset for _, new_offset in seen[:-1]] == [old_offset for old_offset, _ in seen[1:]]
            await half.stop()

    run(play)


def test_producer_ids_come_in_blocks_and_never_twice(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 2) as (node, brokers):
            managers = [
                ProducerIdManager(HandlerChannel(node), node_id=broker.id, broker_epoch=partial(epoch_of, broker))
                for broker in brokers
            ]
            ids = [await manager.next_id() for _ in range(1200) for manager in managers]
            together = await asyncio.gather(*(manager.next_id() for _ in range(50) for manager in managers))
            assert len({*ids, *together}) == 2500
            assert node.controller.image.next_producer_id >= 4000

    run(play)


def test_without_a_controller_producer_ids_are_asked_for_again(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 1) as (node, brokers):
            channel = HandlerChannel(node)
            manager = ProducerIdManager(channel, node_id=1, broker_epoch=lambda: brokers[0].lifecycle.broker_epoch)
            channel.broken = True
            with pytest.raises(KafkaError) as error:
                await manager.next_id()
            assert error.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            channel.broken = False
            assert await manager.next_id() == 0

    run(play)


def test_a_disk_that_fails_ends_the_controller_and_says_so(tmp_path: Path) -> None:
    async def play() -> None:
        async with cluster(tmp_path, 1) as (node, _):
            controller = node.controller
            controller.log._log.mark_offline("the disk is gone")
            command = partial(
                create_topics,
                request=m.CreateTopicsRequest(topics=[Topic(name="t", num_partitions=1, replication_factor=1)]),
                config=node.config,
                new_topic_id=node.ports.random.uuid,
                choose=node.ports.random.randrange,
            )
            with pytest.raises(KafkaError) as error:
                await controller.submit("create", command)
            assert error.value.code == ErrorCode.NOT_CONTROLLER
            await until(lambda: controller.failure is not None)
            assert "t" not in controller.image.topic_ids
            with pytest.raises(KafkaError):
                await controller.submit("nothing", lambda image: ControllerResult((), None))

    run(play)
