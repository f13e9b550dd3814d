"""Damaged files of replicas: what follows from the records is made again; a replica that lacks records does not lead,
is copied again by itself, and what was damaged is kept.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from backend.cli.inspect.set_aside import set_aside
from backend.engine.apis import metadata
from backend.engine.replica.partition import Partition
from backend.protocol.errors import KafkaError
from tests.engine_cluster import EngineCluster

TOPIC: Final = "orders"
# Replicas by partition: the broker whose file is damaged leads both.
REPLICAS: Final = {0: [2, 3, 1], 1: [2, 1, 3]}
WAIT_S: Final = 60
SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1500",
    "replica.lag.time.max.ms": "3000",
    "min.insync.replicas": "1",
    # Elections are asked for here.
    "auto.leader.rebalance.enable": "false",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    with EngineCluster(tmp_path, brokers=3, settings=SETTINGS) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        topic = NewTopic(TOPIC, len(REPLICAS), replica_assignment=list(REPLICAS.values()))
        admin.create_topics([topic])[TOPIC].result(30)
        yield running


def produce(cluster: EngineCluster, count: int, start: int = 0) -> list[bytes]:
    """Numbered values into both partitions, one batch each, acknowledged by all in-sync replicas."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 1})
    failures: list[str] = []
    values = [b"value-%06d" % number for number in range(start, start + count)]
    for value in values:
        for partition in REPLICAS:
            producer.produce(
                TOPIC,
                value,
                partition=partition,
                on_delivery=lambda error, _: failures.append(str(error)) if error else None,
            )
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    assert failures == []
    return values


def consume(cluster: EngineCluster, partition: int, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "check", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    values: list[bytes] = []
    while len(values) < count:
        messages = consumer.consume(count - len(values), timeout=WAIT_S)
        assert messages, f"{len(values)} of {count} records of partition {partition}"
        for message in messages:
            assert message.error() is None, message.error()
            values.append(message.value() or b"")
    consumer.close()
    return values


def registration(cluster: EngineCluster, partition: int) -> Any:
    return cluster.broker(1).services.metadata.image.partition(TOPIC, partition)


def registration_at(cluster: EngineCluster, node: int, partition: int) -> Any:
    return cluster.broker(node).services.metadata.image.partition(TOPIC, partition)


def hosted(cluster: EngineCluster, node: int, partition: int) -> Partition:
    return cluster.broker(node).broker_services.replica_manager.partition(TOPIC, partition)


def folder(cluster: EngineCluster, node: int, partition: int = 0) -> Path:
    return Path(cluster.layout.log_dirs[node]) / f"{TOPIC}-{partition}"


def last_segment(cluster: EngineCluster, node: int) -> Path:
    return sorted(folder(cluster, node).glob("*.log"))[-1]


def cut_three_bytes(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-3])


