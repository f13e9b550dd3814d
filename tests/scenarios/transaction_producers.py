"""Transactional producers of the table of transactions, and the requests they send."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from backend.engine.coordinator.transaction.transaction_state import Producer
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.record_batches.record_batch import build_batch
from backend.protocol.record_batches.record_codec import RecordData
from tests.scenarios.transaction_cluster import GROUP, HELD, TIMEOUT_MS, TOPIC, Cluster

R = TypeVar("R")
WAIT_S: Final = 60.0
POLL_S: Final = 0.004
NOBODY: Final = Producer(-1, -1)


class Description(NamedTuple):
    """A transaction as DescribeTransactions tells it."""

    state: str
    producer: Producer
    partitions: frozenset[tuple[str, int]]


@dataclass
class Subject:
    """A transactional id in some state. `ids` are the producer ids it has had, oldest first."""

    name: str
    me: Producer
    ids: list[int] = field(default_factory=list)

    def take_producer(self, producer: Producer) -> None:
        self.me = producer
        if producer.producer_id not in self.ids:
            self.ids.append(producer.producer_id)


class Protocol(NamedTuple):
    """The versions of requests that a client of one generation sends."""

    name: str
    end: int
    produce: int
    commit: int
    adds_itself: bool


OLD: Final = Protocol("V1", 4, 11, 4, adds_itself=True)
NEW: Final = Protocol("V2", 5, 12, 5, adds_itself=False)


def quickly(what: str, probe: Callable[[], R | None]) -> R:
    """As `wait_until`, for what takes a few milliseconds."""
    deadline = time.monotonic() + WAIT_S
    while not (answer := probe()):
        assert time.monotonic() < deadline, f"not within {WAIT_S:.0f} s: {what}"
        time.sleep(POLL_S)
    return answer


def is_held(transaction: Description) -> bool:
    """Its markers wait for the broker that is stopped, and for no other: partitions that have it get no second one."""
    return transaction.partitions == {(HELD, 0)}


class Broker:
    """The requests of producers to it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.ask = cluster.ask

    def subject(self, partition: int, *, worn: bool, recovers: bool = False, timeout_ms: int = TIMEOUT_MS) -> Subject:
        """Idle, with the third epoch, or the last that a producer can have when it is `worn`.

        One that `recovers` has named the epoch before as it introduced itself last (KIP-360).
        """
        made = Subject((self.cluster.worn_names if worn else self.cluster.fresh_names)[partition].pop(), NOBODY)
        for claims in (False, False, recovers):
            self.introduce(made, claims=claims, timeout_ms=timeout_ms)
        return made

    def introduce(self, subject: Subject, *, claims: bool = False, timeout_ms: int = TIMEOUT_MS) -> None:
        answer = self.init(subject, subject.me if claims else NOBODY, timeout_ms=timeout_ms)
        if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Producer ids come from the controller, a thousand at a time.
            time.sleep(0.1)
            self.introduce(subject, claims=claims, timeout_ms=timeout_ms)
            return
        assert answer.error_code == ErrorCode.NONE, (subject, ErrorCode(answer.error_code))
        subject.take_producer(Producer(answer.producer_id, answer.producer_epoch))

    def init(self, subject: Subject, claimed: Producer, *, timeout_ms: int = TIMEOUT_MS) -> Any:
        return self.ask(init_request(subject, claimed, timeout_ms), 5, m.InitProducerIdResponse)

    def begin(self, subject: Subject, protocol: Protocol, *, held: bool = False, offsets: bool = False) -> None:
        """A transaction with a record, or a group's offsets."""
        if protocol.adds_itself:
            codes = self.add_old(subject, subject.me, (TOPIC, 0))
            assert set(codes) == {ErrorCode.NONE}, codes
        code = self.produce(subject, subject.me, protocol.produce)
        assert code == ErrorCode.NONE, (subject, ErrorCode(code))
        if offsets:
            if protocol.adds_itself:
                assert self.add_offsets(subject, subject.me) == ErrorCode.NONE
            code = self.commit_offset(subject, subject.me, protocol.commit)
            assert code == ErrorCode.NONE, (subject, ErrorCode(code))
        if held:
            add = self.add_old if protocol.adds_itself else self.add_new
            codes = add(subject, subject.me, (HELD, 0))
            assert set(codes) == {ErrorCode.NONE}, codes

    def end(self, subject: Subject, protocol: Protocol, *, commit: bool) -> None:
        answer = self.ask(end_request(subject, subject.me, commit), protocol.end, m.EndTxnResponse)
        assert answer.error_code == ErrorCode.NONE, (subject, ErrorCode(answer.error_code))
        if answer.producer_id >= 0:
            subject.take_producer(Producer(answer.producer_id, answer.producer_epoch))

    def add_old(self, subject: Subject, me: Producer, *partitions: tuple[str, int]) -> list[int]:
        answer = self.ask(add_old_request(subject, me, *partitions), 3, m.AddPartitionsToTxnResponse)
        rows = answer.results_by_topic_v3_and_below
        return [partition.partition_error_code for row in rows for partition in row.results_by_partition]

    def add_new(self, subject: Subject, me: Producer, *partitions: tuple[str, int], only: bool = False) -> list[int]:
        answer = self.ask(add_request(subject, me, *partitions, only=only), 5, m.AddPartitionsToTxnResponse)
        if answer.error_code != ErrorCode.NONE:
            return [answer.error_code for _ in partitions]
        rows = answer.results_by_transaction[0].topic_results
        return [partition.partition_error_code for row in rows for partition in row.results_by_partition]

    def add_offsets(self, subject: Subject, me: Producer) -> int:
        request = m.AddOffsetsToTxnRequest(
            transactional_id=subject.name, producer_id=me.producer_id, producer_epoch=me.epoch, group_id=GROUP
        )
        return int(self.ask(request, 4, m.AddOffsetsToTxnResponse).error_code)

    def commit_offset(self, subject: Subject, me: Producer, version: int) -> int:
        topic = m.TxnOffsetCommitRequest.Topics
        request = m.TxnOffsetCommitRequest(
            transactional_id=subject.name, group_id=GROUP, producer_id=me.producer_id, producer_epoch=me.epoch,
            generation_id=-1, member_id="",
            topics=[topic(name=TOPIC, partitions=[topic.Partitions(partition_index=0, committed_offset=1)])],
        )  # fmt: skip
        answer = self.ask(request, version, m.TxnOffsetCommitResponse)
        return int(answer.topics[0].partitions[0].error_code)

    def produce(self, subject: Subject, me: Producer, version: int) -> int:
        batch = build_batch(
            [RecordData(1_700_000_000_000, None, b"value")],
            producer_id=me.producer_id, producer_epoch=me.epoch, base_sequence=0, transactional=True,
        )  # fmt: skip
        data = m.ProduceRequest.TopicData
        request = m.ProduceRequest(
            transactional_id=subject.name,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[data(name=TOPIC, partition_data=[data.PartitionData(index=0, records=bytes(batch))])],
        )
        return int(self.ask(request, version, m.ProduceResponse).responses[0].partition_responses[0].error_code)

    def described(self, subject: Subject) -> Description:
        row = self.cluster.described(subject.name)
        if row.error_code != ErrorCode.NONE:
            return Description(ErrorCode(row.error_code).name, NOBODY, frozenset())
        partitions = {(topic.topic, index) for topic in row.topics for index in topic.partitions}
        return Description(row.transaction_state, Producer(row.producer_id, row.producer_epoch), frozenset(partitions))

    def settled(self, subject: Subject) -> Description:
        """Once no marker is on its way that can arrive."""

        def ended() -> Description | None:
            transaction = self.described(subject)
            return None if transaction.state.startswith("Prepare") and not is_held(transaction) else transaction

        result = quickly(f"{subject} has ended", ended)
        if result.producer.producer_id >= 0 and result.producer.producer_id not in subject.ids:
            subject.ids.append(result.producer.producer_id)
        return result


