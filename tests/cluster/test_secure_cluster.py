"""Three brokers that speak to each other and to the controller through TLS and SASL only."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.certificates import Authority
from tests.engine_cluster import EngineCluster, tiered
from tests.secure_cluster import BROKER, BROKER_PASSWORD, PASSWORD, USER, secure_layout

SECURE = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,"
    "CONTROLLER:SASL_SSL",
    "inter.broker.listener.name": "SASL_SSL",
    "controller.listener.names": "CONTROLLER",
    # Seconds, so that connections between nodes authenticate again during the test.
    "connections.max.reauth.ms": "3000",
}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_records_are_replicated_and_groups_work_over_sasl_ssl(tmp_path: Path, mechanism: str) -> None:
    authority = Authority()
    settings = SECURE | {"sasl.mechanism.inter.broker.protocol": mechanism}
    made = secure_layout(tmp_path, authority, brokers=3, settings=settings)
    ca = str(authority.write(tmp_path / "ca.pem"))
    with EngineCluster(tmp_path, made=made) as cluster:
        client: dict[str, str | int | float | bool] = {
            "bootstrap.servers": made.bootstrap("SASL_SSL"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": ca,
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
        admin = AdminClient(client)
        if mechanism != "PLAIN":
            # Until then no broker lets another in; they keep trying.
            info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
            upsertion = UserScramCredentialUpsertion(BROKER, info, BROKER_PASSWORD.encode())
            admin.alter_user_scram_credentials([upsertion])[BROKER].result(30)
        topic = NewTopic("orders", num_partitions=3, replication_factor=3, config={"min.insync.replicas": "3"})
        admin.create_topics([topic])["orders"].result(30)
        producer = Producer({**client, "acks": "all"})
        values = [f"value {number}".encode() for number in range(300)]
        failed: list[object] = []

        def reported(error: object, _message: object) -> None:
            if error is not None:
                failed.append(error)

        def renewals() -> int:
            return min(cluster.broker(node).services.metrics.successful_authentications for node in (1, 2, 3))

        before = cluster.ask(renewals)
        for value in values:
            producer.produce("orders", value, on_delivery=reported)
        assert producer.flush(60) == 0
        assert failed == []
        cluster.wait_until("connections between nodes authenticate anew", lambda: renewals() >= before + 2)
        consumer = Consumer({**client, "group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        consumed: list[bytes] = []
        while len(consumed) < len(values):
            messages = consumer.consume(len(values) - len(consumed), 30)
            assert messages, f"{len(consumed)} of {len(values)} came"
            consumed += [message.value() or b"" for message in messages]
        consumer.commit(asynchronous=False)
        consumer.close()
        assert sorted(consumed) == sorted(values)
        assert all(
            set(partition.isrs) == {1, 2, 3}
            for partition in admin.list_topics("orders", timeout=30).topics["orders"].partitions.values()
        )
        for node in (1, 2, 3):
            assert cluster.broker(node).services.metrics.expired_connections == 0


def test_remote_log_metadata_go_by_the_listener_that_is_named_and_by_its_security(tmp_path: Path) -> None:
    """All others speak PLAINTEXT, so each authenticated connection is of a client of `__remote_log_metadata`."""
    authority = Authority()
    plain = {
        **SECURE,
        "listener.security.protocol.map": SECURE["listener.security.protocol.map"].replace(
            "CONTROLLER:SASL_SSL", "CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
    }
    named = {"remote.log.metadata.manager.listener.name": "SASL_SSL"}
    settings = plain | tiered(tmp_path / "remote") | named
    made = secure_layout(tmp_path, authority, brokers=3, settings=settings)
    with EngineCluster(tmp_path, made=made) as cluster:
        client: dict[str, str | int | float | bool] = {"bootstrap.servers": made.bootstrap("PLAINTEXT")}
        config = {
            "remote.storage.enable": "true",
            "segment.index.bytes": "48",
            "index.interval.bytes": "1",
            "local.retention.bytes": "1",
        }
        topic = NewTopic("orders", num_partitions=1, replication_factor=3, config=config)
        admin = AdminClient(client)
        admin.create_topics([topic])["orders"].result(30)
        producer = Producer({**client, "acks": "all", "linger.ms": 0})
        for number in range(20):
            producer.produce("orders", b"%d" % number, partition=0)
            assert producer.flush(30) == 0
        logs = [cluster.broker(node).broker_services.replica_manager.partition("orders", 0).log for node in (1, 2, 3)]
        # Every replica has read of the copies, and given up what was copied.
        cluster.wait_until(
            "old segments are only remote", lambda: all(log.local_log_start_offset > 8 for log in logs), 60
        )
        consumer = Consumer({**client, "group.id": "cold", "enable.auto.commit": False})
        consumer.assign([TopicPartition("orders", 0, 0)])
        consumed: list[bytes | None] = []
        while len(consumed) < 20:
            messages = consumer.consume(20, 30)
            assert messages, f"{len(consumed)} of 20 came"
            consumed += [message.value() for message in messages if message.error() is None]
        consumer.close()
        assert consumed == [b"%d" % number for number in range(20)]
        metrics = [cluster.broker(node).services.metrics for node in (1, 2, 3)]
        assert sum(metric.successful_authentications for metric in metrics) >= 3
        assert sum(metric.failed_authentications for metric in metrics) == 0