def flip_bytes_of_the_last_batch(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(len(data) - 12, len(data) - 4):
        data[at] ^= 0xFF
    path.write_bytes(data)


def append_garbage(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\xde\xad\xbe\xef" * 25)


def in_sync_everywhere(cluster: EngineCluster) -> None:
    cluster.wait_until(
        "all replicas are in sync",
        lambda: all(set(registration(cluster, partition).isr) == {1, 2, 3} for partition in REPLICAS),
    )


@pytest.mark.parametrize("damage", [cut_three_bytes, flip_bytes_of_the_last_batch, append_garbage])
def test_a_damaged_tail_is_truncated_and_copied_again(cluster: EngineCluster, damage: Callable[[Path], None]) -> None:
    values = produce(cluster, 50)
    in_sync_everywhere(cluster)
    cluster.kill_broker(2)
    path = last_segment(cluster, 2)
    good = path.read_bytes()
    damage(path)
    more = produce(cluster, 10, start=50)
    cluster.start_broker(2)
    in_sync_everywhere(cluster)
    assert consume(cluster, 0, 60) == values + more
    assert last_segment(cluster, 2).read_bytes() == last_segment(cluster, 1).read_bytes()
    assert last_segment(cluster, 2).read_bytes().startswith(good)


def kept(cluster: EngineCluster, node: int) -> list[Path]:
    """Folders that a broker has set aside."""
    return sorted(Path(cluster.layout.log_dirs[node]).glob("*-stray"))


def overwrite(name: str) -> Callable[[Path], None]:
    def damage(replica: Path) -> None:
        for path in replica.glob(name):
            path.write_bytes(bytes(range(200, 243)))

    return damage


DERIVED: Final = ("partition.metadata", "leader-epoch-checkpoint", "*.snapshot", "*.index", "*.timeindex")


@pytest.mark.parametrize("names", [("leader-epoch-checkpoint",), (*DERIVED, "../*-checkpoint")], ids=["one", "all"])
def test_damaged_files_that_follow_from_the_records_are_made_again(
    cluster: EngineCluster, names: tuple[str, ...]
) -> None:
    values = produce(cluster, 50)
    in_sync_everywhere(cluster)
    cluster.stop_broker(2)
    for name in names:
        overwrite(name)(folder(cluster, 2))
    more = produce(cluster, 10, start=50)
    cluster.start_broker(2)
    in_sync_everywhere(cluster)
    assert cluster.ask(lambda: cluster.broker(2).broker_services.replica_manager.broken_partitions) == {}
    cluster.kill_broker(1)
    cluster.wait_until("another leads", lambda: registration_at(cluster, 2, 0).leader in (2, 3))
    assert consume(cluster, 0, 60) == values + more
    assert kept(cluster, 2) == []


def flip_a_byte(replica: Path) -> None:
    [path] = replica.glob("*.log")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def truncate_records(replica: Path) -> None:
    [path] = replica.glob("*.log")
    path.write_bytes(path.read_bytes()[:200])


def remove_records(replica: Path) -> None:
    [path] = replica.glob("*.log")
    path.unlink()


@pytest.mark.parametrize("damage", [flip_a_byte, truncate_records, remove_records, shutil.rmtree])
def test_records_that_are_gone_after_an_orderly_stop_of_all_cost_nothing(
    cluster: EngineCluster, damage: Callable[[Path], None]
) -> None:
    """The broker that led, and would lead again with a shortened log: the others have everything."""
    values = produce(cluster, 50)
    in_sync_everywhere(cluster)
    cluster.stop_broker(3)
    cluster.stop_broker(2)
    damage(folder(cluster, 2))
    cluster.start_broker(3)
    cluster.start_broker(2)
    in_sync_everywhere(cluster)
    assert consume(cluster, 0, 50) == values
    for node in (2, 3):
        assert last_segment(cluster, node).read_bytes() == last_segment(cluster, 1).read_bytes()
    # Damaged files are kept, and nothing removes them.
    assert len(kept(cluster, 2)) == (0 if damage is shutil.rmtree else 1)


@pytest.mark.parametrize("ends", ["stop_broker", "kill_broker"])
def test_a_shortened_log_leads_at_no_later_start_either(cluster: EngineCluster, ends: str) -> None:
    """It ends between two batches, so only the checkpoints tell that it had more: until it is whole again."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("cut", 1, replica_assignment=[[2, 3]])])["cut"].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 1})
    for _ in range(50):
        producer.produce("cut", b"value")
    assert producer.flush(WAIT_S) == 0
    cluster.stop_broker(3)
    cluster.stop_broker(2)
    path = Path(cluster.layout.log_dirs[2], "cut-0", f"{0:020d}.log")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])

    def leader() -> int:
        node_id: int = cluster.broker(1).services.metadata.image.partition("cut", 0).leader  # type: ignore[union-attr]
        return node_id

    for _ in range(3):
        cluster.start_broker(2)
        broker = cluster.broker(2)
        logs = broker.services.log_manager
        assert "and the disk had everything to 50" in str(cluster.ask(logs.offline_partitions.copy))
        cluster.call(logs.checkpoints.write_all())
        assert cluster.ask(leader) == -1
        cluster.call(getattr(cluster.cluster, ends)(2))
    path.write_bytes(whole)
    cluster.start_broker(2)
    cluster.wait_until("it leads with all", lambda: leader() == 2)
    log = cluster.ask(lambda: cluster.broker(2).broker_services.replica_manager.partition("cut", 0).log)
    assert log.log_end_offset == 50


def test_a_damaged_replica_below_min_isr_is_copied_again_too(cluster: EngineCluster) -> None:
    """It had every committed record, so it is eligible to lead: but not while another replica does."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    pair = NewTopic("pair", 1, replica_assignment=[[2, 3]], config={"min.insync.replicas": "2"})
    admin.create_topics([pair])["pair"].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 1})
    for _ in range(50):
        producer.produce("pair", b"value")
    assert producer.flush(WAIT_S) == 0
    cluster.call(cluster.cluster.stop())
    path = Path(cluster.layout.log_dirs[2], "pair-0", f"{0:020d}.log")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    cluster.call(cluster.cluster.start())

    def is_whole() -> bool:
        partition: Any = cluster.broker(1).services.metadata.image.partition("pair", 0)
        return set(partition.isr) == {2, 3}

    cluster.wait_until("both are in sync", is_whole)
    assert path.read_bytes() == whole
    assert len(kept(cluster, 2)) == 1


