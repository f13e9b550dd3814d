"""Periodic tasks of the active controller: fences silent brokers, moves leadership back (Kafka's PeriodicTask)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from backend.engine.config import BrokerConfig
from backend.engine.controller.broker_sessions import BrokerSessions
from backend.engine.controller.commands.brokers import fence_broker
from backend.engine.controller.commands.command import ActiveController, ControllerResult
from backend.engine.controller.commands.partition.elections import elect_unclean, rebalance_leaders
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.ports import Ports, tasks
from backend.protocol.errors import KafkaError

# Checks in each session time-out: a dead broker is fenced at most an eighth of it late.
SESSION_CHECKS: Final = 8
UNCLEAN_ELECTION_INTERVAL_MS: Final = 300_000

_log = logging.getLogger(__name__)


class PeriodicTasks:
    """Tasks of one epoch, cancelled at its end; `sessions` are those of the controller that leads it."""

    def __init__(
        self, ports: Ports, config: BrokerConfig, controller: ActiveController, sessions: BrokerSessions
    ) -> None:
        self._ports = ports
        self._config = config
        self._controller = controller
        self._sessions = sessions

    async def watch_sessions(self) -> None:
        """Fences brokers that are silent for a whole session."""
        pause_ms = max(1.0, self._config.broker_session_timeout_ms / SESSION_CHECKS)
        while not self._controller.isr_frozen:
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
            for broker_id in self._sessions.expired(self._controller.image, now_ms):
                _log.warning(
                    "Controller %d fences broker %d: no heartbeat for %d ms",
                    self._config.id, broker_id, self._config.broker_session_timeout_ms,
                )  # fmt: skip
                await self._fence(broker_id)

    async def _fence(self, broker_id: int) -> None:
        def command(image: MetadataImage) -> ControllerResult[None]:
            # A heartbeat may have come while the command waited for its turn.
            silent = broker_id in self._sessions.expired(image, self._ports.clock.monotonic_ms())
            if not silent or self._controller.isr_frozen:
                return ControllerResult((), None)
            return fence_broker(image, broker_id, self._config)

        await self.do("fence a broker", command)

    async def balance_leaders(self) -> None:
        """Leadership back to preferred replicas, and unclean elections for topics that allow them since."""
        rebalance_ms = self._config.leader_imbalance_check_interval_seconds * 1000
        pause_ms = min(rebalance_ms, UNCLEAN_ELECTION_INTERVAL_MS)
        while True:
            await tasks.sleep_ms(pause_ms)
            if self._config.auto_leader_rebalance_enable:
                await self.do("rebalance leaders", self.rebalance_leaders)
            await self.do("elect unclean leaders", self.elect_unclean)

    async def do(self, name: str, command: Callable[[MetadataImage], ControllerResult[None]]) -> None:
        """Carries out a command that no client waits for; a refusal is logged."""
        try:
            await self._controller.submit(name, command)
        except KafkaError as error:
            _log.warning("Controller %d could not %s: %s", self._config.id, name, error)

    def rebalance_leaders(self, image: MetadataImage) -> ControllerResult[None]:
        """The command `rebalance_leaders` with this controller's settings."""
        return rebalance_leaders(image, self._config)

    def elect_unclean(self, image: MetadataImage) -> ControllerResult[None]:
        """The command `elect_unclean` with this controller's settings."""
        return elect_unclean(image, self._config)
