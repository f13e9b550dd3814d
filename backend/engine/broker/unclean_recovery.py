"""The driver of `controller.commands.partition.recovery_verdict`: asks for logs, waits, and has the best ones lead.

Runs on the node of the active controller, and only while there are partitions that no replica may lead.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from backend.engine.broker.log_end_client import LogEndClient
from backend.engine.common.event_sink import EventSink
from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.config.topic_settings import effective_min_isr
from backend.engine.controller.commands.partition.elections import LocatedPartition
from backend.engine.controller.commands.partition.recovery_verdict import (
    PartitionRecovery,
    RecoveryVerdict,
    brokers_named,
    elect_recovered,
    judge,
    still_to_recover,
    to_recover,
)
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Clock, tasks
from backend.protocol.errors import KafkaError

# Between two checks of partitions that wait; a broker that has just come back adds at most this to a start.
PAUSE_MS: Final = 50
# Once only an operator or a broker's return can help.
EXPIRED_PAUSE_MS: Final = 1000
# Brokers of one process come back within less: such waits are not logged.
LOG_AFTER_MS: Final = 1000
# Partitions that one line of the log names.
NAMED_MAX: Final = 3
# Partitions of one round that become an event each, of some 300 bytes; the line of the log counts all.
EVENTS_MAX: Final = 1000

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _LogEnds:
    """The log ends of one partition's replicas, as answered within one leader epoch."""

    leader_epoch: int
    since_ms: float
    # By broker: its broker epoch when it answered, and (epoch of the last record, log end offset).
    ends: dict[int, tuple[int, tuple[int, int]]] = field(default_factory=dict)

    def of_current_broker_epochs(self, image: MetadataImage) -> dict[int, tuple[int, int]]:
        return {
            broker: end
            for broker, (epoch, end) in self.ends.items()
            if (registered := image.brokers.get(broker)) is not None and registered.epoch == epoch
        }


