"""A broker that cannot use a replica's log says so: another leads, until the log is usable again (KIP-858)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from backend.engine.controller.commands.brokers import fence_broker
from backend.engine.controller.commands.partition.elections import PREFERRED, elect_leaders
from backend.engine.controller.commands.partition.isr_change import alter_partition
from backend.engine.controller.commands.partition.replica_directories import assign_replicas_to_dirs
from backend.engine.controller.image.metadata_image import DIRECTORY_LOST
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from tests.unit.engine.controller.clusters import Play, uuid_of


def three(*, elr_level: int = 1, **settings: str) -> Play:
    play = Play(elr_level=elr_level).start_brokers(1, 2, 3)
    play.create("orders", [[1, 2, 3]], **settings)
    return play


def assign(
    play: Play, broker: int, directory: bytes, indexes: Sequence[int] = (0,), *, topic_id: bytes | None = None
) -> list[int]:
    """The error codes of a broker's AssignReplicasToDirs."""
    directories = m.AssignReplicasToDirsRequest.Directories
    topic = directories.Topics(
        topic_id=topic_id or play.image.topic_ids["orders"],
        partitions=[directories.Topics.Partitions(partition_index=index) for index in indexes],
    )
    request = m.AssignReplicasToDirsRequest(
        broker_id=broker,
        broker_epoch=play.image.brokers[broker].epoch,
        directories=[directories(id=directory, topics=[topic])],
    )
    response = play.do(partial(assign_replicas_to_dirs, request=request, config=play.config))
    return [row.error_code for row in response.directories[0].topics[0].partitions]


def own_directory(broker: int) -> bytes:
    return uuid_of(5000 + broker)


def join(play: Play, isr: list[int]) -> None:
    partition = play.partition("orders")
    topic = m.AlterPartitionRequest.Topics
    request = m.AlterPartitionRequest(
        broker_id=partition.leader,
        broker_epoch=play.image.brokers[partition.leader].epoch,
        topics=[
            topic(
                topic_id=play.image.topic_ids["orders"],
                partitions=[
                    topic.Partitions(
                        leader_epoch=partition.leader_epoch,
                        partition_epoch=partition.partition_epoch,
                        new_isr_with_epochs=[
                            topic.Partitions.NewIsrWithEpochs(broker_id=broker, broker_epoch=-1) for broker in isr
                        ],
                    )
                ],
            )
        ],
    )
    answer = play.do(partial(alter_partition, request=request, config=play.config, version=3))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def elect_preferred(play: Play) -> int:
    request = m.ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None)
    answer = play.do(partial(elect_leaders, request=request, config=play.config))
    rows = answer.replica_election_results[0].partition_result
    return rows[0].error_code


def test_a_leader_that_lost_its_log_leaves_the_isr_and_another_leads() -> None:
    play = three()
    before = play.partition("orders")
    assert assign(play, 1, DIRECTORY_LOST) == [ErrorCode.NONE]
    after = play.partition("orders")
    assert (after.leader, after.isr) == (2, (2, 3))
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.is_lost(1)
    assert not after.is_lost(2)


def test_it_cannot_lead_again_before_its_log_is_back() -> None:
    play = three()
    for broker in (2, 3):
        play.do(partial(fence_broker, broker_id=broker, config=play.config))
    assign(play, 1, DIRECTORY_LOST)
    for broker in (2, 3):
        play.heartbeat(broker)
    assert elect_preferred(play) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    for broker in (2, 3):
        play.do(partial(fence_broker, broker_id=broker, config=play.config))
    assert play.partition("orders").leader == -1
    assert assign(play, 1, own_directory(1)) == [ErrorCode.NONE]
    # Back with its log it is elected at once: nobody else can be.
    assert play.partition("orders").leader == 1
    assert not play.partition("orders").is_lost(1)


def test_a_follower_that_lost_its_log_only_leaves_the_isr() -> None:
    play = three()
    epoch = play.partition("orders").leader_epoch
    assign(play, 3, DIRECTORY_LOST)
    after = play.partition("orders")
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1, 2), epoch)


def test_the_last_member_of_an_isr_stays_in_it_when_its_log_is_lost() -> None:
    play = three(elr_level=0)
    for broker in (1, 2, 3):
        assign(play, broker, DIRECTORY_LOST)
    assert (play.partition("orders").leader, play.partition("orders").isr) == (-1, (3,))


def test_saying_the_same_twice_changes_nothing() -> None:
    play = three()
    assign(play, 1, DIRECTORY_LOST)
    assert assign(play, 1, DIRECTORY_LOST) == [ErrorCode.NONE]
    assert play.last == ()


def test_what_is_not_there_or_not_the_brokers_is_refused_by_itself() -> None:
    play = Play().start_brokers(1, 2, 3)
    play.create("orders", [[1, 2]])
    assert assign(play, 1, DIRECTORY_LOST, [0, 7]) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert assign(play, 3, DIRECTORY_LOST) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert assign(play, 2, DIRECTORY_LOST, topic_id=uuid_of(99)) == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_an_earlier_life_of_a_broker_is_not_listened_to() -> None:
    play = three()
    request = m.AssignReplicasToDirsRequest(broker_id=1, broker_epoch=play.image.brokers[1].epoch - 1)
    with pytest.raises(KafkaError) as raised:
        play.do(partial(assign_replicas_to_dirs, request=request, config=play.config))
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH
