"""A broker with two log directories loses one: other brokers take over what it led there, the rest stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from backend.engine.cluster import Cluster
from tests.engine_cluster import EngineCluster

PARTITIONS = 4


def test_partitions_of_a_directory_that_fails_get_another_leader_and_the_others_keep_theirs(tmp_path: Path) -> None:
    cluster = EngineCluster(tmp_path, brokers=2)
    dirs = {1: f"{tmp_path}/one", 2: f"{tmp_path}/two-a,{tmp_path}/two-b"}
    cluster.layout = replace(cluster.layout, log_dirs=dirs)
    cluster.cluster = Cluster(cluster.layout)
    with cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic("spread", PARTITIONS, replica_assignment=[[2, 1]] * PARTITIONS)
        admin.create_topics([topic])["spread"].result(30)
        write(cluster)
        manager = cluster.broker(2).services.log_manager
        failing = f"{tmp_path}/two-b"

        def led_by_two() -> set[int]:
            metadata = admin.list_topics("spread", timeout=10).topics["spread"]
            return {number for number, one in metadata.partitions.items() if one.leader == 2}

        lost = {
            log.topic_id_partition.partition
            for log in manager.all_logs
            if log.topic_id_partition.topic == "spread" and log.dir.startswith(failing)
        }
        assert len(lost) == PARTITIONS // 2
        cluster.wait_until("broker 2 leads all", lambda: len(led(cluster)) == PARTITIONS)
        cluster.ask(lambda: manager.fail_dir(failing, "it was unplugged by a test"))
        cluster.wait_until("others lead what was there", lambda: led(cluster) == set(range(PARTITIONS)) - lost)
        write(cluster)
        assert led_by_two() == set(range(PARTITIONS)) - lost
        # The controller knows that the directory is gone.
        cluster.wait_until("the registration shows it", lambda: len(registered_dirs(cluster)) == 1)


def led(cluster: EngineCluster) -> set[int]:
    """Partitions that broker 2 leads as far as broker 1 knows."""
    image = cluster.broker(1).services.metadata.image
    found = ((number, image.partition("spread", number)) for number in range(PARTITIONS))
    return {number for number, one in found if one is not None and one.leader == 2}


def registered_dirs(cluster: EngineCluster) -> tuple[bytes, ...]:
    broker = cluster.broker(1).services.metadata.image.brokers.get(2)
    return () if broker is None else broker.log_dirs


def write(cluster: EngineCluster) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    errors: list[object] = []
    for number in range(PARTITIONS * 5):
        producer.produce(
            "spread", b"x", partition=number % PARTITIONS,
            on_delivery=lambda error, _: errors.append(error) if error is not None else None,
        )  # fmt: skip
    assert producer.flush(60) == 0
    assert not errors
