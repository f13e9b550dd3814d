"""The loop that samples: ask, conclude, hand over to the recorder, wait for the next turn.

A cluster that does not answer is a fact like any other: it is recorded with the time since when, and what was seen last
stays with its age. Intervals have a jitter of 10 %, so that several observers of one cluster do not march in step.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from backend.control.alerts.alert_delivery import AlertDelivery
from backend.control.control_database import Database, DatabaseAway
from backend.control.findings.finding_context import RoundAge
from backend.control.findings.still_offsets import (
    PartitionKey,
    PartitionStill,
    remember_still,
    unseen_ms,
    with_jump,
)
from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import Gateway, describe_failure
from backend.control.gateway.requests.feature_requests import FeatureLevel
from backend.control.gateway.requests.rights_requests import MissingRight
from backend.control.observer.cluster_rows import WatchedCluster, cluster_row, settings_of
from backend.control.observer.cluster_totals import totals_now
from backend.control.observer.observer_state import ObserverState, round_age, sight
from backend.control.observer.restored_context import (
    merge_contexts,
    read_ledger,
    restore_context,
    restore_endangered,
)
from backend.control.observer.sample_recorder import ObserverHeartbeat, RecorderEntry, SampledSettings, SampleRecorder
from backend.control.observer.sampling.cluster_facts import ClusterFacts, LedgerSums
from backend.control.observer.sampling.cluster_sampler import ClusterSampler
from backend.control.observer.sampling.sampling_interval import SamplingInterval
from backend.control.observer.sampling.settings_sample import topic_rows
from backend.control.observer.sampling_round import FLAG, RoundCache, RoundContext, SamplingRound, conclude_round
from backend.control.observer.watches import engine_event_reader as engine_events
from backend.control.observer.watches.engine_event_reader import EngineEventReader
from backend.control.observer.watches.finding_contexts import ObservedLiveness, ObservedRound
from backend.control.observer.watches.finding_watch import FindingWatch
from backend.control.observer.watches.liveness_watch import Liveness, LivenessWatch
from backend.control.observer.watches.observed_brokers import ObservedBrokers, brokers_now
from backend.control.observer.watches.quorum_watch import QuorumObservation
from backend.control.observer.watches.reader_watch import ReaderWatch
from backend.control.observer.watches.transaction_watch import TransactionWatch, held_partitions
from backend.control.supervised_tasks import keep_running
from backend.control.wall_clock import now_ms
from backend.protocol.errors import KafkaError
from backend.store.blind_spots import CHECKED, stale
from backend.store.history.sample_retention import KEEP_DAYS
from backend.store.queries import overview
from backend.store.queries.overview import BrokerRow
from backend.tiering.ids import uuid_text
from backend.tiering.phase_inference import STALL_MS_MIN

JITTER: Final = 0.1
# A round of 10,000 partitions takes seconds; one that takes longer than this has met a broker that hangs.
ROUND_TIMEOUT_S: Final = 60.0
PAUSE_S_MIN: Final = 0.1
SIGN_INTERVAL_S_MIN: Final = 1.0
# A clock that is slewed gains milliseconds between two rounds; one that is set makes nothing older.
CLOCK_JUMP_MS_MIN: Final = 1_000
# Of 10,000 partitions it is read in 0.1 s; a database that hangs must not make rounds rare.
LEDGER_WAIT_S: Final = 1.0
_log = logging.getLogger(__name__)


class ClusterObserver:
    """Samples one cluster until stopped. Belongs to one event loop."""

    def __init__(
        self,
        watched: WatchedCluster,
        gateway: Gateway,
        database: Database,
        readers: ReaderWatch,
        alerts: AlertDelivery,
        *,
        pid: int,
        started_ms: int,
        keep_days: int = KEEP_DAYS,
    ) -> None:
        # Its interval is the one in force: longer than what is set on a large cluster.
        self._watched = watched
        self._sampling_interval = SamplingInterval(watched.interval_ms)
        self._database = database
        self._sampler = ClusterSampler(gateway)
        self.recorder = SampleRecorder(
            database,
            watched.cluster_id,
            pid=pid,
            started_ms=started_ms,
            interval_ms=lambda: self._watched.interval_ms,
            keep_days=keep_days,
        )
        self.events = EngineEventReader(gateway, database, watched.cluster_id, now_ms)
        self.alerts = alerts
        self.findings = FindingWatch(
            database,
            watched.cluster_id,
            attached=watched.kind == "attached",
            notify=alerts.submit,
            rule_settings=lambda: alerts.rules,
        )
        self.readers = readers
        self._liveness = LivenessWatch(gateway, self._submit_liveness, now_ms, lambda: alerts.rules)
        self._newest_entry: RecorderEntry | None = None
        self.transactions = TransactionWatch(gateway)
        self._still: Mapping[PartitionKey, PartitionStill] = {}
        self._still_ms: int | None = None  # of the monotonic clock
        self._clocks_ms: int | None = None  # the wall clock's lead over the monotonic one at the newest round
        # As last described by the quorum.
        self.feature_levels: Mapping[str, FeatureLevel] = {}
        self.quorum = QuorumObservation()
        self._brokers = ObservedBrokers(watched.cluster_id)
        self._context = RoundContext(stall_ms=max(STALL_MS_MIN, 3 * watched.interval_ms))
        self._unchanged = RoundCache()
        self._ledger = LedgerSums()
        self._reading: asyncio.Task[LedgerSums] | None = None
        self._refresh_requested = asyncio.Event()
        self._whole_began_s: float | None = None  # by the monotonic clock: the last round that listed all offsets
        self._restored = False
        self.state = ObserverState()
        # By the monotonic clock: when a round ended last, well or not; the other: well, or when the first one began.
        self.ended_s: float | None = None
        self._sampled_s = time.monotonic()
        self.facts: ClusterFacts | None = None
        self.round: SamplingRound | None = None

    @property
    def interval_ms(self) -> int:
        """Between two rounds: longer than what is set on a large cluster."""
        return self._watched.interval_ms

    @property
    def checked_ms(self) -> int | None:
        """When the offsets were listed of the partition that was listed longest ago; None: no round yet."""
        return None if self.facts is None else min(self.facts.earlier_ms.values(), default=self.facts.at_ms)

    def totals(self) -> Mapping[str, int | None]:
        """The cluster's sums as far as they are known at this moment; empty before the first round."""
        fresh = self.state.is_fresh(now_ms(), self._watched.interval_ms)
        return {} if self.round is None else totals_now(self.round.totals, self._liveness.now(), fresh=fresh)

    def refresh(self) -> None:
        """Starts the next round now, with fresh settings: something has just been changed."""
        self._sampler.settings.refresh()
        self._refresh_requested.set()

    def eligible_report(self) -> dict[str, Any] | None:
        """Eligible leader replicas as of the newest round; None: there was none yet."""
        return None if self.facts is None else self.facts.eligible.report(self.facts.at_ms)

    def reader_facts(self) -> dict[str, Any]:
        """Groups that read from the remote tier, as of the newest round; see `ReaderWatch.facts`."""
        return self.readers.facts(() if self.round is None else self.round.partitions)

    async def run(self) -> None:
        """Samples until cancelled; a failure of our own is logged and the next round tried."""
        await self.alerts.load()
        self._sampled_s = time.monotonic()
        helpers: list[asyncio.Task[Any]] = [
            asyncio.create_task(keep_running("observer-recorder", self.recorder.run)),
            asyncio.create_task(keep_running("observer-events", self.events.run)),
            asyncio.create_task(keep_running("observer-findings", self.findings.run)),
            asyncio.create_task(keep_running("observer-liveness", self._liveness.run)),
            asyncio.create_task(keep_running("observer-readers", self.readers.run)),
            asyncio.create_task(keep_running("observer-alerts", self.alerts.run)),
            asyncio.create_task(keep_running("observer-transactions", self.transactions.run)),
        ]
        try:
            while True:
                began_s = time.monotonic()
                whole = self._refresh_requested.is_set() or self._is_whole_due(began_s)
                self._refresh_requested.clear()
                if not self._restored:
                    await self._restore()
                rounds = self.state.rounds
                await self._sample_round(whole=whole)
                self.ended_s = time.monotonic()
                if whole and self.state.rounds > rounds:
                    self._whole_began_s = began_s
                await self._pause(began_s)
        finally:
            if self._reading is not None:
                helpers.append(self._reading)
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)

    async def stop(self, timeout_s: float = 5.0) -> None:
        """After `run` was cancelled: stores what waits and says that the observer has stopped."""
        self.recorder.submit(RecorderEntry(ObserverHeartbeat(now_ms(), "stopped", "The observer was stopped.")))
        await self.recorder.drain(timeout_s)

    def _is_whole_due(self, now_s: float) -> bool:
        if self._whole_began_s is None or self._round_interval_ms() >= self._watched.interval_ms:
            return True
        return (now_s - self._whole_began_s) * 1000 >= self._watched.interval_ms

    def _round_interval_ms(self) -> int:
        """Between two rounds, whole or not."""
        interval_ms = self._watched.interval_ms
        if self.facts is None or not self._sampler.describes_movement:
            return interval_ms
        return min(interval_ms, self._sampling_interval.moving_ms(len(self.facts.partitions)))

    async def _pause(self, began_s: float) -> None:
        interval_ms = min(self._round_interval_ms(), self._sampling_interval.next_ms(self._watched.interval_ms))
        interval_s = interval_ms / 1000 * random.uniform(1 - JITTER, 1 + JITTER)
        pause_s = max(PAUSE_S_MIN, interval_s - (time.monotonic() - began_s))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._refresh_requested.wait(), pause_s)

    async def _sample_round(self, *, whole: bool) -> None:
        at_ms = now_ms()
        signs = asyncio.create_task(self._give_signs_of_life(), name="observer-signs-of-life")
        try:
            async with asyncio.timeout(ROUND_TIMEOUT_S):
                await self._round(at_ms, whole=whole)
        except (GatewayError, KafkaError) as error:
            self._away(at_ms, describe_failure(error))
        except TimeoutError:
            self._away(at_ms, f"The brokers did not answer all questions in {ROUND_TIMEOUT_S:.0f} s.")
        except Exception as error:  # a fault of ours must not end the watch over the cluster; it is logged and shown
            self._failed(at_ms, error)
        finally:
            signs.cancel()

    async def _give_signs_of_life(self) -> None:
        """While a round waits for brokers that hang, it is not the observer that is down."""
        began_s = time.monotonic()
        while True:
            await asyncio.sleep(max(SIGN_INTERVAL_S_MIN, self._watched.interval_ms / 1000))
            message = f"A round of samples waits for brokers for {time.monotonic() - began_s:.0f} s."
            self.recorder.submit(RecorderEntry(ObserverHeartbeat(now_ms(), "running", message, self._detail())))

    async def _round(self, at_ms: int, *, whole: bool) -> None:
        began_s = time.monotonic()
        facts = await self._sampler.round(at_ms, whole=whole)
        if facts.cluster_id != self._watched.cluster_id:
            self._foreign(at_ms, facts.cluster_id)
            return
        await self._read_ledger(at_ms)
        self._conclude(facts)
        duration_ms = round((time.monotonic() - began_s) * 1000)
        self.state = ObserverState(self.state.rounds + 1, at_ms, duration_ms)
        self._sampled_s = time.monotonic()

    def _keep_pace(self, partitions: int, replicas: int) -> None:
        interval_ms = self._sampling_interval.interval_ms(partitions, replicas)
        if interval_ms != self._watched.interval_ms:
            self._watched = replace(self._watched, interval_ms=interval_ms)
            self._context = replace(self._context, stall_ms=max(STALL_MS_MIN, 3 * interval_ms))

    def _conclude(self, facts: ClusterFacts) -> None:
        flags = self._sampler.settings.newest.flags(FLAG)
        self._keep_pace(len(facts.partitions), sum(len(p.view.replicas) for p in facts.partitions))
        self._sampling_interval.observe_topics(frozenset(topic.topic_id for topic in facts.topics))
        self._context = replace(
            self._context,
            ledger=self._ledger,
            flags=flags,
            exact=self.events.phases,
            endangered=self._liveness.endangered,
            leaderless=self._liveness.leaderless,
            missing_rights=self.missing_rights,
        )
        round_ = conclude_round(facts, self._context, self._unchanged)
        self._context = round_.next_context(self._context)
        self.events.set_partitions(p.view for p in facts.partitions if p.view.topic == engine_events.TOPIC)
        self.events.forget_others(p.view for p in facts.partitions)
        self._still = remember_still(self._still_by_clock(), round_.partitions, facts.at_ms)
        self.transactions.watch(held_partitions(self._still, round_.partitions, facts.at_ms))
        self.facts, self.round = facts, round_
        entry = self._entry(facts, round_)
        # The round may have waited for one broker; answers of the others are newer.
        brokers = self._brokers.changed(self._liveness.now())
        self.recorder.submit(replace(entry, brokers=brokers or entry.brokers))
        self._newest_entry = entry
        self._liveness.set_brokers(frozenset(facts.brokers))
        self.findings.submit(
            ObservedRound(
                round_,
                entry.brokers,
                entry.topics,
                self._sampler.settings.newest,
                self.readers.offsets,
                self.readers.asked_ms,
                self.readers.reader_queues,
                self.feature_levels,
                self.readers.passed_over
                | ({(engine_events.TOPIC, "the backend"): self.events.unreadable} if self.events.unreadable else {}),
                facts.eligible.by_partition,
                facts.offline_logs,
                self._still,
                self.transactions.transactions,
                self.readers.copy_lags,
                self.readers.read_growth,
            )
        )

    def _still_by_clock(self) -> Mapping[PartitionKey, PartitionStill]:
        """The memory of the round before, by the wall clock as it is set now, without the time in which no round ended.

        While the cluster is away nothing is copied as a matter of course.
        """
        monotonic_ms = time.monotonic_ns() // 1_000_000
        clocks_ms, since_round_ms = now_ms() - monotonic_ms, monotonic_ms - (self._still_ms or monotonic_ms)
        jump_ms, self._clocks_ms = clocks_ms - (self._clocks_ms or clocks_ms), clocks_ms
        self._still_ms = monotonic_ms
        jump_ms += unseen_ms(since_round_ms, self._watched.interval_ms)
        return self._still if abs(jump_ms) < CLOCK_JUMP_MS_MIN else with_jump(self._still, jump_ms)

    def sight(self) -> dict[str, Any]:
        """Rights that are missing and rounds that are not judged, as the list of blind spots takes them."""
        return sight(self.missing_rights, self.findings.behind_ms, now_ms())

    @property
    def missing_rights(self) -> tuple[MissingRight, ...]:
        """As of the newest look at them."""
        return self._liveness.missing_rights

    @property
    def brokers_answer(self) -> bool:
        """Whether a broker answers, also while no round ends."""
        return self._liveness.brokers_answer

    def brokers_now(self, rows: Sequence[BrokerRow]) -> list[BrokerRow]:
        """Stored rows of brokers with what each answered since."""
        return brokers_now(rows, self._liveness.now())

    def _submit_liveness(self, liveness: Liveness) -> None:
        """Hands liveness on with the brokers and topics of the newest round; nothing before the first."""
        self.readers.silent = frozenset(id_ for id_, broker in liveness.brokers.items() if broker.error is not None)
        if changed := self._brokers.changed(liveness):
            self.recorder.submit(RecorderEntry(brokers=changed))
        entry, facts, age = self._newest_entry, self.facts, self._round_age(liveness)
        if entry is not None and facts is not None:
            elections = () if self.round is None else self.round.elections.elections.values()
            self.findings.submit_liveness(
                ObservedLiveness(liveness, entry.brokers, entry.topics, self.quorum, facts.offline_logs, elections, age)
            )
        elif liveness.away is not None or stale(age.age_ms, age.interval_ms):
            self.findings.submit_liveness(ObservedLiveness(liveness, (), (), self.quorum, round_age=age))

    def _round_age(self, liveness: Liveness) -> RoundAge:
        interval_ms = self._sampling_interval.moving_ms(len(liveness.partitions))
        if self.facts is not None:
            interval_ms = self._round_interval_ms()
        return round_age(time.monotonic() - self._sampled_s, liveness.back_ms, interval_ms, self.state.away_reason)

    def _entry(self, facts: ClusterFacts, round_: SamplingRound) -> RecorderEntry:
        if not self._restored:
            # The counter goes on from what the database has, which is not known yet.
            round_ = replace(round_, totals={**round_.totals, "produced_bytes": None})
        silent = [b for b in facts.brokers.values() if not b.reachable]
        message = None if not silent else " ".join(b.error or "" for b in silent)
        topic_ids = {topic.topic: uuid_text(topic.topic_id) for topic in facts.topics}
        return RecorderEntry(
            # Given now: a round that waited for brokers that hang began long ago.
            ObserverHeartbeat(now_ms(), "running", message, self._detail()),
            round=round_,
            cluster=cluster_row(self._watched, facts),
            brokers=self._brokers.of_round(facts),
            topics=topic_rows(self._watched.cluster_id, facts.topics, topic_ids, facts.at_ms),
            settings=self._new_settings(facts),
        )

    def _detail(self) -> dict[str, Any]:
        return {
            "rounds": self.state.rounds,
            "round_duration_ms": self.state.round_duration_ms,
            "dropped_rounds": self.recorder.dropped_rounds,
            "events_read": self.events.events_read,
            CHECKED: self.checked_ms,
        } | self.sight()

    def _new_settings(self, facts: ClusterFacts) -> SampledSettings | None:
        """Settings that were read since the round before."""
        sample = self._sampler.settings.take_unstored()
        return None if sample is None else settings_of(sample, facts)

    def _away(self, at_ms: int, reason: str) -> None:
        since_ms = self.state.away_since_ms or at_ms
        if self.state.away_since_ms is None:
            _log.warning("Cluster %s does not answer: %s", self._watched.name, reason)
        self.state = replace(self.state, away_since_ms=since_ms, away_reason=reason)
        detail = self._detail() | {"away_since_ms": since_ms, "reason": reason}
        message = f"The cluster does not answer. {reason}"
        self.recorder.submit(RecorderEntry(ObserverHeartbeat(at_ms, "waiting", message, detail)))

    def _foreign(self, at_ms: int, cluster_id: str) -> None:
        """Brokers of another cluster: nothing of them is stored under our name."""
        self._sampler.settings.forget()
        reason = (
            f"The brokers at {self._watched.bootstrap_servers} belong to cluster {cluster_id}, "
            f"not to {self._watched.cluster_id}: check the bootstrap servers."
        )
        if self.state.away_reason != reason:
            _log.error("%s", reason)
        self.state = replace(self.state, away_since_ms=self.state.away_since_ms or at_ms, away_reason=reason)
        self.recorder.submit(RecorderEntry(ObserverHeartbeat(at_ms, "failed", reason, self._detail())))

    def _failed(self, at_ms: int, error: Exception) -> None:
        _log.exception("A round of samples of cluster %s failed", self._watched.name)
        reason = f"A round failed by a fault of this program ({type(error).__name__}); see the backend's log."
        self.state = replace(self.state, away_since_ms=self.state.away_since_ms or at_ms, away_reason=reason)
        self.recorder.submit(RecorderEntry(ObserverHeartbeat(at_ms, "failed", reason, self._detail())))

    async def _restore(self) -> None:
        """Goes on where the process before stopped; rounds do not wait for a database that is away."""
        cluster_id, stall_ms = self._watched.cluster_id, self._context.stall_ms
        try:
            stored = await self._database.read(lambda c: restore_context(c, cluster_id, stall_ms))
            self._liveness.restore_endangered(await self._database.read(lambda c: restore_endangered(c, cluster_id)))
            self._brokers.restore(await self._database.read(lambda c: overview.brokers(c, cluster_id)))
        except DatabaseAway as error:
            _log.debug("the observer goes on without its last samples: %s", error)
            return
        self._context = merge_contexts(stored, self._context)
        self._restored = True
        self.recorder.begin()

    async def _read_ledger(self, at_ms: int) -> None:
        """The ledger as it is now or, where the database takes long, as it was in a round before."""
        if self._reading is None:
            query = self._database.read(lambda c: read_ledger(c, self._watched.cluster_id, at_ms))
            self._reading = asyncio.create_task(query, name="observer-ledger")
        await asyncio.wait({self._reading}, timeout=LEDGER_WAIT_S)
        if not self._reading.done():
            return
        done, self._reading = self._reading, None
        try:
            self._ledger = done.result()
        except DatabaseAway as error:
            _log.debug("the ledger of the round before is used: %s", error)
