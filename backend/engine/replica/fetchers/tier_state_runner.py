"""Runs the plans of `tier_state`: asks the leader, over a connection for plans alone, and the remote log manager.

A plan never touches the log; `FollowedPartition.apply` does once the plan has ended. Every failure becomes a back-off
with one sentence, or FAILED when no retry can help: under another leader epoch, or with a log that is offline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, assert_never

from backend.engine.ports import tasks
from backend.engine.remote.manager.remote_aux_state import AuxState
from backend.engine.remote.storage.remote_storage_manager import RemoteStorageError, RemoteStorageNotReady
from backend.engine.replica.fetchers import tier_state
from backend.engine.replica.fetchers.followed_partition import LIST_OFFSETS_11_LEVEL, FollowedPartition, FollowerKey
from backend.engine.replica.fetchers.leader_end_point import ConnectToLeader, LeaderConnection, LeaderEndPoint
from backend.engine.replica.fetchers.tier_state import (
    AskEpochEnd,
    AskOffset,
    CannotBuild,
    ReadAux,
    TierStateOutcome,
    TierStatePlan,
)
from backend.engine.replica.partition_context import PartitionContext
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError

# At once per leader: each holds two small indexes of a remote segment in memory, together below 1 MB.
PLANS_MAX: Final = 8
OLD_LIST_OFFSETS_VERSION: Final = 9
LIST_OFFSETS_VERSION: Final = 11

_log = logging.getLogger(__name__)


class TierStateRunner:
    """The running plans of one fetcher."""

    def __init__(
        self,
        context: PartitionContext,
        address: tuple[str, int],
        connect: ConnectToLeader,
        on_end: Callable[[FollowedPartition], None],
    ) -> None:
        self._context = context
        self._address = address
        self._connect = connect
        self._on_end = on_end
        self._endpoint: LeaderConnection | None = None
        self._slots = tasks.Semaphore(PLANS_MAX)
        self._running: dict[FollowerKey, tasks.Task[None]] = {}

    def start(self, follower: FollowedPartition, plan: TierStatePlan) -> None:
        """Runs a plan for a follower that is marked busy; `on_end` is called when its state allows fetches again."""
        self._running[follower.key] = tasks.spawn(self._run(follower, plan), name=f"tier plan of {follower}")

    def cancel(self, key: FollowerKey) -> None:
        """Ends the plan of a partition, if there is one."""
        task = self._running.pop(key, None)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        """Ends all plans."""
        for task in list(self._running.values()):
            await tasks.cancel(task)
        self._running.clear()
        if self._endpoint is not None:
            self._endpoint.close()

    async def _run(self, follower: FollowedPartition, plan: TierStatePlan) -> None:
        try:
            try:
                async with self._slots:
                    outcome = await self._outcome(follower, plan)
            except RemoteStorageNotReady as error:
                await self._wait_ready(follower, str(error))
            else:
                follower.apply(outcome)
        except (CannotBuild, RemoteStorageError, DecodeError, ValueError) as error:
            _log.warning("%s cannot start behind the remote tier yet: %s", follower, error)
            follower.delay(str(error) or type(error).__name__)
        except KafkaError as error:
            self._refused(follower, error)
        except Exception as error:
            # An error of any kind from a plugged-in metadata manager may be over soon; Kafka tries again, too.
            _log.exception("%s could not find out where to go on", follower)
            follower.delay(f"it could not be found out where to go on: {type(error).__name__}: {error}")
        if not follower.dropped:
            self._running.pop(follower.key, None)
            self._on_end(follower)

    async def _wait_ready(self, follower: FollowedPartition, reason: str) -> None:
        """Goes on as soon as the metadata is read, which for a new replica takes a moment, or after the back-off."""
        source = self._context.remote_logs
        assert source is not None, "only it finds its metadata not ready"
        follower.wait(reason)
        tip, timeout_ms = follower.partition.topic_id_partition, self._context.metadata.config.replica_fetch_backoff_ms
        follower.waited(ready=await source.wait_ready(tip, timeout_ms))

    def _refused(self, follower: FollowedPartition, error: KafkaError) -> None:
        offline = follower.partition.log.offline_reason
        if error.code is ErrorCode.FENCED_LEADER_EPOCH or offline is not None:
            follower.fail(offline or error.message, expected=offline is None)
        else:
            follower.delay(error.message)

    async def _outcome(self, follower: FollowedPartition, plan: TierStatePlan) -> TierStateOutcome:
        request = next(plan)
        while True:
            response = await self._ask(follower, request)
            try:
                request = plan.send(response)
            except StopIteration as end:
                outcome: TierStateOutcome = end.value
                return outcome

    async def _ask(self, follower: FollowedPartition, request: tier_state.TierStateRequest) -> Any:
        tip, epoch = follower.partition.topic_id_partition, follower.state.leader_epoch
        match request:
            case AskOffset(timestamp=timestamp):
                return await self._leader_end_point().offset(tip, epoch, timestamp)
            case AskEpochEnd(epoch=asked):
                return await self._leader_end_point().epoch_end(tip, epoch, asked)
            case ReadAux():
                return await self._read_aux(follower, request)
            case _:
                assert_never(request)

    def _leader_end_point(self) -> LeaderEndPoint:
        # Behind a Fetch that waits at the leader an answer could take replica.fetch.wait.max.ms.
        if self._endpoint is None:
            self._endpoint = self._connect(*self._address)
        level = self._context.metadata.image.features.get("metadata.version", 0)
        return LeaderEndPoint(
            self._endpoint,
            self._context.node_id,
            list_offsets_version=LIST_OFFSETS_VERSION if level >= LIST_OFFSETS_11_LEVEL else OLD_LIST_OFFSETS_VERSION,
            timeout_ms=self._context.metadata.config.request_timeout_ms,
        )

    async def _read_aux(self, follower: FollowedPartition, request: ReadAux) -> AuxState:
        source = self._context.remote_logs
        if source is None:
            raise CannotBuild("this broker runs without remote.log.storage.system.enable")
        follower.build(request)
        try:
            aux = await source.aux_state(follower.partition.topic_id_partition, request.epoch, request.offset)
        except Exception as error:  # the event says that it failed; the caller decides by the kind of the error
            follower.built("failed", request.target_offset, str(error))
            raise
        follower.built("finished", aux.next_offset, None)
        return aux
