"""Requests that no session of a client makes, one after the other, to any broker: what it answers, as JSON.

About voters, about coordinators of share groups, with the same partition twice, and markers of transactions that there
are not. Run against a real broker it makes the fixture that ours is compared with::

    PYTHONPATH=. python tests/interop/unusual_requests.py PORT > unusual-requests.json

The broker must be fresh, alone, also the controller, and have two log dirs.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any, Final, TypeVar

from backend.protocol import messages as m
from backend.protocol.messages import Message
from backend.protocol.messages.base import Struct
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from tests.waiting import wait_until
from tests.wire import ask

R = TypeVar("R", bound=Message)
TOPIC: Final = "twice"
PARTITIONS: Final = 3
PRODUCER: Final = 4711
TIME_MS: Final = 1_700_000_000_000
NEW_DIRECTORY: Final = bytes(15) + b"\1"
NO_DIRECTORY: Final = bytes(16)
SHARE: Final = 2
TIMES: Final = ("last_timestamp",)
# The key of a coordinator of a share group is group:topic id:partition. No other is well formed.
TOPIC_ID: Final = "ZWJibGluZS1zaGFyZXM0Aw"
BAD_SHARE_KEYS: Final = (
    "", "g", "::", f":{TOPIC_ID}:0", f" :{TOPIC_ID}:0", f"g:{TOPIC_ID}:x", f"g:{TOPIC_ID}:", f"g:{TOPIC_ID}:4294967296",
    "g:AAA:0", "g::0", "g:ZWJibGluZS1zaGFyZXM0AwAA:0", "g:!!!!!!!!!!!!!!!!!!!!!!:0", f"{TOPIC_ID}:0",
)  # fmt: skip

_Add = m.AddRaftVoterRequest
_Marker = m.WriteTxnMarkersRequest.Markers
_Part = m.ProduceRequest.TopicData.PartitionData
_Produced = m.ProduceRequest.TopicData
_Moves = m.AlterPartitionReassignmentsRequest.Topics
_Dir = m.AlterReplicaLogDirsRequest.Dirs


def brief(value: Any) -> Any:
    """Returns the fields of a message, without empty ones. Apache Kafka's lists have the order of its hash maps."""
    if isinstance(value, Struct):
        plain = type(value)()
        names: tuple[str, ...] = tuple(value.__slots__)
        held = {name: getattr(value, name) for name in names}
        return {
            name: brief(field) for name, field in held.items() if name not in TIMES and field != getattr(plain, name)
        }
    if isinstance(value, list):
        return sorted((brief(item) for item in value), key=json.dumps)
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else value


