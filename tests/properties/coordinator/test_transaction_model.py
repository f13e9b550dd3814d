"""Random histories of one transactional id: several producers, old and new, some of them zombies.

Whatever they ask in whatever order, an epoch of a producer id is used by one producer at a time and what is decided is
never decided otherwise.
"""

from __future__ import annotations

import random
from typing import Final

import pytest

from backend.engine.coordinator.transaction import transaction_state as decide
from backend.engine.coordinator.transaction.transaction import EPOCH_MAX, Transaction, TransactionState
from backend.engine.coordinator.transaction.transaction_records import decode_transaction, encode_transaction
from backend.engine.coordinator.transaction.transaction_state import Producer
from backend.protocol.errors import ErrorCode
from backend.tiering.ids import TopicPartition
from tests.effort import effort

S = TransactionState
STEPS: Final = 300
PRODUCERS: Final = 3
ENDED: Final = {True: S.COMPLETE_COMMIT, False: S.COMPLETE_ABORT}


class World:
    """A coordinator of one id and its producers; `owner` is the one that was let in last."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.now_ms = 1
        self.next_id = 1
        start = EPOCH_MAX - 3 if chance.random() < 0.3 else -1
        self.transaction = Transaction(
            transactional_id="x", producer_id=0, epoch=start, timeout_ms=50, updated_ms=0, previous_producer_id=0
        )
        self.producers: list[Producer | None] = [None] * PRODUCERS
        self.owner: int | None = None
        self.seen: set[Producer] = set()
        self.version = chance.choice([0, 2])

    def step(self) -> None:
        self.now_ms += self.chance.randrange(20)
        who = self.chance.randrange(PRODUCERS)
        work = self.chance.choice([self.init, self.recover, self.add, self.add, self.end, self.end, self.tick])
        before = self.transaction
        work(who)
        self.check(before)

    def store(self, decision: decide.TransactionDecision) -> bool:
        """True when something changed; it is read back from its record, as the next coordinator would."""
        if not isinstance(decision, Transaction):
            return False
        self.transaction = decision
        if self.chance.random() < 0.2:
            record = encode_transaction(decision, 2, 0)
            transaction = decode_transaction(record.key, record.value)
            assert transaction is not None
            assert transaction[1] is not None
            self.transaction = transaction[1]
        return True

    def fresh(self) -> int:
        self.next_id += 1
        return self.next_id

    def storing(self) -> bool:
        """Now and then the request comes while an earlier change is being stored."""
        return self.chance.random() < 0.1

    def let_in(self, who: int, claimed: Producer | None) -> None:
        if self.transaction.state is S.ONGOING:
            self.fence()
            return
        decision = decide.init_producer(
            self.transaction,
            storing=self.storing(),
            timeout_ms=50,
            now_ms=self.now_ms,
            claimed=claimed,
            fresh_id=self.fresh(),
        )
        if self.store(decision):
            me = Producer(self.transaction.producer_id, self.transaction.epoch)
            if claimed is None:
                assert me not in self.seen, "two producers have the same epoch"
            self.seen.add(me)
            self.producers[who], self.owner = me, who

    def init(self, who: int) -> None:
        self.let_in(who, None)

    def recover(self, who: int) -> None:
        if (claimed := self.producers[who]) is not None and who == self.owner:
            self.let_in(who, claimed)

    def add(self, who: int) -> None:
        if (me := self.producers[who]) is None:
            return
        partition = TopicPartition("t", self.chance.randrange(3))
        decision = decide.add_partitions(
            self.transaction,
            me,
            frozenset({partition}),
            storing=self.storing(),
            now_ms=self.now_ms,
            version=self.version,
        )
        if self.store(decision) or decision is ErrorCode.NONE:
            assert who == self.owner, "a zombie wrote"
            assert decide.verify_partition(self.transaction, me, partition) is ErrorCode.NONE

    def end(self, who: int) -> None:
        if (me := self.producers[who]) is None:
            return
        commit = self.chance.random() < 0.5
        before = self.transaction
        decision = decide.end(
            before,
            me,
            commit=commit,
            storing=self.storing(),
            now_ms=self.now_ms,
            version=self.version,
            fresh_id=self.fresh(),
        )
        if self.store(decision):
            assert who == self.owner, "a zombie ended the transaction of another"
            done = decide.complete(self.transaction, self.now_ms)
            if self.chance.random() < 0.7:
                self.producers[who] = Producer(done.producer_id, done.epoch)
                self.seen.add(Producer(done.producer_id, done.epoch))
        elif decision is ErrorCode.NONE:
            assert before.state is ENDED[commit], "it was told of an end that there was not"

    def tick(self, who: int) -> None:
        if self.transaction.state.is_prepared:
            assert self.store(decide.complete(self.transaction, self.now_ms))
        elif decide.is_timed_out(self.transaction, self.now_ms):
            self.fence()

    def fence(self) -> None:
        """Nobody owns the id until the next one is let in."""
        fenced = decide.fence(self.transaction, now_ms=self.now_ms, version=self.version, fresh_id=self.fresh())
        assert self.store(fenced)
        self.owner = None

    def check(self, before: Transaction) -> None:
        after = self.transaction
        if after.producer_id == before.producer_id:
            assert after.epoch >= before.epoch
        else:
            assert after.epoch == 0
        assert after.epoch <= EPOCH_MAX
        if before.state.is_prepared:
            assert after.state in (before.state, ENDED[before.state is S.PREPARE_COMMIT])
            assert after.state is not before.state or after.partitions == before.partitions
        if after.state.is_idle:
            assert not after.partitions


@pytest.mark.parametrize("seed", range(effort(150, 3000)))
def test_no_zombie_writes_or_ends_and_no_end_is_taken_back(seed: int) -> None:
    world = World(random.Random(seed))
    for _ in range(STEPS):
        world.step()
