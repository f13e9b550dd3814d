"""Serving fetches: reads all partitions of a request, waits for data or fetches from the remote tier, answers once.

A request that can be answered is answered at once, without a task. One with a partition whose offset is only remote
waits for those reads, at most for `remote.fetch.max.wait.ms`, and for nothing else: neither the client's own wait nor
its fetch.min.bytes count (KIP-405); any other waits in the purgatory. Facts: `ReplicaManager.fetchMessages`,
`DelayedFetch`, `DelayedRemoteFetch`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from backend.engine.config import BrokerConfig
from backend.engine.log.errors import OffsetOutOfRange
from backend.engine.ports import tasks
from backend.engine.remote.rsm import RemoteStorageError
from backend.engine.replica.delayed_remote import DelayedRemoteFetch, PartitionRead
from backend.engine.replica.fetch_data import FetchData, FetchParams, FetchSpec, Isolation, failed
from backend.engine.replica.partition import Partition
from backend.engine.replica.purgatory import DelayedFetch, Purgatory, enough_readable
from backend.engine.replica.remote_logs import RemoteLogs
from backend.engine.replica.replica_selector import RACK_AWARE
from backend.protocol.errors import ErrorCode, KafkaError

R = TypeVar("R")

# A partition of a request, or why there is none.
PartitionRequest = tuple[Partition | ErrorCode, FetchSpec]
_NONE: Final = ErrorCode.NONE

_log = logging.getLogger(__name__)


class FetchReads:
    """Fetches of one broker."""

    def __init__(
        self,
        purgatory: Purgatory,
        remote: Callable[[], RemoteLogs | None],
        config: Callable[[], BrokerConfig],
        settle: Callable[[], None],
    ) -> None:
        """`settle` answers those who wait for what has changed."""
        self._purgatory = purgatory
        self._remote = remote
        self._config = config
        self._settle = settle

    def fetch(
        self,
        params: FetchParams,
        wanted: list[PartitionRequest],
        respond: Callable[[list[FetchData]], R],
        on_wait: Callable[[DelayedFetch], None] | None = None,
        *,
        more_may_join: bool = False,
    ) -> R | tasks.Future[R]:
        """What `respond` makes of one FetchData per wanted partition, in their order; a future while that must wait.

        `on_wait` is given the waiting request, which may be completed early, and which further partitions may join,
        at the end of `wanted`; it waits for them too when `more_may_join`.
        """
        if params.max_bytes < 0:
            # What a limit below nothing makes of each partition in Kafka.
            return respond([failed(ErrorCode.UNKNOWN_SERVER_ERROR) for _ in wanted])
        found = self._read_all(params, wanted, first=True)
        if params.from_follower:
            # Who waits for the follower to have the records has waited long enough; itself it seldom finds new ones.
            self._settle()
        if any(data.remote_bytes_max for data in found):
            answered: tasks.Future[R] = tasks.future()
            self._read_remotely(params, wanted, found, respond, answered)
            return answered
        if not (wanted or more_may_join) or not self._must_wait(params, wanted, found):
            return respond(found)
        answered = tasks.eager_future()  # who waits for records has waited long enough
        waiting = DelayedFetch(self._purgatory, params, wanted, lambda: self._answer(params, wanted, respond, answered))
        if on_wait is not None:
            on_wait(waiting)
        return answered

    def _must_wait(self, params: FetchParams, wanted: Sequence[PartitionRequest], found: list[FetchData]) -> bool:
        if params.max_wait_ms <= 0 or self._purgatory.full:
            return False
        size = 0
        for data in found:
            if data.error is not _NONE or data.diverging is not None or data.preferred_replica >= 0:
                return False
            size += len(data.records)
        if size >= params.min_bytes:
            return False
        # What did not fit was left out and counts all the same (`DelayedFetch.tryComplete`).
        parts = [(item, spec) for item, spec in wanted if isinstance(item, Partition)]
        return size == 0 or not enough_readable(params, parts)

    def _answer(
        self,
        params: FetchParams,
        wanted: Sequence[PartitionRequest],
        respond: Callable[[list[FetchData]], R],
        answered: tasks.Future[R],
    ) -> None:
        """The wait is over: reads again."""
        if answered.done():
            return
        found = self._read_all(params, wanted, first=False)
        if any(data.remote_bytes_max for data in found):
            # Local retention overtook the request while it waited.
            self._read_remotely(params, wanted, found, respond, answered)
        else:
            answered.set_result(respond(found))

    # --- local reads

    def _read_all(self, params: FetchParams, wanted: Sequence[PartitionRequest], *, first: bool) -> list[FetchData]:
        budget = params.max_bytes
        # The first partition with data returns at least one batch, however small the limits (KIP-74).
        min_one_message = True
        found = []
        for item, spec in wanted:
            data = self._read(params, item, spec, min(spec.max_bytes, budget), min_one_message, first=first)
            size = len(data.records) or data.remote_bytes_max
            if size:
                min_one_message = False
                budget = max(0, budget - size)
            found.append(data)
        return found

    def _read(
        self,
        params: FetchParams,
        item: Partition | ErrorCode,
        spec: FetchSpec,
        bytes_max: int,
        min_one_message: bool,
        *,
        first: bool,
    ) -> FetchData:
        if not isinstance(item, Partition):
            return failed(item)
        try:
            if params.client_rack and self._config().replica_selector_class == RACK_AWARE:
                nearer = item.preferred_read_replica(params, spec)
                if nearer is not None:
                    return nearer
            data = item.read(params, spec, bytes_max, min_one_message=min_one_message)
        except OffsetOutOfRange:
            return self._out_of_range(params, item, spec, bytes_max, min_one_message)
        except KafkaError as error:
            return failed(error.code)
        if params.from_follower:
            if data.records and item.followers.is_throttled(params.replica_id):
                data.records = b""
            if first and data.diverging is None:
                item.follower_fetched(params, spec)
        return data

    def _out_of_range(
        self, params: FetchParams, partition: Partition, spec: FetchSpec, bytes_max: int, min_one_message: bool
    ) -> FetchData:
        """No local segment has the offset; the remote tier may."""
        log = partition.log
        remote = self._remote()
        if (
            remote is None
            or not log.remote_enabled
            or not log.log_start_offset <= spec.fetch_offset < log.local_log_start_offset
        ):
            return failed(ErrorCode.OFFSET_OUT_OF_RANGE)
        if params.from_follower:
            return FetchData(
                ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
                high_watermark=log.high_watermark,
                log_start_offset=log.log_start_offset,
            )
        return FetchData(
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted=() if params.isolation is Isolation.COMMITTED else None,
            # Past the quota the partition looks as if it had no records yet (KIP-956).
            remote_bytes_max=0 if remote.throttle_fetch() else max(0, bytes_max),
            remote_min_one_message=min_one_message,
        )

    # --- remote reads

    def _read_remotely(
        self,
        params: FetchParams,
        wanted: Sequence[PartitionRequest],
        found: list[FetchData],
        respond: Callable[[list[FetchData]], R],
        answered: tasks.Future[R],
    ) -> None:
        """Reads everything remote in parallel; what is not there in time answers as if there were no records yet."""
        reads: list[tuple[Partition, PartitionRead]] = [
            (item, partial(self._read_remote, params, item, spec, found, at))
            for at, ((item, spec), data) in enumerate(zip(wanted, found, strict=True))
            if data.remote_bytes_max and isinstance(item, Partition)
        ]

        def answer() -> None:
            if answered.done():
                return
            try:
                answered.set_result(respond(found))
            except Exception as error:
                answered.set_exception(error)

        DelayedRemoteFetch(self._purgatory, reads, self._config().remote_fetch_max_wait_ms, answer)

    async def _read_remote(
        self,
        params: FetchParams,
        partition: Partition,
        spec: FetchSpec,
        found: list[FetchData],
        at: int,
        begun: Callable[[], object],
    ) -> None:
        """Fills in one partition's data, or replaces it by its error."""
        data, remote = found[at], self._remote()
        assert remote is not None
        committed = params.isolation is Isolation.COMMITTED
        try:
            read = await remote.read(
                partition.log,
                spec.fetch_offset,
                data.remote_bytes_max,
                min_one_message=data.remote_min_one_message,
                read_committed=committed,
                begun=begun,
            )
        except KafkaError as error:
            known = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.REPLICA_NOT_AVAILABLE)
            found[at] = failed(error.code if error.code in known else ErrorCode.UNKNOWN_SERVER_ERROR)
        except RemoteStorageError:
            # The remote log manager has logged which object could not be read and why.
            found[at] = failed(ErrorCode.UNKNOWN_SERVER_ERROR)
        except Exception:
            # Whatever it was: the client is told, and its other partitions are answered.
            _log.exception("The remote read of %s at offset %d failed", partition, spec.fetch_offset)
            found[at] = failed(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            data.records = read.records
            data.aborted = (read.aborted or ()) if committed else None
