"""By which listener and with which settings the metadata topic is reached."""

from __future__ import annotations

import pytest

from backend.engine.broker.remote_tier import metadata_listener
from backend.engine.config import BrokerConfig, ConfigError
from backend.engine.config.listener_security import listener_security
from backend.engine.remote.metadata.metadata_topic import MetadataClientSettings

TWO = {
    "listeners": "INTERNAL://127.0.0.1:9092,METADATA://127.0.0.1:9093",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,METADATA:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.metadata.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="rlmm" password="secret";'
    ),
}
NAME = "remote.log.metadata.manager.listener.name"


def test_without_a_name_it_is_the_listener_between_brokers() -> None:
    assert metadata_listener(BrokerConfig.parse(TWO)) == "INTERNAL"


def test_a_named_listener_is_used_with_its_own_security() -> None:
    config = BrokerConfig.parse({**TWO, NAME: "metadata"})
    assert metadata_listener(config) == "METADATA"
    sasl = listener_security(config, "METADATA").sasl
    assert sasl is not None
    assert (sasl.mechanism, sasl.username) == ("PLAIN", "rlmm")
    assert listener_security(config, "INTERNAL").sasl is None


def test_a_listener_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match="is OTHER, which is none of the listeners INTERNAL, METADATA"):
        metadata_listener(BrokerConfig.parse({**TWO, NAME: "OTHER"}))


def test_settings_of_one_client_win_over_the_common_ones() -> None:
    client_settings = MetadataClientSettings.parse(
        {
            "remote.log.metadata.consumer.request.timeout.ms": "700",
            "remote.log.metadata.common.client.request.timeout.ms": "900",
            "remote.log.metadata.producer.delivery.timeout.ms": "5000",
            "remote.log.metadata.consumer.fetch.max.bytes": "4096",
            "remote.log.metadata.consumer.max.partition.fetch.bytes": "2048",
            "remote.log.metadata.consumer.fetch.max.wait.ms": "20",
            "remote.log.metadata.topic.num.partitions": "5",
        }
    )
    assert client_settings == MetadataClientSettings(
        produce_timeout_ms=900,
        delivery_timeout_ms=5000,
        fetch_timeout_ms=700,
        fetch_max_bytes=4096,
        partition_fetch_bytes=2048,
        fetch_max_wait_ms=20,
        admin_timeout_ms=900,
    )


def test_what_has_no_effect_here_is_named() -> None:
    client_settings = MetadataClientSettings.parse(
        {
            "remote.log.metadata.producer.acks": "1",
            "remote.log.metadata.common.client.bootstrap.servers": "elsewhere:9092",
            "remote.log.metadata.common.client.fetch.max.bytes": "100",
        }
    )
    assert client_settings.unused == (
        "remote.log.metadata.common.client.bootstrap.servers",
        "remote.log.metadata.producer.acks",
    )
    assert client_settings.fetch_max_bytes == 100


@pytest.mark.parametrize("value", ["0", "-1", "many", "2147483648", "²"])
def test_a_wrong_number_is_refused_with_its_full_name(value: str) -> None:
    name = "remote.log.metadata.admin.request.timeout.ms"
    with pytest.raises(ValueError, match=r"rlmm\.config\.remote\.log\.metadata\.admin\.request\.timeout\.ms"):
        MetadataClientSettings.parse({name: value})
