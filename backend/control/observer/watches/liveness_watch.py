"""Asks who is alive, apart from the rounds of samples: brokers, leaders and replicas in sync, at any size of cluster.

A round of 10,000 partitions comes every 150 s, and waits for a broker that hangs. Here each broker is asked on another
connection, without the others, and one Metadata request is all that grows with the cluster.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from backend.control.findings.broker_absences import BrokerAbsences, RepeatedAbsence
from backend.control.findings.endangered_partitions import EndangeredPartition, EndangeredPartitions
from backend.control.findings.finding_context import ClusterSilence
from backend.control.findings.leaderless_partitions import LeaderlessPartitions, remember_leaderless
from backend.control.findings.thresholds import RuleSettings
from backend.control.findings.vanished_topics import TopicMemory, VanishedTopics
from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import Gateway, describe_failure
from backend.control.gateway.last_response import LastResponse
from backend.control.gateway.requests.eligible_replica_requests import EligibleReplicas, fetch_eligible
from backend.control.gateway.requests.metadata_requests import (
    ClusterMetadata,
    PartitionMetadata,
    fetch_cluster,
    last_metadata,
)
from backend.control.gateway.requests.rights_requests import MissingRight, fetch_missing_rights
from backend.control.observer.sampling.leaderless_logs import fetch_log_ends, undecided
from backend.protocol import messages as m
from backend.protocol.errors import KafkaError
from backend.tiering.ids import TopicPartition

# A broker that is killed refuses the next question, within a second; one that hangs is away 3 s after the question
# that it does not answer, which comes 0.75 s after the one that it did: 3.75 s of the 5 s within which to tell it.
PROBE_INTERVAL_S: Final = 0.75
PROBE_ANSWER_S: Final = 3.0
# Metadata of 10,000 partitions with three replicas is 1.3 MB, and 30 ms of a core while nothing changes: 1 %.
METADATA_INTERVAL_S: Final = 1.0
METADATA_S_PER_PARTITION: Final = 0.0003
# From 16,700 partitions on: 50,000 are 150 ms every 5 s, 3 %, and 6.5 MB; 250,000 are 15 %, of the observer's quarter.
METADATA_INTERVAL_S_MAX: Final = 5.0
# So that a second broker is asked where the first one hangs.
METADATA_ANSWER_S: Final = 1.5
# Three small requests. Findings of topics that are not seen any more stay for 10 s, until it is clear why.
RIGHTS_INTERVAL_S: Final = 4.0
# An error that comes so soon is worth a second attempt at once.
QUICK_ERROR_S: Final = 1.0
# A pass that was held up so long says nothing of others: their answers were not read either.
HELD_UP_S: Final = 1.0
# A cluster that was away for less was not started again: connections were lost, or brokers hung.
STARTED_AFTER_S: Final = 10.0
# A restarted replica reads what it missed and joins the ISR within seconds, and Metadata says so a second later.
REJOINING_S: Final = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerLiveness:
    """The last answers of one broker; `error` None: it answers. `seen_ms` None: it never did. `asked_s`: when the
    newest question began, by the monotonic clock.
    """

    broker_id: int
    seen_ms: int | None
    error: str | None = None
    absences: BrokerAbsences = field(default_factory=BrokerAbsences)
    asked_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Liveness:
    """The living at `at_ms`; `partitions` are those of the newest Metadata, `away` None: the cluster answers.
    `endangered`: those that wait for the broker that led last, which has less than another. `listed`: brokers that
    Metadata names, which are those that may be elected; None: there was none yet. `returning`: brokers that it names
    again, and that were silent when they were asked before that. `rejoining`: brokers that answer again since a moment.
    """

    at_ms: int
    brokers: Mapping[int, BrokerLiveness] = field(default_factory=dict)
    partitions: tuple[PartitionMetadata, ...] = ()
    eligible: Mapping[TopicPartition, EligibleReplicas] = field(default_factory=dict)
    endangered: EndangeredPartitions = field(default_factory=EndangeredPartitions)
    listed: frozenset[int] | None = None
    returning: frozenset[int] = frozenset()
    away: ClusterSilence | None = None
    missing_rights: tuple[MissingRight, ...] = ()
    vanished_topics: VanishedTopics | None = None
    repeated_absences: Mapping[int, RepeatedAbsence] = field(default_factory=dict)
    rejoining: frozenset[int] = frozenset()
    back_ms: int | None = None
    """For how long the cluster answers again; None: it was not away for as long as brokers take to start."""


def metadata_interval_s(partitions: int) -> float:
    """Between two questions for Metadata: leaders, ISR and ELR are at most 5 s old at any size."""
    return max(METADATA_INTERVAL_S, min(METADATA_INTERVAL_S_MAX, partitions * METADATA_S_PER_PARTITION))


def returning_brokers(brokers: Mapping[int, BrokerLiveness], listed_s: Mapping[int, float]) -> frozenset[int]:
    """Silent brokers that were asked last before Metadata named them again, at `listed_s`: they have just started."""
    return frozenset(
        broker_id
        for broker_id, broker in brokers.items()
        if broker.error is not None and broker.asked_s < listed_s.get(broker_id, 0.0)
    )


def rejoining_brokers(brokers: Mapping[int, BrokerLiveness], now_s: float) -> frozenset[int]:
    """Brokers that have answered again for so short a time that their replicas may yet join the ISRs."""
    return frozenset(
        broker_id
        for broker_id, broker in brokers.items()
        if broker.error is None
        and broker.absences.returned_s is not None
        and now_s - broker.absences.returned_s < REJOINING_S
    )


class LivenessWatch:
    """Belongs to one event loop; `submit` is given what is so after each pass, and when a broker has changed."""

    def __init__(
        self,
        gateway: Gateway,
        submit: Callable[[Liveness], None],
        clock_ms: Callable[[], int],
        rule_settings: Callable[[], RuleSettings] = RuleSettings,
    ) -> None:
        self._rule_settings = rule_settings
        self._gateway = gateway
        self._submit = submit
        self._clock_ms = clock_ms
        self._last: LastResponse[m.MetadataResponse, ClusterMetadata] = last_metadata()
        self._probes: dict[int, asyncio.Task[None]] = {}
        self._brokers: dict[int, BrokerLiveness] = {}
        self._view: ClusterMetadata | None = None
        self._listed_s: Mapping[int, float] = {}  # since when Metadata has named a broker, by the monotonic clock
        self._away: ClusterSilence | None = None
        self._answered_s = 0.0
        self._away_s = 0.0
        self._back_s: float | None = None
        self._eligible: Mapping[TopicPartition, EligibleReplicas] = {}
        self._endangered = EndangeredPartitions()
        self._leaderless: LeaderlessPartitions = {}
        self._missing_rights: tuple[MissingRight, ...] = ()
        self._rights_due_s = 0.0
        self._topics = TopicMemory()

    @property
    def missing_rights(self) -> tuple[MissingRight, ...]:
        """As of the newest look at them; empty before the first."""
        return self._missing_rights

    @property
    def brokers_answer(self) -> bool:
        """Whether one answers, whatever becomes of rounds; False before the first answer."""
        return self._view is not None and self._away is None

    @property
    def endangered(self) -> EndangeredPartitions:
        """Partitions without a leader whose last one came back with less than another replica has."""
        return self._endangered

    @property
    def leaderless(self) -> LeaderlessPartitions:
        """Partitions that had no leader in the last minutes, and who could lead them."""
        return self._leaderless

    def restore_endangered(self, partitions: Iterable[EndangeredPartition]) -> None:
        """Endangered partitions of the process before; what this one has seen meanwhile is newer."""
        restored = {endangered.topic_partition: endangered for endangered in partitions}
        by_partition = {**restored, **self._endangered.by_partition}
        self._endangered = replace(self._endangered, by_partition=by_partition)

    def set_brokers(self, broker_ids: frozenset[int]) -> None:
        """The registered brokers, alive or not, as of the newest round of samples; others are forgotten."""
        for broker_id in self._probes.keys() - broker_ids:
            self._probes.pop(broker_id).cancel()
            self._brokers.pop(broker_id, None)
        for broker_id in broker_ids - self._probes.keys():
            probe = self._probe_until_cancelled(broker_id)
            self._probes[broker_id] = asyncio.create_task(probe, name=f"liveness-{broker_id}")

    async def run(self) -> None:
        """Asks until it is cancelled."""
        try:
            while True:
                await self._ask_cluster()
                self._submit(self.now())
                await asyncio.sleep(self._interval_s())
        finally:
            probes = list(self._probes.values())
            self._probes = {}
            for probe in probes:
                probe.cancel()
            await asyncio.gather(*probes, return_exceptions=True)

    def _interval_s(self) -> float:
        return metadata_interval_s(0 if self._view is None else len(self._view.partitions))

    def now(self) -> Liveness:
        """The living by the newest answers; also from another thread."""
        view, brokers = self._view, dict(self._brokers)
        return Liveness(
            self._clock_ms(),
            brokers,
            () if view is None else view.partitions,
            self._eligible,
            self._endangered,
            None if view is None else frozenset(broker.broker_id for broker in view.brokers),
            returning_brokers(brokers, self._listed_s),
            self._away,
            self._missing_rights,
            self._topics.vanished,
            self._repeated_absences(brokers),
            rejoining_brokers(brokers, time.monotonic()),
            None if self._back_s is None else round(1000 * (time.monotonic() - self._back_s)),
        )

    def _repeated_absences(self, brokers: Mapping[int, BrokerLiveness]) -> dict[int, RepeatedAbsence]:
        limits, now_s = self._rule_settings().thresholds(None), time.monotonic()
        repeated = {broker_id: b.absences.repeated(now_s, limits) for broker_id, b in brokers.items()}
        return {broker_id: absence for broker_id, absence in repeated.items() if absence is not None}

    async def _ask_cluster(self) -> None:
        began_ms = self._clock_ms()
        try:
            async with asyncio.timeout(PROBE_ANSWER_S):
                self._view = await fetch_cluster(
                    self._gateway, lane=Lane.LIVENESS, last=self._last, timeout_s=METADATA_ANSWER_S
                )
        except (GatewayError, KafkaError) as error:
            self._set_away(began_ms, describe_failure(error))
            return
        except TimeoutError:
            self._set_away(began_ms, f"No broker answered in {PROBE_ANSWER_S:g} s.")
            return
        if self._away is not None and time.monotonic() - self._away_s >= STARTED_AFTER_S:
            self._back_s = time.monotonic()
        self._away = None
        now_s = self._answered_s = time.monotonic()
        self._listed_s = {b.broker_id: self._listed_s.get(b.broker_id, now_s) for b in self._view.brokers}
        present = {topic.topic: len(topic.partitions) for topic in self._view.topics}
        self._topics = self._topics.next(present, self._clock_ms(), self._rule_settings().thresholds(None))
        await self._ask_leaderless(self._view)
        if time.monotonic() >= self._rights_due_s:
            await self._ask_rights(self._view)

    async def _ask_rights(self, view: ClusterMetadata) -> None:
        a_topic = next((topic.topic for topic in view.topics if not topic.internal), None)
        try:
            async with asyncio.timeout(PROBE_ANSWER_S):
                self._missing_rights = await fetch_missing_rights(self._gateway, a_topic)
            self._rights_due_s = time.monotonic() + RIGHTS_INTERVAL_S
        except (GatewayError, KafkaError, TimeoutError) as error:
            _log.debug("rights cannot be asked for: %r", error)

    async def _ask_leaderless(self, view: ClusterMetadata) -> None:
        """Asks for the possible leaders of partitions that have none, and for the log ends of those that wait."""
        leaderless = {p.topic for p in view.partitions if p.leader < 0}
        if not leaderless:
            self._eligible, self._endangered = {}, EndangeredPartitions()
            return
        try:
            async with asyncio.timeout(PROBE_ANSWER_S):
                page = await fetch_eligible(self._gateway, leaderless, lane=Lane.LIVENESS)
                alive = {broker.broker_id for broker in view.brokers}
                waiting, unread = undecided(view.partitions, page.by_partition, complete=page.complete)
                log_ends = await fetch_log_ends(self._gateway, waiting, alive) if waiting else {}
            self._endangered = self._endangered.next(
                view.partitions, page.by_partition, log_ends, unread, at_ms=self._clock_ms()
            )
            self._eligible = page.by_partition
            self._leaderless = remember_leaderless(
                self._leaderless, view.partitions, page.by_partition, self._clock_ms()
            )
        except (GatewayError, KafkaError, TimeoutError) as error:
            _log.debug("eligible leader replicas cannot be asked for: %r", error)
            self._endangered = self._endangered.next(
                view.partitions, {}, {}, self._endangered.unread, at_ms=self._clock_ms()
            )

    def _set_away(self, began_ms: int, reason: str) -> None:
        if len(self._brokers) < len(self._probes) or any(b.error is None for b in self._brokers.values()):
            return  # one that hangs was asked, and others answer, or may
        if self._away is None:
            self._away_s = time.monotonic()
            # An outage of all is no absence of one: nothing in its log would say why it comes and goes.
            self._brokers = {b.broker_id: replace(b, absences=BrokerAbsences()) for b in self._brokers.values()}
        since_ms = began_ms if self._away is None else self._away.since_ms
        self._away = ClusterSilence(since_ms, reason)

    async def _probe_until_cancelled(self, broker_id: int) -> None:
        while True:
            began_s = time.monotonic()
            error = await self._probe(broker_id)
            if error is not None and time.monotonic() - began_s < QUICK_ERROR_S:
                # A connection that was closed, by a proxy or after its time, is no broker that is away.
                began_s = time.monotonic()
                error = await self._probe(broker_id)
            late = time.monotonic() - began_s > PROBE_ANSWER_S + HELD_UP_S
            last = self._brokers.get(broker_id, BrokerLiveness(broker_id, None))
            if error is None:
                absences = self._absences(last, None)
                self._brokers[broker_id] = BrokerLiveness(broker_id, self._clock_ms(), None, absences, began_s)
            elif not late:
                absences = self._absences(last, error)
                self._brokers[broker_id] = replace(last, error=error, absences=absences, asked_s=began_s)
                # A round of samples would wait for it for as long as a request may take, and look silent itself.
                self._gateway.give_up(broker_id, Lane.SAMPLE, error)
                if time.monotonic() - self._answered_s > self._interval_s() + METADATA_ANSWER_S:
                    # Metadata that is under way would say so in seconds, once no broker has answered that either.
                    self._set_away(max(b.seen_ms or 0 for b in self._brokers.values()), error)
            if (last.error is None) != (self._brokers.get(broker_id, last).error is None) and self._view is not None:
                # The other questions may wait for a broker that hangs, for longer than it may take to say so.
                self._submit(self.now())
            await asyncio.sleep(PROBE_INTERVAL_S)

    def _absences(self, last: BrokerLiveness, error: str | None) -> BrokerAbsences:
        """The broker's absences after this probe; one that has never answered is not back from one."""
        was_reachable = last.error is None and last.seen_ms is not None
        limits = self._rule_settings().thresholds(None)
        return last.absences.next(
            was_reachable=was_reachable, reachable=error is None, now_s=time.monotonic(), limits=limits
        )

    async def _probe(self, broker_id: int) -> str | None:
        """Why the broker does not answer; None: it does."""
        try:
            async with asyncio.timeout(PROBE_ANSWER_S + HELD_UP_S / 2):
                connection = await self._gateway.connection(broker_id, Lane.LIVENESS)
                await connection.ask(m.ApiVersionsRequest(), m.ApiVersionsResponse, timeout_s=PROBE_ANSWER_S)
        except (GatewayError, KafkaError) as error:
            return describe_failure(error)
        except TimeoutError:
            return f"Broker {broker_id} did not answer in {PROBE_ANSWER_S:g} s."
        return None
