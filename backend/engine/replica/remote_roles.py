"""Passes roles and changes of topics' remote settings on to the remote log manager (KIP-405, KIP-950)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from backend.engine.ports import tasks
from backend.engine.replica.applied_metadata import AppliedMetadata
from backend.engine.replica.partition import Partition
from backend.engine.replica.remote_logs import RemoteLogs
from backend.tiering.ids import TopicIdPartition


class RemoteRoles:
    """Does nothing on a broker without tiered storage (`remote_logs` is None)."""

    def __init__(self, metadata: AppliedMetadata, remote_logs: RemoteLogs | None) -> None:
        self._metadata = metadata
        self._remote_logs = remote_logs
        self._stopping: set[tasks.Task[None]] = set()

    async def stopped(self) -> None:
        """Returns once the remote log manager has stopped every partition that `stop` named."""
        await tasks.gather_settled(self._stopping)

    def stop(self, tips: list[TopicIdPartition], *, delete_remote: bool, topic_deleted: bool = False) -> None:
        """The broker hosts these partitions no longer, or they are no longer tiered."""
        if self._remote_logs is None or not tips:
            return
        task = tasks.spawn(
            self._remote_logs.stop_partitions(tips, delete_remote=delete_remote, topic_deleted=topic_deleted),
            name=f"remote stop of {len(tips)} partitions",
        )
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def apply(
        self,
        leaders: Iterable[Partition],
        followers: Iterable[Partition],
        tiered_before: dict[Partition, bool],
        is_tiered: Callable[[TopicIdPartition], bool],
    ) -> None:
        """New roles, and partitions with changed settings that were tiered before or were not."""
        if self._remote_logs is None:
            return
        leading, following = dict.fromkeys(leaders), dict.fromkeys(followers)
        stopped: dict[bool, list[TopicIdPartition]] = {True: [], False: []}
        for partition, was_tiered in tiered_before.items():
            if partition.log.remote_enabled:
                (leading if partition.is_leader else following)[partition] = None
            elif was_tiered:
                partition.log.forget_highest_remote_offset()
                delete = partition.is_leader and partition.log.config.remote_log_delete_on_disable
                if delete:
                    partition.reset_remote_state()
                stopped[delete].append(partition.topic_id_partition)
        for delete, tips in stopped.items():
            self.stop(tips, delete_remote=delete)
        tiered_leaders = [partition for partition in leading if partition.log.remote_enabled]
        tiered_followers = [partition for partition in following if partition.log.remote_enabled]
        if tiered_leaders or tiered_followers:
            self._remote_logs.on_leadership_change(tiered_leaders, tiered_followers, self._metadata.image.topic_ids)
        # Only now: the remote log manager has to have the leaders first.
        self._remote_logs.tiered_again(is_tiered)
