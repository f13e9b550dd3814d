"""The start of a whole cluster: who is waited for, who leads then, and what of the ISR is left."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from backend.engine.controller.commands.cluster_start import (
    ClusterStart,
    any_broker_returned,
    awaited,
    broker_contacted,
    give_up,
    start_of,
    without_given_up,
)
from backend.engine.controller.commands.partition.isr_change import alter_partition
from backend.engine.controller.image.metadata_image import NO_LEADER
from backend.protocol import messages as m
from tests.unit.engine.controller.clusters import Play

State = tuple[int, tuple[int, ...], tuple[int, ...]]


class Start(Play):
    """A cluster of three brokers that stops as a whole and starts again."""

    start: ClusterStart | None = None
    lives = 1

    def __init__(self, *, elr_level: int = 1) -> None:
        super().__init__(elr_level=elr_level)
        self.start_brokers(1, 2, 3)

    def a_controller_becomes_active(self) -> None:
        self.start = start_of(self.image)

    def come_back(self, *brokers: int, clean: bool = True, directories: Sequence[bytes] | None = None) -> None:
        for broker in brokers:
            self.lives += 1
            self.register(broker, incarnation=self.lives, clean=clean, directories=directories, start=self.start)

    def unfence(self, *brokers: int) -> None:
        for broker in brokers:
            self.heartbeat(broker, start=self.start)

    def stop_waiting_for(self, *brokers: int) -> None:
        assert self.start is not None
        self.start = give_up(self.start, brokers)
        self.do(partial(without_given_up, config=self.config, start=self.start))

    def waits_for(self) -> set[int]:
        assert self.start is not None
        return set(awaited(self.image, self.start).brokers)

    def state(self, topic: str = "t") -> State:
        partition = self.partition(topic)
        return partition.leader, partition.isr, partition.elr

    def leader_moves_to(self, broker: int) -> None:
        """Broker 1 leaves and comes back into the ISR: another one leads."""
        topic_id = self.image.topic_ids["t"]
        self.heartbeat(1, want_fence=True)
        self.heartbeat(1)
        partition = self.partition("t")
        assert partition.leader == broker
        request_type = m.AlterPartitionRequest
        member = request_type.Topics.Partitions.NewIsrWithEpochs
        isr = [member(broker_id=broker_id, broker_epoch=self.image.brokers[broker_id].epoch) for broker_id in (1, 2, 3)]
        changed = request_type.Topics.Partitions(
            partition_index=0,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=isr,
            partition_epoch=partition.partition_epoch,
        )
        request = request_type(
            broker_id=broker,
            broker_epoch=self.image.brokers[broker].epoch,
            topics=[request_type.Topics(topic_id=topic_id, partitions=[changed])],
        )
        self.do(partial(alter_partition, request=request, config=self.config, version=3))
        assert set(self.partition("t").isr) == {1, 2, 3}


def stopped(*, elr_level: int = 1) -> Start:
    """All three in sync, broker 2 led, and all ended together without a word to the controller."""
    cluster = Start(elr_level=elr_level)
    cluster.create("t", [[1, 2, 3]], min_insync_replicas="2")
    cluster.leader_moves_to(2)
    cluster.a_controller_becomes_active()
    return cluster


@pytest.mark.parametrize("elr_level", [0, 1])
@pytest.mark.parametrize("order", [(1, 2, 3), (2, 3, 1), (3, 2, 1), (3, 1, 2)])
def test_the_isr_stays_whole_and_the_last_leader_leads_whoever_comes_first(
    order: tuple[int, int, int], elr_level: int
) -> None:
    cluster = stopped(elr_level=elr_level)
    assert cluster.waits_for() == {1, 2, 3}
    former = cluster.partition("t").leader_epoch
    cluster.come_back(*order)
    assert cluster.partition("t").leader == NO_LEADER
    cluster.unfence(*order[:2])
    assert cluster.partition("t").leader == NO_LEADER
    assert cluster.waits_for() == {order[2]}
    cluster.unfence(order[2])
    leader, isr, elr = cluster.state()
    assert (leader, set(isr), elr) == (2, {1, 2, 3}, ())
    assert cluster.partition("t").leader_epoch > former
    assert cluster.waits_for() == set()


def test_one_that_opens_its_logs_before_another_registers_is_no_leader_yet() -> None:
    cluster = stopped()
    for broker in (2, 1):
        cluster.come_back(broker)
        cluster.unfence(broker)
    # Its metadata still names the life that has ended: nobody leads in that one.
    assert cluster.state() == (NO_LEADER, cluster.partition("t").isr, ())
    assert cluster.waits_for() == {3}


def test_a_broker_that_does_not_come_is_fenced_and_the_last_leader_leads_without_it() -> None:
    cluster = stopped()
    cluster.come_back(1, 2)
    cluster.unfence(1, 2)
    cluster.stop_waiting_for(3)
    leader, isr, elr = cluster.state()
    assert (leader, set(isr), elr) == (2, {1, 2}, ())
    assert cluster.image.brokers[3].fenced
    # It comes late, as any broker that was away.
    cluster.come_back(3)
    cluster.unfence(3)
    assert cluster.partition("t").leader == 2
    assert set(cluster.partition("t").isr) == {1, 2}


def test_when_the_last_leader_does_not_come_the_first_of_the_others_leads() -> None:
    cluster = stopped()
    cluster.come_back(3, 1)
    cluster.unfence(3, 1)
    assert cluster.waits_for() == {2}
    cluster.stop_waiting_for(2)
    leader, isr, elr = cluster.state()
    assert (leader, set(isr), elr) == (1, {1, 3}, ())


def test_who_is_given_up_while_it_opens_its_logs_leaves_no_fenced_member_in_the_isr() -> None:
    cluster = stopped()
    cluster.come_back(1, 2, 3)
    cluster.unfence(3)
    cluster.stop_waiting_for(1, 2)
    leader, isr, elr = cluster.state()
    assert (leader, isr, set(elr)) == (3, (3,), {1, 2})


def test_where_nobody_of_isr_and_elr_is_back_nobody_leads() -> None:
    cluster = stopped()
    cluster.create("alone", [[3]])
    cluster.come_back(1, 2)
    cluster.unfence(1, 2)
    cluster.stop_waiting_for(3)
    assert cluster.state("alone") == (NO_LEADER, (), (3,))
    cluster.come_back(3)
    cluster.unfence(3)
    assert cluster.state("alone")[0] == 3


def test_a_member_of_the_elr_is_waited_for_and_the_leader_that_was_the_last_leads() -> None:
    cluster = Start()
    cluster.create("t", [[1, 2, 3]], min_insync_replicas="2")
    for broker in (3, 1, 2):
        cluster.heartbeat(broker, want_fence=True)
    assert cluster.state() == (NO_LEADER, (), (1, 2))
    cluster.a_controller_becomes_active()
    cluster.come_back(1)
    cluster.unfence(1)
    assert cluster.waits_for() == {2}
    cluster.come_back(2)
    cluster.unfence(2)
    assert cluster.state() == (2, (2,), (1,))


def test_who_comes_back_uncleanly_or_with_a_new_disk_leaves_and_is_not_waited_for() -> None:
    cluster = stopped()
    cluster.come_back(2, clean=False)
    cluster.come_back(1, directories=[bytes([9]) * 16])
    assert cluster.waits_for() == {3}
    cluster.come_back(3)
    cluster.unfence(2, 1, 3)
    assert cluster.state() == (3, (3,), ())


def test_partitions_wait_for_their_own_replicas_only() -> None:
    cluster = stopped()
    cluster.create("alone", [[1]])
    cluster.create("pair", [[1, 2]])
    cluster.a_controller_becomes_active()
    cluster.come_back(1)
    cluster.unfence(1)
    assert cluster.state("alone") == (1, (1,), ())
    cluster.come_back(2)
    cluster.unfence(2)
    assert cluster.state("pair") == (1, (1, 2), ())
    assert cluster.waits_for() == {3}
    cluster.create("new", [[1, 2]])
    assert cluster.partition("new").leader == 1


def test_beside_brokers_that_live_nobody_waits() -> None:
    cluster = stopped()
    assert cluster.start is not None
    assert broker_contacted(cluster.start, 1, cluster.image.brokers[1].epoch - 1) is cluster.start
    cluster.start = broker_contacted(cluster.start, 1, cluster.image.brokers[1].epoch)
    assert cluster.start.still_runs
    assert cluster.waits_for() == set()
    assert cluster.partition("t").leader == 2


def test_a_fenced_life_that_is_heard_is_no_sign_that_the_cluster_goes_on() -> None:
    cluster = stopped()
    cluster.come_back(1)
    cluster.a_controller_becomes_active()
    assert cluster.start is not None
    assert broker_contacted(cluster.start, 1, cluster.image.brokers[1].epoch) is cluster.start
    cluster.unfence(1)
    cluster.come_back(2, 3)
    cluster.unfence(2, 3)
    leader, isr, _ = cluster.state()
    assert (leader, set(isr)) == (2, {1, 2, 3})


def test_who_only_does_not_answer_yet_is_no_start() -> None:
    cluster = stopped()
    assert cluster.start is not None
    assert not any_broker_returned(cluster.image, cluster.start)
    cluster.come_back(1)
    assert any_broker_returned(cluster.image, cluster.start)
    # Another controller takes over before it is unfenced.
    cluster.a_controller_becomes_active()
    assert not any_broker_returned(cluster.image, cluster.start)
    cluster.unfence(1)
    assert any_broker_returned(cluster.image, cluster.start)


def test_a_new_cluster_waits_for_nobody() -> None:
    assert start_of(Play().image) is None
