"""The active controller: one task carries out commands one after another, each against the newest image (KIP-631).

A command's records are checked against the image, appended to the metadata log, and answered once they are committed,
that is, on the disks of most voters. All commands that wait meanwhile share the next round. The leader of the
metadata quorum is the active controller; the other controllers are standbys, which only follow the log, so that each
can take over at once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.config import BrokerConfig
from backend.engine.controller.broker_sessions import BrokerSessions
from backend.engine.controller.commands.brokers import broker_heartbeat, register_broker
from backend.engine.controller.commands.cluster_bootstrap import bootstrap
from backend.engine.controller.commands.cluster_start import ClusterStart
from backend.engine.controller.commands.command import Command, ControllerResult
from backend.engine.controller.image.metadata_image import NO_LEADER, ControllerRegistration, MetadataImage
from backend.engine.controller.image.replay import apply_records
from backend.engine.controller.metadata.node_metadata import NodeMetadata
from backend.engine.controller.metadata.topic_deletions import DeletedPartition
from backend.engine.controller.periodic_tasks import PeriodicTasks
from backend.engine.controller.registration.controller_registration import ControllerRegistrationManager
from backend.engine.controller.start_wait import StartWait
from backend.engine.ports import Ports, tasks
from backend.engine.raft.metadata_log import MetadataLog, MetadataLogFailed
from backend.engine.raft.raft_node import QuorumMismatch
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

R = TypeVar("R")

# Requests in the queue. At 1 KiB each it stays at 4 MiB; a client that meets a full queue may try again.
QUEUED_COMMANDS_MAX: Final = 4096
# Commands that share a flush; the rest waits for the next one.
COMMANDS_PER_FLUSH_MAX: Final = 256
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Waiting:
    name: str
    command: Command[Any]
    by_worker: bool
    response: tasks.Future[Any]


class Controller:
    """Start once; stop before stopping its metadata. All methods on the loop's thread."""

    def __init__(
        self,
        ports: Ports,
        config: BrokerConfig,
        metadata: NodeMetadata,
        *,
        registration: ControllerRegistration,
        channel: ControllerChannel | None = None,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        """`metadata` is started already. `channel` is the way to the active controller, where there can be another;
        `on_failure` is called with the reason when the controller has stopped by itself.
        """
        self._ports = ports
        self._config = config
        self.raft = metadata.raft
        self._on_failure = on_failure
        self._sessions = BrokerSessions(config.broker_session_timeout_ms)
        self._periodic = PeriodicTasks(ports, config, self, self._sessions)
        # Of the epoch that this controller leads.
        self._start_wait: StartWait | None = None
        self._queue: deque[_Waiting] = deque()
        self._wake = tasks.Event()
        self._running: list[tasks.Task[None]] = []
        # The epoch that this controller leads and has caught up in; -1 on a standby.
        self._active_epoch = -1
        self._ready: tasks.Future[None] = tasks.future()
        self._stopped = False
        self._failure: BaseException | None = None
        self._committed = metadata.committed
        self.snapshotter = metadata.snapshotter
        self.topic_deletions = metadata.topic_deletions
        self._newest = self.image
        # Set when the image may have partitions that no replica may lead before their logs are compared.
        self.leaderless = tasks.Event()
        self._may_be_leaderless = False
        self.isr_frozen = False
        self._registration = ControllerRegistrationManager(config, self, registration, channel)

    @property
    def image(self) -> MetadataImage:
        """The newest committed image."""
        return self._committed.image

    @property
    def snapshots_loaded(self) -> int:
        """Whenever this grows, what happened in between was not seen."""
        return self._committed.snapshots_loaded

    @property
    def _is_only_voter(self) -> bool:
        return len(self.raft.voters) == 1

    @property
    def _cluster_start(self) -> ClusterStart | None:
        """The brokers that elections wait for while the whole cluster starts."""
        return None if self._start_wait is None else self._start_wait.start

    @property
    def log(self) -> MetadataLog:
        return self.raft.log

    @property
    def leader_id(self) -> int:
        """The leader of the metadata quorum as this node knows it, or -1."""
        return self.raft.leader_id

    @property
    def is_active(self) -> bool:
        """Whether this is the controller that carries out commands."""
        return self._active_epoch >= 0 and self.raft.leads(self._active_epoch)

    @property
    def failure(self) -> BaseException | None:
        """Why the controller has stopped by itself (its disk failed), or None."""
        return self._failure

    def leader_address(self, listener_name: str) -> tuple[str, int]:
        """Host and port of the leader's listener of that name, from metadata, else settings; ("", 0) unknown."""
        leader = self.image.controllers.get(self.raft.leader_id)
        endpoint = (
            next((candidate for candidate in leader.endpoints if candidate.name == listener_name), None)
            if leader
            else None
        )
        if endpoint is not None:
            return endpoint.host, endpoint.port
        address = self.raft.addresses.get(self.raft.leader_id)
        return (address.host, address.port) if address else ("", 0)

    async def start(self) -> None:
        """Follows the log. An only voter leads when this returns, and has made an empty log a cluster's."""
        self._newest = self.image
        self._running.append(tasks.spawn(self._run(), name=f"controller {self._config.id}"))
        if self._is_only_voter:
            await tasks.shield(self._ready)
        else:
            registering = self._registration.run()
            self._running.append(tasks.spawn(registering, name=f"controller {self._config.id} registration"))

    async def stop(self) -> None:
        """Refuses what still waits and ends; the log is left flushed."""
        self._stopped = True
        for task in self._running:
            await tasks.cancel(task)
        self._running.clear()
        self._refuse_all("The controller is shutting down")

    def freeze_isr(self) -> None:
        """Fences no broker for its silence from now on: the whole cluster is about to stop."""
        self.isr_frozen = True

    async def submit(self, name: str, command: Command[R], *, by_worker: bool = False) -> R:
        """The command's response once its records are committed; KafkaError when the whole command is refused.

        `by_worker`: the command may take long, so it runs on a worker thread; the next command waits for it.
        """
        if self._failure is not None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"The controller has failed: {self._failure}")
        if self._stopped:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "The controller is shutting down")
        if not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"Controller {self._config.id} is not the active one")
        if len(self._queue) >= QUEUED_COMMANDS_MAX:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"The controller has {QUEUED_COMMANDS_MAX} requests waiting; try again"
            )
        waiting = _Waiting(name, command, by_worker, tasks.future())
        self._queue.append(waiting)
        self._wake.set()
        response: R = await waiting.response
        return response

    async def register_broker(self, request: m.BrokerRegistrationRequest) -> m.BrokerRegistrationResponse:
        """See `commands.brokers.register_broker`."""

        def command(image: MetadataImage) -> ControllerResult[m.BrokerRegistrationResponse]:
            return register_broker(
                image,
                request,
                self._config,
                next_offset=self.log.end_offset,
                session_alive=self._sessions.alive(request.broker_id, self._ports.clock.monotonic_ms()),
                start=self._cluster_start,
            )

        return await self.submit("register broker", command)

    async def heartbeat(self, request: m.BrokerHeartbeatRequest) -> m.BrokerHeartbeatResponse:
        """See `commands.brokers.broker_heartbeat`; counts as a sign of life on arrival."""
        self._sessions.touch(request.broker_id, request.broker_epoch, self._ports.clock.monotonic_ms())
        if self._start_wait is not None:
            self._start_wait.broker_contacted(request.broker_id, request.broker_epoch)

        def command(image: MetadataImage) -> ControllerResult[m.BrokerHeartbeatResponse]:
            progress = self._sessions.progress(image, request.broker_id)
            result = broker_heartbeat(image, request, self._config, progress, self._cluster_start)
            self._sessions.caught_up_to(request.broker_id, request.current_metadata_offset)
            if request.want_shut_down and result.records:
                offset = self.log.end_offset + len(result.records) - 1
                self._sessions.shutting_down_at(request.broker_id, offset)
            return result

        return await self.submit("heartbeat", command)

    def deleted_partitions_offline(self) -> Sequence[DeletedPartition]:
        """Partitions of deleted tiered topics that no broker serves any more, unless the remote tier is informed.

        Empty on a standby.
        """
        if not self.is_active:
            return ()
        return self.topic_deletions.offline(self.image, self._sessions.applied_offset)

    async def _run(self) -> None:
        """A standby follows; the leader carries out commands until it leads no more."""
        raft, log = self.raft, self.log
        try:
            while True:
                await self._committed.catch_up()
                if raft.failure is not None:
                    raise MetadataLogFailed(str(raft.failure))
                if raft.is_leader:
                    await self._lead(raft.epoch)
                    continue
                await log.wait_until(
                    lambda: log.high_watermark > self.image.offset + 1 or raft.is_leader or bool(raft.failure)
                )
        except (OSError, KafkaError) as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._active_epoch = -1
        _log.critical(
            "Controller %d stops: its metadata log %s failed: %s; free or repair the disk and start it again",
            self._config.id, self.log.dir, error,
        )  # fmt: skip
        self._refuse_all(f"The controller has failed: {error}")
        if self._is_only_voter and not self._ready.done():
            self._ready.set_exception(error)
        elif self._on_failure is not None:
            own = isinstance(self.raft.failure, QuorumMismatch)
            self._on_failure(str(error) if own else f"its metadata log {self.log.dir} failed: {error}")

    async def _lead(self, epoch: int) -> None:
        """Everything before the epoch is committed with its first record; then commands, until the epoch is over."""
        raft, log = self.raft, self.log
        start = raft.state.epoch_start
        await log.wait_until(lambda: log.high_watermark > start or not raft.leads(epoch))
        await self._committed.catch_up()
        if not raft.leads(epoch):
            return
        self._newest = self.image
        self._sessions = BrokerSessions(self._config.broker_session_timeout_ms)
        self._periodic = PeriodicTasks(self._ports, self._config, self, self._sessions)
        self._sessions.update(self.image, self._ports.clock.monotonic_ms())
        self._start_wait = StartWait(self._ports.clock, self._config, self, self._sessions)
        self._active_epoch = epoch
        self.leaderless.set()
        name = f"controller {self._config.id}"
        helpers = [
            tasks.spawn(self._periodic.watch_sessions(), name=f"{name} sessions"),
            tasks.spawn(self._periodic.balance_leaders(), name=f"{name} leaders"),
            tasks.spawn(self._begin(), name=f"{name} first commands"),
            tasks.spawn(self._start_wait.run(), name=f"{name} start"),
            tasks.spawn(self._wake_at_end_of(epoch), name=f"{name} epoch"),
        ]
        _log.info(
            "Controller %d leads epoch %d from offset %d with %d brokers and %d topics",
            self._config.id, epoch, log.end_offset, len(self.image.brokers), len(self.image.topics),
        )  # fmt: skip
        try:
            while raft.leads(epoch):
                while self._queue and raft.leads(epoch):
                    await self._commit_batch(epoch)
                # Control records come from the quorum, not from a command: the image passes over them.
                await self._committed.catch_up()
                self._newest = self.image
                if raft.leads(epoch) and not self._queue:
                    await self._wake.wait()
                    self._wake.clear()
        finally:
            self._active_epoch = -1
            self._start_wait = None
            # Records that were not committed may be replaced by the next leader's.
            self._newest = self.image
            self._refuse_all("The controller leads no longer")
            for helper in helpers:
                await tasks.cancel(helper)
        _log.info("Controller %d leads epoch %d no longer", self._config.id, epoch)

    async def _wake_at_end_of(self, epoch: int) -> None:
        """At the end of the epoch, and whenever something is committed that is in no image yet."""
        log, leads = self.log, self.raft.leads
        while leads(epoch):
            await log.wait_until(lambda: log.high_watermark > self.image.offset + 1 or not leads(epoch))
            self._wake.set()
            await log.wait_until(lambda: log.high_watermark <= self.image.offset + 1 or not leads(epoch))
        self._wake.set()

    async def _begin(self) -> None:
        """Writes the first records of an empty log, and this controller's registration."""
        try:
            await self.submit("bootstrap", partial(bootstrap, config=self._config))
            await self.submit("register controller", self._registration.command)
        except KafkaError as error:
            if self._is_only_voter and not self._ready.done():
                self._ready.set_exception(error)
                return
            _log.warning("Controller %d could not register: %s", self._config.id, error)
        if not self._ready.done():
            self._ready.set_result(None)

    async def _commit_batch(self, epoch: int) -> None:
        taken: list[_Waiting] = []
        outcomes: list[tuple[Any, BaseException | None]] = []
        bytes_before = self.log.appended_bytes
        try:
            while self._queue and len(taken) < COMMANDS_PER_FLUSH_MAX:
                waiting = self._queue.popleft()
                if waiting.response.done():
                    # The client has gone away, and nothing was promised to it.
                    continue
                taken.append(waiting)
                outcomes.append(await self._carry_out(waiting, epoch))
            if self._newest is not self.image:
                await self.raft.committed(self._newest.offset, epoch)
                self._committed.image = self._newest
                self._committed.last_record_ms = self._ports.clock.time_ms()
                if self._may_be_leaderless:
                    self._may_be_leaderless = False
                    self.leaderless.set()
                self.snapshotter.applied(self.log.appended_bytes - bytes_before)
                self._sessions.update(self.image, self._ports.clock.monotonic_ms())
        except OSError as error:
            for waiting in taken:
                _respond(waiting, None, KafkaError(ErrorCode.NOT_CONTROLLER, f"The metadata log failed: {error}"))
            raise
        except KafkaError as error:
            # Leadership ended: whether the records are committed, the next leader knows.
            for waiting in taken:
                _respond(waiting, None, error)
            return
        except tasks.Cancelled:
            # Appended records may or may not be committed: the next start will know.
            for waiting in taken:
                _respond(waiting, None, KafkaError(ErrorCode.NOT_CONTROLLER, "The controller is shutting down"))
            raise
        for waiting, (response, refusal) in zip(taken, outcomes, strict=True):
            _respond(waiting, response, refusal)

    async def _carry_out(self, waiting: _Waiting, epoch: int) -> tuple[Any, BaseException | None]:
        work = partial(_evaluate, waiting.command, self._newest, epoch)
        try:
            result, image = await self._ports.workers.run(work) if waiting.by_worker else work()
            if image is None:
                return result.response, None
        except KafkaError as refusal:
            return None, refusal
        except Exception as bug:
            # The commands that wait behind this one are carried out.
            _log.exception("Controller %d could not carry out %s", self._config.id, waiting.name)
            return None, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{waiting.name} failed: {bug}")
        try:
            # Only the log knows the offset: while a worker evaluated, raft may have appended a control record.
            last_offset = self.raft.append(result.records, epoch)
        except KafkaError as refusal:
            # No space, or the epoch is over.
            return None, refusal
        self.topic_deletions.add(self._newest, result.records, last_offset)
        self._newest = replace(image, offset=last_offset)
        if any(map(_may_leave_leaderless, result.records)):
            self._may_be_leaderless = True
        if any(isinstance(record, m.ConfigRecord) and record.name == UNCLEAN_ELECTION for record in result.records):
            # An operator who allows unclean elections wants leaders now, not at the next periodic task.
            tasks.spawn(
                self._periodic.do("elect unclean leaders", self._periodic.elect_unclean), name="unclean elections"
            )
        return result.response, None

    def _refuse_all(self, message: str) -> None:
        while self._queue:
            _respond(self._queue.popleft(), None, KafkaError(ErrorCode.NOT_CONTROLLER, message))


def _may_leave_leaderless(record: object) -> bool:
    """Whether after this record no replica may lead a partition, for now or before the logs are compared."""
    if not isinstance(record, m.PartitionChangeRecord):
        return False
    return record.leader == NO_LEADER or record.eligible_leader_replicas == [] or bool(record.last_known_elr)


def _evaluate(
    command: Command[R], newest: MetadataImage, epoch: int
) -> tuple[ControllerResult[R], MetadataImage | None]:
    """A command's result, and the image with its records, still at the offset before them; None when it has none."""
    result = command(newest)
    if not result.records:
        return result, None
    # Before anything is written: records that do not fit the image would poison the log for good.
    return result, apply_records(newest, result.records, newest.offset, epoch)


def _respond(waiting: _Waiting, response: Any, refusal: BaseException | None) -> None:
    if waiting.response.done():
        return
    if refusal is not None:
        waiting.response.set_exception(refusal)
    else:
        waiting.response.set_result(response)
