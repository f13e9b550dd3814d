"""The driver of `commands.cluster_start`: waits for the brokers of the last ISRs, says so, and gives them up."""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial
from typing import Final

from backend.engine.config import BrokerConfig
from backend.engine.controller.broker_sessions import BrokerSessions
from backend.engine.controller.commands.cluster_start import (
    Awaited,
    ClusterStart,
    any_broker_returned,
    awaited,
    broker_contacted,
    eligible,
    give_up,
    missing,
    start_of,
    without_given_up,
)
from backend.engine.controller.commands.command import ActiveController, ControllerResult
from backend.engine.controller.commands.partition.elections import leaderless
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.ports import Clock, tasks
from backend.protocol.errors import KafkaError

# Elections do not wait for a check: each unfencing elects by itself.
CHECK_MS: Final = 250
# Brokers of one process come back within less: those waits are not worth a log line.
LOG_AFTER_MS: Final = 1000
# Partitions and brokers that one line of the log names.
PARTITIONS_NAMED_MAX: Final = 3
BROKERS_NAMED_MAX: Final = 10

_log = logging.getLogger(__name__)


class StartWait:
    """The wait of one epoch, from its begin on; `sessions` are those of that epoch."""

    def __init__(
        self, clock: Clock, config: BrokerConfig, controller: ActiveController, sessions: BrokerSessions
    ) -> None:
        self._clock = clock
        self._config = config
        self._controller = controller
        self._sessions = sessions
        self._since_ms = clock.monotonic_ms()
        self._start = start_of(controller.image) if config.ebbline_leader_start_wait_ms else None
        self._logged: frozenset[int] = frozenset()
        # The facts that a check depends on, at the last one: the partitions are scanned only when these have changed.
        self._seen: tuple[frozenset[int], frozenset[int], bool, bool, bool] | None = None

    @property
    def start(self) -> ClusterStart | None:
        """The brokers that elections wait for; None once they wait for none."""
        return None if self._start is None or self._start.still_runs else self._start

    def broker_contacted(self, broker_id: int, broker_epoch: int) -> None:
        """A heartbeat has arrived."""
        if self._start is not None:
            self._start = broker_contacted(self._start, broker_id, broker_epoch)

    async def run(self) -> None:
        """Runs until no broker is waited for."""
        while self._start is not None and not self._controller.isr_frozen:
            try:
                await self._check(self._start)
            except KafkaError as error:
                _log.info("Controller %d looks again at who is back: %s", self._config.id, error)
            if self._start is not None:
                due_ms = self._clock.monotonic_ms() + CHECK_MS
                await tasks.sleep_ms(CHECK_MS)
                # No broker could be heard while this node was held up.
                self._since_ms += max(0.0, self._clock.monotonic_ms() - due_ms)

    async def _check(self, start: ClusterStart) -> None:
        image, now_ms = self._controller.image, self._clock.monotonic_ms()
        waited_ms = now_ms - self._since_ms
        away = frozenset[int]() if start.still_runs else missing(image, start)
        opening = frozenset(broker_id for broker_id in away if self._is_opening_logs(image, start, broker_id, now_ms))
        limit_ms = self._config.ebbline_leader_start_wait_ms
        if not (returned := any_broker_returned(image, start)):
            # All may live on, each with a heartbeat that hangs for a session at a controller whose machine is gone.
            limit_ms = max(limit_ms, self._config.broker_session_timeout_ms)
        late, too_late = waited_ms >= limit_ms, waited_ms >= self._config.unclean_recovery_timeout_ms
        seen = (away, opening, waited_ms >= LOG_AFTER_MS and returned, late, too_late)
        if seen == self._seen:
            return
        waits = awaited(image, start) if away else Awaited((), frozenset())
        if not waits.brokers:
            await self._end(start)
            return
        absent = waits.brokers if too_late else waits.brokers - opening
        if late and absent:
            self._start = given_up = give_up(start, absent)
            await self._controller.submit("elect leaders at a start", partial(self._without, start=given_up))
            self._log_given_up(absent)
        elif waited_ms >= LOG_AFTER_MS and waits.brokers != self._logged and returned:
            self._logged = waits.brokers
            self._log_waits(waits, absent, waits.brokers & opening)
        self._seen = seen

    def _is_opening_logs(self, image: MetadataImage, start: ClusterStart, broker_id: int, now_ms: float) -> bool:
        """Whether the broker has registered again and sends heartbeats."""
        broker = image.brokers.get(broker_id)
        here = broker is not None and not start.is_former_life(broker) and not broker.in_controlled_shutdown
        return here and self._sessions.alive(broker_id, now_ms)

    async def _end(self, start: ClusterStart) -> None:
        """Ends the wait: from here on fenced brokers leave their ISRs as in ordinary operation."""

        def command(image: MetadataImage) -> ControllerResult[None]:
            self._start = None
            fenced = [broker.id for broker in image.brokers.values() if broker.fenced]
            return self._without(image, give_up(start, fenced))

        try:
            await self._controller.submit("end of the start", command)
        except KafkaError:
            self._start = start
            raise

    def _without(self, image: MetadataImage, start: ClusterStart) -> ControllerResult[None]:
        return without_given_up(image, self._config, start)

    def _log_waits(self, waits: Awaited, absent: Collection[int], opening: Collection[int]) -> None:
        limit_s = self._config.ebbline_leader_start_wait_ms / 1000
        whom = [f"broker {_listed(absent)} (not here yet; at most {limit_s:g} s)"] if absent else []
        opening_s = self._config.unclean_recovery_timeout_ms / 1000
        whom += [f"broker {_listed(opening)} (opens its logs; at most {opening_s:g} s)"] if opening else []
        named = [f"{topic.name}-{index}" for topic, index, _ in waits.partitions[:PARTITIONS_NAMED_MAX]]
        more = ", …" if len(waits.partitions) > PARTITIONS_NAMED_MAX else ""
        _log.warning(
            "Controller %d: the cluster starts; %d partitions (%s%s) get a leader once those are back that were in sync"
            " when it stopped: waits for %s",
            self._config.id, len(waits.partitions), ", ".join(named), more, " and ".join(whom),
        )  # fmt: skip

    def _log_given_up(self, absent: frozenset[int]) -> None:
        open_ = [
            located for located in leaderless(self._controller.image) if not absent.isdisjoint(eligible(located[2]))
        ]
        _log.warning(
            "Controller %d: broker %s has not come within %.0f s, so leaders are elected without it%s",
            self._config.id, _listed(absent), (self._clock.monotonic_ms() - self._since_ms) / 1000,
            f"; {len(open_)} partitions have none, since nobody else has all their records: start it. If its disk is"
            " gone for good, ask for an unclean election, which takes the best log of the brokers that are here"
            if open_ else "",
        )  # fmt: skip


def _listed(brokers: Collection[int]) -> str:
    named = ", ".join(map(str, sorted(brokers)[:BROKERS_NAMED_MAX]))
    return named + (", …" if len(brokers) > BROKERS_NAMED_MAX else "")
