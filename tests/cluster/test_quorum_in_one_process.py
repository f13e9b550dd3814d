"""Three voters and a broker without a vote: failover, snapshots in small pieces, a bad one, who may not take part."""

from __future__ import annotations

import asyncio
import errno
import logging
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from backend.engine.broker import Broker, StartRefused
from backend.engine.config import BrokerConfig
from backend.engine.controller.metadata.node_metadata import NodeMetadata
from backend.engine.controller.metadata.snapshotter import Snapshotter
from backend.engine.controller.quorum_controller import Controller
from backend.engine.metrics.collector import BrokerCollector
from backend.engine.raft import metadata_fetcher
from backend.engine.raft.raft_state import RaftState
from backend.engine.raft.snapshot_files import PartialSnapshot
from backend.protocol import messages as m
from backend.protocol.buffers import Buffer
from backend.protocol.errors import ErrorCode, KafkaError
from tests.engine_cluster import EngineCluster, layout
from tests.wire import ask

NODES = (1, 2, 3)
OBSERVER = 4
CREATE_VERSION = 7
PIECE_BYTES = 700
EAGER = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.log.segment.bytes": "4000",
    "metadata.max.retention.bytes": "3000",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with pytest.MonkeyPatch.context() as patch:
        # So that a snapshot takes several requests.
        patch.setattr(metadata_fetcher, "SNAPSHOT_BYTES", PIECE_BYTES)
        with EngineCluster(tmp_path_factory.mktemp("voters"), brokers=4, voters=3, settings=EAGER) as running:
            yield running


def controller(cluster: EngineCluster, node_id: int) -> Controller:
    node_controller = cluster.broker(node_id).services.controller
    assert node_controller is not None
    return node_controller


def metadata(cluster: EngineCluster, node_id: int) -> NodeMetadata:
    """The node's own copy."""
    part = cluster.broker(node_id)._raft
    assert part is not None
    assert part.metadata is not None
    return part.metadata


def active(cluster: EngineCluster) -> int:
    """Waits for a leader that has caught up."""
    leaders: list[int] = []

    def led() -> bool:
        nodes = [node for node in NODES if node in cluster.cluster.brokers and cluster.broker(node).started]
        leaders[:] = [node for node in nodes if controller(cluster, node).is_active]
        return len(leaders) == 1

    cluster.wait_until("one controller is active", led)
    return leaders[0]


def create(cluster: EngineCluster, *names: str) -> None:
    """Through the active controller's node, which surely runs: a client may ask one that is just starting."""
    topic = m.CreateTopicsRequest.Topics
    request = m.CreateTopicsRequest(
        topics=[topic(name=name, num_partitions=2, replication_factor=2) for name in names], timeout_ms=30_000
    )
    port = cluster.layout.ports[active(cluster)]
    answer = ask(port, request, CREATE_VERSION, m.CreateTopicsResponse, timeout_s=40)
    assert [(result.name, result.error_code, result.error_message) for result in answer.topics] == [
        (n, 0, None) for n in names
    ]


def same_images(cluster: EngineCluster) -> bool:
    images = [metadata(cluster, node).image for node in cluster.cluster.brokers]
    return len({image.offset for image in images}) == 1 and all(image == images[0] for image in images)


def metadata_folder(cluster: EngineCluster, node_id: int) -> Path:
    return Path(cluster.layout.log_dirs[node_id]) / "__cluster_metadata-0"


def test_every_node_has_the_same_image_and_snapshots_of_its_own(cluster: EngineCluster) -> None:
    for group in "ab":
        create(cluster, *(f"early-{group}-{number}" for number in range(12)))
        # One change a snapshot at least, however busy the machine.
        cluster.wait_until("all nodes hold the same image", lambda: same_images(cluster))
        for node in (*NODES, OBSERVER):
            cluster.call(metadata(cluster, node).snapshotter.write_snapshot())
    for node in (*NODES, OBSERVER):
        cluster.wait_until(
            f"node {node} has a snapshot and a shorter log",
            lambda node=node: metadata(cluster, node).log.start_offset > 0,  # type: ignore[misc]  # bound now
        )
        assert list(metadata_folder(cluster, node).glob("*.checkpoint"))


def test_a_node_without_a_vote_starts_again_from_its_own_snapshot(
    cluster: EngineCluster, caplog: pytest.LogCaptureFixture
) -> None:
    seen = controller(cluster, active(cluster)).raft.observers.current(int(time.time() * 1000))
    assert [progress.replica_id for progress in seen] == [OBSERVER]
    cluster.call(metadata(cluster, OBSERVER).snapshotter.write_snapshot())
    cluster.kill_broker(OBSERVER)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        cluster.start_broker(OBSERVER)
    assert f"Node {OBSERVER} has loaded snapshot" in caplog.text
    assert f"Node {OBSERVER} fetches snapshot" not in caplog.text
    cluster.wait_until("all nodes hold the same image", lambda: same_images(cluster))


