"""Requests that wait for the remote tier: fetches whose offset is only there, and look-ups by time (KIP-405, KIP-1075).

Each has one task per partition on the reader pool and one deadline in the purgatory. It ends exactly once: when all
tasks have ended, when its time is up, or when the broker can no longer answer. Tasks that still wait in the pool's
queue then leave it at once. Of the running ones a look-up is cancelled and a read is not: the indexes that it fetches
serve the next one.

Kafka: `DelayedRemoteFetch`, `DelayedRemoteListOffsets`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from backend.engine.ports import tasks
from backend.engine.remote.storage.remote_storage_manager import RemoteStorageError
from backend.engine.replica import offset_lookup
from backend.engine.replica.fetch_data import FetchData
from backend.engine.replica.offset_lookup import OffsetQuery, OffsetResult
from backend.engine.replica.partition import Partition
from backend.engine.replica.purgatory import Purgatory
from backend.engine.replica.remote_logs import RemoteLogs
from backend.protocol.errors import ErrorCode, KafkaError

# The read of one partition; errors are part of the result. Calls its argument when it no longer waits for a reader.
PartitionRead = Callable[[Callable[[], object]], Coroutine[Any, Any, FetchData]]

_log = logging.getLogger(__name__)


class DelayedRemoteFetch:
    """A fetch with partitions that are being read from the remote tier. Answers with the reads that have ended."""

    __slots__ = ("_due", "_left", "_partitions", "_purgatory", "_queued", "_respond", "_results")

    def __init__(
        self,
        purgatory: Purgatory,
        reads: Mapping[int, tuple[Partition, PartitionRead]],
        delay_ms: float,
        respond: Callable[[Mapping[int, FetchData]], None],
    ) -> None:
        """At least one of `reads`, by index; `respond` gets the results of those that have ended."""
        self._purgatory = purgatory
        self._respond: Callable[[Mapping[int, FetchData]], None] | None = respond
        self._results: dict[int, FetchData] = {}
        self._partitions = tuple(dict.fromkeys(partition for partition, _ in reads.values()))
        self._left = len(reads)
        for partition in self._partitions:
            partition.delayed.remote[self] = None
        purgatory.remote.fetches += 1
        self._due = purgatory.enter(self, delay_ms)
        # Reads that wait for a reader.
        self._queued: dict[int, tasks.Task[None]] = {}
        for index, (partition, read) in reads.items():
            self._queued[index] = tasks.start(self._run(index, read), name=f"remote read of {partition}")

    async def _run(self, index: int, read: PartitionRead) -> None:
        result = await read(partial(self._queued.pop, index, None))
        if self._respond is not None:
            self._results[index] = result
        self._queued.pop(index, None)
        self._left -= 1
        if not self._left:
            self._end()

    def try_complete(self, partition: Partition) -> None:
        """The partition's role has changed. A broker that hosts it still, as leader or follower, goes on reading."""
        if not partition.is_hosted:
            self._end()

    def expire(self) -> None:
        if self._respond is not None:
            self._purgatory.remote.expired_fetches += 1
            self._end()

    def _end(self) -> None:
        respond, self._respond = self._respond, None
        if respond is None:
            return
        self._purgatory.remote.fetches -= 1
        self._purgatory.leave(self, self._due)
        for partition in self._partitions:
            partition.delayed.remote.pop(self, None)
        for read in self._queued.values():
            read.cancel()
        respond(self._results)


class DelayedRemoteListOffsets:
    """A ListOffsets whose times are being looked for in the remote tier. A partition that is not searched in time is
    answered with REQUEST_TIMED_OUT, one that this broker must not answer any more with its own error.
    """

    def __init__(
        self,
        purgatory: Purgatory,
        remote: RemoteLogs,
        queries: Sequence[tuple[Partition, OffsetQuery]],
        delay_ms: float,
        respond: Callable[[list[OffsetResult | KafkaError]], None],
    ) -> None:
        """`respond` gets one outcome for each of `queries` (at least one), in their order."""
        self._purgatory = purgatory
        self._remote = remote
        self._queries = queries
        self._respond: Callable[[list[OffsetResult | KafkaError]], None] | None = respond
        self._outcomes: list[OffsetResult | KafkaError] = [_late(partition, delay_ms) for partition, _ in queries]
        self._pending: dict[int, tasks.Task[None]] = {}
        purgatory.remote.look_ups += 1
        self._due = purgatory.enter(self, delay_ms)
        for index, (partition, _) in enumerate(queries):
            partition.delayed.remote[self] = None
            self._pending[index] = tasks.start(self._search(index), name=f"offset by time of {partition}")

    async def _search(self, index: int) -> None:
        outcome = await self._outcome(*self._queries[index])
        self._complete([(index, outcome)])

    async def _outcome(self, partition: Partition, query: OffsetQuery) -> OffsetResult | KafkaError:
        try:
            record = await self._remote.offset_for_timestamp(partition.log, query.timestamp)
            offset_lookup.check(partition, query)
            return offset_lookup.visible(partition, query, offset_lookup.of_record(record))
        except KafkaError as error:
            return error
        except RemoteStorageError as error:
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        except Exception as error:
            # An error of any kind becomes this partition's answer; the other partitions are answered.
            _log.exception("The look-up of time %d in %s failed", query.timestamp, partition)
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))

    def try_complete(self, partition: Partition) -> None:
        """The partition's role or epoch has changed."""
        refused: list[tuple[int, OffsetResult | KafkaError]] = []
        for index in self._pending:
            pending, query = self._queries[index]
            if pending is partition:
                try:
                    offset_lookup.check(partition, query)
                except KafkaError as error:
                    refused.append((index, error))
        self._complete(refused)

    def _complete(self, outcomes: Iterable[tuple[int, OffsetResult | KafkaError]]) -> None:
        for index, outcome in outcomes:
            search = self._pending.pop(index, None)
            if search is not None:
                self._outcomes[index] = outcome
                if search is not tasks.current():
                    search.cancel()
        if not self._pending:
            self._end()

    def expire(self) -> None:
        if self._respond is None:
            return
        for index in self._pending:
            self._purgatory.remote.look_up_expired(self._queries[index][0].topic_partition)
        self._end()

    def _end(self) -> None:
        respond, self._respond = self._respond, None
        if respond is None:
            return
        self._purgatory.remote.look_ups -= 1
        self._purgatory.leave(self, self._due)
        for partition, _ in self._queries:
            partition.delayed.remote.pop(self, None)
        for search in self._pending.values():
            search.cancel()
        respond(self._outcomes)


def _late(partition: Partition, delay_ms: float) -> KafkaError:
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT, f"the remote tier of {partition} was not searched within {delay_ms:.0f} ms"
    )
