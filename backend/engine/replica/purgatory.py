"""Requests that wait for partitions: produce to be acknowledged, fetch for data, DeleteRecords for followers.

A request enters the `delayed` operations of each of its partitions and is tried when one of them has changed; between
changes it costs nothing, and its deadline is one entry in `Deadlines`. It ends exactly once: satisfied, or when its
time is up.

Kafka: `DelayedOperationPurgatory`, `DelayedProduce`, `DelayedFetch`, `DelayedDeleteRecords`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from backend.engine.ports import tasks
from backend.engine.replica.deadlines import Deadlines, Expiring
from backend.engine.replica.fetch_data import FetchParams, FetchSpec
from backend.engine.replica.partition import Partition
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

# A connection has at most 32 requests underway (pipelined produce), nearly all connections one: this is some 10,000
# connections, at under 1 kB each some 20 MB. A fetch beyond it is answered at once; of produces each connection has
# few.
WAITING_MAX: Final = 20_000
# A newer high watermark alone waits at least this long, and at most twice as long, for records to travel with: on a
# busy partition this halves the number of fetches, on an idle one no client notices.
HIGH_WATERMARK_LINGER_MS: Final = 5.0
# Partitions whose late look-ups are counted apart: at 200 bytes each 1 MB.
EXPIRED_PARTITIONS_MAX: Final = 5_000

# A partition of a Fetch, or the reason why there is none, and the values that the request has for it.
PartitionRequest = tuple[Partition | ErrorCode, FetchSpec]


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
        counts = self.expired_by_partition
        if partition in counts or len(counts) < EXPIRED_PARTITIONS_MAX:
            counts[partition] = counts.get(partition, 0) + 1


class Purgatory:
    """The waiting requests of one broker."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self.remote = DelayedRemoteMeters()
        # Fetches with old watermarks that came since the timer last fired, and those that were there already.
        self._new_lingering: dict[DelayedFetch, None] = {}
        self._old_lingering: dict[DelayedFetch, None] = {}
        self.count = 0

    @property
    def full(self) -> bool:
        return self.count >= WAITING_MAX

    def enter(self, request: Expiring, delay_ms: float) -> int:
        """Starts the request's time; the result is for :meth:`leave`."""
        self.count += 1
        return self._deadlines.add(request, delay_ms)

    def leave(self, request: Expiring, due: int) -> None:
        """The request has been answered."""
        self.count -= 1
        self._deadlines.remove(request, due)

    def schedule_watermark_update(self, fetch: DelayedFetch) -> None:
        """A follower's fetch would learn a newer high watermark and nothing else: answers it shortly if still so."""
        if not self._new_lingering and not self._old_lingering:
            tasks.call_later(HIGH_WATERMARK_LINGER_MS, self._update_watermarks)
        self._new_lingering[fetch] = None

    def _update_watermarks(self) -> None:
        due, self._old_lingering, self._new_lingering = self._old_lingering, self._new_lingering, {}
        if self._old_lingering:
            tasks.call_later(HIGH_WATERMARK_LINGER_MS, self._update_watermarks)
        for fetch in due:
            fetch.complete_if_watermarks_old()


class DelayedFetch:
    """A fetch that found too little; is answered when a second read can find enough, or when its time is up."""

    __slots__ = ("_done", "_due", "_params", "_parts", "_purgatory", "_requests", "_respond")

    def __init__(
        self,
        purgatory: Purgatory,
        params: FetchParams,
        requests: list[PartitionRequest],
        respond: Callable[[], None],
    ) -> None:
        """`respond` will read `requests` again; :meth:`join` adds to them."""
        self._purgatory = purgatory
        self._params = params
        self._requests = requests
        self._parts: dict[Partition, FetchSpec] = {}
        self._respond = respond
        self._done = False
        old_watermarks = False
        for partition, spec in requests:
            if not isinstance(partition, ErrorCode):
                self._parts[partition] = spec
                partition.delayed.fetches[self] = None
                old_watermarks = old_watermarks or partition.has_old_watermarks(params, spec)
        self._due = purgatory.enter(self, params.max_wait_ms)
        if old_watermarks:
            purgatory.schedule_watermark_update(self)

    def join(self, partition: Partition, spec: FetchSpec) -> None:
        """Adds an idle partition that is about to change, and will have this request tried."""
        if self._done:
            return
        self._requests.append((partition, spec))
        self._parts[partition] = spec
        partition.delayed.fetches[self] = None

    def try_complete(self, partition: Partition) -> None:
        """The partition has changed."""
        if self._done:
            return
        if self._may_respond(partition):
            self.complete()
        elif partition.has_old_watermarks(self._params, self._parts[partition]):
            self._purgatory.schedule_watermark_update(self)

    def complete_if_watermarks_old(self) -> None:
        """Answers a follower that would still learn a newer watermark from an empty answer."""
        if not self._done and any(
            partition.has_old_watermarks(self._params, spec) for partition, spec in self._parts.items()
        ):
            self.complete()

    def _may_respond(self, partition: Partition) -> bool:
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
        """Answers with the records that can be read now."""
        if self._done:
            return
        self._done = True
        self._purgatory.leave(self, self._due)
        for partition in self._parts:
            partition.delayed.fetches.pop(self, None)
        self._respond()


