"""Starts that must be refused, in one line and without traces; and a broker as a separate process."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from backend.engine.broker import Broker, StartRefused
from backend.engine.cluster import ClusterLayout
from backend.engine.config import BrokerConfig, format_properties
from backend.engine.ports.clock import SystemClock
from backend.engine.replica.partition import Partition
from backend.protocol import messages as m
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from backend.tiering.ids import TopicPartition
from tests.engine_cluster import CLUSTER_ID, layout
from tests.ports import free_ports

OTHER_CLUSTER = "BBBBBBBBBBBBBBBBBBBBBQ"


def refused(made: ClusterLayout, **changes: str) -> str:
    """Why node 1 does not start."""
    properties = made.properties(1) | {name.replace("_", "."): value for name, value in changes.items()}

    async def start() -> str:
        with pytest.raises(StartRefused) as raised:
            await Broker(BrokerConfig.parse(properties)).start()
        return str(raised.value)

    return asyncio.run(start())


def run_once(made: ClusterLayout) -> None:
    async def play() -> None:
        broker = Broker(BrokerConfig.parse(made.properties(1)))
        await broker.start()
        await broker.stop()

    asyncio.run(play())


def test_a_taken_port_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    made = layout(tmp_path, brokers=1)

    async def play() -> str:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", made.ports[1])
        async with server:
            with pytest.raises(StartRefused) as raised:
                await Broker(BrokerConfig.parse(made.properties(1))).start()
            return str(raised.value)

    message = asyncio.run(play())
    assert message == (
        f"Node 1 cannot start: 127.0.0.1:{made.ports[1]} is in use by another process;"
        " stop that one or choose another port."
    )
    assert list(tmp_path.iterdir()) == []
    run_once(made)


def test_a_stop_during_the_start_frees_the_ports(tmp_path: Path) -> None:
    made = layout(tmp_path, brokers=1)

    async def play() -> None:
        broker = Broker(BrokerConfig.parse(made.properties(1)))
        start = asyncio.create_task(broker.start())
        await asyncio.sleep(0)
        assert not broker.started
        await broker.stop()
        start.cancel()
        await asyncio.wait([start])
        async with await asyncio.start_server(lambda *_: None, "127.0.0.1", made.ports[1]):
            pass

    asyncio.run(play())


def test_a_taken_metrics_port_is_named_too(tmp_path: Path) -> None:
    made = layout(tmp_path, brokers=1)
    (port,) = free_ports(1)

    async def play() -> str:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
        async with server:
            properties = made.properties(1) | {"ebbline.metrics.listener": f"127.0.0.1:{port}"}
            with pytest.raises(StartRefused) as raised:
                await Broker(BrokerConfig.parse(properties)).start()
            return str(raised.value)

    assert f"127.0.0.1:{port} is in use" in asyncio.run(play())
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_another_cluster_is_refused(tmp_path: Path) -> None:
    made = layout(tmp_path, brokers=1)
    run_once(made)
    message = refused(made, ebbline_cluster_id=OTHER_CLUSTER)
    assert f"belongs to cluster {CLUSTER_ID}, not {OTHER_CLUSTER}" in message
    assert "\n" not in message


def test_the_folder_of_another_node_is_refused(tmp_path: Path) -> None:
    made = layout(tmp_path, brokers=1)
    run_once(made)
    voters = f"4@127.0.0.1:{made.controller_port}"
    assert "belongs to node 1, not 4" in refused(made, node_id="4", controller_quorum_voters=voters)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    made = layout(tmp_path, brokers=1)
    run_once(made)
    path = Path(made.log_dirs[1]) / "meta.properties"
    path.write_text(path.read_text().replace("version=1", "version=2"))
    assert "has format version 2, but this program knows version 1" in refused(made)


def test_settings_that_have_no_effect_are_named_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = layout(tmp_path, brokers=1)
    (Path(tmp_path) / "brokers").write_text("the start ends here")
    with caplog.at_level("WARNING"):
        refused(made, num_replica_fetchers="4", offsets_load_buffer_size="9", queued_max_requests="500")
    assert [record.getMessage() for record in caplog.records if "no effect" in record.getMessage()] == [
        "Node 1: has no effect yet, although it is set: num.replica.fetchers, offsets.load.buffer.size"
    ]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    made = layout(tmp_path, brokers=1)
    (tmp_path / "brokers").write_text("a file where a folder should be")
    assert "cannot be" in refused(made)


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    made = layout(tmp_path, brokers=1)
    other = free_ports(2)

    async def play() -> str:
        broker = Broker(BrokerConfig.parse(made.properties(1)))
        await broker.start()
        try:
            changed = made.properties(1) | {
                "listeners": f"PLAINTEXT://127.0.0.1:{other[0]},CONTROLLER://127.0.0.1:{other[1]}",
                "controller.quorum.voters": f"1@127.0.0.1:{other[1]}",
            }
            with pytest.raises(StartRefused) as raised:
                await Broker(BrokerConfig.parse(changed)).start()
            return str(raised.value)
        finally:
            await broker.stop()

    assert "is in use by another process" in asyncio.run(play())


def test_tiered_topics_keep_tiered_storage_from_being_disabled(tmp_path: Path) -> None:
    made = layout(tmp_path, brokers=1, tiering=True)

    async def play() -> None:
        broker = Broker(BrokerConfig.parse(made.properties(1)))
        await broker.start()
        topic = m.CreateTopicsRequest.Topics
        tiered = topic(name="orders", num_partitions=1, replication_factor=1,
                       configs=[topic.Configs(name="remote.storage.enable", value="true")])  # fmt: skip
        request = m.CreateTopicsRequest(topics=[tiered], timeout_ms=10_000)
        answer = await broker.services.controller_channel.send(request, 7, timeout_ms=10_000)
        assert isinstance(answer, m.CreateTopicsResponse)
        assert answer.topics[0].error_code == 0
        await broker.stop()

    asyncio.run(play())
    message = refused(made, remote_log_storage_system_enable="false")
    assert message.startswith(
        "Node 1 cannot start: remote.log.storage.system.enable is false, but 1 topics are tiered (orders)"
    )
    run_once(made)


def test_a_controller_that_is_no_broker_tells_the_remote_tier_of_deleted_topics(tmp_path: Path) -> None:
    made = layout(tmp_path, brokers=2, tiering=True, settings={"log.local.retention.bytes": "1"})
    alone = made.properties(1) | {
        "process.roles": "controller",
        "listeners": f"CONTROLLER://127.0.0.1:{made.controller_port}",
    }
    single = {"offsets.topic.replication.factor": "1", "ebbline.events.topic.replication.factor": "1"}
    prefix = "rlmm.config.remote.log.metadata.topic"
    single |= {f"{prefix}.replication.factor": "1", f"{prefix}.min.isr": "1"}

    async def play() -> None:
        controller = Broker(BrokerConfig.parse(alone))
        await controller.start()
        broker = Broker(BrokerConfig.parse(made.properties(2) | single))
        await broker.start()
        try:
            send = broker.services.controller_channel.send
            topic = m.CreateTopicsRequest.Topics
            configs = {"remote.storage.enable": "true", "segment.index.bytes": "12", "index.interval.bytes": "1"}
            rows = [topic.Configs(name=name, value=value) for name, value in configs.items()]
            tiered = topic(name="orders", num_partitions=1, replication_factor=1, configs=rows)
            await send(m.CreateTopicsRequest(topics=[tiered], timeout_ms=10_000), 7, timeout_ms=10_000)
            partition = TopicPartition("orders", 0)
            for _ in range(3):
                while not isinstance(broker.broker_services.replica_manager.find("orders", 0), Partition):
                    await asyncio.sleep(0.01)
                batch = build_batch([RecordData(SystemClock().time_ms(), None, b"v")])
                await broker.broker_services.replica_manager.append(partition, memoryview(batch))

            def objects() -> list[Path]:
                return [path for path in (tmp_path / "remote").rglob("*.log") if path.is_file()]

            async with asyncio.timeout(30):
                while len(objects()) < 2:
                    await asyncio.sleep(0.05)
                gone = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.Topics(name="orders")], timeout_ms=10_000)
                await send(gone, 6, timeout_ms=10_000)
                while objects():
                    await asyncio.sleep(0.05)
        finally:
            await broker.stop()
            await controller.stop()

    asyncio.run(play())


def test_settings_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    made = layout(tmp_path, brokers=1)
    assert "open to the network" in refused(made, listeners="PLAINTEXT://0.0.0.0:0,CONTROLLER://127.0.0.1:0")


def test_a_broker_runs_as_a_process_and_ends_on_a_signal(tmp_path: Path) -> None:
    made = layout(tmp_path, brokers=1)
    settings = tmp_path / "server.properties"
    properties = made.properties(1)
    del properties["ebbline.cluster.id"]
    settings.write_text(format_properties(properties))
    program = f"import sys; from backend.engine.cluster import run_broker; sys.exit(run_broker({str(settings)!r}))"
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    try:
        admin = AdminClient({"bootstrap.servers": made.bootstrap_servers, "socket.timeout.ms": 20_000})
        topics = admin.list_topics(timeout=30)
        assert list(topics.brokers) == [1]
        second = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
        )
        assert second.returncode == 1
        lines = [line for line in second.stderr.splitlines() if line.startswith("ebbline: ")]
        assert len(lines) == 1
        assert "is in use by another process" in lines[0]
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert (Path(made.log_dirs[1]) / ".kafka_cleanshutdown").exists()


def test_another_number_of_metadata_partitions_than_the_topic_has_ends_the_process(tmp_path: Path) -> None:
    """As in Kafka: the metadata of half of the segments would be looked for where it is not."""
    made = layout(tmp_path, brokers=1, tiering=True)

    async def play() -> None:
        broker = Broker(BrokerConfig.parse(made.properties(1)))
        await broker.start()
        async with asyncio.timeout(30):
            while broker.services.metadata.image.topic("__remote_log_metadata") is None:
                await asyncio.sleep(0.01)
        assert not broker.failed.done()
        await broker.stop()

    asyncio.run(play())
    settings = tmp_path / "server.properties"
    name = "rlmm.config.remote.log.metadata.topic.num.partitions"
    settings.write_text(format_properties(made.properties(1) | {name: "7"}))
    program = f"import sys; from backend.engine.cluster import run_broker; sys.exit(run_broker({str(settings)!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if line.startswith("ebbline: ")]
    assert line.startswith(
        "ebbline: Node 1 cannot go on: Topic __remote_log_metadata has 5 partitions,"
        " but remote.log.metadata.topic.num.partitions is 7"
    )


def test_a_settings_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    program = (
        f"import sys; from backend.engine.cluster import run_broker; sys.exit(run_broker({str(tmp_path / 'no')!r}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "cannot be read" in done.stderr
