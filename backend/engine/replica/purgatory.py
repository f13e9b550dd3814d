"""Requests that wait for a partition: produce to be acknowledged, fetch for data, DeleteRecords for followers.

A partition keeps the requests that watch it and pokes them when it changed; between changes a waiting request costs
nothing, and its deadline is one entry in `Deadlines`. A request ends exactly once: satisfied, or when its time is up.
Facts: `DelayedProduce`, `DelayedFetch`, `DelayedDeleteRecords`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from backend.engine.ports import tasks
from backend.engine.replica.deadlines import Deadlines
from backend.engine.replica.fetch_data import UNKNOWN_HIGH_WATERMARK, FetchParams, FetchSpec
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

if TYPE_CHECKING:
    from backend.engine.replica.fetch_reads import PartitionRequest
    from backend.engine.replica.partition import Partition

# A connection has at most 32 requests underway (pipelined produce), nearly all connections one: this is some 10,000
# connections, at under 1 kB each some 20 MB. A fetch beyond it is answered at once; of produces each connection has
# few.
WAITING_MAX: Final = 20_000
# How long news of the high watermark alone waits at least, and at most twice as long, for records to travel with: on a
# busy partition this halves the number of fetches, on a quiet one nobody notices.
HIGH_WATERMARK_LINGER_MS: Final = 5.0
# Partitions whose late look-ups are counted apart: at 200 bytes each 1 MB.
EXPIRED_PARTITIONS_MAX: Final = 5_000


class Waiting(Protocol):
    """A request in the purgatory."""

    def expire(self) -> None: ...


@dataclass(slots=True)
class DelayedRemoteMeters:
    """Requests that wait for the remote tier now, and how many were not done in time."""

    fetches: int = 0
    look_ups: int = 0
    expired_fetches: int = 0
    # Partitions, not requests, as Kafka counts them.
    expired_look_ups: int = 0
    expired_by_partition: dict[TopicPartition, int] = field(default_factory=dict)

    def look_up_expired(self, partition: TopicPartition) -> None:
        """One partition of a ListOffsets was not searched in time."""
        self.expired_look_ups += 1
        known = self.expired_by_partition
        if partition in known or len(known) < EXPIRED_PARTITIONS_MAX:
            known[partition] = known.get(partition, 0) + 1


class Purgatory:
    """The waiting requests of one broker."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self.remote = DelayedRemoteMeters()
        # Those that came since the last turn of their timer, and those that were there already.
        self._stale: dict[DelayedFetch, None] = {}
        self._long_stale: dict[DelayedFetch, None] = {}
        self.count = 0

    @property
    def full(self) -> bool:
        return self.count >= WAITING_MAX

    def enter(self, waiting: Waiting, delay_ms: float) -> int:
        """Starts the request's time."""
        self.count += 1
        return self._deadlines.add(waiting, delay_ms)

    def leave(self, waiting: Waiting, due: int) -> None:
        """The request has its answer."""
        self.count -= 1
        self._deadlines.remove(waiting, due)

    def schedule_watermark_update(self, fetch: DelayedFetch) -> None:
        """A follower's fetch would learn a newer high watermark and nothing else: answers it shortly if still so."""
        if not self._stale and not self._long_stale:
            tasks.call_later(HIGH_WATERMARK_LINGER_MS, self._tell)
        self._stale[fetch] = None

    def _tell(self) -> None:
        due, self._long_stale, self._stale = self._long_stale, self._stale, {}
        if self._long_stale:
            tasks.call_later(HIGH_WATERMARK_LINGER_MS, self._tell)
        for fetch in due:
            fetch.complete_if_watermarks_old()


# A partition in a fetch session: the topic's id or name, and the index.
FetchKey = tuple[Hashable, int]


class Watcher(Protocol):
    """Told once when a partition changes, with what the partition is known by there."""

    def on_partition_change(self, partition: Partition, key: FetchKey) -> None: ...


class DelayedFetch:
    """A fetch that found too little; reads again and answers when it can find enough."""

    __slots__ = ("_answer", "_done", "_due", "_params", "_parts", "_purgatory", "_wanted")

    def __init__(
        self,
        purgatory: Purgatory,
        params: FetchParams,
        wanted: list[PartitionRequest],
        answer: Callable[[], None],
    ) -> None:
        """`wanted` is what `answer` will read; :meth:`join` adds to it."""
        self._purgatory = purgatory
        self._params = params
        self._wanted = wanted
        self._parts: dict[Partition, FetchSpec] = {}
        self._answer = answer
        self._done = False
        less = False
        for item, spec in wanted:
            if not isinstance(item, ErrorCode):
                self._parts[item] = spec
                item.waiting_fetches[self] = None
                less = less or has_old_watermarks(item, params, spec)
        self._due = purgatory.enter(self, params.max_wait_ms)
        if less:
            purgatory.schedule_watermark_update(self)

    def join(self, partition: Partition, spec: FetchSpec) -> None:
        """A partition that was left out since the reader has all of it; it is changing now and will poke."""
        if self._done:
            return
        self._wanted.append((partition, spec))
        self._parts[partition] = spec
        partition.waiting_fetches[self] = None

    def poke(self, partition: Partition) -> None:
        """The partition has changed."""
        if self._done:
            return
        if self._may_answer(partition):
            self.complete()
        elif has_old_watermarks(partition, self._params, self._parts[partition]):
            self._purgatory.schedule_watermark_update(self)

    def complete_if_watermarks_old(self) -> None:
        """Answers a follower that still knows less than an empty answer would tell."""
        if not self._done and any(has_old_watermarks(one, self._params, spec) for one, spec in self._parts.items()):
            self.complete()

    def _may_answer(self, partition: Partition) -> bool:
        spec = self._parts[partition]
        end = partition.fetchable_end(self._params.isolation)
        if end <= spec.fetch_offset:
            return end < spec.fetch_offset
        params = self._params
        if params.from_follower and partition.followers.is_throttled(params.replica_id):
            return False
        return params.min_bytes <= 1 or enough_readable(params, self._parts.items())

    def expire(self) -> None:
        self.complete()

    def complete(self) -> None:
        """Answers with what can be read now."""
        if self._done:
            return
        self._done = True
        self._purgatory.leave(self, self._due)
        for partition in self._parts:
            partition.waiting_fetches.pop(self, None)
        self._answer()