def test_a_replica_of_a_topic_that_nobody_knows_is_kept(cluster: EngineCluster) -> None:
    produce(cluster, 20)
    in_sync_everywhere(cluster)
    cluster.stop_broker(2)
    records = last_segment(cluster, 2).read_bytes()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics([TOPIC])[TOPIC].result(30)
    cluster.wait_until("the topic is gone", lambda: cluster.broker(1).services.metadata.image.topic(TOPIC) is None)
    cluster.start_broker(2)
    paths = kept(cluster, 2)
    assert [path.name.partition(".")[0] for path in paths] == ["orders-0", "orders-1"]
    assert [path.read_bytes() for path in sorted(paths[0].glob("*.log"))] == [records]
    cluster.stop_broker(2)
    cluster.start_broker(2)
    assert kept(cluster, 2) == paths


def test_what_is_kept_is_listed_and_goes_when_an_operator_says_so(
    cluster: EngineCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    produce(cluster, 20)
    in_sync_everywhere(cluster)
    cluster.stop_broker(2)
    for partition in (0, 1):
        folder(cluster, 2, partition).rename(folder(cluster, 2, partition).with_name(f"gone-{partition}"))
    cluster.start_broker(2)
    in_sync_everywhere(cluster)
    folders = kept(cluster, 2)
    assert [path.name.partition(".")[0] for path in folders] == ["gone-0", "gone-1"]

    set_aside(bootstrap_server=cluster.bootstrap, json_=True)
    listed = json.loads(capsys.readouterr().out)
    assert [(entry["broker_id"], entry["name"]) for entry in listed] == [(2, path.name) for path in folders]
    assert all(entry["size_bytes"] > 0 and "metadata has no replica" in entry["reason"] for entry in listed)

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    names = [folders[0].name, "../orders-0", "orders-1"]
    entry = ConfigEntry("ebbline.remove.set.aside", ",".join(names), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "2", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    cluster.wait_until("the folder is gone", lambda: kept(cluster, 2) == folders[1:])
    assert folder(cluster, 2, 1).exists()
    set_aside(bootstrap_server=cluster.bootstrap)
    assert folders[1].name in capsys.readouterr().out.replace("\n", "")


def test_a_damaged_index_costs_its_own_partition_a_moment(
    cluster: EngineCluster, caplog: pytest.LogCaptureFixture
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    small = NewTopic("small", 1, 3, config={"segment.bytes": str(1 << 20), "index.interval.bytes": "100"})
    admin.create_topics([small])["small"].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 1})
    for number in range(400):
        producer.produce("small", b"%06d" % number + bytes(10_000))
    assert producer.flush(WAIT_S) == 0
    values = produce(cluster, 50)
    for node in (1, 2, 3):
        for path in Path(cluster.layout.log_dirs[node], "small-0").glob("*index"):
            overwrite(path.name)(path.parent)

        def release(node: int = node) -> None:
            for segment in cluster.broker(node).broker_services.replica_manager.partition("small", 0).log.segments[:-1]:
                segment.release()
                segment.forget_damage()

        cluster.ask(release)
    with caplog.at_level(logging.WARNING):
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "i", "enable.auto.commit": False})
        consumer.assign([TopicPartition("small", 0, 0), TopicPartition(TOPIC, 0, 0)])
        values_by_topic: dict[str, list[bytes]] = {"small": [], TOPIC: []}
        while len(values_by_topic["small"]) < 400 or len(values_by_topic[TOPIC]) < 50:
            messages = consumer.consume(500, timeout=WAIT_S)
            assert messages, {topic: len(read) for topic, read in values_by_topic.items()}
            for message in messages:
                assert message.error() is None, message.error()
                values_by_topic[message.topic() or ""].append(message.value() or b"")
        consumer.close()
    assert [int(value[:6]) for value in values_by_topic["small"]] == list(range(400))
    assert values_by_topic[TOPIC] == values
    lines = [record.getMessage() for record in caplog.records if "small-0" in record.getMessage()]
    assert any("made again from its records" in line for line in lines)
    # One line for each segment of each replica.
    assert len(lines) == len(set(lines)), lines
    assert not [record for record in caplog.records if record.exc_info]


