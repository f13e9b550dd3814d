"""Produce and Fetch requests that come to a broker that does not lead the partition, or with an epoch that is not its
leader's: what it answers, with the leader that it names (KIP-951), as JSON.

Run against a real broker it makes the fixture that ours is compared with::

    PYTHONPATH=. python tests/interop/wrong_broker.py PORT OTHER_PORT > leader-hints.json

The cluster must be fresh and of brokers 1 and 2, at these ports.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, Final

from backend.protocol import messages as m
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from tests.interop.unusual_requests import TIME_MS, brief
from tests.waiting import wait_until
from tests.wire import ask

TOPIC: Final = "elsewhere"
# Of these broker 1 will have nothing, follows one, and will lead one after broker 2. Nobody has the last.
LEFT: Final = 0
FOLLOWED: Final = 1
MOVED: Final = 2
NOBODYS: Final = 9
STALE: Final = 0

_Topics = m.CreateTopicsRequest.Topics
_Fetched = m.FetchRequest.Topics
_Produced = m.ProduceRequest.TopicData


class Script:
    """The conversation; `answers` has the pairs (request, response)."""

    def __init__(self, port: int, other_port: int) -> None:
        self.port, self.other_port = port, other_port
        self.answers: list[tuple[str, Any]] = []
        self.topic_id = bytes(16)

    def run(self) -> list[tuple[str, Any]]:
        self.prepare()
        for partition in (LEFT, FOLLOWED, NOBODYS):
            for version in (9, 10, 12, 13):
                self.produce(partition, version)
            for version in (11, 12, 15, 16, 17, 18):
                self.fetch(partition, version)
                self.fetch(partition, version, epoch=5)
        for version in (11, 12, 15, 16, 17, 18):
            self.fetch(MOVED, version, epoch=STALE)
            self.fetch(MOVED, version, epoch=STALE, port=self.other_port)
        for version in (9, 10, 13):
            self.produce(MOVED, version, port=self.other_port)
        return self.answers

    def prepare(self) -> None:
        """The topic, and a partition whose leader has changed."""
        assignments = [
            _Topics.Assignments(partition_index=index, broker_ids=[2, 1]) for index in (LEFT, FOLLOWED, MOVED)
        ]
        topic = _Topics(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignments)
        answer = ask(self.port, m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7, m.CreateTopicsResponse)
        assert answer.topics[0].error_code == 0, answer
        self.topic_id = bytes(answer.topics[0].topic_id)
        for index in (LEFT, FOLLOWED, MOVED):
            self._until(index, lambda row: row.leader_id == 2 and len(row.isr_nodes) == 2)
        moves = m.AlterPartitionReassignmentsRequest.Topics
        partitions = [
            moves.Partitions(partition_index=index, replicas=to) for index, to in ((LEFT, [2]), (MOVED, [1, 2]))
        ]
        request = m.AlterPartitionReassignmentsRequest(topics=[moves(name=TOPIC, partitions=partitions)])
        moved = ask(self.port, request, 1, m.AlterPartitionReassignmentsResponse)
        assert {row.error_code for row in moved.responses[0].partitions} == {0}, moved
        elected = m.ElectLeadersRequest(
            election_type=0,
            topic_partitions=[m.ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=[MOVED])],
            timeout_ms=10_000,
        )
        ask(self.port, elected, 2, m.ElectLeadersResponse)
        self._until(LEFT, lambda row: row.replica_nodes == row.isr_nodes == [2])
        self._until(MOVED, lambda row: row.leader_id == 1 and len(row.isr_nodes) == 2)

    def _until(self, partition: int, holds: Callable[[Any], bool]) -> None:
        """Both brokers tell the same of a partition."""

        def seen() -> bool:
            request = m.MetadataRequest(topics=[m.MetadataRequest.Topics(name=TOPIC)])
            topics = [ask(port, request, 12, m.MetadataResponse).topics[0] for port in (self.port, self.other_port)]
            rows = [row for topic in topics for row in topic.partitions if row.partition_index == partition]
            return len(rows) == len(topics) and all(map(holds, rows))

        wait_until(f"partition {partition} is where it should be", seen)

    def produce(self, partition: int, version: int, *, port: int | None = None) -> None:
        part = _Produced.PartitionData(index=partition, records=bytes(build_batch([RecordData(TIME_MS, None, b"v")])))
        data = _Produced(name=TOPIC, topic_id=self.topic_id, partition_data=[part])
        request = m.ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data])
        answer = ask(self.port if port is None else port, request, version, m.ProduceResponse)
        for row in (row for topic in answer.responses for row in topic.partition_responses):
            row.error_message = None
        self._record(f"produce {version} to {partition}", answer, port)

    def fetch(self, partition: int, version: int, *, epoch: int = -1, port: int | None = None) -> None:
        part = _Fetched.Partitions(
            partition=partition, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1000
        )
        topic = _Fetched(topic=TOPIC, topic_id=self.topic_id, partitions=[part])
        request = m.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, session_epoch=-1, topics=[topic])
        answer = ask(self.port if port is None else port, request, version, m.FetchResponse)
        self._record(f"fetch {version} of {partition} in epoch {epoch}", answer, port)

    def _record(self, label: str, answer: Any, port: int | None) -> None:
        text = json.dumps(brief(answer)).replace(self.topic_id.hex(), "(topic)")
        for name, port_number in (("(one)", self.port), ("(two)", self.other_port)):
            text = text.replace(f'"port": {port_number}', f'"port": "{name}"')
        self.answers.append((f"{label}{'' if port is None else ', of broker 2'}", json.loads(text)))


def main() -> None:
    json.dump(Script(*map(int, sys.argv[1:3])).run(), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
