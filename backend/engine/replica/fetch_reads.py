"""Serving fetches: reads all partitions of a request, waits for data or fetches from the remote tier, answers once.

A request that can be answered is answered at once, without a task. One with a partition whose offset is only remote
waits for those reads, at most for `remote.fetch.max.wait.ms`, and for nothing else: neither the client's own wait nor
its fetch.min.bytes count (KIP-405); any other waits in the purgatory. Kafka: `ReplicaManager.fetchMessages`,
`DelayedFetch`, `DelayedRemoteFetch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from backend.engine.ports import tasks
from backend.engine.replica import partition_reads
from backend.engine.replica.fetch_data import FetchData, FetchParams, FetchSpec, failed
from backend.engine.replica.partition import Partition
from backend.engine.replica.partition_context import PartitionContext
from backend.engine.replica.purgatory import DelayedFetch, PartitionRequest, Purgatory, enough_readable
from backend.engine.replica.remote_reads import RemoteFetchReads
from backend.engine.replica.replica_selector import RACK_AWARE
from backend.protocol.errors import ErrorCode, KafkaError

R = TypeVar("R")

_NONE: Final = ErrorCode.NONE


class FetchReads:
    """Fetches of one broker."""

    def __init__(self, purgatory: Purgatory, context: PartitionContext) -> None:
        self._purgatory = purgatory
        self._metadata = context.metadata
        self._actions = context.actions
        self._remote = RemoteFetchReads(purgatory, context)

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
            self._remote.start(params, requests, reads, partial(_set_result, answered, respond))
            return answered
        if not (requests or more_may_join) or not self._must_wait(params, requests, reads):
            return respond(reads)
        answered = tasks.eager_future()  # its callbacks run at once: the records have been waited for long enough
        waiting = DelayedFetch(
            self._purgatory, params, requests, lambda: self._respond(params, requests, respond, answered)
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

    def _respond(
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
            self._remote.start(params, requests, reads, partial(_set_result, answered, respond))
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
                elsewhere = partition_reads.from_preferred_replica(item, params, spec)
                if elsewhere is not None:
                    return elsewhere
            data = partition_reads.read(item, params, spec, bytes_max, min_one_message=min_one_message)
        except KafkaError as error:
            return failed(error.code)
        if data.error is not _NONE:
            return self._remote.plan(params, item, spec, bytes_max, min_one_message)
        if params.from_follower:
            if data.records and item.followers.is_throttled(params.replica_id):
                data.records = b""
            if first and data.diverging is None:
                item.follower_fetched(params, spec)
        return data


def _set_result(answered: tasks.Future[R], respond: Callable[[list[FetchData]], R], reads: list[FetchData]) -> None:
    if answered.done():
        return
    try:
        answered.set_result(respond(reads))
    except Exception as error:  # the request that waits for the answer raises it
        answered.set_exception(error)
