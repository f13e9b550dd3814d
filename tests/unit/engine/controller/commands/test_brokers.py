"""Brokers come, serve, are lost, and go."""

from dataclasses import replace
from functools import partial

import pytest

from backend.engine.apis.api_versions import SUPPORTED_FEATURES
from backend.engine.controller.commands.brokers import (
    BrokerState,
    ShutdownProgress,
    fence_broker,
    register_broker,
    state_of,
    unregister_broker,
)
from backend.engine.controller.commands.producer_id_control import allocate_producer_ids
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from tests.unit.engine.controller.clusters import CLUSTER_ID, Play, broker_config, uuid_of


def registration(**fields: object) -> m.BrokerRegistrationRequest:
    made = m.BrokerRegistrationRequest(
        broker_id=1,
        cluster_id=CLUSTER_ID,
        incarnation_id=uuid_of(1),
        features=[
            m.BrokerRegistrationRequest.Features(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        log_dirs=[uuid_of(2)],
        rack=None,
    )
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def refused(play: Play, request: m.BrokerRegistrationRequest, *, alive: bool = False) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        play.do(partial(register_broker, request=request, config=play.config, next_offset=9, session_alive=alive))
    return error.value.code


def test_a_broker_registers_fenced_and_is_unfenced_once_it_has_caught_up() -> None:
    play = Play()
    epoch = play.register(1)
    assert epoch == play.image.offset
    assert state_of(play.image.brokers[1]) is BrokerState.FENCED
    early = play.heartbeat(1, current_metadata_offset=epoch - 1)
    assert (early.is_caught_up, early.is_fenced) == (False, True)
    waiting = play.heartbeat(1, want_fence=True)
    assert (waiting.is_caught_up, waiting.is_fenced) == (True, True)
    assert play.last == ()
    ready = play.heartbeat(1)
    assert (ready.is_caught_up, ready.is_fenced, ready.should_shut_down) == (True, False, False)
    assert play.image.is_active(1)
    play.heartbeat(1)
    assert play.last == ()


def test_heartbeats_of_an_earlier_life_are_stale() -> None:
    play = Play().start_brokers(1)
    with pytest.raises(KafkaError) as error:
        play.heartbeat(1, broker_epoch=0)
    assert error.value.code == ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(KafkaError) as error:
        play.heartbeat(1, broker_id=2)
    assert error.value.code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [bytes(16)]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [uuid_of(2), uuid_of(2)]}, ErrorCode.INVALID_REGISTRATION),
        ({"broker_id": 5, "log_dirs": [uuid_of(5002)]}, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_registrations_that_cannot_be(fields: dict[str, object], code: ErrorCode) -> None:
    assert refused(Play().start_brokers(2), registration(**fields)) == code


def test_a_second_broker_with_the_same_id_is_refused_while_the_first_one_lives() -> None:
    play = Play().start_brokers(1)
    assert refused(play, registration(), alive=True) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    before = play.image.brokers[1].epoch
    assert play.register(1, incarnation=2) > before
    assert play.image.brokers[1].fenced


def test_the_same_life_keeps_its_epoch_and_state() -> None:
    play = Play().start_brokers(1)
    epoch = play.image.brokers[1].epoch
    assert play.register(1, alive=True) == epoch
    assert play.image.is_active(1)


def test_a_new_life_leaves_the_isrs_of_the_old_one() -> None:
    play = Play(elr_level=0).start_brokers(1, 2)
    play.create("orders", [[1, 2]])
    play.create("alone", [[1]])
    play.register(1, incarnation=2)
    assert (play.partition("orders", 0).leader, play.partition("orders", 0).isr) == (2, (2,))
    assert (play.partition("alone").leader, play.partition("alone").isr) == (-1, (1,))


def test_a_lost_broker_leads_nothing_and_the_last_in_sync_replica_is_remembered() -> None:
    play = Play(elr_level=0).start_brokers(1, 2, 3)
    play.create("orders", [[1, 2, 3], [2, 1, 3]])
    play.create("alone", [[1]])
    play.do(partial(fence_broker, broker_id=1, config=play.config))
    assert (play.partition("orders", 0).leader, play.partition("orders", 0).isr) == (2, (2, 3))
    assert play.partition("orders", 0).leader_epoch == 1
    assert (play.partition("orders", 1).leader, play.partition("orders", 1).leader_epoch) == (2, 0)
    assert play.partition("orders", 1).isr == (2, 3)
    assert (play.partition("alone").leader, play.partition("alone").isr) == (-1, (1,))
    play.heartbeat(1)
    assert (play.partition("alone").leader, play.partition("alone").leader_epoch) == (1, 2)
    assert play.partition("orders", 0).leader == 2
    play.do(partial(fence_broker, broker_id=9, config=play.config))
    assert play.last == ()


def test_an_unclean_election_takes_the_first_live_replica_and_marks_it_recovering() -> None:
    play = Play(elr_level=0).start_brokers(1, 2)
    play.create("safe", [[1, 2]])
    play.create("risky", [[1, 2]], unclean_leader_election_enable="true")
    for lost in (2, 1):
        play.do(partial(fence_broker, broker_id=lost, config=play.config))
    assert play.partition("safe").leader == play.partition("risky").leader == -1
    play.heartbeat(2)
    assert (play.partition("safe").leader, play.partition("safe").isr) == (-1, (1,))
    risky = play.partition("risky")
    assert (risky.leader, risky.isr, risky.leader_recovery_state) == (2, (2,), 1)


def test_unclean_elections_may_be_allowed_for_the_whole_cluster() -> None:
    play = Play(broker_config(unclean_leader_election_enable="true")).start_brokers(1, 2)
    play.create("orders", [[1, 2]])
    for lost in (2, 1):
        play.do(partial(fence_broker, broker_id=lost, config=play.config))
    play.heartbeat(2)
    assert play.partition("orders").leader == 2


def test_controlled_shutdown_moves_leaders_first_and_lets_go_when_all_know() -> None:
    play = Play().start_brokers(1, 2)
    play.create("orders", [[1, 2]])
    answer = play.heartbeat(1, want_shut_down=True)
    assert (answer.should_shut_down, answer.is_fenced) == (False, False)
    assert play.image.brokers[1].in_controlled_shutdown
    assert (play.partition("orders").leader, play.partition("orders").isr) == (2, (2,))
    moved_at = play.image.offset
    behind = ShutdownProgress(controlled_shutdown_offset=moved_at, lowest_active_offset=moved_at - 1)
    assert not play.heartbeat(1, want_shut_down=True, progress=behind).should_shut_down
    progress = ShutdownProgress(controlled_shutdown_offset=moved_at, lowest_active_offset=moved_at)
    assert play.heartbeat(1, want_shut_down=True, progress=progress).should_shut_down
    assert play.image.brokers[1].fenced
    assert play.register(1, incarnation=2, alive=True) > 0
    assert not play.image.brokers[1].in_controlled_shutdown


def test_a_broker_that_leads_nothing_may_go_at_once() -> None:
    play = Play().start_brokers(1, 2)
    play.create("orders", [[1, 2]])
    assert play.heartbeat(2, want_shut_down=True).should_shut_down
    assert play.partition("orders").isr == (1,)


def test_a_fenced_broker_may_go_at_once() -> None:
    play = Play()
    play.register(1)
    assert play.heartbeat(1, want_shut_down=True).should_shut_down
    assert play.heartbeat(1, want_shut_down=True).should_shut_down


def test_the_last_replica_may_go_too_leaving_the_partition_without_a_leader() -> None:
    play = Play(elr_level=0).start_brokers(1)
    play.create("orders", [[1]])
    play.heartbeat(1, want_shut_down=True)
    assert (play.partition("orders").leader, play.partition("orders").isr) == (-1, (1,))
    assert play.heartbeat(1, want_shut_down=True).should_shut_down


def test_new_topics_avoid_brokers_that_are_leaving() -> None:
    play = Play().start_brokers(1, 2)
    play.create("orders", [[1, 2]])
    play.heartbeat(1, want_shut_down=True)
    play.create("later", [[1, 2]])
    assert (play.partition("later").leader, play.partition("later").isr) == (2, (2,))


def test_a_failed_log_directory_takes_its_partitions_out_of_the_isr() -> None:
    play = Play().start_brokers(1, 2)
    play.create("orders", [[1, 2]])
    play.heartbeat(1, offline_log_dirs=[uuid_of(5001)])
    assert (play.partition("orders").leader, play.partition("orders").isr) == (2, (2,))
    assert play.image.brokers[1].log_dirs == (uuid_of(5001),)


def test_a_broker_can_be_forgotten() -> None:
    play = Play().start_brokers(1, 2)
    play.create("orders", [[1, 2]])
    play.do(partial(unregister_broker, request=m.UnregisterBrokerRequest(broker_id=1), config=play.config))
    assert play.image.broker(1) is None
    assert play.partition("orders").leader == 2
    with pytest.raises(KafkaError) as error:
        play.do(partial(unregister_broker, request=m.UnregisterBrokerRequest(broker_id=1), config=play.config))
    assert error.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_producer_id_blocks_never_overlap() -> None:
    play = Play().start_brokers(1, 2)
    blocks = []
    for broker in (1, 2, 1):
        request = m.AllocateProducerIdsRequest(broker_id=broker, broker_epoch=play.image.brokers[broker].epoch)
        answer = play.do(partial(allocate_producer_ids, request=request))
        blocks.append((answer.producer_id_start, answer.producer_id_len))
    assert blocks == [(0, 1000), (1000, 1000), (2000, 1000)]
    with pytest.raises(KafkaError) as error:
        play.do(partial(allocate_producer_ids, request=m.AllocateProducerIdsRequest(broker_id=1, broker_epoch=0)))
    assert error.value.code == ErrorCode.STALE_BROKER_EPOCH
    play.image = replace(play.image, next_producer_id=2**63 - 500)
    request = m.AllocateProducerIdsRequest(broker_id=1, broker_epoch=play.image.brokers[1].epoch)
    with pytest.raises(KafkaError):
        play.do(partial(allocate_producer_ids, request=request))


def test_a_broker_with_more_partitions_than_a_request_may_change_is_fenced_all_the_same() -> None:
    play = Play().start_brokers(1)
    for name in ("a", "b"):
        play.create_topic(m.CreateTopicsRequest.Topics(name=name, num_partitions=5001, replication_factor=1))
    play.do(partial(fence_broker, broker_id=1, config=play.config))
    assert len(play.last) == 10_003
    assert play.partition("b", 5000).leader == -1
