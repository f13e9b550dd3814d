"""Random lives of a cluster: what commands write is enough to know everything, and never breaks an invariant."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.engine.controller.commands.brokers import fence_broker
from backend.engine.controller.commands.config.configuration_control import DELETE, SET, incremental_alter_configs
from backend.engine.controller.commands.partition.elections import elect_leaders, rebalance_leaders
from backend.engine.controller.commands.partition.isr_change import alter_partition
from backend.engine.controller.commands.partition.more_partitions import create_partitions
from backend.engine.controller.commands.partition.partition_reassignment import alter_partition_reassignments
from backend.engine.controller.commands.producer_id_control import allocate_producer_ids
from backend.engine.controller.commands.topic_commands import delete_topics
from backend.engine.controller.image.metadata_image import EMPTY_IMAGE, MetadataImage
from backend.engine.controller.image.replay import apply_records
from backend.engine.raft.metadata_batches import decode_batches, encode_batch
from backend.protocol import messages as m
from backend.protocol.errors import KafkaError
from tests.effort import effort
from tests.unit.engine.controller.clusters import CLUSTER_ID, Play

BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b", "c")

brokers = st.sampled_from(BROKERS)
topics = st.sampled_from(TOPICS)
replica_lists = st.lists(brokers, min_size=1, max_size=4, unique=True)
some_brokers = st.lists(brokers, max_size=4, unique=True)
partitions = st.integers(0, 2)

steps = st.one_of(
    st.tuples(st.just("create"), topics, st.lists(replica_lists, min_size=1, max_size=3), st.booleans()),
    st.tuples(st.just("delete"), topics),
    st.tuples(st.just("grow"), topics, st.integers(1, 4)),
    st.tuples(st.just("fence"), brokers),
    st.tuples(st.just("heartbeat"), brokers, st.booleans()),
    st.tuples(st.just("restart"), brokers),
    st.tuples(st.just("isr"), topics, partitions, some_brokers, st.integers(0, 1)),
    st.tuples(st.just("reassign"), topics, partitions, st.one_of(st.none(), replica_lists)),
    st.tuples(st.just("elect"), st.integers(0, 1)),
    st.tuples(st.just("rebalance")),
    st.tuples(st.just("config"), topics, st.sampled_from((SET, DELETE)), st.integers(1, 9)),
    st.tuples(st.just("producer ids"), brokers),
)


def play_step(play: Play, step: tuple[object, ...]) -> None:
    """One step; what a command refuses as a whole changes nothing."""
    match step:
        case ("create", str(topic), list(lists), bool(unclean)):
            size = len(lists[0])
            play.create(
                topic,
                [[*assignment, *(b for b in BROKERS if b not in assignment)][:size] for assignment in lists],
                unclean_leader_election_enable="true" if unclean else "false",
            )
        case ("delete", str(topic)):
            deletion = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.Topics(name=topic)])
            play.do(partial(delete_topics, request=deletion, config=play.config, version=6))
        case ("grow", str(topic), int(count)):
            growth = m.CreatePartitionsRequest.Topics(name=topic, count=count, assignments=None)
            request = m.CreatePartitionsRequest(topics=[growth])
            play.do(partial(create_partitions, request=request, choose=lambda stop: stop - 1))
        case ("fence", int(broker)):
            play.do(partial(fence_broker, broker_id=broker, config=play.config))
        case ("heartbeat", int(broker), bool(leave)):
            play.heartbeat(broker, want_shut_down=leave)
        case ("restart", int(broker)):
            play.register(broker, incarnation=play.image.offset)
        case ("isr", str(topic), int(index), list(members), int(recovery)):
            change_isr(play, topic, index, members, recovery)
        case ("reassign", str(topic), int(index), replicas):
            part = m.AlterPartitionReassignmentsRequest.Topics
            partition = part.Partitions(partition_index=index, replicas=replicas)  # type: ignore[arg-type]  # list or None
            requested_topic = part(name=topic, partitions=[partition])
            play.do(
                partial(
                    alter_partition_reassignments,
                    request=m.AlterPartitionReassignmentsRequest(topics=[requested_topic]),
                    config=play.config,
                )
            )
        case ("elect", int(kind)):
            play.do(
                partial(
                    elect_leaders,
                    config=play.config,
                    request=m.ElectLeadersRequest(election_type=kind, topic_partitions=None),
                )
            )
        case ("rebalance",):
            play.do(partial(rebalance_leaders, config=play.config))
        case ("config", str(topic), int(how), int(value)):
            resource = m.IncrementalAlterConfigsRequest.Resources
            change = resource.Configs(name="retention.ms", config_operation=how, value=str(value))
            resources = [resource(resource_type=2, resource_name=topic, configs=[change])]
            play.do(
                partial(
                    incremental_alter_configs,
                    request=m.IncrementalAlterConfigsRequest(resources=resources),
                    config=play.config,
                )
            )
        case ("producer ids", int(broker)):
            epoch = play.image.brokers[broker].epoch
            ids = m.AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch)
            play.do(partial(allocate_producer_ids, request=ids))
        case _:
            raise AssertionError(step)


def change_isr(play: Play, topic: str, index: int, members: list[int], recovery: int) -> None:
    partition = play.image.partition(topic, index)
    if partition is None or partition.leader < 0:
        return
    isr_change = m.AlterPartitionRequest.Topics.Partitions
    request = m.AlterPartitionRequest(
        broker_id=partition.leader,
        broker_epoch=play.image.brokers[partition.leader].epoch,
        topics=[
            m.AlterPartitionRequest.Topics(
                topic_id=play.image.topic_ids[topic],
                partitions=[
                    isr_change(
                        partition_index=index,
                        leader_epoch=partition.leader_epoch,
                        partition_epoch=partition.partition_epoch,
                        leader_recovery_state=recovery,
                        new_isr_with_epochs=[
                            isr_change.NewIsrWithEpochs(broker_id=broker, broker_epoch=play.image.brokers[broker].epoch)
                            for broker in sorted({partition.leader, *members} & set(partition.replicas))
                        ],
                    )
                ],
            )
        ],
    )
    play.do(partial(alter_partition, request=request, config=play.config, version=3))


def check(image: MetadataImage) -> None:
    """Checks the invariants of every image."""
    assert {topic.name: topic_id for topic_id, topic in image.topics.items()} == dict(image.topic_ids)
    for topic in image.topics.values():
        assert set(topic.partitions) == set(range(len(topic.partitions)))
        for partition in topic.partitions.values():
            # Without anybody in sync the eligible replicas are remembered (KIP-966), and nobody leads.
            remembered = partition.elr or partition.last_known_elr
            assert partition.isr or (partition.leader == -1 and remembered), topic
            assert not set(partition.elr) & set(partition.isr), topic
            assert partition.replicas, topic
            assert len(set(partition.replicas)) == len(partition.replicas), topic
            assert set(partition.isr) <= set(partition.replicas), topic
            assert set(partition.adding_replicas) | set(partition.removing_replicas) <= set(partition.replicas), topic
            assert len(partition.directories) == len(partition.replicas), topic
            assert partition.leader == -1 or partition.leader in partition.isr, topic
            assert partition.leader == -1 or image.is_active(partition.leader), topic
    for resource_type, name in image.configs:
        assert resource_type != 2 or name in image.topic_ids


def check_step(before: MetadataImage, after: MetadataImage) -> None:
    """Checks the invariants between an image and the next: epochs count each change that they should."""
    for topic_id in set(before.topics) & set(after.topics):
        for index, old in before.topics[topic_id].partitions.items():
            new = after.topics[topic_id].partitions[index]
            assert new.leader_epoch >= old.leader_epoch
            assert (new.partition_epoch > old.partition_epoch) == (new != old)
            if new.leader != old.leader or not set(old.replicas) <= set(new.replicas):
                assert new.leader_epoch > old.leader_epoch


@settings(max_examples=effort(150, 5_000, check=37), deadline=None)
@given(st.lists(steps, max_size=40))
def test_replaying_the_log_gives_the_image_that_commands_saw(life: list[tuple[object, ...]]) -> None:
    play = Play().start_brokers(*BROKERS)
    log = bytearray(encode_batch(play.records, base_offset=0, epoch=1, now_ms=5))
    for step in life:
        before = play.image
        play.last = ()
        try:
            play_step(play, step)
        except KafkaError:
            assert play.image is before
            continue
        check(play.image)
        check_step(before, play.image)
        if play.last:
            log += encode_batch(play.last, base_offset=before.offset + 1, epoch=1, now_ms=5)
    replayed = replace(EMPTY_IMAGE, cluster_id=CLUSTER_ID)
    for batch in decode_batches(log):
        replayed = apply_records(replayed, batch.records, batch.last_offset, batch.epoch)
    assert replayed == play.image


def test_the_checker_sees_a_leader_outside_the_isr() -> None:
    play = Play().start_brokers(1, 2)
    play.create("a", [[1, 2]])
    record = m.PartitionChangeRecord(partition_id=0, topic_id=play.image.topic_ids["a"], isr=[2])
    broken = apply_records(play.image, [record], play.image.offset + 1, 1)
    with pytest.raises(AssertionError):
        check(broken)


def test_the_checker_sees_a_change_that_raises_no_epoch() -> None:
    play = Play().start_brokers(1, 2)
    play.create("a", [[1, 2]])
    topic = play.image.topics[play.image.topic_ids["a"]]
    silent = replace(topic, partitions=topic.partitions.set(0, replace(topic.partitions[0], isr=(1,))))
    with pytest.raises(AssertionError):
        check_step(play.image, replace(play.image, topics=play.image.topics.set(topic.id, silent)))
