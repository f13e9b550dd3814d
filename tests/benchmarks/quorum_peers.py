"""Three voters, each a broker in a separate process: how fast a change is committed, and how long service is away.

The same requests on the same kind of cluster of Apache Kafka, where this machine has one. There the leader is killed at
any moment: nothing places a kill in the middle of Kafka's snapshot.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, TypeVar

from backend.protocol import frames
from backend.protocol import messages as m
from backend.protocol.messages import Message
from tests.benchmarks.peers import ORACLE
from tests.cluster.broker_process import BrokerProcesses
from tests.ports import free_ports
from tests.waiting import wait_until
from tests.wire import ask, exactly

NODES: Final = (1, 2, 3)
COMMITS, COMMITS_QUICK = 1_000, 100
CREATES, CREATES_QUICK = 200, 30
KILLS, KILLS_QUICK = 5, 1
TIMEOUT_S: Final = 60.0
ALTER_VERSION, CREATE_VERSION, DESCRIBE_VERSION = 1, 7, 2
# A snapshot after every few changes, so that a kill need not wait long for one.
EAGER: Final = {"metadata.log.max.record.bytes.between.snapshots": "20000", "offsets.topic.num.partitions": "1"}
# Where Kafka's controllers listen, above its brokers' ports.
CONTROLLERS_ABOVE: Final = 50
Report = Callable[[str, float], None]
R = TypeVar("R", bound=Message)


class Voters(Protocol):
    """Three combined nodes that can be killed one by one."""

    name: str
    ports: dict[int, int]

    def kill(self, leader: int) -> None:
        """kill -9; of ebbline in the middle of a snapshot write, for which topics may be created."""
        ...

    def start_again(self, node_id: int) -> None:
        """Returns when all three serve."""
        ...


class Caller:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, request: Message, version: int, response: type[R]) -> R:
        self._socket.sendall(b"".join(bytes(part) for part in frames.encode_request(request, version, 1, "bench")))
        (size,) = struct.unpack(">i", exactly(self._socket, 4))
        return frames.decode_response(response, version, exactly(self._socket, size))[1]

    def close(self) -> None:
        self._socket.close()


def measure_three_voters(report: Report, *, quick: bool) -> None:
    """ebbline, then Apache Kafka, or why not."""
    with ebbline_voters() as voters:
        _measure(voters, report, quick=quick)
    jars = subprocess.run([sys.executable, str(ORACLE), "jars"], capture_output=True, text=True, check=False)
    if jars.returncode != 0:
        said = (jars.stderr or jars.stdout).strip().splitlines()
        print(f"Apache Kafka was not measured: {said[-1] if said else 'it said nothing'}", file=sys.stderr)
        return
    with kafka_voters() as voters:
        _measure(voters, report, quick=quick)


def _measure(voters: Voters, report: Report, *, quick: bool) -> None:
    caller = Caller(voters.ports[NODES[0]])
    _create(caller, "settings")
    for what, once, count in (
        ("a setting is committed", _set, COMMITS_QUICK if quick else COMMITS),
        (
            "a topic is created",
            lambda caller, number: _create(caller, f"topic-{number}"),
            CREATES_QUICK if quick else CREATES,
        ),
    ):
        times_ms = []
        for number in range(count):
            started_s = time.perf_counter()
            once(caller, number)
            times_ms.append((time.perf_counter() - started_s) * 1e3)
        times_ms = sorted(times_ms[count // 10 :])
        for percent in (50, 99):
            report(f"{voters.name}, 3 voters: {what}, p{percent} ms", times_ms[len(times_ms) * percent // 100])
    caller.close()
    gaps = [_gap(voters, number) for number in range(KILLS_QUICK if quick else KILLS)]
    report(f"{voters.name}, 3 voters: service after kill -9 of the leader, median s", sorted(gaps)[len(gaps) // 2])
    report(f"{voters.name}, 3 voters: service after kill -9 of the leader, most s", max(gaps))


def _gap(voters: Voters, number: int) -> float:
    """Seconds from the kill to the first topic that is created, asked through a broker that stays."""
    killed = leader_of(voters.ports)
    through = next(node for node in NODES if node != killed)
    voters.kill(killed)
    killed_s = time.monotonic()
    caller = Caller(voters.ports[through])
    attempt = 0
    while not _created(caller, f"after-{number}-{attempt}"):
        attempt += 1
        if time.monotonic() - killed_s > TIMEOUT_S:
            raise RuntimeError(f"no topic could be created for {TIMEOUT_S:.0f} s after the leader's end")
    gap_s = time.monotonic() - killed_s
    caller.close()
    voters.start_again(killed)
    return gap_s


def _set(caller: Caller, number: int) -> None:
    resource = m.IncrementalAlterConfigsRequest.Resources
    change = resource.Configs(name="retention.ms", config_operation=0, value=str(3_600_000 + number))
    request = m.IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=2, resource_name="settings", configs=[change])]
    )
    [answer] = caller.call(request, ALTER_VERSION, m.IncrementalAlterConfigsResponse).responses
    if answer.error_code:
        raise RuntimeError(f"a setting was refused: {answer.error_code} {answer.error_message}")


def _created(caller: Caller, name: str) -> bool:
    topic = m.CreateTopicsRequest.Topics(name=name, num_partitions=1, replication_factor=1)
    request = m.CreateTopicsRequest(topics=[topic], timeout_ms=1_000)
    [answer] = caller.call(request, CREATE_VERSION, m.CreateTopicsResponse).topics
    return not answer.error_code


def _create(caller: Caller, name: str) -> None:
    if not _created(caller, name):
        raise RuntimeError(f"topic {name} could not be created")


def leader_of(ports: dict[int, int]) -> int:
    """Leader of the metadata quorum, as soon as there is one."""
    topic = m.DescribeQuorumRequest.Topics
    requested = topic(topic_name="__cluster_metadata", partitions=[topic.Partitions(partition_index=0)])
    request = m.DescribeQuorumRequest(topics=[requested])

    def leader_id() -> int | None:
        for port in ports.values():
            try:
                answer = ask(port, request, DESCRIBE_VERSION, m.DescribeQuorumResponse)
            except OSError:
                continue
            if not answer.error_code and answer.topics[0].partitions[0].leader_id > 0:
                return answer.topics[0].partitions[0].leader_id
        return None

    result = wait_until("the quorum has a leader", leader_id)
    assert result is not None
    return result


class _Ebbline:
    name = "ebbline"

    def __init__(self, cluster: BrokerProcesses) -> None:
        self._cluster = cluster
        self.ports = dict(cluster.layout.ports)

    def kill(self, leader: int) -> None:
        cluster = self._cluster
        folder = Path(cluster.layout.log_dirs[leader]) / "__cluster_metadata-0"
        cluster.hold_path(leader).touch()
        caller = Caller(self.ports[leader])
        while not list(folder.glob("*.checkpoint.part")):
            _create(caller, f"before-{leader}-{time.monotonic_ns()}")
        cluster.kill(leader)
        caller.close()
        cluster.hold_path(leader).unlink()

    def start_again(self, node_id: int) -> None:
        self._cluster.spawn(node_id)
        # Metadata name its last incarnation until that is fenced: only its own response shows that it serves.
        leader_of({node_id: self.ports[node_id]})
        self._cluster.wait_for(*NODES)


@contextmanager
def ebbline_voters() -> Iterator[Voters]:
    """As `ebbline up --process-per-broker` runs them; a snapshot can be held half written."""
    with (
        tempfile.TemporaryDirectory(prefix="ebbline-bench-") as name,
        BrokerProcesses(Path(name), voters=3, settings=EAGER, program="tests.cluster.held_snapshots") as cluster,
    ):
        yield _Ebbline(cluster)


class _Kafka:
    name = "Apache Kafka"

    def __init__(self, folder: Path, ports: dict[int, int]) -> None:
        self._folder = folder
        self.ports = ports

    def kill(self, leader: int) -> None:
        _oracle("kill-broker", "--dir", str(self._folder), str(leader))

    def start_again(self, node_id: int) -> None:
        _oracle("start-broker", "--dir", str(self._folder), str(node_id))


@contextmanager
def kafka_voters() -> Iterator[Voters]:
    """Three combined nodes of Apache Kafka."""
    with tempfile.TemporaryDirectory(prefix="kafka-bench-") as name:
        folder, first = Path(name) / "cluster", free_ports(CONTROLLERS_ABOVE + len(NODES))[0]
        controllers = {node: first + CONTROLLERS_ABOVE + node - 1 for node in NODES}
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers.items())
        words = ["--set", f"controller.quorum.voters={voters}", "--set", "process.roles=broker,controller"]
        for node, port in controllers.items():
            listeners = f"PLAINTEXT://127.0.0.1:{first + node - 1},CONTROLLER://127.0.0.1:{port}"
            words += ["--set-broker", f"{node}:listeners={listeners}"]
        try:
            _oracle("up", "--dir", str(folder), "--brokers", str(len(NODES)), "--port-base", str(first), *words)
            facts = json.loads((folder / "cluster.json").read_text())
            yield _Kafka(folder, {broker["id"]: broker["port"] for broker in facts["brokers"]})
        finally:
            subprocess.run(
                [sys.executable, str(ORACLE), "down", "--dir", str(folder)], capture_output=True, check=False
            )


def _oracle(*words: str) -> None:
    done = subprocess.run([sys.executable, str(ORACLE), *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]} of Apache Kafka failed: {(done.stderr or done.stdout).strip()[-500:]}")
