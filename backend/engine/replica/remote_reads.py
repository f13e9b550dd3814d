"""The remote part of a Fetch: offsets that no local segment has any more are read from the remote tier (KIP-405)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from backend.engine.remote.storage.remote_storage_manager import RemoteStorageError
from backend.engine.replica.delayed_remote import DelayedRemoteFetch, PartitionRead
from backend.engine.replica.fetch_data import FetchData, FetchParams, FetchSpec, Isolation, failed
from backend.engine.replica.partition import Partition
from backend.engine.replica.partition_context import PartitionContext
from backend.engine.replica.purgatory import PartitionRequest, Purgatory
from backend.protocol.errors import ErrorCode, KafkaError

# Errors of the remote log manager that go to the client as they are.
_PASSED_ON: Final = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.REPLICA_NOT_AVAILABLE})

_log = logging.getLogger(__name__)


class RemoteFetchReads:
    """Reads of one broker."""

    def __init__(self, purgatory: Purgatory, context: PartitionContext) -> None:
        self._purgatory = purgatory
        self._metadata = context.metadata
        self._remote = context.remote_logs

    def plan(
        self, params: FetchParams, partition: Partition, spec: FetchSpec, bytes_max: int, min_one_message: bool
    ) -> FetchData:
        """The answer for an offset that no local segment has; with `remote_bytes_max` when it is to be read first."""
        log = partition.log
        if (
            self._remote is None
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
            remote_bytes_max=0 if self._remote.throttle_fetch() else max(0, bytes_max),
            remote_min_one_message=min_one_message,
        )

    def start(
        self,
        params: FetchParams,
        requests: Sequence[PartitionRequest],
        planned: Sequence[FetchData],
        respond: Callable[[list[FetchData]], None],
    ) -> None:
        """Reads every planned part in parallel and calls `respond` once with the data of all `requests`, in their
        order.

        A part that is not read in time answers as if there were no records yet.
        """
        reads: dict[int, tuple[Partition, PartitionRead]] = {
            index: (partition, partial(self._read, params, partition, spec, data))
            for index, ((partition, spec), data) in enumerate(zip(requests, planned, strict=True))
            if data.remote_bytes_max and isinstance(partition, Partition)
        }
        DelayedRemoteFetch(
            self._purgatory,
            reads,
            self._metadata.config.remote_fetch_max_wait_ms,
            lambda results: respond([results.get(index, data) for index, data in enumerate(planned)]),
        )

    async def _read(
        self,
        params: FetchParams,
        partition: Partition,
        spec: FetchSpec,
        planned: FetchData,
        begun: Callable[[], object],
    ) -> FetchData:
        assert self._remote is not None
        committed = params.isolation is Isolation.COMMITTED
        try:
            read = await self._remote.read(
                partition.log,
                spec.fetch_offset,
                planned.remote_bytes_max,
                min_one_message=planned.remote_min_one_message,
                read_committed=committed,
                begun=begun,
            )
        except KafkaError as error:
            return failed(error.code if error.code in _PASSED_ON else ErrorCode.UNKNOWN_SERVER_ERROR)
        except RemoteStorageError:
            # The remote log manager has logged which object could not be read and why.
            return failed(ErrorCode.UNKNOWN_SERVER_ERROR)
        except Exception:
            # An error of any kind becomes this partition's answer; the other partitions are answered.
            _log.exception("The remote read of %s at offset %d failed", partition, spec.fetch_offset)
            return failed(ErrorCode.UNKNOWN_SERVER_ERROR)
        return FetchData(
            high_watermark=planned.high_watermark,
            last_stable_offset=planned.last_stable_offset,
            log_start_offset=planned.log_start_offset,
            records=read.records,
            aborted=(read.aborted or ()) if committed else None,
        )