class Script:
    """The conversation; `told` has the pairs (request, response)."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answers: list[tuple[str, Any]] = []
        self.controller_port = -1
        self.cluster_id = ""
        self.dirs: list[str] = []
        self.topic_id = NO_DIRECTORY

    def prepare(self) -> None:
        """The topic, and the broker's internal ones."""
        topic = m.CreateTopicsRequest.Topics(
            name=TOPIC,
            num_partitions=PARTITIONS,
            replication_factor=1,
            configs=[m.CreateTopicsRequest.Topics.Configs(name="retention.ms", value="-1")],
        )
        answer = ask(self.port, m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7, m.CreateTopicsResponse)
        assert answer.topics[0].error_code == 0
        self.topic_id = bytes(answer.topics[0].topic_id)
        wait_until("the topic can be written to", self._is_writable)
        response = ask(self.port, m.DescribeClusterRequest(), 1, m.DescribeClusterResponse)
        self.cluster_id = response.cluster_id
        quorum = m.DescribeQuorumRequest.Topics(
            topic_name="__cluster_metadata", partitions=[m.DescribeQuorumRequest.Topics.Partitions()]
        )
        described = ask(self.port, m.DescribeQuorumRequest(topics=[quorum]), 2, m.DescribeQuorumResponse)
        self.controller_port = described.nodes[0].listeners[0].port
        dirs = ask(self.port, m.DescribeLogDirsRequest(topics=None), 4, m.DescribeLogDirsResponse)
        self.dirs = sorted(result.log_dir for result in dirs.results)
        assert len(self.dirs) == 2

    def _is_writable(self) -> bool:
        part = m.ListOffsetsRequest.Topics.Partitions
        topic = m.ListOffsetsRequest.Topics(
            name=TOPIC, partitions=[part(partition_index=index, timestamp=-1) for index in range(PARTITIONS)]
        )
        answer = ask(self.port, m.ListOffsetsRequest(replica_id=-1, topics=[topic]), 7, m.ListOffsetsResponse)
        return all(partition.error_code == 0 for partition in answer.topics[0].partitions)

    def ask(self, label: str, request: Message, version: int, response: type[R], port: int | None = None) -> None:
        answer = ask(self.port if port is None else port, request, version, response)
        text = json.dumps(brief(answer)).replace(self.cluster_id, "(cluster)").replace(self.topic_id.hex(), "(topic)")
        self.answers.append((label, json.loads(text)))

    def produced(self, label: str, request: m.ProduceRequest, version: int) -> None:
        """Without texts of errors: Apache Kafka has none where we say what is wrong."""
        self.ask(f"produce: {label}", request, version, m.ProduceResponse)
        for topic in self.answers[-1][1]["responses"]:
            for row in topic["partition_responses"]:
                row.pop("error_message", None)

    def run(self) -> list[tuple[str, Any]]:
        self.prepare()
        for where, port in (("broker", self.port), ("controller", self.controller_port)):
            self.voters(where, port)
        self.coordinators()
        self.records()
        self.reassignments()
        self.moves()
        self.markers()
        return self.answers

    def voters(self, where: str, port: int) -> None:
        def add(
            label: str,
            version: int = 1,
            *,
            cluster: str | None = "",
            voter: int = 2,
            directory: bytes = NEW_DIRECTORY,
            listeners: tuple[str, ...] = ("CONTROLLER",),
        ) -> None:
            request = _Add(
                cluster_id=self.cluster_id if cluster == "" else cluster,
                timeout_ms=3000,
                voter_id=voter,
                voter_directory_id=directory,
                listeners=[_Add.Listeners(name=name, host="127.0.0.1", port=9) for name in listeners],
            )
            self.ask(f"{where}: add a voter: {label}", request, version, m.AddRaftVoterResponse, port)

        def remove(label: str, *, cluster: str | None = "", voter: int = 2, directory: bytes = NEW_DIRECTORY) -> None:
            request = m.RemoveRaftVoterRequest(
                cluster_id=self.cluster_id if cluster == "" else cluster, voter_id=voter, voter_directory_id=directory
            )
            self.ask(f"{where}: remove a voter: {label}", request, 0, m.RemoveRaftVoterResponse, port)

        add("version 0", 0)
        add("version 1")
        add("that is one", voter=1)
        add("without a cluster id", cluster=None)
        add("of another cluster", cluster="nope", voter=-1)
        add("negative id", voter=-1, listeners=())
        add("no directory", directory=NO_DIRECTORY)
        add("no listener", listeners=())
        add("another listener", listeners=("X",))
        add("more listeners", listeners=("X", "Y", "X"))
        add("the listener twice, in small letters", listeners=("controller", "CONTROLLER"))
        remove("that is none")
        remove("that is one", voter=1)
        remove("without a cluster id", cluster=None)
        remove("of another cluster", cluster="nope", voter=-1)
        remove("negative id", voter=-1)
        remove("no directory", directory=NO_DIRECTORY)

    def coordinators(self) -> None:
        def find(label: str, version: int, kind: int, *keys: str) -> None:
            if version < 4:
                request = m.FindCoordinatorRequest(key=keys[0], key_type=kind)
            else:
                request = m.FindCoordinatorRequest(coordinator_keys=list(keys), key_type=kind)
            self.ask(f"find a coordinator: {label}", request, version, m.FindCoordinatorResponse)

        good = f"g:{TOPIC_ID}:0"
        for version in (3, 4, 5):
            find(f"of a share group, version {version}", version, SHARE, good)
        find("of a share group, badly", 6, SHARE, *BAD_SHARE_KEYS)
        find("of a share group", 6, SHARE, good, f"a:b:{TOPIC_ID}:-7", f"g:{TOPIC_ID}:+7")
        for version in (1, 2, 3, 4, 6):
            find(f"of nothing, version {version}", version, 3, "a")
        find("of less than nothing", 4, -1, "", "a")
        find("of nobody", 4, 3)

    def records(self) -> None:
        def part(index: int, value: bytes) -> _Part:
            return _Part(index=index, records=bytes(build_batch([RecordData(TIME_MS, None, value)])))

        def produce(label: str, version: int, *topics: list[_Part]) -> None:
            data = [_Produced(name=TOPIC, topic_id=self.topic_id, partition_data=parts) for parts in topics]
            request = m.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=data)
            self.produced(f"{label}, version {version}", request, version)

        for version in (9, 12, 13):
            produce("a partition twice", version, [part(0, b"a"), part(1, b"b"), part(0, b"c")])
            produce("a topic twice", version, [part(0, b"d"), part(1, b"e")], [part(2, b"f")])
            produce("a topic and a partition twice", version, [part(0, b"g")], [part(0, b"h"), part(1, b"i")])
            produce("an unknown partition twice", version, [part(9, b"j"), part(9, b"k")])
        for index in range(PARTITIONS):
            fetched = m.ListOffsetsRequest.Topics.Partitions(partition_index=index, timestamp=-1)
            topic = m.ListOffsetsRequest.Topics(name=TOPIC, partitions=[fetched, fetched])
            request = m.ListOffsetsRequest(replica_id=-1, topics=[topic])
            self.ask(f"the end of partition {index}, twice", request, 7, m.ListOffsetsResponse)

    def reassignments(self) -> None:
        def alter(label: str, *topics: tuple[str, list[tuple[int, list[int] | None]]], version: int = 1) -> None:
            request = m.AlterPartitionReassignmentsRequest(
                topics=[
                    _Moves(
                        name=name,
                        partitions=[_Moves.Partitions(partition_index=index, replicas=to) for index, to in moves],
                    )
                    for name, moves in topics
                ]
            )
            self.ask(f"reassign: {label}", request, version, m.AlterPartitionReassignmentsResponse)

        alter("a partition twice", (TOPIC, [(0, [1]), (0, [1])]))
        alter("a partition twice, version 0", (TOPIC, [(0, [1]), (0, [1])]), version=0)
        alter("a partition to a broker, and to one that is not there", (TOPIC, [(0, [1]), (0, [7])]))
        alter("a topic twice", (TOPIC, [(0, [1])]), (TOPIC, [(1, [1]), (0, None)]))
        alter("cancelled twice", (TOPIC, [(0, None), (0, None)]))
        alter("unknown partitions twice", (TOPIC, [(9, [1]), (9, [1])]), ("nope", [(0, [1])]), ("nope", [(0, [1])]))
        alter("to the same broker twice", (TOPIC, [(0, [1, 1])]))
        alter("to nobody", (TOPIC, [(0, [])]))
        alter("to a negative broker", (TOPIC, [(0, [-1])]))
        alter("nothing")

    def moves(self) -> None:
        first, second = self.dirs

        def move(label: str, *dirs: tuple[str, list[tuple[str, list[int]]]]) -> None:
            request = m.AlterReplicaLogDirsRequest(
                dirs=[
                    _Dir(path=path, topics=[_Dir.Topics(name=name, partitions=parts) for name, parts in topics])
                    for path, topics in dirs
                ]
            )
            for version in (1, 2):
                label_of = f"move between log dirs: {label}, version {version}"
                self.ask(label_of, request, version, m.AlterReplicaLogDirsResponse)

        move("a partition twice", (first, [(TOPIC, [0, 0])]))
        move("a topic twice", (first, [(TOPIC, [0]), (TOPIC, [0, 1])]))
        move("a dir twice", (first, [(TOPIC, [0])]), (first, [(TOPIC, [1])]))
        move("to two dirs", (first, [(TOPIC, [2])]), (second, [(TOPIC, [2])]))
        move("to a dir that is not there", ("/nope", [(TOPIC, [0, 0])]))
        move("to a dir and to one that is not there", (first, [(TOPIC, [0])]), ("/nope", [(TOPIC, [0, 1])]))
        move("to a relative path", ("data", [(TOPIC, [0])]), ("", [(TOPIC, [1])]))
        move("unknown replicas", (first, [(TOPIC, [9, 9]), ("nope", [0])]), (second, [("nope", [0])]))
        move("nothing")
        move("nothing to a dir", (first, []), (second, [(TOPIC, [])]))

    def markers(self) -> None:
        def batch(producer: int, epoch: int, sequence: int) -> bytes:
            record = RecordData(TIME_MS, None, b"v")
            return bytes(build_batch([record], producer_id=producer, producer_epoch=epoch, base_sequence=sequence))

        def produce(label: str, producer: int, epoch: int, sequence: int) -> None:
            part = _Part(index=2, records=batch(producer, epoch, sequence))
            request = m.ProduceRequest(
                acks=-1, timeout_ms=5000, topic_data=[_Produced(name=TOPIC, partition_data=[part])]
            )
            self.produced(label, request, 12)

        def mark(
            label: str,
            *epochs: int,
            producer: int = PRODUCER,
            version: int = 1,
            tv: int = 0,
            coordinator_epoch: int = 0,
            topics: tuple[tuple[str, list[int]], ...] = ((TOPIC, [2]),),
        ) -> None:
            markers = [
                _Marker(
                    producer_id=producer,
                    producer_epoch=epoch,
                    transaction_result=False,
                    coordinator_epoch=coordinator_epoch,
                    transaction_version=tv,
                    topics=[_Marker.Topics(name=name, partition_indexes=parts) for name, parts in topics],
                )
                for epoch in epochs
            ]
            request = m.WriteTxnMarkersRequest(markers=markers)
            self.ask(
                f"mark: {label}, transactions {tv}, version {version}", request, version, m.WriteTxnMarkersResponse
            )

        for version, tv in ((1, 0), (2, 0), (2, 1), (2, 2)):
            producer = PRODUCER + 10 * version + tv
            produce("epoch 5", producer, 5, 0)

            mark_producer = partial(mark, producer=producer, version=version, tv=tv)
            mark_producer("epoch -1 of a known producer", -1)
            mark_producer("an old epoch", 4)
            mark_producer("the same epoch", 5)
            mark_producer("a later epoch", 6)
            mark_producer("an older coordinator", 7, coordinator_epoch=-1)
            mark_producer("epoch -1 again", -1)
            produce("the next sequence of epoch 5", producer, 5, 1)
            produce("the next sequence of epoch 6", producer, 6, 0)
            mark_producer("epoch -1 of an unknown producer", -1, producer=producer + 1000)
            mark_producer("epoch -2 of an unknown producer", -2, producer=producer + 2000)
            mark_producer("twice", 8, 8)
            mark_producer("no producer", 0, producer=-1)
        mark("unknown partitions", 0, topics=(("nope", [0]), (TOPIC, [9, 9])))
        mark("two partitions", 20, topics=((TOPIC, [0, 1]),))
        mark("nothing", topics=())
        for index in range(PARTITIONS):
            fetched = m.ListOffsetsRequest.Topics.Partitions(partition_index=index, timestamp=-1)
            request = m.ListOffsetsRequest(
                replica_id=-1, topics=[m.ListOffsetsRequest.Topics(name=TOPIC, partitions=[fetched])]
            )
            self.ask(f"the end of partition {index}", request, 7, m.ListOffsetsResponse)
        part = m.DescribeProducersRequest.Topics(name=TOPIC, partition_indexes=[1, 2])
        self.ask("the producers", m.DescribeProducersRequest(topics=[part]), 0, m.DescribeProducersResponse)


def main() -> None:
    json.dump(Script(int(sys.argv[1])).run(), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