def test_damage_found_while_serving_moves_the_leadership(cluster: EngineCluster) -> None:
    values = produce(cluster, 50)
    in_sync_everywhere(cluster)
    assert registration(cluster, 0).leader == 2
    # The size of the first batch becomes impossible: what the disk gives back is not what was written.
    with last_segment(cluster, 2).open("r+b") as file:
        file.write(b"\xff" * 30)
    before = registration(cluster, 0).leader_epoch

    def look_for_a_timestamp() -> None:
        with pytest.raises(KafkaError):
            hosted(cluster, 2, 0).log.reader.offset_by_timestamp(1)

    cluster.ask(look_for_a_timestamp)
    cluster.wait_until("another leads orders-0", lambda: registration(cluster, 0).leader in (1, 3))
    assert registration(cluster, 0).leader_epoch > before
    more = produce(cluster, 10, start=50)
    assert consume(cluster, 0, 60) == values + more
    assert registration(cluster, 1).leader == 2

    # The replica is copied again by itself, and what was damaged is kept.
    in_sync_everywhere(cluster)
    assert not registration(cluster, 0).is_lost(2)
    assert consume(cluster, 0, 60) == values + more
    assert last_segment(cluster, 2).read_bytes() == last_segment(cluster, 1).read_bytes()
    [aside] = kept(cluster, 2)
    assert "is corrupt at byte 0" in json.loads((aside / "set-aside.json").read_text())["reason"]

    # Once in a run: a disk that damages the copy, too, is reported and not filled.
    with last_segment(cluster, 2).open("r+b") as file:
        file.write(b"\xff" * 30)
    cluster.ask(look_for_a_timestamp)
    cluster.wait_until("the controller knows of the lost log", lambda: registration(cluster, 0).is_lost(2))
    assert offline_replicas(cluster) == {0: [2], 1: []}
    assert kept(cluster, 2) == [aside]
    cluster.stop_broker(2)
    cluster.start_broker(2)
    in_sync_everywhere(cluster)
    assert offline_replicas(cluster) == {0: [], 1: []}


def offline_replicas(cluster: EngineCluster) -> dict[int, list[int]]:
    """The error codes that a client gets, by partition."""
    image = cluster.broker(1).services.metadata.image
    return {
        partition: metadata.offline_replicas(image, registration(cluster, partition), "PLAINTEXT")
        for partition in REPLICAS
    }


def test_a_leader_that_comes_back_without_its_data_takes_nobody_elses(tmp_path: Path) -> None:
    """Within its session metadata still has the killed life as leader; the new life must not act on that."""
    with EngineCluster(tmp_path, brokers=3, settings=SETTINGS | {"broker.session.timeout.ms": "6000"}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic(TOPIC, len(REPLICAS), replica_assignment=list(REPLICAS.values()))
        admin.create_topics([topic])[TOPIC].result(30)
        values = produce(cluster, 50)
        in_sync_everywhere(cluster)
        cluster.kill_broker(2)
        shutil.rmtree(folder(cluster, 2))
        assert registration(cluster, 0).leader == 2
        cluster.start_broker(2)
        in_sync_everywhere(cluster)
        assert registration(cluster, 0).leader in (1, 3)
        assert consume(cluster, 0, 50) == values
