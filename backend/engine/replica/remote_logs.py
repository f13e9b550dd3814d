"""The remote log manager (KIP-405), as the replica layer uses it; `remote/manager/remote_log_manager` is one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol

from backend.engine.log.segments.timestamp_search import TimestampedOffset
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.remote.manager.remote_aux_state import AuxState
from backend.engine.remote.manager.remote_read import RemoteRead
from backend.engine.remote.manager.tier import PartitionView
from backend.tiering.ids import TopicIdPartition


class RemoteLogs(Protocol):
    """The remote log manager. Its errors are KafkaError, or RemoteStorageError and its subclasses."""

    def on_leadership_change(
        self,
        leaders: Iterable[PartitionView],
        followers: Iterable[PartitionView],
        topic_ids: Mapping[str, bytes],
    ) -> None:
        """The broker leads or follows these now, or their topic's remote settings changed."""
        ...

    def tiered_again(self, is_tiered: Callable[[TopicIdPartition], bool]) -> None:
        """New settings are in force: remote data that were being deleted, of what is tiered now, stay."""
        ...

    def stop_partitions(
        self, tips: Iterable[TopicIdPartition], *, delete_remote: bool, topic_deleted: bool = False
    ) -> Coroutine[Any, Any, None]:
        """The broker hosts these no longer (perhaps their topic was deleted), or they are no longer tiered."""
        ...

    def throttle_fetch(self) -> bool:
        """Whether reads of the remote tier have used up their quota for now."""
        ...

    async def read(
        self,
        log: UnifiedLog,
        fetch_offset: int,
        max_bytes: int,
        *,
        min_one_message: bool,
        read_committed: bool,
        begun: Callable[[], object] = ...,
    ) -> RemoteRead:
        """Records from an offset that is only remote. `begun` is called when it no longer waits for a reader."""
        ...

    async def offset_for_timestamp(self, log: UnifiedLog, timestamp: int) -> TimestampedOffset | None:
        """The first record of the whole log, remote and local, with at least this timestamp."""
        ...

    async def aux_state(self, tip: TopicIdPartition, epoch: int, offset: int) -> AuxState:
        """Both indexes of the remote segment with the record, read before this returns.

        Raises RemoteStorageError or a subclass; RemoteStorageNotReady while metadata is still being read.
        """
        ...

    async def wait_ready(self, tip: TopicIdPartition, timeout_ms: float) -> bool:
        """Whether the partition's metadata has been read up to its end, after waiting for it."""
        ...
