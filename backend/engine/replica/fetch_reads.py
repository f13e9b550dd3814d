"""Serving fetches: reads all partitions of a request, waits for data or fetches from the remote tier, answers once.

A request that can be answered is answered at once, without a task. One with a partition whose offset is only remote
waits for those reads, at most for `remote.fetch.max.wait.ms`, and for nothing else: neither the client's own wait nor
its fetch.min.bytes count (KIP-405); any other waits in the purgatory. Kafka: `ReplicaManager.fetchMessages`,
`DelayedFetch`, `DelayedRemoteFetch`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from backend.engine.log.errors import OffsetOutOfRange
from backend.engine.ports import tasks
from backend.engine.remote.rsm import RemoteStorageError
from backend.engine.replica.delayed_remote import DelayedRemoteFetch, PartitionRead
from backend.engine.replica.fetch_data import FetchData, FetchParams, FetchSpec, Isolation, failed
from backend.engine.replica.partition import Partition
from backend.engine.replica.partition_context import PartitionContext
from backend.engine.replica.purgatory import DelayedFetch, PartitionRequest, Purgatory, enough_readable
from backend.engine.replica.replica_selector import RACK_AWARE
from backend.protocol.errors import ErrorCode, KafkaError

R = TypeVar("R")

_NONE: Final = ErrorCode.NONE
# Errors of the remote log manager that go to the client as they are.
_PASSED_ON: Final = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.REPLICA_NOT_AVAILABLE})

_log = logging.getLogger(__name__)


class FetchReads:
    """Fetches of one broker."""

    def __init__(self, purgatory: Purgatory, context: PartitionContext) -> None:
        self._purgatory = purgatory
        self._metadata = context.metadata
        self._actions = context.actions
        self._remote = context.remote_logs

    def fetch(
        self,
        params: FetchParams,
        requests: list[PartitionRequest],
        respond: Callable[[list[FetchData]], R],
        on_wait: Callable[[DelayedFetch], None] | None = None,
        *,
        more_may_join: bool = False,
    ) -> R | tasks.Future[R]:
        """Returns `respond` of one FetchData per request, in their order; a future while that must wait.

        `on_wait` is given the delayed request, which may be completed early, and which further partitions may join,
        at the end of `requests`; it waits for them too when `more_may_join`.
        """
        if params.max_bytes < 0:
            # Kafka answers every partition so under a negative limit.
            return respond([failed(ErrorCode.UNKNOWN_SERVER_ERROR) for _ in requests])
        reads = self._read_all(params, requests, first=True)
        if params.from_follower:
            # Requests that waited for the follower to have the records have waited long enough. The follower itself
            # seldom finds new ones.
            self._actions.complete_actions()
        if any(data.remote_bytes_max for data in reads):
            answered: tasks.Future[R] = tasks.future()
            self._read_remotely(params, requests, reads, respond, answered)
            return answered
        if not (requests or more_may_join) or not self._must_wait(params, requests, reads):
            return respond(reads)
        answered = tasks.eager_future()  # its callbacks run at once: the records have been waited for long enough
        waiting = DelayedFetch(
            self._purgatory, params, requests, lambda: self._answer(params, requests, respond, answered)
        )
        if on_wait is not None:
            on_wait(waiting)
        return answered

    def _must_wait(self, params: FetchParams, requests: Sequence[PartitionRequest], reads: list[FetchData]) -> bool:
        if params.max_wait_ms <= 0 or self._purgatory.full:
            return False
        size = 0
        for data in reads:
            if data.error is not _NONE or data.diverging is not None or data.preferred_replica >= 0:
                return False
            size += len(data.records)
        if size >= params.min_bytes:
            return False
        # Records that did not fit were left out and count all the same (`DelayedFetch.tryComplete`).
        parts = [(item, spec) for item, spec in requests if isinstance(item, Partition)]
        return size == 0 or not enough_readable(params, parts)

    def _answer(
        self,
        params: FetchParams,
        requests: Sequence[PartitionRequest],
        respond: Callable[[list[FetchData]], R],
        answered: tasks.Future[R],
    ) -> None:
        """The wait is over: reads again."""
        if answered.done():
            return
        reads = self._read_all(params, requests, first=False)
        if any(data.remote_bytes_max for data in reads):
            # Local retention overtook the request while it waited.
            self._read_remotely(params, requests, reads, respond, answered)
        else:
            answered.set_result(respond(reads))

    # --- local reads

    def _read_all(self, params: FetchParams, requests: Sequence[PartitionRequest], *, first: bool) -> list[FetchData]:
        budget = params.max_bytes
        # The first partition with data returns at least one batch, however small the limits (KIP-74).
        min_one_message = True
        reads: list[FetchData] = []
        for item, spec in requests:
            data = self._read(params, item, spec, min(spec.max_bytes, budget), min_one_message, first=first)
            size = len(data.records) or data.remote_bytes_max
            if size:
                min_one_message = False
                budget = max(0, budget - size)
            reads.append(data)
        return reads

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
            if params.client_rack and self._metadata.config.replica_selector_class == RACK_AWARE:
                elsewhere = item.preferred_read_replica(params, spec)
                if elsewhere is not None:
                    return elsewhere
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
        remote = self._remote
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
        requests: Sequence[PartitionRequest],
        reads: list[FetchData],
        respond: Callable[[list[FetchData]], R],
        answered: tasks.Future[R],
    ) -> None:
        """Reads everything remote in parallel; what is not there in time answers as if there were no records yet."""
        remote_reads: list[tuple[Partition, PartitionRead]] = [
            (item, partial(self._read_remote, params, item, spec, reads, at))
            for at, ((item, spec), data) in enumerate(zip(requests, reads, strict=True))
            if data.remote_bytes_max and isinstance(item, Partition)
        ]

        def answer() -> None:
            if answered.done():
                return
            try:
                answered.set_result(respond(reads))
            except Exception as error:
                answered.set_exception(error)

        DelayedRemoteFetch(self._purgatory, remote_reads, self._metadata.config.remote_fetch_max_wait_ms, answer)

    async def _read_remote(
        self,
        params: FetchParams,
        partition: Partition,
        spec: FetchSpec,
        reads: list[FetchData],
        at: int,
        begun: Callable[[], object],
    ) -> None:
        """Fills in one partition's data, or replaces it by its error."""
        data, remote = reads[at], self._remote
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
            reads[at] = failed(error.code if error.code in _PASSED_ON else ErrorCode.UNKNOWN_SERVER_ERROR)
        except RemoteStorageError:
            # The remote log manager has logged which object could not be read and why.
            reads[at] = failed(ErrorCode.UNKNOWN_SERVER_ERROR)
        except Exception:
            # An error of any kind becomes this partition's answer; the other partitions are answered.
            _log.exception("The remote read of %s at offset %d failed", partition, spec.fetch_offset)
            reads[at] = failed(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            data.records = read.records
            data.aborted = (read.aborted or ()) if committed else None