def enough_readable(params: FetchParams, parts: Iterable[tuple[Partition, FetchSpec]]) -> bool:
    """Whether the partitions have so much that the request need not wait for more, whatever fits its answer."""
    readable = 0
    for partition, spec in parts:
        if not (params.from_follower and partition.followers.is_throttled(params.replica_id)):
            readable += partition.readable_bytes(spec.fetch_offset, params.isolation, spec.max_bytes)
        if readable >= params.min_bytes:
            return True
    return False


class DelayedProduce:
    """An acks=all produce whose records are appended; answers when every partition's high watermark has passed them."""

    __slots__ = ("_due", "_errors", "_pending", "_purgatory", "_respond")

    def __init__(
        self,
        purgatory: Purgatory,
        required: list[tuple[int, Partition, int]],
        timeout_ms: float,
        respond: Callable[[dict[int, ErrorCode]], None],
    ) -> None:
        """`required`: (index in the request, partition, offset the high watermark must reach)."""
        self._purgatory = purgatory
        self._respond = respond
        self._errors: dict[int, ErrorCode] = {}
        self._pending = {index: partition for index, partition, _ in required}
        for index, partition, offset in required:
            partition.delayed.produces[(self, index)] = offset
        self._due = purgatory.enter(self, timeout_ms)

    def acknowledge(self, index: int, error: ErrorCode) -> None:
        """The outcome of one partition, which has dropped the request already."""
        if self._pending.pop(index, None) is None:
            return
        if error is not ErrorCode.NONE:
            self._errors[index] = error
        if not self._pending:
            self._purgatory.leave(self, self._due)
            self._respond(self._errors)

    def expire(self) -> None:
        for index, partition in list(self._pending.items()):
            partition.delayed.produces.pop((self, index), None)
            self.acknowledge(index, ErrorCode.REQUEST_TIMED_OUT)


class DelayedDeleteRecords:
    """A DeleteRecords whose partitions' followers have not all raised their log start yet."""

    __slots__ = ("_due", "_outcome", "_pending", "_purgatory", "_respond")

    def __init__(
        self,
        purgatory: Purgatory,
        required: list[tuple[int, Partition, int]],
        timeout_ms: float,
        respond: Callable[[dict[int, tuple[ErrorCode, int]]], None],
    ) -> None:
        """`required`: (index in the request, partition, offset that the low watermark must reach)."""
        self._purgatory = purgatory
        self._respond = respond
        self._outcome: dict[int, tuple[ErrorCode, int]] = {}
        self._pending = {index: (partition, offset) for index, partition, offset in required}
        for _, partition, _ in required:
            partition.delayed.deletes[self] = None
        self._due = purgatory.enter(self, timeout_ms)

    def try_complete(self, partition: Partition) -> None:
        """The partition has changed."""
        for index, (required, offset) in list(self._pending.items()):
            if required is partition:
                self._check(index, partition, offset)
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
        self._respond(self._outcome)

    def expire(self) -> None:
        for index, (partition, _) in list(self._pending.items()):
            partition.delayed.deletes.pop(self, None)
            self._outcome[index] = (ErrorCode.REQUEST_TIMED_OUT, partition.low_watermark_or_unknown())
            del self._pending[index]
        self._answer_if_done()
