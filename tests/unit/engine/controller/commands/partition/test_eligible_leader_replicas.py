"""Eligible leader replicas, which may lead beside the ISR, through every change of a partition (KIP-966)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from backend.engine.controller.commands.brokers import fence_broker, unregister_broker
from backend.engine.controller.commands.command import ControllerResult
from backend.engine.controller.commands.config.configuration_control import incremental_alter_configs
from backend.engine.controller.commands.feature_control import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    update_features,
)
from backend.engine.controller.commands.partition.elections import PREFERRED, UNCLEAN, elect_leaders
from backend.engine.controller.commands.partition.isr_change import alter_partition
from backend.engine.controller.commands.partition.recovery_verdict import (
    PartitionRecovery,
    RecoveryVerdict,
    elect_recovered,
    judge,
)
from backend.engine.controller.commands.partition.replica_directories import assign_replicas_to_dirs
from backend.engine.controller.image.image_records import image_records
from backend.engine.controller.image.metadata_image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    DIRECTORY_LOST,
    RECOVERING,
    TOPIC_RESOURCE,
)
from backend.engine.controller.image.replay import apply_records
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from tests.unit.engine.controller.clusters import Play, uuid_of

State = tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class Cluster(Play):
    """Three brokers and topic `t`, all three in sync, two needed."""

    lives = 1

    def state(self, topic: str = "t") -> State:
        """Leader, ISR, ELR, last known ELR."""
        partition = self.partition(topic)
        return partition.leader, partition.isr, partition.elr, partition.last_known_elr

    def leave(self, *brokers: int) -> None:
        """Orderly stops, one after the other."""
        for broker in brokers:
            if not self.heartbeat(broker, want_shut_down=True).should_shut_down:
                assert self.heartbeat(broker, want_shut_down=True).should_shut_down

    def fence(self, *brokers: int) -> None:
        for broker in brokers:
            self.do(partial(fence_broker, broker_id=broker, config=self.config))

    def come_back(self, broker: int, *, clean: bool, directories: Sequence[bytes] | None = None) -> None:
        self.lives += 1
        self.register(broker, incarnation=self.lives, clean=clean, directories=directories)

    def elect(self, kind: int, log_ends: dict[int, tuple[int, int]] | None = None) -> int:
        request = m.ElectLeadersRequest(
            election_type=kind, topic_partitions=[m.ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]
        )
        log_ends_by_partition = {(self.image.topic_ids["t"], 0): log_ends or {}}
        answer = self.do(partial(elect_leaders, request=request, config=self.config, log_ends=log_ends_by_partition))
        return answer.replica_election_results[0].partition_result[0].error_code

    def set(self, kind: int, resource: str, value: str | None) -> tuple[int, str | None]:
        made = m.IncrementalAlterConfigsRequest.Resources
        change = made.Configs(name="min.insync.replicas", config_operation=0 if value else 1, value=value)
        request = m.IncrementalAlterConfigsRequest(
            resources=[made(resource_type=kind, resource_name=resource, configs=[change])]
        )
        answer = self.do(partial(incremental_alter_configs, request=request, config=self.config)).responses[0]
        return answer.error_code, answer.error_message

    def level(self, level: int, kind: int) -> tuple[int, str | None]:
        update = m.UpdateFeaturesRequest.FeatureUpdates(
            feature="eligible.leader.replicas.version", max_version_level=level, upgrade_type=kind
        )
        request = m.UpdateFeaturesRequest(feature_updates=[update])
        answer = self.do(partial(update_features, request=request, config=self.config, version=2))
        return answer.error_code, answer.error_message


def three(**settings: str) -> Cluster:
    cluster = Cluster()
    cluster.start_brokers(1, 2, 3)
    cluster.create("t", [[1, 2, 3]], **{"min_insync_replicas": "2", **settings})
    return cluster


def test_who_leaves_an_isr_that_stays_large_enough_is_not_eligible() -> None:
    cluster = three()
    cluster.leave(3)
    assert cluster.state() == (1, (1, 2), (), ())


def test_who_makes_the_isr_too_small_stays_eligible_until_it_is_large_enough_again() -> None:
    cluster = three()
    cluster.leave(3, 2)
    assert cluster.state() == (1, (1,), (2,), ())
    cluster.come_back(2, clean=True)
    cluster.heartbeat(2)
    assert cluster.state() == (1, (1,), (2,), ())


def test_the_isr_may_become_empty_and_the_last_leader_is_noted() -> None:
    cluster = three()
    cluster.leave(3, 2, 1)
    assert cluster.state() == (-1, (), (1, 2), (1,))


def test_an_eligible_replica_leads_and_nothing_is_marked_unclean() -> None:
    cluster = three()
    cluster.leave(3, 2, 1)
    cluster.come_back(3, clean=True)
    cluster.heartbeat(3)
    # It left while two were in sync without it: it may lack what they took.
    assert cluster.state() == (-1, (), (1, 2), (1,))
    cluster.come_back(2, clean=True)
    cluster.heartbeat(2)
    assert cluster.state() == (2, (2,), (1,), ())
    assert cluster.partition("t").leader_recovery_state == 0


def test_a_broker_that_is_fenced_stays_eligible_and_leads_when_it_is_back_in_the_same_life() -> None:
    cluster = three()
    cluster.fence(3, 2, 1)
    assert cluster.state() == (-1, (), (1, 2), (1,))
    cluster.heartbeat(1)
    assert cluster.state() == (1, (1,), (2,), ())


def test_an_unclean_shutdown_ends_isr_and_elr_and_is_remembered() -> None:
    cluster = three()
    cluster.fence(3, 2)
    assert cluster.state() == (1, (1,), (2,), ())
    cluster.come_back(2, clean=False)
    assert cluster.state() == (1, (1,), (), (2,))
    # Its logs may be whole all the same, but unless they are read it does not lead.
    cluster.heartbeat(2)
    cluster.fence(1)
    assert cluster.state() == (-1, (), (1,), (1, 2))
    cluster.come_back(1, clean=False)
    cluster.heartbeat(1)
    assert cluster.state() == (-1, (), (), (1, 2))


def test_who_is_in_sync_again_makes_what_was_remembered_needless() -> None:
    cluster = three()
    cluster.fence(3, 2)
    cluster.come_back(2, clean=False)
    cluster.heartbeat(2)
    change_isr(cluster, [1, 2])
    assert cluster.state() == (1, (1, 2), (), ())


def change_isr(cluster: Cluster, isr: Sequence[int], code: int = ErrorCode.NONE) -> None:
    partition = cluster.partition("t")
    topic = m.AlterPartitionRequest.Topics
    rows = topic.Partitions(
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr_with_epochs=[topic.Partitions.NewIsrWithEpochs(broker_id=replica, broker_epoch=-1) for replica in isr],
    )
    request = m.AlterPartitionRequest(
        broker_id=partition.leader,
        broker_epoch=cluster.image.brokers[partition.leader].epoch,
        topics=[topic(topic_id=cluster.image.topic_ids["t"], partitions=[rows])],
    )
    answer = cluster.do(partial(alter_partition, request=request, config=cluster.config, version=3))
    assert answer.topics[0].partitions[0].error_code == code


def test_a_replica_of_which_nobody_else_is_known_leads_after_an_unclean_shutdown() -> None:
    cluster = Cluster()
    cluster.start_brokers(1)
    cluster.create("t", [[1]])
    cluster.come_back(1, clean=False)
    assert cluster.state() == (-1, (), (), (1,))
    cluster.heartbeat(1)
    assert cluster.state() == (1, (1,), (), ())
    assert cluster.partition("t").leader_recovery_state == RECOVERING


def test_no_election_is_tried_among_several_that_shut_down_uncleanly() -> None:
    cluster = three()
    for broker in (1, 2, 3):
        cluster.come_back(broker, clean=False)
    for broker in (3, 2, 1):
        cluster.heartbeat(broker)
    assert cluster.state() == (-1, (), (), (3, 2))
    assert cluster.elect(PREFERRED) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert cluster.state() == (-1, (), (), (3, 2))


def test_an_unclean_election_takes_the_best_log_and_forgets_the_rest() -> None:
    cluster = three()
    for broker in (1, 2, 3):
        cluster.come_back(broker, clean=False)
        cluster.heartbeat(broker)
    # A later epoch counts more than a longer log.
    assert cluster.elect(UNCLEAN, {1: (4, 90), 2: (5, 70), 3: (5, 80)}) == ErrorCode.NONE
    assert cluster.state() == (3, (3,), (), ())
    assert cluster.partition("t").leader_recovery_state == RECOVERING


def test_an_unregistered_broker_is_forgotten() -> None:
    cluster = three()
    cluster.fence(3, 2)
    cluster.do(partial(unregister_broker, request=m.UnregisterBrokerRequest(broker_id=2), config=cluster.config))
    assert cluster.state() == (1, (1,), (), ())


@pytest.mark.parametrize("value", ["1", None])
def test_a_smaller_min_isr_makes_the_elr_needless(value: str | None) -> None:
    cluster = three()
    cluster.leave(3, 2)
    assert cluster.set(TOPIC_RESOURCE, "t", value) == (0, None)
    assert cluster.state() == (1, (1,), (), ())


def test_a_larger_min_isr_keeps_the_elr() -> None:
    cluster = three()
    cluster.leave(3, 2)
    assert cluster.set(TOPIC_RESOURCE, "t", "3") == (0, None)
    assert cluster.state() == (1, (1,), (2,), ())


def test_the_clusters_min_isr_reaches_topics_without_their_own() -> None:
    cluster = three()
    cluster.create("u", [[1, 2, 3]])
    assert cluster.set(BROKER_RESOURCE, CLUSTER_DEFAULT, "2") == (0, None)
    cluster.leave(3, 2)
    assert cluster.state("u") == (1, (1,), (2,), ())
    assert cluster.set(BROKER_RESOURCE, CLUSTER_DEFAULT, "1") == (0, None)
    assert cluster.state("u") == (1, (1,), (), ())
    assert cluster.state("t") == (1, (1,), (2,), ())


def test_no_more_in_sync_replicas_are_asked_for_than_there_are() -> None:
    cluster = Cluster()
    cluster.start_brokers(1, 2)
    cluster.create("t", [[1, 2]], min_insync_replicas="3")
    assert cluster.state() == (1, (1, 2), (), ())
    cluster.leave(2)
    assert cluster.state() == (1, (1,), (2,), ())


def test_a_single_broker_has_no_min_isr_and_the_cluster_always_one() -> None:
    cluster = three()
    assert cluster.set(BROKER_RESOURCE, "1", "2") == (
        ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
    )  # fmt: skip
    assert cluster.set(BROKER_RESOURCE, CLUSTER_DEFAULT, None) == (
        ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    )  # fmt: skip


def test_a_cluster_of_an_earlier_version_is_raised_and_gets_one_min_isr() -> None:
    cluster = Cluster(elr_level=0)
    cluster.do(lambda image: cluster_without_min_isr())
    cluster.start_brokers(1, 2, 3)
    assert cluster.set(BROKER_RESOURCE, "2", "2") == (0, None)
    cluster.create("t", [[1, 2, 3]], min_insync_replicas="2")
    cluster.leave(3, 2, 1)
    assert cluster.state() == (-1, (1,), (), ())
    assert cluster.level(1, UPGRADE) == (0, None)
    assert dict(cluster.image.config(BROKER_RESOURCE, CLUSTER_DEFAULT)) == {"min.insync.replicas": "1"}
    assert dict(cluster.image.config(BROKER_RESOURCE, "2")) == {}
    cluster.come_back(1, clean=True)
    cluster.heartbeat(1)
    assert cluster.state() == (1, (1,), (), ())


def cluster_without_min_isr() -> ControllerResult[None]:
    record = m.ConfigRecord(
        resource_type=BROKER_RESOURCE, resource_name=CLUSTER_DEFAULT, name="min.insync.replicas", value=None
    )
    return ControllerResult((record,), None)


def test_the_level_is_not_taken_back_while_a_partition_lives_by_its_elr() -> None:
    cluster = three()
    cluster.leave(3, 2, 1)
    code, text = cluster.level(0, SAFE_DOWNGRADE)
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert text is not None
    assert "Partition t-0 has nobody in sync" in text
    assert cluster.level(0, UNSAFE_DOWNGRADE) == (0, None)


def test_with_the_level_taken_back_the_elr_goes_with_the_next_change() -> None:
    cluster = three()
    cluster.leave(3, 2)
    assert cluster.level(0, SAFE_DOWNGRADE) == (0, None)
    cluster.leave(1)
    assert cluster.state() == (-1, (1,), (), ())


def test_a_snapshot_holds_it_all() -> None:
    cluster = three()
    cluster.fence(3, 2)
    cluster.come_back(2, clean=False)
    cluster.leave(1)
    assert cluster.state() == (-1, (), (1,), (1, 2))
    again = apply_records(Cluster().image, image_records(cluster.image), cluster.image.offset, cluster.image.epoch)
    assert again == cluster.image


def test_a_new_disk_neither_leads_nor_is_in_sync_until_it_has_copied_the_log() -> None:
    cluster = three()
    cluster.leave(3, 2)
    cluster.come_back(1, clean=False, directories=[uuid_of(77)])
    assert cluster.state() == (-1, (), (2,), (1,))
    cluster.heartbeat(1)
    assert cluster.state() == (-1, (), (2,), (1,))
    cluster.come_back(2, clean=True)
    cluster.heartbeat(2)
    assert cluster.state() == (2, (2,), (), (1,))
    change_isr(cluster, [2, 1], ErrorCode.INELIGIBLE_REPLICA)
    tell_directory(cluster, 1, uuid_of(77))
    assert cluster.state() == (2, (2,), (), ())
    change_isr(cluster, [2, 1])
    assert cluster.state() == (2, (2, 1), (), ())


def test_a_log_that_cannot_be_used_leaves_the_elr_while_another_leads() -> None:
    """Below min.insync.replicas it would stay there for good: only what nobody counts on is copied again."""
    cluster = three()
    cluster.leave(3)
    cluster.leave(2)
    assert cluster.state() == (1, (1,), (2,), ())
    cluster.come_back(2, clean=True)
    cluster.heartbeat(2)
    assert tell_directory(cluster, 2, DIRECTORY_LOST) == ErrorCode.NONE
    assert cluster.state() == (1, (1,), (), ())


def test_a_log_that_cannot_be_used_stays_in_the_elr_until_another_leads() -> None:
    cluster = three()
    cluster.leave(3)
    cluster.leave(2)
    cluster.leave(1)
    assert cluster.state() == (-1, (), (1, 2), (1,))
    cluster.come_back(2, clean=True)
    tell_directory(cluster, 2, DIRECTORY_LOST)
    cluster.heartbeat(2)
    assert cluster.state() == (-1, (), (1, 2), (1,))
    cluster.come_back(1, clean=True)
    cluster.heartbeat(1)
    assert cluster.state() == (1, (1,), (), ())


def tell_directory(cluster: Cluster, broker: int, directory: bytes) -> int:
    directories = m.AssignReplicasToDirsRequest.Directories
    request = m.AssignReplicasToDirsRequest(
        broker_id=broker,
        broker_epoch=cluster.image.brokers[broker].epoch,
        directories=[
            directories(
                id=directory,
                topics=[
                    directories.Topics(
                        topic_id=cluster.image.topic_ids["t"],
                        partitions=[directories.Topics.Partitions(partition_index=0)],
                    )
                ],
            )
        ],
    )
    answer = cluster.do(partial(assign_replicas_to_dirs, request=request, config=cluster.config))
    return answer.directories[0].topics[0].partitions[0].error_code


def test_one_of_two_that_can_lead_again_has_a_new_disk_and_the_other_leads() -> None:
    cluster = three()
    for broker in (1, 2):
        cluster.come_back(broker, clean=False)
    cluster.come_back(3, clean=False, directories=[uuid_of(77)])
    for broker in (3, 1):
        cluster.heartbeat(broker)
    assert cluster.state() == (-1, (), (), (3, 2))
    # The log in the new directory is not the one that was remembered: 2 is the only one left.
    tell_directory(cluster, 3, uuid_of(77))
    assert cluster.state() == (-1, (), (), (2,))
    cluster.heartbeat(2)
    # Its log is compared with that of 1, which is here as well, before it leads.
    assert cluster.state() == (-1, (), (), (2,))
    assert verdict(cluster, {1: (5, 80), 2: (5, 70)}) == RecoveryVerdict(1, False, ())
    assert verdict(cluster, {1: (5, 80)}) == RecoveryVerdict(-1, False, (2,))
    assert recover(cluster, 2, complete=False) == 1
    assert cluster.state() == (2, (2,), (), ())


def test_without_elr_a_new_disk_under_the_last_member_of_the_isr_leaves_the_partition_offline() -> None:
    cluster = Cluster(elr_level=0)
    cluster.start_brokers(1, 2, 3)
    cluster.create("t", [[1, 2, 3]], min_insync_replicas="2")
    cluster.leave(3, 2, 1)
    cluster.come_back(1, clean=False, directories=[uuid_of(77)])
    cluster.heartbeat(1)
    assert cluster.state() == (-1, (1,), (), ())
    assert tell_directory(cluster, 1, uuid_of(77)) == ErrorCode.INELIGIBLE_REPLICA
    cluster.come_back(2, clean=True)
    cluster.heartbeat(2)
    assert cluster.state() == (-1, (1,), (), ())
    # An operator decides, and gets the log that there is.
    assert cluster.elect(UNCLEAN) == ErrorCode.NONE
    assert cluster.state() == (2, (2,), (), ())
    assert tell_directory(cluster, 1, uuid_of(77)) == ErrorCode.NONE


def test_an_operator_may_go_on_with_a_new_disk_where_there_is_no_other() -> None:
    cluster = Cluster(elr_level=0)
    cluster.start_brokers(1)
    cluster.create("t", [[1]])
    cluster.come_back(1, clean=False, directories=[uuid_of(77)])
    cluster.heartbeat(1)
    assert cluster.state() == (-1, (1,), (), ())
    assert cluster.elect(UNCLEAN) == ErrorCode.NONE
    assert cluster.state() == (1, (1,), (), ())
    assert cluster.partition("t").directory_of(1) == uuid_of(77)


def test_a_directory_that_does_not_come_back_after_a_clean_shutdown_takes_its_logs_out_of_the_elr() -> None:
    cluster = Cluster()
    both = [uuid_of(61), uuid_of(62)]
    cluster.register(1, directories=both)
    cluster.heartbeat(1)
    cluster.start_brokers(2)
    cluster.create("t", [[1, 2]], min_insync_replicas="2")
    tell_directory(cluster, 1, both[1])
    cluster.leave(2, 1)
    assert cluster.state() == (-1, (), (1, 2), (1,))
    cluster.come_back(1, clean=True, directories=both[:1])
    assert cluster.state() == (-1, (), (2,), (1,))
    cluster.heartbeat(1)
    assert cluster.state() == (-1, (), (2,), (1,))


def stopped_uncleanly(*, new_disk: int | None = None) -> Cluster:
    """All three come back from an unclean shutdown; 3 and 2 are remembered."""
    cluster = three()
    for broker in (1, 2, 3):
        directories = [uuid_of(77)] if broker == new_disk else None
        cluster.come_back(broker, clean=False, directories=directories)
    for broker in (1, 2, 3):
        cluster.heartbeat(broker)
    assert cluster.state() == (-1, (), (), (3, 2))
    return cluster


def verdict(cluster: Cluster, ends: dict[int, tuple[int, int]], *, expired: bool = False) -> RecoveryVerdict:
    return judge(cluster.image, cluster.partition("t"), ends, 2, expired=expired)


@pytest.mark.parametrize(
    ("ends", "leader"),
    [
        ({2: (5, 80), 3: (5, 70)}, 2),
        # A later epoch counts more than a longer log.
        ({2: (4, 80), 3: (5, 70)}, 3),
        # Of equal logs the first in the replica list; one that is not remembered may lead with one as good.
        ({2: (5, 80), 3: (5, 80)}, 2),
        ({1: (5, 80), 2: (5, 80), 3: (5, 80)}, 1),
        ({1: (5, 79), 2: (5, 70), 3: (5, 80)}, 3),
    ],
)
def test_the_best_log_leads(ends: dict[int, tuple[int, int]], leader: int) -> None:
    assert verdict(stopped_uncleanly(), ends) == RecoveryVerdict(leader, True, ())


def test_all_that_are_remembered_are_waited_for() -> None:
    cluster = stopped_uncleanly()
    assert verdict(cluster, {1: (5, 80), 2: (5, 80)}) == RecoveryVerdict(-1, False, (3,))
    assert verdict(cluster, {}) == RecoveryVerdict(-1, False, (3, 2))
    # With fewer answers than min.insync.replicas an operator decides.
    assert verdict(cluster, {1: (5, 80), 2: (5, 80)}, expired=True) == RecoveryVerdict(-1, False, (3,))


def test_after_the_limit_min_isr_answers_are_enough() -> None:
    cluster = Cluster()
    cluster.start_brokers(1, 2, 3, 4)
    cluster.create("t", [[1, 2, 3, 4]], min_insync_replicas="3")
    for broker in (1, 2, 3, 4):
        cluster.come_back(broker, clean=False)
        cluster.heartbeat(broker)
    assert cluster.state() == (-1, (), (), (4, 2, 3))
    partition = cluster.partition("t")
    log_ends = {2: (5, 80), 3: (5, 70)}
    assert judge(cluster.image, partition, log_ends, 2, expired=False) == RecoveryVerdict(-1, True, (4,))
    assert judge(cluster.image, partition, log_ends, 2, expired=True) == RecoveryVerdict(2, True, ())


def test_a_new_disk_is_not_waited_for_and_does_not_lead() -> None:
    cluster = stopped_uncleanly(new_disk=3)
    assert verdict(cluster, {2: (5, 80), 3: (9, 99)}) == RecoveryVerdict(2, False, ())


def test_who_is_gone_again_does_not_lead_although_it_answered() -> None:
    cluster = stopped_uncleanly()
    cluster.fence(3)
    assert verdict(cluster, {2: (5, 70), 3: (5, 80)}) == RecoveryVerdict(-1, False, (3,))


def recover(cluster: Cluster, leader: int, *, complete: bool = True, epoch: int | None = None) -> int:
    partition = cluster.partition("t")
    leader_epoch = partition.leader_epoch if epoch is None else epoch
    recovery = PartitionRecovery(cluster.image.topic_ids["t"], 0, leader_epoch, leader, complete)
    return len(cluster.do(partial(elect_recovered, config=cluster.config, recoveries=[recovery])))


def test_the_others_stay_remembered_until_enough_are_in_sync() -> None:
    cluster = stopped_uncleanly()
    assert recover(cluster, 2) == 1
    assert cluster.state() == (2, (2,), (), (3,))
    assert cluster.partition("t").leader_recovery_state == 0
    # Another kill at once: both are compared again.
    cluster.come_back(2, clean=False)
    assert cluster.state() == (-1, (), (), (2, 3))
    cluster.heartbeat(2)
    assert recover(cluster, 3) == 1
    change_isr(cluster, [3, 1])
    assert cluster.state() == (3, (3, 1), (), ())


def test_too_few_answers_are_marked_as_an_unclean_election() -> None:
    cluster = stopped_uncleanly()
    assert recover(cluster, 2, complete=False) == 1
    assert cluster.partition("t").leader_recovery_state == RECOVERING


def test_nobody_is_elected_where_something_has_changed_since_the_comparison() -> None:
    cluster = stopped_uncleanly()
    assert recover(cluster, 2, epoch=cluster.partition("t").leader_epoch - 1) == 0
    assert recover(cluster, 2) == 1
    assert recover(cluster, 3) == 0
    assert cluster.state() == (2, (2,), (), (3,))
