"""A session of raw transaction requests and what one broker answers: the same script for Apache Kafka and for ours.

Run against a fresh one-broker cluster with `python -m tests.scenarios.transaction_script PORT`: prints the answers as
JSON, which is how `tests/fixtures/apache-kafka-4.3.1/transactions.json` was made. Producer ids become the order in
which they came.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any, Final, TypeVar

from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.messages import Message
from backend.protocol.record_batches.record_batch import build_batch
from backend.protocol.record_batches.record_codec import RecordData
from tests.waiting import wait_until
from tests.wire import ask

R = TypeVar("R", bound=Message)
TOPIC: Final = "t"
GROUP: Final = "g"
TIMEOUT_MS: Final = 60_000
Row = list[Any]


class Session:
    """Asks one broker and notes the answers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ids: dict[int, str] = {-1: "none"}
        self.rows: list[Row] = []

    def ask(self, request: Message, version: int, response: type[R]) -> R:
        return ask(self._port, request, version, response)

    def note(self, label: str, *what: Any) -> None:
        self.rows.append([label, *what])

    def code(self, code: int) -> str:
        return ErrorCode(code).name

    def id(self, producer_id: int) -> str:
        return self._ids.setdefault(producer_id, f"id {len(self._ids)}")

    def prepare(self) -> None:
        """A topic, and both coordinators."""
        topic = m.CreateTopicsRequest.Topics(name=TOPIC, num_partitions=2, replication_factor=1)
        self.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5, m.CreateTopicsResponse)
        for kind, key in ((1, "x"), (0, GROUP)):
            wait_until(f"a coordinator of {key}", partial(self._has_coordinator, kind, key))
        for name in "xyzom":
            wait_until(f"{name} is coordinated", partial(self._is_coordinated, name))

    def _has_coordinator(self, kind: int, key: str) -> bool:
        request = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        return self.ask(request, 4, m.FindCoordinatorResponse).coordinators[0].error_code == ErrorCode.NONE

    def _is_coordinated(self, name: str) -> bool:
        not_yet = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        return self.described(name).error_code not in not_yet

    def init(
        self, label: str, name: str | None, *, timeout_ms: int = TIMEOUT_MS, claim: tuple[int, int] = (-1, -1),
        version: int = 5,
    ) -> tuple[int, int]:  # fmt: skip
        request = m.InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=timeout_ms, producer_id=claim[0], producer_epoch=claim[1]
        )
        answer = self.ask(request, version, m.InitProducerIdResponse)
        self.note(label, self.code(answer.error_code), self.id(answer.producer_id), answer.producer_epoch)
        return answer.producer_id, answer.producer_epoch

    def init_when_ended(self, label: str, name: str) -> tuple[int, int]:
        """Asks until the transaction before has ended."""
        self.wait_ended(name)
        return self.init(label, name)

    def add(self, label: str, name: str, me: tuple[int, int], *partitions: int, version: int = 3) -> None:
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=me[0],
            v3_and_below_producer_epoch=me[1],
            v3_and_below_topics=[m.AddPartitionsToTxnRequest.V3AndBelowTopics(name=TOPIC, partitions=list(partitions))],
        )
        answer = self.ask(request, version, m.AddPartitionsToTxnResponse)
        [topic] = answer.results_by_topic_v3_and_below
        rows = sorted((row.partition_index, self.code(row.partition_error_code)) for row in topic.results_by_partition)
        self.note(label, *[code for _, code in rows])

    def verify(self, label: str, name: str, me: tuple[int, int], *partitions: int, only: bool = True) -> None:
        transactions = m.AddPartitionsToTxnRequest.Transactions
        request = m.AddPartitionsToTxnRequest(
            transactions=[
                transactions(
                    transactional_id=name,
                    producer_id=me[0],
                    producer_epoch=me[1],
                    verify_only=only,
                    topics=[transactions.Topics(name=TOPIC, partitions=list(partitions))],
                )
            ]
        )
        answer = self.ask(request, 5, m.AddPartitionsToTxnResponse)
        rows = answer.results_by_transaction[0].topic_results[0].results_by_partition
        codes = sorted((row.partition_index, self.code(row.partition_error_code)) for row in rows)
        self.note(label, self.code(answer.error_code), *[code for _, code in codes])

    def produce(self, label: str, name: str | None, me: tuple[int, int], sequence: int, *, version: int = 12,
                partition: int = 0, transactional: bool = True) -> None:  # fmt: skip
        batch = build_batch(
            [RecordData(1_700_000_000_000, None, b"value")],
            producer_id=me[0], producer_epoch=me[1], base_sequence=sequence, transactional=transactional,
        )  # fmt: skip
        data = m.ProduceRequest.TopicData
        request = m.ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[data(name=TOPIC, partition_data=[data.PartitionData(index=partition, records=bytes(batch))])],
        )
        row = self.ask(request, version, m.ProduceResponse).responses[0].partition_responses[0]
        self.note(label, self.code(row.error_code), row.base_offset)

    def end(self, label: str, name: str, me: tuple[int, int], *, commit: bool, version: int = 5) -> tuple[int, int]:
        request = m.EndTxnRequest(transactional_id=name, producer_id=me[0], producer_epoch=me[1], committed=commit)
        answer = self.ask(request, version, m.EndTxnResponse)
        self.note(label, self.code(answer.error_code), self.id(answer.producer_id), answer.producer_epoch)
        return answer.producer_id, answer.producer_epoch

    def described(self, name: str) -> m.DescribeTransactionsResponse.TransactionStates:
        request = m.DescribeTransactionsRequest(transactional_ids=[name])
        return self.ask(request, 0, m.DescribeTransactionsResponse).transaction_states[0]

    def describe(self, label: str, name: str) -> None:
        row = self.described(name)
        topics = sorted((topic.topic, sorted(topic.partitions)) for topic in row.topics)
        if any(topic == "__consumer_offsets" for topic, _ in topics):
            topics = [(topic, [] if topic == "__consumer_offsets" else indexes) for topic, indexes in topics]
        if row.error_code:
            self.note(label, self.code(row.error_code), row.transaction_state)
            return
        self.note(
            label, self.code(row.error_code), row.transaction_state, self.id(row.producer_id), row.producer_epoch,
            row.transaction_timeout_ms, row.transaction_start_time_ms >= 0, [list(pair) for pair in topics],
        )  # fmt: skip

    def wait_ended(self, name: str) -> None:
        ended = ("CompleteCommit", "CompleteAbort", "Empty")
        wait_until(f"{name} has ended", lambda: self.described(name).transaction_state in ended)

    def stable(self, label: str) -> None:
        """(last stable offset, high watermark) of both partitions."""
        rows = []
        for partition in (0, 1):
            offsets = []
            for isolation in (1, 0):
                topic = m.ListOffsetsRequest.Topics
                request = m.ListOffsetsRequest(
                    isolation_level=isolation,
                    topics=[topic(name=TOPIC, partitions=[topic.Partitions(partition_index=partition, timestamp=-1)])],
                )
                offsets.append(self.ask(request, 5, m.ListOffsetsResponse).topics[0].partitions[0].offset)
            rows.append(offsets)
        self.note(label, *rows)

    def producers(self, label: str) -> None:
        topic = m.DescribeProducersRequest.Topics(name=TOPIC, partition_indexes=[0, 7])
        answer = self.ask(m.DescribeProducersRequest(topics=[topic]), 0, m.DescribeProducersResponse)
        partition, missing = sorted(answer.topics[0].partitions, key=lambda row: row.partition_index)
        rows = sorted(
            [self.id(producer.producer_id), producer.producer_epoch, producer.last_sequence, producer.coordinator_epoch,
             producer.current_txn_start_offset]
            for producer in partition.active_producers
        )  # fmt: skip
        self.note(label, rows, self.code(missing.error_code))

    def add_offsets(self, label: str, name: str, me: tuple[int, int]) -> None:
        request = m.AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=me[0], producer_epoch=me[1], group_id=GROUP
        )
        self.note(label, self.code(self.ask(request, 3, m.AddOffsetsToTxnResponse).error_code))

    def commit_offset(self, label: str, name: str, me: tuple[int, int], offset: int, *, version: int = 5,
                      member_id: str = "", generation: int = -1) -> None:  # fmt: skip
        topic = m.TxnOffsetCommitRequest.Topics
        request = m.TxnOffsetCommitRequest(
            transactional_id=name, group_id=GROUP, producer_id=me[0], producer_epoch=me[1], member_id=member_id,
            generation_id=generation,
            topics=[topic(name=TOPIC, partitions=[topic.Partitions(partition_index=0, committed_offset=offset)])],
        )  # fmt: skip
        answer = self.ask(request, version, m.TxnOffsetCommitResponse)
        self.note(label, self.code(answer.topics[0].partitions[0].error_code))

    def offset(self, label: str, *, stable: bool) -> None:
        groups = m.OffsetFetchRequest.Groups
        request = m.OffsetFetchRequest(
            groups=[groups(group_id=GROUP, topics=[groups.Topics(name=TOPIC, partition_indexes=[0])])],
            require_stable=stable,
        )
        group = self.ask(request, 9, m.OffsetFetchResponse).groups[0]
        row = group.topics[0].partitions[0]
        self.note(label, self.code(group.error_code), self.code(row.error_code), row.committed_offset)

    def mark(self, label: str, me: tuple[int, int], *, version: int, coordinator_epoch: int = 0) -> None:
        marker = m.WriteTxnMarkersRequest.Markers
        request = m.WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=me[0], producer_epoch=me[1], transaction_result=False,
                    coordinator_epoch=coordinator_epoch, transaction_version=version,
                    topics=[marker.Topics(name=TOPIC, partition_indexes=[0, 9])],
                )
            ]
        )  # fmt: skip
        topic = self.ask(request, 2, m.WriteTxnMarkersResponse).markers[0].topics[0]
        rows = sorted((row.partition_index, self.code(row.error_code)) for row in topic.partitions)
        self.note(label, *[code for _, code in rows])


