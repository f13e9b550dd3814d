"""Each kind of record changes an image as it says."""

import pytest

from backend.engine.controller.image.metadata_image import (
    EMPTY_IMAGE,
    BrokerRegistration,
    Endpoint,
    MetadataImage,
    PartitionRegistration,
    topic_changes,
)
from backend.engine.controller.image.replay import ReplayError, apply_records
from backend.protocol import messages as m

ORDERS = bytes(range(1, 17))
CLICKS = bytes(range(2, 18))


def replayed(*records: object, image: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    return apply_records(image, records, offset=image.offset + len(records), epoch=1)


def topic(name: str = "orders", topic_id: bytes = ORDERS, partitions: int = 2) -> list[object]:
    return [
        m.TopicRecord(name=name, topic_id=topic_id),
        *(
            m.PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=[1, 2, 3],
                isr=[1, 2, 3],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
            )
            for index in range(partitions)
        ),
    ]


def test_a_topic_appears_with_its_partitions_under_name_and_id() -> None:
    image = replayed(*topic())
    assert image.offset == 2
    assert image.topic_ids["orders"] == ORDERS
    assert image.partition("orders", 1) == PartitionRegistration((1, 2, 3), (1, 2, 3), 1, 0, 0)
    assert image.partition_by_id(ORDERS, 0) == image.partition("orders", 0)
    assert image.partition("orders", 2) is None
    assert EMPTY_IMAGE.topic("orders") is None


def test_naming_a_leader_raises_the_leader_epoch_even_when_it_stays() -> None:
    image = replayed(*topic())
    image = replayed(m.PartitionChangeRecord(partition_id=0, topic_id=ORDERS, leader=1), image=image)
    assert image.partition("orders", 0) == PartitionRegistration((1, 2, 3), (1, 2, 3), 1, 1, 1)


def test_an_isr_change_raises_the_partition_epoch_only() -> None:
    image = replayed(*topic(), m.PartitionChangeRecord(partition_id=0, topic_id=ORDERS, isr=[1, 3]))
    assert image.partition("orders", 0) == PartitionRegistration((1, 2, 3), (1, 3), 1, 0, 1)


def test_other_topics_keep_their_identity() -> None:
    before = replayed(*topic(), *topic("clicks", CLICKS))
    after = replayed(m.PartitionChangeRecord(partition_id=0, topic_id=ORDERS, isr=[1]), image=before)
    assert after.topics[CLICKS] is before.topics[CLICKS]
    (change,) = topic_changes(before, after)
    assert [index for index, _, _ in change.changed_partitions()] == [0]
    assert topic_changes(after, replayed(m.NoOpRecord(), image=after)) == []


def test_changed_topics_come_by_name_whatever_their_ids_hash_to() -> None:
    names = [f"t{number:02}" for number in range(20)]
    records = [record for at, name in enumerate(names) for record in topic(name, bytes(15) + bytes([at + 1]))]
    image = replayed(*records)
    assert [change.new.name for change in topic_changes(EMPTY_IMAGE, image) if change.new] == names
    assert [change.old.name for change in topic_changes(image, EMPTY_IMAGE) if change.old] == names


def test_a_removed_topic_takes_its_settings_along() -> None:
    image = replayed(
        *topic(), m.ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1000")
    )
    assert dict(image.topic_config("orders")) == {"retention.ms": "1000"}
    gone = replayed(m.RemoveTopicRecord(topic_id=ORDERS), image=image)
    assert gone.topic("orders") is None
    assert not gone.configs
    assert not gone.topics
    (change,) = topic_changes(image, gone)
    assert change.new is None


def test_a_topic_deleted_and_created_again_within_one_group_is_the_new_one() -> None:
    image = replayed(*topic(), m.RemoveTopicRecord(topic_id=ORDERS), *topic("orders", CLICKS, partitions=1))
    assert image.topic_ids["orders"] == CLICKS
    assert set(image.topics) == {CLICKS}


def test_brokers_register_unfence_shut_down_and_fence() -> None:
    image = replayed(
        m.RegisterBrokerRecord(
            broker_id=1,
            broker_epoch=7,
            incarnation_id=CLICKS,
            end_points=[m.RegisterBrokerRecord.EndPoints(name="PLAINTEXT", host="localhost", port=9092)],
            rack=None,
            log_dirs=[ORDERS],
        )
    )
    registered = BrokerRegistration(1, 7, CLICKS, (Endpoint("PLAINTEXT", "localhost", 9092),), log_dirs=(ORDERS,))
    assert image.broker(1) == registered
    assert image.alive_brokers() == []
    image = replayed(m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1), image=image)
    assert image.is_active(1)
    image = replayed(
        m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, in_controlled_shutdown=1), image=image
    )
    assert [broker.id for broker in image.alive_brokers()] == [1]
    assert not image.is_active(1)
    image = replayed(m.FenceBrokerRecord(id=1, epoch=7), image=image)
    assert image.alive_brokers() == []
    assert replayed(m.UnregisterBrokerRecord(broker_id=1, broker_epoch=7), image=image).broker(1) is None


def test_a_setting_without_a_value_is_deleted_and_a_per_broker_one_wins() -> None:
    def config(name: str, value: str | None, resource: str = "") -> object:
        return m.ConfigRecord(resource_type=4, resource_name=resource, name=name, value=value)

    image = replayed(config("a", "1"), config("b", "2"), config("a", "3", "2"))
    assert dict(image.broker_config(2)) == {"a": "3", "b": "2"}
    assert dict(image.broker_config(1)) == {"a": "1", "b": "2"}
    image = replayed(config("a", None, "2"), image=image)
    assert (4, "2") not in image.configs


def test_features_and_producer_ids() -> None:
    image = replayed(
        m.FeatureLevelRecord(name="metadata.version", feature_level=30),
        m.ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=1000),
    )
    assert dict(image.features) == {"metadata.version": 30}
    assert image.next_producer_id == 1000
    assert not replayed(m.FeatureLevelRecord(name="metadata.version", feature_level=0), image=image).features


def test_clearing_the_elr_reaches_partitions_changed_in_the_same_group() -> None:
    change = m.PartitionChangeRecord(partition_id=0, topic_id=ORDERS, eligible_leader_replicas=[2], last_known_elr=[3])
    image = replayed(*topic(), change)
    assert image.topics[ORDERS].partitions[0].elr == (2,)
    cleared = replayed(*topic(), change, m.ClearElrRecord(topic_name="orders"))
    assert cleared.topics[ORDERS].partitions[0].elr == ()


def test_kinds_that_images_do_not_model_are_reported_not_fatal() -> None:
    seen: list[object] = []
    token = m.DelegationTokenRecord(token_id="t")
    image = apply_records(EMPTY_IMAGE, [token, *topic()], offset=3, epoch=1, report_unknown=seen.append)
    assert seen == [token]
    assert image.topic("orders") is not None


@pytest.mark.parametrize(
    "record",
    [
        m.PartitionChangeRecord(partition_id=5, topic_id=ORDERS, leader=1),
        m.PartitionChangeRecord(partition_id=0, topic_id=CLICKS, leader=1),
        m.RemoveTopicRecord(topic_id=CLICKS),
        m.TopicRecord(name="orders", topic_id=CLICKS),
        m.FenceBrokerRecord(id=9, epoch=9),
        m.ClearElrRecord(topic_name="clicks"),
    ],
)
def test_a_record_that_cannot_belong_to_the_image_is_an_error(record: object) -> None:
    with pytest.raises(ReplayError):
        replayed(record, image=replayed(*topic()))
