"""A broker with two log directories loses one: other brokers take over what it led there, the rest stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import confluent_kafka
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from backend.engine.controller.image.metadata_image import DIRECTORY_UNASSIGNED
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from tests.engine_cluster import EngineCluster, layout
from tests.waiting import wait_until
from tests.wire import ask

PARTITIONS = 4


def two_dirs(folder: Path) -> EngineCluster:
    """Two brokers, the second with two directories."""
    made = layout(folder, brokers=2)
    dirs = {1: f"{folder}/one", 2: f"{folder}/two-a,{folder}/two-b"}
    return EngineCluster(folder, made=replace(made, log_dirs=dirs))


def test_partitions_of_a_directory_that_fails_get_another_leader_and_the_others_keep_theirs(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic("spread", PARTITIONS, replica_assignment=[[2, 1]] * PARTITIONS)
        admin.create_topics([topic])["spread"].result(30)
        write(cluster)
        manager = cluster.broker(2).services.log_manager
        failing = f"{tmp_path}/two-b"

        def led_by_two() -> set[int]:
            metadata = admin.list_topics("spread", timeout=10).topics["spread"]
            return {number for number, partition in metadata.partitions.items() if partition.leader == 2}

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


def test_a_directory_that_is_gone_at_the_start_is_left_out_and_taken_back_when_repaired(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("spread", PARTITIONS, replica_assignment=[[2, 1]] * PARTITIONS)])[
            "spread"
        ].result(30)
        write(cluster)
        failing = tmp_path / "two-b"
        lost = {int(folder.name.rpartition("-")[2]) for folder in failing.glob("spread-*")}
        assert len(lost) == PARTITIONS // 2
        cluster.wait_until("the controller knows the directories", lambda: len(directories(cluster)) == 2)
        cluster.stop_broker(2)
        failing.rename(tmp_path / "elsewhere")
        failing.write_bytes(b"not a folder")
        cluster.start_broker(2)
        wait_until("broker 2 leads what it has", lambda: elect(admin, cluster) == set(range(PARTITIONS)) - lost)
        write(cluster)
        # Replicas of the failed directory are not created again in the one that is left.
        assert not {f"spread-{number}" for number in lost} & {folder.name for folder in (tmp_path / "two-a").iterdir()}
        described = log_dirs(cluster)
        assert described == {str(tmp_path / "two-a"): ErrorCode.NONE, str(failing): ErrorCode.KAFKA_STORAGE_ERROR}
        cluster.stop_broker(2)
        failing.unlink()
        (tmp_path / "elsewhere").rename(failing)
        cluster.start_broker(2)
        cluster.wait_until("everything is in sync again", lambda: in_sync(cluster) == set(range(PARTITIONS)))


def led(cluster: EngineCluster) -> set[int]:
    """Partitions that broker 2 leads as far as broker 1 knows."""
    image = cluster.broker(1).services.metadata.image
    registrations = ((number, image.partition("spread", number)) for number in range(PARTITIONS))
    return {number for number, registration in registrations if registration is not None and registration.leader == 2}


def in_sync(cluster: EngineCluster) -> set[int]:
    image = cluster.broker(1).services.metadata.image
    registrations = ((number, image.partition("spread", number)) for number in range(PARTITIONS))
    return {
        number for number, registration in registrations if registration is not None and set(registration.isr) == {1, 2}
    }


def directories(cluster: EngineCluster) -> set[bytes]:
    """Where the controller knows broker 2's replicas to lie."""
    image = cluster.broker(1).services.metadata.image
    partitions = (image.partition("spread", number) for number in range(PARTITIONS))
    return {partition.directory_of(2) for partition in partitions if partition is not None} - {DIRECTORY_UNASSIGNED}


def elect(admin: AdminClient, cluster: EngineCluster) -> set[int]:
    """Asks for the preferred leaders, as far as they are in sync; what broker 2 leads then."""
    partitions = [TopicPartition("spread", number) for number in range(PARTITIONS)]
    admin.elect_leaders(ElectionType.PREFERRED, partitions).result(30)
    return cluster.ask(lambda: led(cluster))


def log_dirs(cluster: EngineCluster) -> dict[str, ErrorCode]:
    answer = ask(cluster.layout.ports[2], m.DescribeLogDirsRequest(topics=None), 4, m.DescribeLogDirsResponse)
    return {directory.log_dir: ErrorCode(directory.error_code) for directory in answer.results}


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
