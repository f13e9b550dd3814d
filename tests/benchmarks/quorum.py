"""The metadata quorum at size: a snapshot of 100,000 partitions, a restart with and without it; three voters.

The history is one of years: every partition of three replicas was created once and changed its ISR and leader
`CHANGES` times. Targets: a restart at least 10 times faster with a snapshot, a change committed within 20 ms (p99) on
three voters, service again within 2 s of a kill -9 of the leader in the middle of a snapshot write.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from backend.engine.apis.api_versions import SUPPORTED_FEATURES
from backend.engine.config import BrokerConfig, format_properties
from backend.engine.controller.commands.command import ControllerResult, checked_result
from backend.engine.controller.image.metadata_image import (
    ControllerRegistration,
    Endpoint,
    MetadataImage,
    SupportedFeature,
)
from backend.engine.controller.image.snapshot_images import image_of_snapshot
from backend.engine.controller.metadata.node_metadata import NodeMetadata
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import system_ports
from backend.engine.raft.metadata_log_opening import open_metadata_log
from backend.engine.raft.raft_node import RaftNode
from backend.engine.raft.snapshot_files import parse_file_name
from backend.protocol import messages as m
from backend.protocol.messages import Message
from tests.benchmarks.quorum_peers import measure_three_voters
from tests.ports import free_ports
from tests.waiting import wait_until
from tests.wire import ask

PARTITIONS, PARTITIONS_QUICK = 100_000, 5_000
PARTITIONS_PER_TOPIC: Final = 1_000
CHANGES: Final = 15
BATCH: Final = 10_000
BROKERS: Final = (101, 102, 103)
CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
START_TIMEOUT_S: Final = 1_200.0
API_VERSIONS_VERSION: Final = 3
Figures = dict[str, float]


def measure_quorum(*, quick: bool) -> Figures:
    """Figures by name."""
    partitions = PARTITIONS_QUICK if quick else PARTITIONS
    figures: Figures = {}

    def report(what: str, value: float) -> None:
        figures[what] = value
        print(f"  {what}: {value:.2f}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="ebbline-bench-") as folder:
        _measure_image(Path(folder), partitions, report)
    measure_three_voters(report, quick=quick)
    return figures


# --- one voter with a long history


def properties(folder: Path, port: int) -> dict[str, str]:
    """A node that is a controller only, and writes no snapshot by itself."""
    return {
        "node.id": "1",
        "process.roles": "controller",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{port}",
        "log.dirs": str(folder / "log"),
        "ebbline.cluster.id": CLUSTER_ID,
        "metadata.log.max.record.bytes.between.snapshots": str(1 << 40),
        "metadata.log.max.snapshot.interval.ms": "0",
        "metadata.max.retention.bytes": str(1 << 40),
        # Nobody plays the brokers.
        "broker.session.timeout.ms": "3600000",
    }


def _measure_image(folder: Path, partitions: int, report: Callable[[str, float], None]) -> None:
    [port] = free_ports(1)
    config = folder / "server.properties"
    config.write_text(format_properties(properties(folder, port)))
    empty = _restart(config, port)
    name = f"{partitions} partitions"
    snapshot = folder / "log" / "__cluster_metadata-0"
    write_s = asyncio.run(_write_history(folder, port, partitions))
    report(f"{name}: snapshot written, s", write_s)
    [path] = snapshot.glob("*.checkpoint")
    report(f"{name}: snapshot, MB", path.stat().st_size / 1e6)
    report(f"{name}: log behind it, MB", sum(segment.stat().st_size for segment in snapshot.glob("*.log")) / 1e6)
    report(f"{name}: snapshot loaded, s", _load(path))
    short = _restart(config, port)
    report(f"{name}: memory of the image, MiB", short.mib - empty.mib)
    report(f"{name}: restart to serving with the snapshot, s", short.seconds)
    report(f"{name}: restart to serving with the snapshot, CPU s", short.cpu_s)
    path.unlink()
    long = _restart(config, port)
    report(f"{name}, {CHANGES} changes each: restart to serving from the log alone, s", long.seconds)
    report(f"{name}, {CHANGES} changes each: restart to serving from the log alone, CPU s", long.cpu_s)
    report("restart is faster with a snapshot, times", long.seconds / short.seconds)
    report("start with nothing, s", empty.seconds)
    report("start with nothing, CPU s", empty.cpu_s)


async def _write_history(folder: Path, port: int, partitions: int) -> float:
    """Creates and changes every partition through the controller; seconds that a snapshot of the end takes."""
    ports = system_ports()
    config = BrokerConfig.parse(properties(folder, port))
    log = await open_metadata_log(ports, config)
    raft = RaftNode(ports, config, log, cluster_id=CLUSTER_ID)
    features = tuple(SupportedFeature(feature, low, high) for feature, (low, high) in SUPPORTED_FEATURES.items())
    registration = ControllerRegistration(
        1, ports.random.uuid(), (Endpoint("CONTROLLER", "127.0.0.1", port),), features
    )
    metadata = NodeMetadata(ports, config, raft, cluster_id=CLUSTER_ID)
    await metadata.start()
    controller = Controller(ports, config, metadata, registration=registration)
    await controller.start()
    try:
        for records in history(partitions):
            await controller.submit("history", partial(_as_command, records))
        started_s = time.monotonic()
        await controller.snapshotter.write_snapshot()
        return time.monotonic() - started_s
    finally:
        await controller.stop()
        await metadata.stop()
        await raft.stop()
        log.close()
        ports.workers.close()


def _as_command(records: list[Message], image: MetadataImage) -> ControllerResult[None]:
    return checked_result(records, None)


def history(partitions: int) -> Iterator[list[Message]]:
    """The records of brokers, topics, and of every change, as commands of at most `BATCH`."""
    yield [
        m.RegisterBrokerRecord(
            broker_id=broker_id, incarnation_id=bytes([broker_id]) * 16, broker_epoch=broker_id, fenced=False
        )
        for broker_id in BROKERS
    ]
    places = [divmod(number, PARTITIONS_PER_TOPIC) for number in range(partitions)]
    ids = [(1_000 + topic).to_bytes(16, "big") for topic in range(-(-partitions // PARTITIONS_PER_TOPIC))]
    for topic, topic_id in enumerate(ids):
        made: list[Message] = [m.TopicRecord(name=f"topic-{topic}", topic_id=topic_id)]
        for number in range(min(PARTITIONS_PER_TOPIC, partitions - topic * PARTITIONS_PER_TOPIC)):
            replicas = [BROKERS[(number + place) % 3] for place in range(3)]
            made.append(
                m.PartitionRecord(
                    partition_id=number,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[bytes(15) + bytes([broker_id]) for broker_id in replicas],
                )
            )
        yield made
    for change in range(CHANGES):
        # Brokers stop one after another and come back, as in a rolling restart.
        away = BROKERS[change // 2 % 3]
        for first in range(0, partitions, BATCH):
            yield [_change(ids[topic], number, away, change) for topic, number in places[first : first + BATCH]]


def _change(topic_id: bytes, number: int, away: int, change: int) -> Message:
    replicas = [BROKERS[(number + place) % 3] for place in range(3)]
    isr = [replica for replica in replicas if replica != away] if change % 2 == 0 else replicas
    return m.PartitionChangeRecord(partition_id=number, topic_id=topic_id, isr=isr, leader=isr[0])


def _load(path: Path) -> float:
    """Seconds from the file to the image."""
    snapshot_id = parse_file_name(path.name)
    assert snapshot_id is not None
    started_s = time.monotonic()
    image_of_snapshot(path.read_bytes(), snapshot_id, CLUSTER_ID)
    return time.monotonic() - started_s


@dataclass(frozen=True, slots=True)
class Start:
    """Until a node leads and serves; its resident memory then."""

    seconds: float
    cpu_s: float
    mib: float


def _restart(config: Path, port: int) -> Start:
    """Starts a node on what its folder holds, and ends it."""
    started_s = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "backend.cli.entry", "broker", "--config", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        # An only voter listens once it has read everything and leads.
        wait_until("the controller serves", lambda: _answers(process, port), START_TIMEOUT_S)
        took_s = time.monotonic() - started_s
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        cpu_s = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
        return Start(took_s, cpu_s, pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
    finally:
        process.terminate()
        process.wait()


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"the controller ended with {process.returncode}")
    request = m.ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    try:
        return not ask(port, request, API_VERSIONS_VERSION, m.ApiVersionsResponse).error_code
    except OSError:
        return False
