"""ISR, ELR and last known ELR while brokers stop, are killed and come back: played on Apache Kafka and here.

Run against Apache Kafka with `python -m tests.scenarios.elr_script DIR PORT_BASE` (an empty folder; four ports from the
base on): prints what was seen as JSON, which is how `tests/fixtures/apache-kafka-4.3.1/eligible-leaders.json` was made.
Node 1 is the controller and stays; the topic lies on 2, 3 and 4.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, Protocol

from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from tests.wire import ask

TOPIC: Final = "t"
SETTINGS: Final = {"broker.heartbeat.interval.ms": "500", "broker.session.timeout.ms": "3000"}
# A state counts once it has been the same for so long; after a kill longer than a session, which ends with fencing.
STEADY_S: Final = 1.0
FENCED_S: Final = 4.5
WAIT_S: Final = 60.0
Row = list[Any]


class Machines(Protocol):
    """The runner of the brokers."""

    def stop_broker(self, node_id: int) -> None: ...
    def kill_broker(self, node_id: int) -> None: ...
    def start_broker(self, node_id: int) -> None: ...


class Session:
    """Does one thing after the other and notes the partition's state behind each."""

    def __init__(self, port: int, machines: Machines, steady_s: float) -> None:
        self._port = port
        self._steady_s = steady_s
        self._machines = machines
        self.rows: list[Row] = []

    def state(self) -> Row:
        """Leader, ISR, ELR, last known ELR."""
        request_class = m.DescribeTopicPartitionsRequest
        request = request_class(topics=[request_class.Topics(name=TOPIC)], response_partition_limit=1, cursor=None)
        answer = ask(self._port, request, 0, m.DescribeTopicPartitionsResponse)
        [partition] = answer.topics[0].partitions
        member_lists = (partition.isr_nodes, partition.eligible_leader_replicas or [], partition.last_known_elr or [])
        return [partition.leader_id, *(sorted(members) for members in member_lists)]

    def note(self, label: str, steady_s: float | None = None) -> None:
        """The state once it is steady."""
        until = time.monotonic() + WAIT_S
        seen, since = self.state(), time.monotonic()
        while time.monotonic() - since < (steady_s or self._steady_s) and time.monotonic() < until:
            time.sleep(0.1)
            if (now := self.state()) != seen:
                seen, since = now, time.monotonic()
        self.rows.append([label, *seen])

    def stop(self, node: int) -> None:
        self._machines.stop_broker(node)
        self.note(f"{len(self.rows)}: {node} stops")

    def kill(self, node: int) -> None:
        self._machines.kill_broker(node)
        self.note(f"{len(self.rows)}: {node} is killed", FENCED_S)

    def start(self, node: int) -> None:
        self._machines.start_broker(node)
        self.note(f"{len(self.rows)}: {node} starts")

    def create(self) -> None:
        topic = m.CreateTopicsRequest.Topics
        made = topic(
            name=TOPIC,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[topic.Assignments(partition_index=0, broker_ids=[2, 3, 4])],
            configs=[topic.Configs(name="min.insync.replicas", value="2")],
        )
        ask(self._port, m.CreateTopicsRequest(topics=[made], timeout_ms=30_000), 5, m.CreateTopicsResponse)
        self.note("0: created")

    def elect(self, kind: int) -> None:
        request = m.ElectLeadersRequest
        election = request(
            election_type=kind,
            topic_partitions=[request.TopicPartitions(topic=TOPIC, partitions=[0])],
            timeout_ms=30_000,
        )
        answer = ask(self._port, election, 2, m.ElectLeadersResponse)
        row = answer.replica_election_results[0].partition_result[0]
        self.note(f"{len(self.rows)}: election of kind {kind} is answered {ErrorCode(row.error_code).name}")

    def set_min_isr(self, kind: int, resource: str, value: str | None) -> None:
        made = m.IncrementalAlterConfigsRequest.Resources
        change = made.Configs(name="min.insync.replicas", config_operation=0 if value else 1, value=value)
        request = m.IncrementalAlterConfigsRequest(
            resources=[made(resource_type=kind, resource_name=resource, configs=[change])]
        )
        row = ask(self._port, request, 1, m.IncrementalAlterConfigsResponse).responses[0]
        what = f"min.insync.replicas {value} of {kind} {resource!r}"
        self.note(f"{len(self.rows)}: {what} is answered {ErrorCode(row.error_code).name} {row.error_message}")


def play(port: int, machines: Machines, steady_s: float = STEADY_S) -> list[Row]:
    """The whole session."""
    s = Session(port, machines, steady_s)
    s.create()
    s.stop(4)
    s.stop(3)
    s.stop(2)
    s.elect(0)
    s.elect(1)
    s.start(4)
    s.start(3)
    s.start(2)
    s.elect(0)
    s.set_min_isr(4, "1", "2")
    s.set_min_isr(4, "", None)
    s.stop(4)
    s.stop(3)
    s.set_min_isr(2, TOPIC, "1")
    s.set_min_isr(2, TOPIC, "2")
    s.start(3)
    s.start(4)
    s.kill(4)
    s.kill(3)
    s.start(3)
    s.stop(3)
    s.kill(2)
    s.start(2)
    s.start(3)
    s.start(4)
    return s.rows


class _ApacheKafka:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, command: str, *words: str) -> None:
        script = Path(__file__).parents[1] / "oracle" / "apache_kafka.py"
        subprocess.run([sys.executable, str(script), command, "--dir", str(self._folder), *words], check=True)

    def stop_broker(self, node_id: int) -> None:
        self.run("stop-broker", str(node_id))

    def kill_broker(self, node_id: int) -> None:
        self.run("kill-broker", str(node_id))

    def start_broker(self, node_id: int) -> None:
        self.run("start-broker", str(node_id))


def play_on_kafka(folder: Path, port_base: int) -> list[Row]:
    """The session on a real Apache Kafka below an empty folder."""
    kafka = _ApacheKafka(folder)
    given = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    kafka.run("up", "--brokers", "4", "--port-base", str(port_base), *given)
    try:
        return play(port_base, kafka, FENCED_S)
    finally:
        kafka.run("down")


if __name__ == "__main__":
    print(json.dumps(play_on_kafka(Path(sys.argv[1]), int(sys.argv[2])), indent=1))