def play(port: int) -> list[Row]:
    """The whole session."""
    s = Session(port)
    s.prepare()
    _old_producer(s)
    _new_producer(s)
    _fencing(s)
    _offsets(s)
    _markers(s)
    return s.rows


def _old_producer(s: Session) -> None:
    s.init("no time", "x", timeout_ms=0)
    s.init("too much time", "x", timeout_ms=900_001)
    s.init("empty name", "")
    s.init("half a claim", "x", claim=(-1, 3))
    me = s.init("init", "x")
    s.describe("described empty", "x")
    s.describe("described unknown", "nobody")
    s.describe("described without a name", "")
    s.end("nothing to commit", "x", me, commit=True, version=4)
    s.end("nothing to abort", "x", me, commit=False, version=4)
    s.produce("not added, 10", "x", me, 0, version=10)
    s.produce("not added, 11", "x", me, 0, version=11)
    s.produce("without a name", None, me, 0, version=11)
    s.add("missing partition", "x", me, 0, 9)
    s.add("stale epoch", "x", (me[0], me[1] + 1), 0)
    s.add("stale epoch, old version", "x", (me[0], me[1] + 1), 0, version=1)
    s.add("other id", "x", (me[0] + 500, me[1]), 0)
    s.add("unknown name", "nobody", me, 0)
    s.add("added", "x", me, 0)
    s.describe("described open", "x")
    s.verify("verified", "x", me, 0, 1)
    s.verify("verified, missing partition", "x", me, 0, 9)
    s.verify("verified, stale epoch", "x", (me[0], me[1] + 1), 0)
    s.verify("verified, unknown name", "nobody", me, 0)
    s.verify("verified, no name", "", me, 0)
    s.produce("first", "x", me, 0, version=11)
    s.produce("gap", "x", me, 5, version=11)
    s.produce("second", "x", me, 1, version=11)
    s.produce("second again", "x", me, 1, version=11)
    s.produce("not transactional", None, me, 2, version=11, transactional=False)
    s.stable("held back")
    s.producers("open producers")
    s.end("stale commit", "x", (me[0], me[1] + 1), commit=True, version=4)
    s.end("stale commit, old version", "x", (me[0], me[1] + 1), commit=True, version=1)
    s.end("commit", "x", me, commit=True, version=4)
    s.wait_ended("x")
    s.stable("committed")
    s.end("commit again", "x", me, commit=True, version=4)
    s.end("abort what is committed", "x", me, commit=False, version=4)
    s.describe("described committed", "x")
    s.produce("after the end", "x", me, 2, version=11)
    s.producers("producers after the end")
    again = s.init("recovered", "x", claim=me)
    s.init("recovered again", "x", claim=me)
    s.init("recovered too late", "x", claim=(me[0], me[1] - 1) if me[1] else (me[0], 30))
    s.init("recovered too late, old version", "x", claim=(me[0], 30), version=3)
    s.init("claimed by another", "x", claim=(me[0] + 500, 0))
    s.end("by the fenced one", "x", me, commit=True, version=4)
    s.end("by the new one", "x", again, commit=True, version=4)