class UncleanRecoveryManager:
    """One per controller."""

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        controller: Controller,
        log_ends: LogEndClient,
        events: EventSink,
    ) -> None:
        """`events` get the elections; a node that is a controller alone publishes none."""
        self._clock = clock
        self._events = events
        self._config = config
        self._controller = controller
        self._log_ends = log_ends
        self._ends: dict[tuple[bytes, int], _LogEnds] = {}
        self._logged: tuple[str, ...] = ()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._controller.leaderless.wait()
            self._controller.leaderless.clear()
            waiting = to_recover(self._controller.image)
            while waiting and self._controller.is_active:
                try:
                    await self._recover(waiting)
                except KafkaError as error:
                    _log.info("Controller %d compares logs again: %s", self._config.id, error)
                await tasks.sleep_ms(EXPIRED_PAUSE_MS if self._all_expired() else PAUSE_MS)
                if self._controller.leaderless.is_set():
                    self._controller.leaderless.clear()
                    waiting = to_recover(self._controller.image)
                else:
                    waiting = still_to_recover(self._controller.image, waiting)
            self._ends.clear()
            self._logged = ()

    def _all_expired(self) -> bool:
        since_ms = max((ends.since_ms for ends in self._ends.values()), default=0.0)
        return self._clock.monotonic_ms() - since_ms >= self._config.unclean_recovery_timeout_ms

    async def _recover(self, waiting: list[LocatedPartition]) -> None:
        image, now_ms = self._controller.image, self._clock.monotonic_ms()
        for topic, index, partition in waiting:
            ends = self._ends.get((topic.id, index))
            if ends is None or ends.leader_epoch != partition.leader_epoch:
                self._ends[(topic.id, index)] = _LogEnds(partition.leader_epoch, now_ms)
        await self._ask(image, waiting)
        image, now_ms = self._controller.image, self._clock.monotonic_ms()
        topics = {topic.id: topic.name for topic, _, _ in waiting}
        needed = {key: effective_min_isr(image, self._config, name) for key, name in topics.items()}
        verdicts = [self._judge(image, located, needed[located[0].id], now_ms) for located in waiting]
        recoveries = [
            PartitionRecovery(topic.id, index, partition.leader_epoch, verdict.leader, verdict.complete)
            for (topic, index, partition), verdict in zip(waiting, verdicts, strict=True)
            if verdict.leader >= 0
        ]
        self._log_progress(waiting, verdicts)
        if recoveries:
            command = partial(elect_recovered, config=self._config, recoveries=recoveries)
            self._publish(await self._controller.submit("elect the best logs", command))

    async def _ask(self, image: MetadataImage, waiting: list[LocatedPartition]) -> None:
        by_broker: dict[int, list[LocatedPartition]] = {}
        for located in waiting:
            topic, index, partition = located
            answered = self._ends[(topic.id, index)].of_current_broker_epochs(image)
            for broker in partition.replicas:
                if broker not in answered and image.is_active(broker):
                    by_broker.setdefault(broker, []).append(located)
        if not by_broker:
            return
        epochs = {broker: image.brokers[broker].epoch for broker in by_broker}
        for key, ends in (await self._log_ends.ask(image, by_broker)).items():
            for broker, end in ends.items():
                self._ends[key].ends[broker] = (epochs[broker], end)

    def _judge(self, image: MetadataImage, located: LocatedPartition, min_isr: int, now_ms: float) -> RecoveryVerdict:
        topic, index, partition = located
        ends = self._ends[(topic.id, index)]
        return judge(
            image,
            partition,
            ends.of_current_broker_epochs(image),
            min_isr,
            expired=now_ms - ends.since_ms >= self._config.unclean_recovery_timeout_ms,
        )

    def _publish(self, elected: tuple[PartitionRecovery, ...]) -> None:
        topics = self._controller.image.topics
        for recovery in elected[:EVENTS_MAX]:
            if (topic := topics.get(recovery.topic_id)) is not None:
                self._events.emit(
                    "unclean_recovery",
                    topic=topic.name,
                    topic_id=recovery.topic_id,
                    partition=recovery.index,
                    leader=recovery.leader,
                    complete=recovery.complete,
                )

    def _log_progress(self, waiting: list[LocatedPartition], verdicts: list[RecoveryVerdict]) -> None:
        """Logs the decisions, and once each set of brokers that are waited for."""
        decided = [
            (located, verdict) for located, verdict in zip(waiting, verdicts, strict=True) if verdict.leader >= 0
        ]
        for complete in (True, False):
            some = [(located, verdict.leader) for located, verdict in decided if verdict.complete is complete]
            if some:
                _log.warning(
                    "Controller %d: all replicas in sync of %d partitions had stopped uncleanly, the best of their logs"
                    " leads (%s)%s", self._config.id, len(some), _named(some), "" if complete else
                    "; fewer than min.insync.replicas could be compared, so what no disk had yet may be missing",
                )  # fmt: skip
        open_ = [verdict for verdict in verdicts if verdict.leader < 0]
        waited_ms = self._clock.monotonic_ms() - min(ends.since_ms for ends in self._ends.values())
        if not open_ or waited_ms < LOG_AFTER_MS:
            return
        brokers = ", ".join(map(str, brokers_named(open_))) or "none"
        limit_ms = self._config.unclean_recovery_timeout_ms
        expired = self._all_expired()
        if (waits_for := (brokers, str(expired))) == self._logged:
            return
        self._logged = waits_for
        if expired:
            _log.error(
                "Controller %d: %d partitions stay without a leader: all replicas in sync had stopped uncleanly, and"
                " after %d s there is no answer from broker %s. Start it; if its disk is gone for good, ask for an"
                " unclean election, which takes the best log of the brokers that are here",
                self._config.id, len(open_), limit_ms // 1000, brokers,
            )  # fmt: skip
        else:
            _log.warning(
                "Controller %d: %d partitions have no leader yet: all replicas in sync had stopped uncleanly, so their"
                " logs are compared first; waits for broker %s, at most %d s",
                self._config.id, len(open_), brokers, limit_ms // 1000,
            )  # fmt: skip


def _named(chosen: list[tuple[LocatedPartition, int]]) -> str:
    named = [f"{topic.name}-{index}: {leader}" for (topic, index, _), leader in chosen[:NAMED_MAX]]
    return ", ".join(named) + (", …" if len(chosen) > NAMED_MAX else "")