def init_request(subject: Subject, claimed: Producer = NOBODY, timeout_ms: int = TIMEOUT_MS) -> m.InitProducerIdRequest:
    return m.InitProducerIdRequest(
        transactional_id=subject.name,
        transaction_timeout_ms=timeout_ms,
        producer_id=claimed.producer_id,
        producer_epoch=claimed.epoch,
    )


def end_request(subject: Subject, me: Producer, commit: bool) -> m.EndTxnRequest:
    return m.EndTxnRequest(
        transactional_id=subject.name, producer_id=me.producer_id, producer_epoch=me.epoch, committed=commit
    )


def add_old_request(subject: Subject, me: Producer, *partitions: tuple[str, int]) -> m.AddPartitionsToTxnRequest:
    topics = m.AddPartitionsToTxnRequest.V3AndBelowTopics
    return m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=subject.name,
        v3_and_below_producer_id=me.producer_id,
        v3_and_below_producer_epoch=me.epoch,
        v3_and_below_topics=[topics(name=topic, partitions=[index]) for topic, index in partitions],
    )


def add_request(
    subject: Subject, me: Producer, *partitions: tuple[str, int], only: bool = False
) -> m.AddPartitionsToTxnRequest:
    transactions = m.AddPartitionsToTxnRequest.Transactions
    return m.AddPartitionsToTxnRequest(
        transactions=[
            transactions(
                transactional_id=subject.name,
                producer_id=me.producer_id,
                producer_epoch=me.epoch,
                verify_only=only,
                topics=[transactions.Topics(name=topic, partitions=[index]) for topic, index in partitions],
            )
        ]
    )
