"""The table of transactions: in each state, what each request with each epoch is answered and makes of the transaction.

The same questions go to Apache Kafka and to our brokers. Broker 2 of three is stopped with SIGSTOP for some of it, so
that markers for the partition it leads (states PrepareCommit and PrepareAbort) and records it has to replicate (a
change that is being stored) stay under way for as long as the questions take.

`python -m tests.scenarios.transaction_table PORT PID` asks three fresh brokers with `transaction_cluster.SETTINGS`, the
first at PORT and the second as process PID. What it prints is `golden/transaction-table.kafka.txt`. With a third word,
`without`, it asks brokers whose transaction.version is 0: `golden/transaction-table-version-0.kafka.txt`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final, NamedTuple

from backend.engine.controller.commands.cluster_bootstrap import TRANSACTION_VERSION
from backend.engine.coordinator.transaction.transaction import EPOCH_MAX, LATEST_VERSION
from backend.engine.coordinator.transaction.transaction_state import Producer
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from tests.scenarios.transaction_cluster import TOPIC, Cluster
from tests.scenarios.transaction_producers import (
    NEW,
    NOBODY,
    OLD,
    Broker,
    Description,
    Protocol,
    Subject,
    end_request,
    quickly,
)
from tests.scenarios.transaction_states import (
    HELD_STATES,
    STATES,
    STORING,
    STORING_BY_ITSELF,
    Reach,
    Storing,
    aborted_empty,
    by_itself,
)

# An id that no producer has: this much above one's own.
OTHER_ID: Final = 1 << 40
# Ids per change that is being stored: one more is needed after every question that was not refused.
PER_STORING: Final = 9

Question = Callable[[Broker, Subject, Producer], str]


def _code(code: int) -> str:
    return ErrorCode(code).name


def _outcome(subject: Subject, code: int, producer_id: int, epoch: int) -> str:
    if code != ErrorCode.NONE or producer_id < 0:
        return _code(code)
    return f"NONE, {_id(subject, producer_id)} {epoch}"


def _id(subject: Subject, producer_id: int) -> str:
    if producer_id not in subject.ids:
        subject.ids.append(producer_id)
    return (
        "id" if subject.ids.index(producer_id) == 0 else f"new id{'' if subject.ids.index(producer_id) == 1 else ' 2'}"
    )


def _end(commit: bool, version: int) -> Question:
    def question(broker: Broker, subject: Subject, me: Producer) -> str:
        answer = broker.ask(end_request(subject, me, commit), version, m.EndTxnResponse)
        return _outcome(subject, answer.error_code, answer.producer_id, answer.producer_epoch)

    return question


def _init(broker: Broker, subject: Subject, me: Producer) -> str:
    answer = broker.init(subject, me)
    return _outcome(subject, answer.error_code, answer.producer_id, answer.producer_epoch)


QUESTIONS: Final[dict[str, Question]] = {
    "EndTxn v4 commit": _end(True, 4),
    "EndTxn v4 abort": _end(False, 4),
    "EndTxn v5 commit": _end(True, 5),
    "EndTxn v5 abort": _end(False, 5),
    "AddPartitionsToTxn v3, known": lambda b, s, me: _code(b.add_old(s, me, (TOPIC, 0))[0]),
    "AddPartitionsToTxn v3, new": lambda b, s, me: _code(b.add_old(s, me, (TOPIC, 1))[0]),
    "AddPartitionsToTxn v5, known": lambda b, s, me: _code(b.add_new(s, me, (TOPIC, 0))[0]),
    "AddPartitionsToTxn v5, new": lambda b, s, me: _code(b.add_new(s, me, (TOPIC, 1))[0]),
    "AddPartitionsToTxn v5, verified": lambda b, s, me: _code(b.add_new(s, me, (TOPIC, 0), only=True)[0]),
    "AddOffsetsToTxn v4": lambda b, s, me: _code(b.add_offsets(s, me)),
    "TxnOffsetCommit v3": lambda b, s, me: _code(b.commit_offset(s, me, 3)),
    "TxnOffsetCommit v4": lambda b, s, me: _code(b.commit_offset(s, me, 4)),
    "TxnOffsetCommit v5": lambda b, s, me: _code(b.commit_offset(s, me, 5)),
    "Produce v11": lambda b, s, me: _code(b.produce(s, me, 11)),
    "Produce v12": lambda b, s, me: _code(b.produce(s, me, 12)),
    "InitProducerId v5, claimed": _init,
}
WITHOUT_EPOCH: Final[dict[str, Question]] = {"InitProducerId v5": lambda b, s, me: _init(b, s, NOBODY)}
HARMLESS: Final = frozenset({"AddPartitionsToTxn v5, verified"})
# No client sends them where transaction.version is 0: Apache Kafka cannot store there what comes of them, and answers
# CONCURRENT_TRANSACTIONS for the transactional id from then on, for good.
OF_VERSION_2: Final = frozenset(
    {
        "EndTxn v5 commit", "EndTxn v5 abort", "AddPartitionsToTxn v5, known", "AddPartitionsToTxn v5, new",
        "TxnOffsetCommit v5", "Produce v12",
    }
)  # fmt: skip


def producers(subject: Subject, transaction: Description) -> list[tuple[str, Producer]]:
    """As which producers each question is asked, with what stands in the table for them."""
    now = transaction.producer
    mine = _id(subject, now.producer_id)
    labelled = [(f"{mine} {epoch}", Producer(now.producer_id, epoch)) for epoch in range(now.epoch - 2, now.epoch + 2)]
    labelled = [pair for pair in labelled if 0 <= pair[1].epoch <= EPOCH_MAX]
    labelled.append((f"other id {max(now.epoch, 0)}", Producer(now.producer_id + OTHER_ID, max(now.epoch, 0))))
    if subject.ids[0] != now.producer_id:
        labelled += [
            (f"id {epoch}", Producer(subject.ids[0], epoch)) for epoch in (EPOCH_MAX - 2, EPOCH_MAX - 1, EPOCH_MAX)
        ]
    return labelled


class Asking:
    """The questions of one state; a new subject is taken when a question has changed the one before."""

    def __init__(
        self,
        broker: Broker,
        fresh: Callable[[], Subject],
        questions: Mapping[str, Question],
        *,
        settles: bool = True,
    ) -> None:
        self._broker, self._fresh, self._questions, self._settles = broker, fresh, questions, settles
        self._subject: Subject | None = None

    def _current(self) -> tuple[Subject, Description]:
        if self._subject is None:
            self._subject = self._fresh()
        subject = self._subject
        transaction = self._broker.settled(subject) if self._settles else self._broker.described(subject)
        if not subject.ids:
            subject.ids.append(transaction.producer.producer_id)
        return subject, transaction

    def rows(self) -> Iterator[str]:
        subject, transaction = self._current()
        yield f"in {transaction.state} of {_id(subject, transaction.producer.producer_id)} {transaction.producer.epoch}"
        count = len(producers(subject, transaction))
        for name, question in self._questions.items():
            answers: dict[str, list[str]] = {}
            for label, answer in (self._cell(name, question, at) for at in range(count)):
                answers.setdefault(answer, []).append(label)
            yield f"{name} | " + " | ".join(f"{', '.join(labels)}: {answer}" for answer, labels in answers.items())
        for name, question in WITHOUT_EPOCH.items():
            yield f"{name} | {self._cell(name, question, None)[1]}"

    def _cell(self, name: str, question: Question, at: int | None) -> tuple[str, str]:
        """As whom it was asked, and what came of it."""
        subject, before = self._current()
        label, me = ("", NOBODY) if at is None else producers(subject, before)[at]
        answer = question(self._broker, subject, me)
        after = self._broker.settled(subject) if self._settles else self._broker.described(subject)
        text = answer
        if after != before:
            text += f" → {after.state} {_id(subject, after.producer.producer_id)} {after.producer.epoch}"
        if after != before or (answer.startswith("NONE") and name not in HARMLESS):
            self._subject = None
        return label, text


def _is_changing(broker: Broker, subject: Subject) -> bool:
    """Whether a request of a producer that does not exist is refused because a change is under way."""
    nobody = Producer(subject.me.producer_id + OTHER_ID, 0)
    return broker.add_old(subject, nobody, (TOPIC, 0))[0] == ErrorCode.CONCURRENT_TRANSACTIONS


class Table(NamedTuple):
    """The questions of one state for clients of one generation."""

    title: str
    asking: Asking

    def lines(self) -> list[str]:
        return [f"## {self.title}", *self.asking.rows()]


Kind = tuple[Protocol, bool]
KINDS: Final[tuple[Kind, ...]] = tuple(itertools.product((OLD, NEW), (False, True)))
OLD_KINDS: Final[tuple[Kind, ...]] = tuple(kind for kind in KINDS if kind[0] is OLD)
NO_VERSION: Final = 0


class Tables:
    """The tables of one cluster, at one of its levels of transaction.version."""

    def __init__(self, broker: Broker, pool: ThreadPoolExecutor, level: int = LATEST_VERSION) -> None:
        self._broker, self._pool = broker, pool
        self._title = "" if level == LATEST_VERSION else f", {TRANSACTION_VERSION} {level}"
        self._kinds = KINDS if level == LATEST_VERSION else OLD_KINDS
        self._questions = {
            name: question for name, question in QUESTIONS.items() if level != NO_VERSION or name not in OF_VERSION_2
        }

    def of_states(self, states: Mapping[str, Reach]) -> list[Table]:
        return [self._of_state(kind, title, reach) for kind in self._kinds for title, reach in states.items()]

    def of_storing(self, changes: Mapping[str, Storing]) -> list[Table]:
        """Their subjects are made ahead, while all brokers run."""
        requested = [(kind, title, storing) for kind in self._kinds for title, storing in changes.items()]
        return list(self._pool.map(lambda arguments: self._of_storing(*arguments), requested))

    def answer_lines(self, tables: list[Table]) -> list[str]:
        return [line for lines in self._pool.map(Table.lines, tables) for line in lines]

    def _named(self, kind: Kind, title: str) -> str:
        protocol, worn = kind
        return f"{protocol.name}, {'last epoch' if worn else 'any epoch'}: {title}{self._title}"

    def _of_state(self, kind: Kind, title: str, reach: Reach) -> Table:
        return Table(
            self._named(kind, title), Asking(self._broker, lambda: reach(self._broker, *kind), self._questions)
        )

    def _of_storing(self, kind: Kind, title: str, storing: Storing) -> Table:
        broker, (protocol, worn) = self._broker, kind
        made = [storing.before(broker, protocol, worn) for _ in range(PER_STORING)]

        def fresh() -> Subject:
            subject = made.pop()
            storing.send(broker, protocol, subject)
            quickly(f"a change of {subject} is under way", lambda: _is_changing(broker, subject))
            return subject

        return Table(self._named(kind, title), Asking(broker, fresh, self._questions, settles=False))


def play(port: int, pid: int, *, at_once: int = 1) -> list[str]:
    """The lines of the table.

    Several states may be asked about at once. Not of Apache Kafka: what it asks coordinators together it tells clients
    as the oldest of them would know it.
    """
    with closing(Cluster(port, pid)) as cluster, ThreadPoolExecutor(at_once) as pool:
        cluster.prepare()
        broker = Broker(cluster)
        lines = _all_states(cluster, Tables(broker, pool), STATES, HELD_STATES, STORING)
        cluster.set_level(1)
        tables = Tables(broker, pool, 1)
        lines += _all_states(cluster, tables, by_itself(held=False), by_itself(held=True), STORING_BY_ITSELF)
    return lines


def play_without_version(port: int, pid: int, *, at_once: int = 1) -> list[str]:
    """As `play`, of brokers whose transaction.version is 0, or is lowered to it before anything is asked."""
    states = {title: reach for title, reach in STATES.items() if reach is not aborted_empty}
    with closing(Cluster(port, pid)) as cluster, ThreadPoolExecutor(at_once) as pool:
        cluster.lower_level(NO_VERSION)
        cluster.prepare(NO_VERSION)
        return _all_states(cluster, Tables(Broker(cluster), pool, NO_VERSION), states, HELD_STATES, STORING)


def _all_states(
    cluster: Cluster,
    tables: Tables,
    states: Mapping[str, Reach],
    held: Mapping[str, Reach],
    changes: Mapping[str, Storing],
) -> list[str]:
    storing = tables.of_storing(changes)
    lines = tables.answer_lines(tables.of_states(states))
    with cluster.stopped():
        lines += tables.answer_lines(tables.of_states(held))
        lines += tables.answer_lines(storing)
    return lines


if __name__ == "__main__":
    played = play_without_version if sys.argv[3:] else play
    print("\n".join(played(int(sys.argv[1]), int(sys.argv[2]))))
