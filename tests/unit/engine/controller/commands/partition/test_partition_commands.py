"""ISR changes, elections and reassignments of partitions."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest

from backend.engine.controller.commands.brokers import fence_broker
from backend.engine.controller.commands.command import ControllerResult
from backend.engine.controller.commands.config.configuration_control import incremental_alter_configs
from backend.engine.controller.commands.partition.elections import (
    PREFERRED,
    UNCLEAN,
    elect_leaders,
    elect_unclean,
    rebalance_leaders,
)
from backend.engine.controller.commands.partition.isr_change import alter_partition
from backend.engine.controller.commands.partition.partition_reassignment import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from tests.unit.engine.controller.clusters import Play, uuid_of

Asked = m.AlterPartitionRequest.Topics.Partitions


def three(assignment: list[int] | None = None) -> Play:
    play = Play().start_brokers(1, 2, 3)
    play.create("orders", [assignment or [1, 2, 3]])
    return play


def change_isr(
    play: Play,
    isr: list[int],
    *,
    leader: int | None = None,
    version: int = 3,
    epochs: Mapping[int, int] = MappingProxyType({}),
    **fields: int,
) -> m.AlterPartitionResponse.Topics.Partitions:
    """AlterPartition of the leader, right in all that is not given."""
    partition = play.partition("orders")
    leader = partition.leader if leader is None else leader
    broker_epochs = {broker.id: broker.epoch for broker in play.image.brokers.values()} | dict(epochs)
    requested = Asked(
        partition_index=fields.get("partition_index", 0),
        leader_epoch=fields.get("leader_epoch", partition.leader_epoch),
        partition_epoch=fields.get("partition_epoch", partition.partition_epoch),
        leader_recovery_state=fields.get("leader_recovery_state", 0),
    )
    if version >= 3:
        requested.new_isr_with_epochs = [
            Asked.NewIsrWithEpochs(broker_id=broker, broker_epoch=broker_epochs.get(broker, -1)) for broker in isr
        ]
    else:
        requested.new_isr = isr
    topic_id = play.image.topic_ids["orders"]
    request = m.AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=play.image.brokers[leader].epoch,
        topics=[m.AlterPartitionRequest.Topics(topic_id=topic_id, partitions=[requested])],
    )
    response = play.do(partial(alter_partition, request=request, config=play.config, version=version))
    return response.topics[0].partitions[0]


def lose(play: Play, *brokers: int) -> None:
    for broker in brokers:
        play.do(partial(fence_broker, broker_id=broker, config=play.config))


@pytest.mark.parametrize("version", [2, 3])
def test_a_leader_shrinks_and_expands_its_isr(version: int) -> None:
    play = three()
    answer = change_isr(play, [1, 3], version=version)
    assert (answer.error_code, answer.isr, answer.leader_id) == (0, [1, 3], 1)
    assert (answer.leader_epoch, answer.partition_epoch) == (0, 1)
    answer = change_isr(play, [1, 2, 3], version=version)
    assert (answer.error_code, answer.partition_epoch) == (0, 2)
    assert play.partition("orders").isr == (1, 2, 3)
    unchanged = change_isr(play, [1, 2, 3], version=version)
    assert (unchanged.error_code, unchanged.partition_epoch) == (0, 2)
    assert play.last == ()


@pytest.mark.parametrize(
    ("isr", "fields", "code"),
    [
        ([1, 2], {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"partition_epoch": 5}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1, 2], {"leader": 2}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ([2, 3], {}, ErrorCode.INVALID_REQUEST),
        ([1, 1], {}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([1, 4], {}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1], {"partition_index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_isr_changes_that_are_refused(isr: list[int], fields: dict[str, Any], code: ErrorCode) -> None:
    play = three()
    assert change_isr(play, isr, **fields).error_code == code
    assert play.last == ()


def test_members_that_are_fenced_leaving_or_of_an_earlier_life_are_ineligible() -> None:
    play = three()
    change_isr(play, [1])
    assert change_isr(play, [1, 2], epochs={2: 0}).error_code == ErrorCode.INELIGIBLE_REPLICA
    lose(play, 2)
    assert change_isr(play, [1, 2]).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert change_isr(play, [1, 2], version=2).error_code == ErrorCode.INELIGIBLE_REPLICA
    play.create("other", [[3]])
    play.heartbeat(3, want_shut_down=True)
    assert change_isr(play, [1, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_leader_of_an_earlier_life_is_refused_as_a_whole() -> None:
    play = three()
    request = m.AlterPartitionRequest(broker_id=1, broker_epoch=0)
    with pytest.raises(KafkaError) as error:
        play.do(partial(alter_partition, request=request, config=play.config, version=3))
    assert error.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_an_unknown_topic_id_is_error_100() -> None:
    play = three()
    topic = m.AlterPartitionRequest.Topics(topic_id=uuid_of(77), partitions=[Asked(partition_index=0)])
    request = m.AlterPartitionRequest(broker_id=1, broker_epoch=play.image.brokers[1].epoch, topics=[topic])
    response = play.do(partial(alter_partition, request=request, config=play.config, version=3))
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_recovering_leader_says_when_it_has_recovered() -> None:
    play = Play().start_brokers(1, 2)
    play.create("orders", [[1, 2]], unclean_leader_election_enable="true")
    lose(play, 2, 1)
    play.heartbeat(2)
    assert play.partition("orders").leader_recovery_state == 1
    answer = change_isr(play, [2])
    assert (answer.error_code, answer.leader_recovery_state) == (0, 0)
    assert play.partition("orders").leader_recovery_state == 0


def elect(play: Play, kind: int, partitions: list[int] | None = None, topic: str = "orders") -> dict[int, int]:
    requested = None
    if partitions is not None:
        requested = [m.ElectLeadersRequest.TopicPartitions(topic=topic, partitions=partitions)]
    request = m.ElectLeadersRequest(election_type=kind, topic_partitions=requested)
    response = play.do(partial(elect_leaders, request=request, config=play.config))
    return {
        partition_result.partition_id: partition_result.error_code
        for replica_election_result in response.replica_election_results
        for partition_result in replica_election_result.partition_result
    }


def test_leadership_goes_back_to_the_preferred_replica_on_request() -> None:
    play = three()
    lose(play, 1)
    assert elect(play, PREFERRED, [0]) == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    play.heartbeat(1)
    assert elect(play, PREFERRED, [0]) == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    change_isr(play, [1, 2, 3])
    assert elect(play, PREFERRED, [0]) == {0: 0}
    assert (play.partition("orders").leader, play.partition("orders").leader_epoch) == (1, 2)
    assert elect(play, PREFERRED, [0]) == {0: ErrorCode.ELECTION_NOT_NEEDED}
    assert elect(play, PREFERRED) == {}
    assert elect(play, PREFERRED, [4]) == {4: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert elect(play, PREFERRED, [0], topic="nope") == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_an_unclean_election_on_request_needs_a_partition_without_a_leader() -> None:
    play = three([1, 2])
    assert elect(play, UNCLEAN, [0]) == {0: ErrorCode.ELECTION_NOT_NEEDED}
    lose(play, 2, 1)
    assert elect(play, UNCLEAN, [0]) == {0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    play.heartbeat(2)
    assert play.partition("orders").leader == -1
    assert elect(play, UNCLEAN, [0]) == {0: 0}
    assert (play.partition("orders").leader, play.partition("orders").isr) == (2, (2,))


def test_an_unknown_kind_of_election_is_refused() -> None:
    play = three()
    response = play.do(
        partial(
            elect_leaders, config=play.config, request=m.ElectLeadersRequest(election_type=7, topic_partitions=None)
        )
    )
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_the_controller_rebalances_what_it_can() -> None:
    play = three()
    play.create("gone", [[1, 2]])
    lose(play, 1)
    play.heartbeat(1)
    change_isr(play, [1, 2, 3])
    play.do(partial(rebalance_leaders, config=play.config))
    assert play.partition("orders").leader == 1
    assert play.partition("gone").leader == 2
    play.do(partial(rebalance_leaders, config=play.config))
    assert play.last == ()


def test_an_unclean_election_follows_once_a_topic_allows_it() -> None:
    play = three([1, 2])
    lose(play, 2, 1)
    play.heartbeat(2)
    play.do(partial(elect_unclean, config=play.config))
    assert play.last == ()
    setting = "unclean.leader.election.enable"
    allowed = m.ConfigRecord(resource_type=2, resource_name="orders", name=setting, value="true")
    play.do(lambda image: ControllerResult((allowed,), None))
    play.do(partial(elect_unclean, config=play.config))
    assert play.partition("orders").leader == 2


def reassign(
    play: Play, replicas: list[int] | None, *, index: int = 0, topic: str = "orders", allow_factor_change: bool = True
) -> int:
    request = m.AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=allow_factor_change,
        topics=[
            m.AlterPartitionReassignmentsRequest.Topics(
                name=topic,
                partitions=[
                    m.AlterPartitionReassignmentsRequest.Topics.Partitions(partition_index=index, replicas=replicas)
                ],
            )
        ],
    )
    response = play.do(partial(alter_partition_reassignments, request=request, config=play.config))
    return response.responses[0].partitions[0].error_code


def ongoing(play: Play) -> list[tuple[list[int], list[int], list[int]]]:
    response = list_partition_reassignments(play.image, m.ListPartitionReassignmentsRequest(topics=None))
    return [(p.replicas, p.adding_replicas, p.removing_replicas) for topic in response.topics for p in topic.partitions]


def test_an_added_replica_is_a_member_once_it_is_in_sync() -> None:
    play = three([1, 2])
    assert reassign(play, [1, 2, 3]) == 0
    assert ongoing(play) == [([1, 2, 3], [3], [])]
    assert play.partition("orders").leader_epoch == 0
    change_isr(play, [1, 2, 3])
    partition = play.partition("orders")
    assert (partition.replicas, partition.isr, partition.adding_replicas) == ((1, 2, 3), (1, 2, 3), ())
    assert ongoing(play) == []
    assert partition.directories == tuple(uuid_of(5000 + broker) for broker in (1, 2, 3))


def test_replacing_the_leader_elects_another_and_tells_the_old_one() -> None:
    play = three([1, 2])
    assert reassign(play, [3, 2]) == 0
    assert ongoing(play) == [([3, 2, 1], [3], [1])]
    answer = change_isr(play, [1, 2, 3])
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = play.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader) == ((3, 2), (2, 3), 3)
    assert partition.leader_epoch == 1


def test_removing_a_replica_completes_at_once_and_raises_the_leader_epoch() -> None:
    play = three()
    assert reassign(play, [1, 2]) == 0
    partition = play.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == ((1, 2), (1, 2), 1, 1)
    assert ongoing(play) == []


def test_a_smaller_replica_set_waits_until_all_that_stay_are_in_sync() -> None:
    play = three()
    change_isr(play, [1, 3])
    assert reassign(play, [1, 2]) == 0
    assert ongoing(play) == [([1, 2, 3], [], [3])]
    change_isr(play, [1, 2, 3])
    assert play.partition("orders").replicas == (1, 2)


def test_another_order_of_the_same_replicas_applies_at_once() -> None:
    play = three()
    assert reassign(play, [3, 1, 2]) == 0
    partition = play.partition("orders")
    assert (partition.replicas, partition.leader, partition.leader_epoch) == ((3, 1, 2), 1, 0)
    assert ongoing(play) == []


def test_a_cancelled_reassignment_leaves_the_old_replicas_and_a_new_leader_epoch() -> None:
    play = three([1, 2])
    reassign(play, [1, 3])
    assert ongoing(play) == [([1, 3, 2], [3], [2])]
    assert reassign(play, None) == 0
    partition = play.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader_epoch) == ((1, 2), (1, 2), 1)
    assert reassign(play, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_asking_for_the_old_replicas_takes_a_new_one_away_at_once() -> None:
    play = three([1, 2])
    reassign(play, [1, 2, 3])
    assert reassign(play, [1, 2]) == 0
    partition = play.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == ((1, 2), (1, 2), 1, 1)
    assert ongoing(play) == []


def test_asking_for_the_old_replicas_waits_only_for_those_that_stay() -> None:
    play = three([1, 2])
    change_isr(play, [1])
    reassign(play, [1, 2, 3])
    assert reassign(play, [1, 2]) == 0
    assert ongoing(play) == [([1, 2, 3], [], [3])]
    change_isr(play, [1, 2])
    assert (play.partition("orders").replicas, ongoing(play)) == ((1, 2), [])


def test_a_later_request_keeps_the_replicas_that_an_earlier_one_takes_away() -> None:
    play = three([1, 2])
    reassign(play, [1, 3])
    assert ongoing(play) == [([1, 3, 2], [3], [2])]
    assert reassign(play, [1, 2, 3]) == 0
    assert ongoing(play) == [([1, 2, 3], [3], [])]
    change_isr(play, [1, 2, 3])
    assert play.partition("orders").replicas == (1, 2, 3)


def test_in_kafkas_way_asking_for_the_old_replicas_never_ends_a_reassignment() -> None:
    play = three([1, 2])
    resource = m.IncrementalAlterConfigsRequest.Resources
    compat = resource.Configs(name="follower.fetch.tiered.compat", config_operation=0, value="kafka")
    changed = m.IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=4, resource_name="", configs=[compat])]
    )
    play.do(partial(incremental_alter_configs, request=changed, config=play.config))
    reassign(play, [1, 2, 3])
    assert reassign(play, [1, 2]) == 0
    assert ongoing(play) == [([1, 2, 3], [3], [3])]
    change_isr(play, [1, 2, 3])
    assert ongoing(play) == [([1, 2, 3], [3], [3])], "not even once the new replica is in sync"
    assert reassign(play, None) == 0
    assert play.partition("orders").replicas == (1, 2)


def test_a_cancel_that_would_lose_records_needs_leave() -> None:
    play = three([1, 2])
    reassign(play, [3])
    change_isr(play, [1, 2])
    lose(play, 2)
    assert ongoing(play) == [([3, 1, 2], [3], [1, 2])]
    # Only the added replica is left in sync.
    record = m.PartitionChangeRecord(partition_id=0, topic_id=play.image.topic_ids["orders"], isr=[3], leader=3)
    play.do(lambda image: ControllerResult((record,), None))
    assert reassign(play, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("replicas", "fields", "code"),
    [
        ([], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 2], {"allow_factor_change": False}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([1], {"topic": "nope"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1], {"index": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_reassignments_that_are_refused(replicas: list[int], fields: dict[str, Any], code: ErrorCode) -> None:
    play = three()
    assert reassign(play, replicas, **fields) == code
    assert play.last == ()


def test_only_partitions_asked_for_are_listed() -> None:
    play = three([1, 2])
    reassign(play, [1, 2, 3])
    request = m.ListPartitionReassignmentsRequest
    for topic, indexes, count in (("orders", [0], 1), ("orders", [1], 0), ("nope", [0], 0)):
        list_request = request(topics=[request.Topics(name=topic, partition_indexes=indexes)])
        assert len(list_partition_reassignments(play.image, list_request).topics) == count