def enough_readable(params: FetchParams, parts: Iterable[tuple[Partition, FetchSpec]]) -> bool:
    """Whether the partitions have so much that the request need not wait for more, whatever fits its answer."""
    readable = 0
    for partition, spec in parts:
        if not (params.from_follower and partition.followers.is_throttled(params.replica_id)):
            readable += partition.readable_bytes(spec.fetch_offset, params.isolation, spec.max_bytes)
        if readable >= params.min_bytes:
            return True
    return False


def has_old_watermarks(partition: Partition, params: FetchParams, spec: FetchSpec) -> bool:
    """Whether a follower at our end would learn a newer high watermark or log start from an empty answer."""
    if not params.from_follower:
        return False
    # A follower's high watermark cannot pass its log end, which is the offset it asks for, nor its log start the
    # high watermark: an answer beyond these would not help it and it would ask again at once.
    reachable = min(partition.high_watermark, spec.fetch_offset)
    if spec.known_high_watermark != UNKNOWN_HIGH_WATERMARK and spec.known_high_watermark < reachable:
        return True
    return -1 < spec.log_start_offset < partition.log_start_offset <= reachable


class DelayedProduce:
    """An acks=all produce whose records are appended; answers when every partition's high watermark has passed them."""

    __slots__ = ("_answer", "_due", "_errors", "_pending", "_purgatory")

    def __init__(
        self,
        purgatory: Purgatory,
        required: list[tuple[int, Partition, int]],
        timeout_ms: float,
        answer: Callable[[dict[int, ErrorCode]], None],
    ) -> None:
        """`required`: (index in the request, partition, offset the high watermark must reach)."""
        self._purgatory = purgatory
        self._answer = answer
        self._errors: dict[int, ErrorCode] = {}
        self._pending = {index: partition for index, partition, _ in required}
        for index, partition, offset in required:
            partition.waiting_produces[(self, index)] = offset
        self._due = purgatory.enter(self, timeout_ms)

    def settle(self, index: int, error: ErrorCode) -> None:
        """The partition has taken the request off its list."""
        if self._pending.pop(index, None) is None:
            return
        if error is not ErrorCode.NONE:
            self._errors[index] = error
        if not self._pending:
            self._purgatory.leave(self, self._due)
            self._answer(self._errors)

    def expire(self) -> None:
        for index, partition in list(self._pending.items()):
            partition.waiting_produces.pop((self, index), None)
            self.settle(index, ErrorCode.REQUEST_TIMED_OUT)


class DelayedDeleteRecords:
    """A DeleteRecords whose partitions' followers have not all raised their log start yet."""

    __slots__ = ("_answer", "_due", "_outcome", "_pending", "_purgatory")

    def __init__(
        self,
        purgatory: Purgatory,
        required: list[tuple[int, Partition, int]],
        timeout_ms: float,
        answer: Callable[[dict[int, tuple[ErrorCode, int]]], None],
    ) -> None:
        """`required`: (index in the request, partition, offset that the low watermark must reach)."""
        self._purgatory = purgatory
        self._answer = answer
        self._outcome: dict[int, tuple[ErrorCode, int]] = {}
        self._pending = {index: (partition, offset) for index, partition, offset in required}
        for _, partition, _ in required:
            partition.waiting_deletes[self] = None
        self._due = purgatory.enter(self, timeout_ms)

    def poke(self, partition: Partition) -> None:
        """The partition has changed."""
        for index, (one, offset) in list(self._pending.items()):
            if one is partition:
                self._check(index, one, offset)
        self._answer_if_done()

    def _check(self, index: int, partition: Partition, offset: int) -> None:
        try:
            low = partition.low_watermark()
        except KafkaError as error:
            self._outcome[index] = (error.code, -1)
        else:
            if low < offset:
                return
            self._outcome[index] = (ErrorCode.NONE, low)
        del self._pending[index]

    def _answer_if_done(self) -> None:
        if self._pending or self._due < 0:
            return
        due, self._due = self._due, -1
        self._purgatory.leave(self, due)
        self._answer(self._outcome)

    def expire(self) -> None:
        for index, (partition, _) in list(self._pending.items()):
            partition.waiting_deletes.pop(self, None)
            self._outcome[index] = (ErrorCode.REQUEST_TIMED_OUT, partition.low_watermark_or_unknown())
            del self._pending[index]
        self._answer_if_done()


def settle_produces(
    waiting: OrderedDict[tuple[DelayedProduce, int], int], status: Callable[[int], ErrorCode | None]
) -> None:
    """Settles, from the front, every produce whose required offset has a status; offsets rise along the list."""
    while waiting:
        (produce, index), offset = next(iter(waiting.items()))
        error = status(offset)
        if error is None:
            return
        del waiting[(produce, index)]
        produce.settle(index, error)
