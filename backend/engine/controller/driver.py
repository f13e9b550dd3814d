"""The active controller: one task carries out commands one after another, each against the newest image (KIP-631).

A command's records are checked against the image, appended to the metadata log, and answered once they are on disk.
All commands that wait while the disk is busy share the next flush. Brokers see records only up to the high watermark,
which a flush moves. One voter for now: what is flushed is committed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.brokers import broker_heartbeat, fence_broker, register_broker
from backend.engine.controller.commands.cluster import bootstrap, register_controller
from backend.engine.controller.commands.elections import elect_unclean, rebalance_leaders
from backend.engine.controller.commands.outcome import Outcome
from backend.engine.controller.image import EMPTY_IMAGE, ControllerRegistration, MetadataImage
from backend.engine.controller.removed_topics import RemovedPartition, RemovedTopics
from backend.engine.controller.replay import apply_records
from backend.engine.controller.sessions import Sessions
from backend.engine.log.errors import NoSpace
from backend.engine.ports import Ports, tasks
from backend.engine.raft.metadata_log import MetadataLog
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

R = TypeVar("R")
Command = Callable[[MetadataImage], Outcome[R]]

# Requests that wait for their turn. At 1 KiB each the queue stays at 4 MiB; who meets a full one may try again.
QUEUED_COMMANDS_MAX: Final = 4096
# Commands that share a flush; the rest waits for the next one.
COMMANDS_PER_FLUSH_MAX: Final = 256
# Sessions are looked at this many times per session time-out, so a dead broker is found at most an eighth late.
SESSION_CHECKS: Final = 8
UNCLEAN_ELECTION_INTERVAL_MS: Final = 300_000
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Waiting:
    name: str
    command: Command[Any]
    answer: tasks.Future[Any]


class Controller:
    """Start once; stop before closing the log. All methods on the loop's thread."""

    def __init__(
        self,
        ports: Ports,
        config: BrokerConfig,
        log: MetadataLog,
        *,
        cluster_id: str,
        registration: ControllerRegistration,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        """`on_failure` is told when the controller has stopped by itself."""
        self._ports = ports
        self._config = config
        self._metadata_log = log
        self._registration = registration
        self._on_failure = on_failure
        self._committed = replace(EMPTY_IMAGE, cluster_id=cluster_id)
        self._newest = self._committed
        self._sessions = Sessions(config.broker_session_timeout_ms)
        self.removed_topics = RemovedTopics()
        self._queue: deque[_Waiting] = deque()
        self._wake = tasks.Event()
        self._running: list[tasks.Task[None]] = []
        self._stopped = False
        self._failure: BaseException | None = None

    @property
    def image(self) -> MetadataImage:
        """The newest committed image."""
        return self._committed

    @property
    def log(self) -> MetadataLog:
        return self._metadata_log

    @property
    def failure(self) -> BaseException | None:
        """Why the controller has stopped by itself (its disk failed), or None."""
        return self._failure

    async def start(self) -> None:
        """Replays the log, begins a new leader epoch, and makes an empty log a cluster's."""
        log = self._metadata_log
        unknown = 0

        def count_unknown(record: object) -> None:
            nonlocal unknown
            unknown += 1

        for batch in log.stored_batches():
            self.removed_topics.note(self._newest, batch.records, batch.last_offset, replayed=True)
            self._newest = apply_records(
                self._newest, batch.records, batch.last_offset, batch.epoch, report_unknown=count_unknown
            )
        if unknown:
            _log.warning("Controller %d skipped %d metadata records of unknown kinds", self._config.id, unknown)
        await log.begin_epoch(self._ports.clock.time_ms())
        self._newest = replace(self._newest, offset=log.end_offset - 1, epoch=log.epoch)
        self._committed = self._newest
        self._sessions.update(self._newest, self._ports.clock.monotonic_ms())
        self._running.append(tasks.spawn(self._run(), name=f"controller {self._config.id}"))
        self._running.append(tasks.spawn(self._watch_sessions(), name=f"controller {self._config.id} sessions"))
        self._running.append(tasks.spawn(self._tend_leaders(), name=f"controller {self._config.id} leaders"))
        await self.submit("bootstrap", bootstrap)
        await self.submit("register controller", self._introduce)
        _log.info(
            "Controller %d leads epoch %d from offset %d with %d brokers and %d topics",
            self._config.id, log.epoch, log.end_offset, len(self.image.brokers), len(self.image.topics),
        )  # fmt: skip

    def _introduce(self, image: MetadataImage) -> Outcome[Any]:
        own = self._registration
        if image.controllers.get(own.id) == own:
            return Outcome((), None)
        request = m.ControllerRegistrationRequest
        return register_controller(
            image,
            request(
                controller_id=own.id,
                incarnation_id=own.incarnation_id,
                listeners=[
                    request.Listeners(
                        name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol
                    )
                    for one in own.endpoints
                ],
                features=[
                    request.Features(
                        name=one.name, min_supported_version=one.min_level, max_supported_version=one.max_level
                    )
                    for one in own.features
                ],
            ),
        )

    async def stop(self) -> None:
        """Refuses what still waits and ends; the log is left flushed."""
        self._stopped = True
        for task in self._running:
            await tasks.cancel(task)
        self._running.clear()
        self._refuse_all("The controller is shutting down")

    async def submit(self, name: str, command: Command[R]) -> R:
        """The command's response once its records are committed; KafkaError when the whole command is refused."""
        if self._failure is not None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"The controller has failed: {self._failure}")
        if self._stopped:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "The controller is shutting down")
        if len(self._queue) >= QUEUED_COMMANDS_MAX:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"The controller has {QUEUED_COMMANDS_MAX} requests waiting; try again"
            )
        waiting = _Waiting(name, command, tasks.future())
        self._queue.append(waiting)
        self._wake.set()
        response: R = await waiting.answer
        return response

    async def register_broker(self, request: m.BrokerRegistrationRequest) -> m.BrokerRegistrationResponse:
        """See `commands.brokers.register_broker`."""

        def command(image: MetadataImage) -> Outcome[m.BrokerRegistrationResponse]:
            return register_broker(
                image,
                request,
                self._config,
                next_offset=self._metadata_log.end_offset,
                session_alive=self._sessions.alive(request.broker_id, self._ports.clock.monotonic_ms()),
            )

        return await self.submit("register broker", command)

    async def heartbeat(self, request: m.BrokerHeartbeatRequest) -> m.BrokerHeartbeatResponse:
        """See `commands.brokers.broker_heartbeat`; counts as a sign of life on arrival."""
        self._sessions.touch(request.broker_id, request.broker_epoch, self._ports.clock.monotonic_ms())

        def command(image: MetadataImage) -> Outcome[m.BrokerHeartbeatResponse]:
            progress = self._sessions.progress(image, request.broker_id)
            result = broker_heartbeat(image, request, self._config, progress)
            self._sessions.caught_up_to(request.broker_id, request.current_metadata_offset)
            if request.want_shut_down and result.records:
                offset = self._metadata_log.end_offset + len(result.records) - 1
                self._sessions.shutting_down_at(request.broker_id, offset)
            return result

        return await self.submit("heartbeat", command)

    def fetched_up_to(self, broker_id: int, fetch_offset: int) -> None:
        """A broker asks for metadata from this offset on: brokers apply what they have before they fetch more."""
        self._sessions.caught_up_to(broker_id, fetch_offset - 1)

    def removed_partitions_offline(self) -> Sequence[RemovedPartition]:
        """Partitions of deleted tiered topics that no broker serves any more and that have yet to be told of."""
        return self.removed_topics.offline(self._committed, self._sessions.applied_offset)

    async def _run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue:
                    await self._commit_some()
        except OSError as error:
            self._failure = error
            _log.critical(
                "Controller %d stops: its metadata log %s failed: %s; free or repair the disk and start it again",
                self._config.id, self._metadata_log.dir, error,
            )  # fmt: skip
            self._refuse_all(f"The controller has failed: {error}")
            if self._on_failure is not None:
                self._on_failure(f"its metadata log {self._metadata_log.dir} failed: {error}")

    async def _commit_some(self) -> None:
        taken: list[_Waiting] = []
        answers: list[tuple[Any, BaseException | None]] = []
        try:
            while self._queue and len(taken) < COMMANDS_PER_FLUSH_MAX:
                waiting = self._queue.popleft()
                if waiting.answer.done():
                    # Whoever asked has gone away; nothing was promised.
                    continue
                taken.append(waiting)
                answers.append(self._carry_out(waiting))
            if self._newest is not self._committed:
                await self._metadata_log.flush()
                self._committed = self._newest
                self._sessions.update(self._committed, self._ports.clock.monotonic_ms())
        except OSError as error:
            for waiting in taken:
                _answer(waiting, None, KafkaError(ErrorCode.NOT_CONTROLLER, f"The metadata log failed: {error}"))
            raise
        except tasks.Cancelled:
            # What was appended may or may not survive: the next start will know.
            for waiting in taken:
                _answer(waiting, None, KafkaError(ErrorCode.NOT_CONTROLLER, "The controller is shutting down"))
            raise
        for waiting, (response, refusal) in zip(taken, answers, strict=True):
            _answer(waiting, response, refusal)

    def _carry_out(self, waiting: _Waiting) -> tuple[Any, BaseException | None]:
        log = self._metadata_log
        try:
            outcome = waiting.command(self._newest)
            if not outcome.records:
                return outcome.response, None
            # Before anything is written: records that do not fit the image would poison the log for good.
            last_offset = log.end_offset + len(outcome.records) - 1
            image = apply_records(self._newest, outcome.records, last_offset, log.epoch)
        except KafkaError as refusal:
            return None, refusal
        except Exception as bug:
            _log.exception("Controller %d could not carry out %s", self._config.id, waiting.name)
            return None, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{waiting.name} failed: {bug}")
        try:
            log.append(outcome.records, self._ports.clock.time_ms())
        except NoSpace as refusal:
            return None, refusal
        self.removed_topics.note(self._newest, outcome.records, last_offset)
        self._newest = image
        if any(isinstance(record, m.ConfigRecord) and record.name == UNCLEAN_ELECTION for record in outcome.records):
            # Who allows unclean elections wants the leaderless partitions led now, not at the next turn.
            tasks.spawn(self._do("elect unclean leaders", self._elect_unclean), name="unclean elections")
        return outcome.response, None

    def _elect_unclean(self, image: MetadataImage) -> Outcome[None]:
        return elect_unclean(image, self._config)

    def _refuse_all(self, message: str) -> None:
        while self._queue:
            _answer(self._queue.popleft(), None, KafkaError(ErrorCode.NOT_CONTROLLER, message))

    async def _watch_sessions(self) -> None:
        pause_ms = max(1.0, self._config.broker_session_timeout_ms / SESSION_CHECKS)
        while self._failure is None:
            due_ms = self._ports.clock.monotonic_ms() + pause_ms
            await tasks.sleep_ms(pause_ms)
            now_ms = self._ports.clock.monotonic_ms()
            if now_ms > due_ms:
                self._sessions.extend(now_ms - due_ms, now_ms)
            if now_ms > due_ms + pause_ms:
                _log.warning(
                    "Controller %d was held up for %d ms, which counts as no broker's silence; check the load of its"
                    " machine", self._config.id, now_ms - due_ms,
                )  # fmt: skip
            for broker_id in self._sessions.expired(self._committed, now_ms):
                _log.warning(
                    "Controller %d fences broker %d: no heartbeat for %d ms",
                    self._config.id, broker_id, self._config.broker_session_timeout_ms,
                )  # fmt: skip
                await self._fence(broker_id)

    async def _fence(self, broker_id: int) -> None:
        def command(image: MetadataImage) -> Outcome[None]:
            # A heartbeat may have come while the command waited for its turn.
            if broker_id not in self._sessions.expired(image, self._ports.clock.monotonic_ms()):
                return Outcome((), None)
            return fence_broker(image, broker_id, self._config)

        await self._do("fence a broker", command)

    async def _tend_leaders(self) -> None:
        """Leadership back to preferred replicas, and unclean elections for topics that allow them since."""
        rebalance_ms = self._config.leader_imbalance_check_interval_seconds * 1000
        pause_ms = min(rebalance_ms, UNCLEAN_ELECTION_INTERVAL_MS)
        while self._failure is None:
            await tasks.sleep_ms(pause_ms)
            if self._config.auto_leader_rebalance_enable:
                await self._do("rebalance leaders", rebalance_leaders)
            await self._do("elect unclean leaders", self._elect_unclean)

    async def _do(self, name: str, command: Command[None]) -> None:
        try:
            await self.submit(name, command)
        except KafkaError as error:
            _log.warning("Controller %d could not %s: %s", self._config.id, name, error)


def _answer(waiting: _Waiting, response: Any, refusal: BaseException | None) -> None:
    if waiting.answer.done():
        return
    if refusal is not None:
        waiting.answer.set_exception(refusal)
    else:
        waiting.answer.set_result(response)