def test_a_node_without_a_vote_fetches_its_log_again_where_it_makes_no_sense(
    cluster: EngineCluster, caplog: pytest.LogCaptureFixture
) -> None:
    create(cluster, *(f"spoiled-{number}" for number in range(3)))
    cluster.wait_until("all nodes hold the same image", lambda: same_images(cluster))
    cluster.kill_broker(OBSERVER)
    path = max(metadata_folder(cluster, OBSERVER).glob("*.log"))
    data = bytearray(path.read_bytes())
    # In its first batch: whole batches follow.
    data[70] ^= 0x10
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        cluster.start_broker(OBSERVER)
    assert f"Node {OBSERVER} drops its metadata log and fetches it again" in caplog.text
    cluster.wait_until("all nodes hold the same image", lambda: same_images(cluster))


def test_another_leader_takes_over_and_the_old_one_follows_it(cluster: EngineCluster) -> None:
    killed = active(cluster)
    ids = [cluster.call(cluster.broker(node).broker_services.producer_ids.next_id()) for node in NODES]
    epoch = cluster.ask(lambda: controller(cluster, killed).raft.epoch)
    cluster.kill_broker(killed)
    assert active(cluster) != killed
    create(cluster, "after-the-leader")
    stays = next(node for node in NODES if node != killed)
    cluster.wait_until(
        "the new leader fences the broker that is gone",
        lambda: controller(cluster, stays).image.brokers[killed].fenced,
    )
    cluster.start_broker(killed)
    cluster.wait_until("all voters hold the same image", lambda: same_images(cluster))
    assert cluster.ask(lambda: controller(cluster, killed).raft.epoch) > epoch
    # Its new life was registered, and gets another block of producer ids, by the new leader.
    ids.append(cluster.call(cluster.broker(killed).broker_services.producer_ids.next_id()))
    assert len({producer_id // 1000 for producer_id in ids}) == len(ids), "every block is given once"


def test_a_snapshot_is_applied_to_a_running_image_and_what_it_does_not_change_goes_on(
    cluster: EngineCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(cluster, "unaffected")
    broker = cluster.broker(OBSERVER)
    cluster.wait_until("all nodes hold the same image", lambda: same_images(cluster))
    before = cluster.ask(lambda: list(broker.broker_services.replica_manager.partitions))
    assert before
    fetch_once = metadata_fetcher.MetadataFetcher._fetch_once

    async def cut_off(self: metadata_fetcher.MetadataFetcher, state: RaftState) -> None:
        if self._node_id == OBSERVER:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "nobody is reached")
        await fetch_once(self, state)

    cluster.ask(lambda: monkeypatch.setattr(metadata_fetcher.MetadataFetcher, "_fetch_once", cut_off))
    # A repeated request is answered again.
    create(cluster, "before-the-snapshot")
    caplog.clear()
    for number in range(20):
        if controller(cluster, active(cluster)).log.start_offset > metadata(cluster, OBSERVER).log.end_offset:
            break
        create(cluster, f"behind-its-back-{number}")
        leading = controller(cluster, active(cluster)).snapshotter
        cluster.call(leading.write_snapshot())
        cluster.call(leading.clean())
    with caplog.at_level(logging.INFO):
        cluster.ask(monkeypatch.undo)
        create(cluster, "behind-the-snapshot")
        cluster.wait_until("it has gone on", lambda: "behind-the-snapshot" in broker.services.metadata.image.topic_ids)
    assert f"Node {OBSERVER} goes on from snapshot" in caplog.text
    after = {
        id(partition) for partition in cluster.ask(lambda: list(broker.broker_services.replica_manager.partitions))
    }
    assert {id(partition) for partition in before} <= after, "the same partitions, not new ones of the same name"
    assert "unaffected" not in "".join(line for line in caplog.messages if "leads" in line or "follows" in line)


def test_the_quorum_is_measured_under_kafkas_names(cluster: EngineCluster) -> None:
    leads = active(cluster)
    families = {
        family.name: family
        for family in cluster.ask(lambda: list(BrokerCollector(cluster.broker(leads).services.metrics).collect()))
    }

    def value(name: str) -> float:
        [sample] = families[name].samples
        return sample.value

    raft = controller(cluster, leads).raft
    assert value("kafka_server_raft_metrics_current_leader") == leads
    assert value("kafka_server_raft_metrics_current_vote") == leads
    assert value("kafka_server_raft_metrics_current_epoch") == raft.epoch
    assert 0 < value("kafka_server_raft_metrics_high_watermark") <= raft.log.high_watermark
    assert 0 < value("kafka_server_raft_metrics_log_end_offset") <= raft.log.end_offset
    assert value("kafka_server_raft_metrics_log_end_epoch") == raft.epoch
    assert value("kafka_server_raft_metrics_number_of_voters") == 3
    assert {sample.labels["voter"] for sample in families["ebbline_quorum_lag_records"].samples} == set("123") - {
        str(leads)
    }
    assert value("ebbline_quorum_elections_won") >= 1
    size = value("kafka_server_snapshotemitter_latestsnapshotgeneratedbytes")
    assert size == value("kafka_controller_kafkacontroller_snapshotsizebytes") > 0
    assert value("kafka_server_snapshotemitter_latestsnapshotgeneratedagems") >= 0
    assert value("kafka_controller_kafkacontroller_gensnapshotlatencyms") >= 0
    assert value("kafka_controller_kafkacontroller_loadsnapshotlatencyms") >= 0
    assert value("kafka_server_metadataloader_handleloadsnapshotcount") >= 0
    assert value("kafka_server_metadataloader_currentmetadataversion") > 0


def test_a_leader_that_is_asked_to_stop_hands_over(cluster: EngineCluster) -> None:
    stopped = active(cluster)
    cluster.stop_broker(stopped)
    assert active(cluster) != stopped
    create(cluster, "handed-over")
    cluster.start_broker(stopped)
    cluster.wait_until("all voters hold the same image", lambda: same_images(cluster))


def a_voter_is_wiped(cluster: EngineCluster) -> tuple[int, int, Snapshotter]:
    """The leader, the voter that lost its metadata log, and the leader's snapshots, of which none comes by itself."""
    leader = active(cluster)
    wiped = next(node for node in NODES if node != leader)
    cluster.kill_broker(wiped)
    shutil.rmtree(metadata_folder(cluster, wiped))
    snapshotter = controller(cluster, leader).snapshotter
    cluster.call(snapshotter.stop())
    cluster.call(snapshotter.write_snapshot())
    return leader, wiped, snapshotter


def test_a_damaged_snapshot_is_refused_and_the_next_one_fetched(
    cluster: EngineCluster, caplog: pytest.LogCaptureFixture
) -> None:
    leader, wiped, snapshotter = a_voter_is_wiped(cluster)
    latest = cluster.ask(lambda: controller(cluster, leader).log.snapshots.latest)
    assert latest is not None
    path = metadata_folder(cluster, leader) / latest.file_name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    starting = asyncio.run_coroutine_threadsafe(cluster.cluster.start_broker(wiped), cluster.loop)
    cluster.wait_until("the snapshot is refused", lambda: "sent what cannot be used" in caplog.text)
    create(cluster, *(f"late-{number}" for number in range(3)))
    cluster.call(snapshotter.write_snapshot())
    cluster.ask(snapshotter.start)
    starting.result(60)
    cluster.wait_until("all voters hold the same image", lambda: same_images(cluster))
    assert cluster.ask(lambda: controller(cluster, wiped).snapshots_loaded) > 0
    # Of the two that failed nothing is left; one that is being written is renamed soon.
    cluster.wait_until("no part is left", lambda: not list(metadata_folder(cluster, wiped).glob("*.part")))


def test_a_download_that_breaks_off_goes_on_at_the_byte_where_it_stopped(
    cluster: EngineCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, wiped, snapshotter = a_voter_is_wiped(cluster)
    asked_from: list[int] = []
    fetch_piece = metadata_fetcher.MetadataFetcher._fetch_piece

    async def breaks_off(
        self: metadata_fetcher.MetadataFetcher, state: RaftState, partial: PartialSnapshot
    ) -> int | None:
        asked_from.append(partial.size_bytes)
        if len(asked_from) == 3:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the connection is gone")
        return await fetch_piece(self, state, partial)

    monkeypatch.setattr(metadata_fetcher.MetadataFetcher, "_fetch_piece", breaks_off)
    cluster.start_broker(wiped)
    cluster.ask(snapshotter.start)
    cluster.wait_until("all voters hold the same image", lambda: same_images(cluster))
    assert asked_from[:4] == [0, PIECE_BYTES, 2 * PIECE_BYTES, 2 * PIECE_BYTES]
    assert cluster.ask(lambda: controller(cluster, wiped).snapshots_loaded) > 0


def test_a_voter_whose_disk_is_full_fetches_the_snapshot_again_once_there_is_room(
    cluster: EngineCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, wiped, snapshotter = a_voter_is_wiped(cluster)
    append, full = PartialSnapshot.append, [1, 2]

    def fills_the_disk(self: PartialSnapshot, data: Buffer) -> None:
        append(self, data)
        # The other nodes write their snapshots meanwhile.
        if full and self._folder == str(metadata_folder(cluster, wiped)):
            full.pop()
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PartialSnapshot, "append", fills_the_disk)
    cluster.start_broker(wiped)
    cluster.ask(snapshotter.start)
    cluster.wait_until("all voters hold the same image", lambda: same_images(cluster))
    assert caplog.text.count("no space is left for the snapshot") == 2
    assert cluster.ask(lambda: controller(cluster, wiped).snapshots_loaded) > 0
    assert not list(metadata_folder(cluster, wiped).glob("*.part"))


def refused(properties: dict[str, str]) -> str:
    async def start() -> None:
        await Broker(BrokerConfig.parse(properties)).start()

    with pytest.raises(StartRefused) as error:
        asyncio.run(start())
    return str(error.value)


def test_a_node_that_must_not_take_part_says_why_in_one_line(cluster: EngineCluster, tmp_path: Path) -> None:
    taken = cluster.layout.properties(2)
    # The same id again, elsewhere.
    other = layout(tmp_path, brokers=3, voters=3)
    again = other.properties(2) | {"controller.quorum.voters": taken["controller.quorum.voters"]}
    assert "is another node's id set here?" in refused(again)
    # An id without a vote.
    stranger = other.properties(3) | {"node.id": "7", "controller.quorum.voters": taken["controller.quorum.voters"]}
    assert "controller.quorum.voters names only [1, 2, 3]" in refused(stranger)


def test_the_directories_of_two_voters_that_come_at_one_moment_are_both_noted(tmp_path: Path) -> None:
    """As at the first start of three nodes in one process; the log named one of the two, and the other never again."""
    with EngineCluster(tmp_path, brokers=3, voters=3) as own:
        own.wait_until("the log names all voters", lambda: all(named(own, node) == set(NODES) for node in NODES))
        leader = next(node for node in NODES if own.ask(partial(leads, own, node)))
        raft = controller(own, leader).raft
        others = [node for node in NODES if node != leader]
        new = {node: bytes(15) + bytes([node]) for node in others}

        async def fetched_by_both() -> None:
            # Behind everything that may be committed meanwhile: both have caught up.
            caught_up = raft.log.end_offset + 100
            fetches = {node: raft.voter_fetch(node, caught_up, new[node]) for node in others}
            await asyncio.gather(*(raft.voter_fetched(node, fetch) for node, fetch in fetches.items()))

        own.call(fetched_by_both())
        directories = own.ask(lambda: raft.log.directories)
        assert {node: directories[node] for node in others} == new


def leads(cluster: EngineCluster, node: int) -> bool:
    return controller(cluster, node).raft.is_leader


def named(cluster: EngineCluster, node: int) -> set[int]:
    """The voters whose directory the node's committed log names."""
    return set(controller(cluster, node).log.committed_directories)


def test_voters_do_not_change_on_a_folder_in_use(tmp_path: Path) -> None:
    cluster_layout = layout(tmp_path, brokers=3, settings=EAGER)

    async def start_and_stop() -> None:
        node = Broker(BrokerConfig.parse(cluster_layout.properties(1)))
        await node.start()
        await node.stop()

    asyncio.run(start_and_stop())
    three = layout(tmp_path, brokers=3, voters=3)
    assert "voters cannot be changed on a folder that is in use" in refused(three.properties(1))


def test_a_voter_of_another_cluster_ends_with_one_line(cluster: EngineCluster, tmp_path: Path) -> None:
    other = layout(tmp_path, brokers=3, voters=3)
    foreign = other.properties(3) | {"ebbline.cluster.id": "BBBBBBBBBBBBBBBBBBBBBQ"}
    ports = cluster.layout.controller_ports
    own_port = other.controller_ports[3]
    foreign["controller.quorum.voters"] = f"1@127.0.0.1:{ports[1]},2@127.0.0.1:{ports[2]},3@127.0.0.1:{own_port}"

    async def start() -> str:
        node = Broker(BrokerConfig.parse(foreign))
        starting = asyncio.ensure_future(node.start())
        try:
            # Its vote and its broker's registration are refused; either may come first.
            ends: list[asyncio.Future[Any]] = [starting, node.failed]
            await asyncio.wait(ends, timeout=30, return_when=asyncio.FIRST_COMPLETED)
            return node.failed.result() if node.failed.done() else str(starting.exception())
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await node.kill()

    assert "another cluster than BBBBBBBBBBBBBBBBBBBBBQ" in asyncio.run(start())