def _new_producer(s: Session) -> None:
    me = s.init("y", "y")
    s.end("commits nothing", "y", me, commit=True)
    following = s.end("aborts nothing", "y", me, commit=False)
    s.wait_ended("y")
    s.end("aborts nothing again", "y", me, commit=False)
    s.describe("y aborted", "y")
    me = following
    s.produce("not from the beginning", "y", me, 3)
    s.produce("added by the leader", "y", me, 0)
    s.produce("added too", "y", me, 0, partition=1)
    s.describe("y open", "y")
    s.stable("y held back")
    following = s.end("y commit", "y", me, commit=True)
    s.wait_ended("y")
    s.end("y commit again", "y", me, commit=True)
    s.end("y abort of what is committed", "y", me, commit=False)
    s.produce("y with the epoch before", "y", me, 1)
    s.stable("y committed")
    me = following
    s.produce("y second transaction", "y", me, 0)
    s.producers("y producers")
    s.end("y abort", "y", me, commit=False)
    s.wait_ended("y")
    s.stable("y aborted")
    s.describe("y ended", "y")


def _fencing(s: Session) -> None:
    first = s.init("z", "z")
    s.produce("z open", "z", first, 0)
    s.init("z fences", "z")
    s.wait_ended("z")
    s.describe("z aborted for another", "z")
    s.end("z commit by the fenced one", "z", first, commit=True)
    s.end("z abort by the fenced one", "z", first, commit=False)
    s.produce("z open again", "z", (first[0], first[1] + 1), 0)
    s.init("z fences again", "z")
    second = s.init_when_ended("z fenced", "z")
    s.produce("z by the first", "z", first, 1)
    s.end("z end by the first", "z", first, commit=True)
    s.produce("z by the second", "z", second, 0)
    s.end("z end by the second", "z", second, commit=True)
    s.wait_ended("z")
    s.init("z recovers while idle", "z", claim=(second[0], second[1] + 1))


