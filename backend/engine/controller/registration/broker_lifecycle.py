"""A broker's life as its controller sees it: register, heartbeat, unfence, leave (Kafka's BrokerLifecycleManager)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.config import BrokerConfig
from backend.engine.config.listeners import controller_addresses
from backend.engine.controller.image.metadata_image import Endpoint, SupportedFeature
from backend.engine.ports import Ports, tasks
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError, error_for

REGISTRATION_VERSION: Final = 4
HEARTBEAT_VERSION: Final = 2
# While something is awaited (unfencing, leave to go) the next heartbeat follows sooner than the interval.
IMPATIENT_INTERVAL_MS: Final = 50
# After a heartbeat that no controller took.
REFUSED_INTERVAL_MS: Final = 250
# A controller that refuses so many heartbeats of a leaving broker in a row cannot hand its leadership over.
LEAVE_TRIES: Final = 20
# Registration errors that waiting cannot cure.
_HOPELESS: Final = frozenset(
    {ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REGISTRATION, ErrorCode.UNSUPPORTED_VERSION}
)
_LOST_REGISTRATION: Final = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})

_log = logging.getLogger(__name__)


def no_controller(
    config: BrokerConfig, what: str, refusal: KafkaError | None, quorum_waits_for: str | None = None
) -> KafkaError:
    """A start gives up (REQUEST_TIMED_OUT): what it waited for, whom it could not reach, and what to do.

    `refusal`: what came of the last try; `quorum_waits_for`: whom this node, a voter itself, waits for.
    """
    waited_s = config.initial_broker_registration_timeout_ms / 1000
    text = f"Broker {config.id} has waited {waited_s:g} s (initial.broker.registration.timeout.ms) {what}"
    if refusal is not None and refusal.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
        text += f", and another broker runs as node.id {config.id}: stop that one, or give this one another id"
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
    if quorum_waits_for is not None:
        text += f". {quorum_waits_for.rstrip('.')}; then start this broker again"
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
    addresses = ", ".join(f"{host}:{port}" for host, port in controller_addresses(config))
    text += f" by an active controller, one of {addresses}"
    if refusal is not None:
        text += f" ({refusal.message.rstrip('.')})"
    text += ". Start the controllers that are away, then this broker again"
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)


class BrokerLifecycle:
    """One task per broker; `channel` is used by nothing else, so that no slow request delays a heartbeat."""

    def __init__(
        self,
        ports: Ports,
        config: BrokerConfig,
        channel: ControllerChannel,
        *,
        cluster_id: str,
        endpoints: Sequence[Endpoint],
        log_dirs: Sequence[bytes],
        features: Sequence[SupportedFeature],
        applied_offset: Callable[[], int],
        previous_epoch: int = -1,
        offline_log_dirs: Callable[[], Sequence[bytes]] = tuple,
        quorum_waits_for: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`quorum_waits_for`: why this node knows no leader of the metadata quorum, in one sentence."""
        self._ports = ports
        self._config = config
        self._channel = channel
        self._incarnation_id = ports.random.uuid()
        self._applied_offset = applied_offset
        self._offline_log_dirs = offline_log_dirs
        self._broker_epoch = -1
        self._ready = False
        self._fenced = True
        self._leaving = False
        self._quorum_waits_for = quorum_waits_for
        # Why the last try to register failed.
        self._refusal: KafkaError | None = None
        self._refused_in_a_row = 0
        self._logged_code: ErrorCode | None = None
        self._wake = tasks.Event()
        self._registered: tasks.Future[int] = tasks.future()
        self._unfenced: tasks.Future[None] = tasks.future()
        self._may_go = tasks.Event()
        self._task: tasks.Task[None] | None = None
        self._registration = self._registration_request(cluster_id, endpoints, log_dirs, features, previous_epoch)

    def _registration_request(
        self,
        cluster_id: str,
        endpoints: Sequence[Endpoint],
        log_dirs: Sequence[bytes],
        features: Sequence[SupportedFeature],
        previous_epoch: int,
    ) -> m.BrokerRegistrationRequest:
        request = m.BrokerRegistrationRequest
        return request(
            broker_id=self._config.id,
            cluster_id=cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                request.Listeners(
                    name=endpoint.name,
                    host=endpoint.host,
                    port=endpoint.port,
                    security_protocol=endpoint.security_protocol,
                )
                for endpoint in endpoints
            ],
            features=[
                request.Features(
                    name=feature.name, min_supported_version=feature.min_level, max_supported_version=feature.max_level
                )
                for feature in features
            ],
            rack=self._config.broker_rack,
            log_dirs=list(log_dirs),
            previous_broker_epoch=previous_epoch,
        )

    @property
    def broker_epoch(self) -> int:
        """The epoch of this life; -1 until registered."""
        return self._broker_epoch

    @property
    def fenced(self) -> bool:
        """The state of this broker in the controller's last response."""
        return self._fenced

    async def start(self) -> int:
        """Registers, and gives the broker epoch. KafkaError when the controller refuses for good, or never answers."""
        self._task = tasks.spawn(self._run(), name=f"broker {self._config.id} lifecycle")
        try:
            return await tasks.wait_for(self._registered, self._config.initial_broker_registration_timeout_ms)
        except tasks.Timeout:
            raise no_controller(self._config, "to be registered", self._refusal, self._quorum_waits_for()) from None

    async def unfence(self) -> None:
        """The broker is ready to serve: returns once the controller lets clients know it."""
        self._ready = True
        self._wake.set()
        await tasks.shield(self._unfenced)

    async def leave(self, timeout_ms: float) -> bool:
        """Controlled shutdown: leadership moves away. Whether the controller agreed within the time; then stops."""
        self._leaving = True
        self._wake.set()
        agreed = self._task is not None and self._broker_epoch >= 0
        if agreed:
            try:
                await tasks.wait_for(self._may_go.wait(), timeout_ms)
                agreed = self._refused_in_a_row < LEAVE_TRIES
            except tasks.Timeout:
                agreed = False
            if not agreed:
                _log.warning("Broker %d leaves without its controller's consent", self._config.id)
        await self.stop()
        return agreed

    def report_soon(self) -> None:
        """The controller waits to hear how far this broker has applied the metadata."""
        self._wake.set()

    async def stop(self) -> None:
        """Ends without a word; the controller will find out."""
        await tasks.cancel(self._task)

    async def _run(self) -> None:
        await self._register()
        while not self._may_go.is_set():
            await self._heartbeat()
            await self._pause()

    async def _pause(self) -> None:
        pause_ms: float = self._config.broker_heartbeat_interval_ms
        if self._leaving or (self._ready and self._fenced):
            pause_ms = min(pause_ms, IMPATIENT_INTERVAL_MS)
        elif self._logged_code is not None:
            # A new controller counts the silence from its election on: it is to hear of this broker soon.
            pause_ms = min(pause_ms, REFUSED_INTERVAL_MS)
        try:
            await tasks.wait_for(self._wake.wait(), pause_ms)
        except tasks.Timeout:
            return
        self._wake.clear()

    async def _register(self) -> None:
        shown: ErrorCode | None = None
        while True:
            try:
                self._broker_epoch = await self._send_registration()
            except KafkaError as error:
                self._refusal = error
                if error.code in _HOPELESS and not self._registered.done():
                    self._registered.set_exception(self._explained(error))
                    return
                if error.code is not shown:
                    shown = error.code
                    # Every start of several voters comes to this: they elect one first.
                    level = logging.INFO if error.code is ErrorCode.NOT_CONTROLLER else logging.WARNING
                    _log.log(level, "Broker %d is not registered yet, trying on: %s", self._config.id, error)
                await tasks.sleep_ms(IMPATIENT_INTERVAL_MS)
                continue
            _log.info("Broker %d is registered with epoch %d", self._config.id, self._broker_epoch)
            if not self._registered.done():
                self._registered.set_result(self._broker_epoch)
            return

    def _explained(self, error: KafkaError) -> KafkaError:
        if error.code is not ErrorCode.INCONSISTENT_CLUSTER_ID:
            return error
        return KafkaError(
            error.code,
            f"The controllers belong to another cluster than {self._registration.cluster_id}; correct"
            " controller.quorum.voters, or start with that cluster's folder or an empty one",
        )

    async def _send_registration(self) -> int:
        response = await self._channel.send(
            self._registration, REGISTRATION_VERSION, timeout_ms=self._config.broker_session_timeout_ms
        )
        if not isinstance(response, m.BrokerRegistrationResponse):
            raise TypeError(f"a BrokerRegistration was answered by {type(response).__name__}")
        if response.error_code:
            raise error_for(response.error_code)
        return response.broker_epoch

    async def _heartbeat(self) -> None:
        request = m.BrokerHeartbeatRequest(
            broker_id=self._config.id,
            broker_epoch=self._broker_epoch,
            current_metadata_offset=self._applied_offset(),
            want_fence=not self._ready,
            want_shut_down=self._leaving,
            offline_log_dirs=list(self._offline_log_dirs()),
        )
        try:
            response = await self._channel.send(
                request, HEARTBEAT_VERSION, timeout_ms=self._config.broker_session_timeout_ms
            )
        except KafkaError as error:
            self._log_once(error)
            return
        if not isinstance(response, m.BrokerHeartbeatResponse):
            raise TypeError(f"a BrokerHeartbeat was answered by {type(response).__name__}")
        if response.error_code in _LOST_REGISTRATION and not self._leaving:
            _log.warning("Broker %d registers again: %s", self._config.id, error_for(response.error_code))
            await self._register()
            return
        if response.error_code:
            self._log_once(error_for(response.error_code))
            if response.error_code in _LOST_REGISTRATION:
                self._may_go.set()
            return
        self._logged_code = None
        self._refused_in_a_row = 0
        self._apply_response(response)

    def _log_once(self, error: KafkaError) -> None:
        """A controller that is away for long fills no log, and holds up no stop."""
        self._refused_in_a_row += 1
        if self._leaving and self._refused_in_a_row >= LEAVE_TRIES:
            self._may_go.set()
        if error.code is not self._logged_code:
            self._logged_code = error.code
            _log.warning("Broker %d: the controller has not taken a heartbeat, trying on: %s", self._config.id, error)

    def _apply_response(self, response: m.BrokerHeartbeatResponse) -> None:
        if response.is_fenced != self._fenced:
            _log.info("Broker %d is %s", self._config.id, "fenced" if response.is_fenced else "unfenced")
        self._fenced = response.is_fenced
        if not self._fenced and not self._unfenced.done():
            self._unfenced.set_result(None)
        if response.should_shut_down:
            self._may_go.set()