def _offsets(s: Session) -> None:
    me = s.init("o", "o")
    s.commit_offset("offsets not added", "o", me, 3, version=3)
    s.add_offsets("offsets added", "o", me)
    s.add_offsets("offsets added with a stale epoch", "o", (me[0], me[1] + 1))
    s.commit_offset("offsets of a stranger", "o", me, 3, version=3, member_id="who", generation=4)
    s.commit_offset("offsets", "o", me, 3, version=3)
    s.describe("o open", "o")
    s.offset("unstable", stable=True)
    s.offset("before", stable=False)
    s.end("o commit", "o", me, commit=True, version=4)
    s.wait_ended("o")
    s.offset("committed", stable=True)
    me = s.init("o again", "o")
    s.commit_offset("offsets added by the coordinator", "o", me, 8)
    s.end("o abort", "o", me, commit=False)
    s.wait_ended("o")
    s.offset("kept", stable=True)
    s.commit_offset("offsets with the epoch before", "o", me, 9)


def _markers(s: Session) -> None:
    me = s.init("m", "m")
    s.produce("m open", "m", me, 0)
    s.mark("marker of the same epoch", me, version=2)
    s.mark("marker of the next epoch", (me[0], me[1] + 1), version=2)
    s.mark("marker repeated", (me[0], me[1] + 1), version=2)
    s.mark("marker of an earlier epoch", me, version=0)
    s.mark("marker of a later coordinator", (me[0], me[1] + 1), version=0, coordinator_epoch=4)
    s.mark("marker of an earlier coordinator", (me[0], me[1] + 1), version=0, coordinator_epoch=3)


if __name__ == "__main__":
    print(json.dumps(play(int(sys.argv[1])), indent=1))
