"""Puts rounds into the database: in order, on a thread, again and again while the database is locked or away.

Rounds that cannot be written yet wait in memory, so the history has no hole afterwards. The memory is bounded: the
oldest rounds go first, and are counted, as is a round that the database takes for nothing it can store.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from backend.control.control_database import Database, DatabaseAway
from backend.control.gateway.requests.config_requests import Entries
from backend.control.observer.sampling.settings_sample import config_rows
from backend.control.observer.sampling_round import SamplingRound
from backend.control.wall_clock import now_ms
from backend.store.connection.database import reading, writing
from backend.store.connection.database_faults import first_line
from backend.store.history.sample_retention import KEEP_DAYS, Retention
from backend.store.queries.observer import replica_keys
from backend.store.writes import cluster_rows
from backend.store.writes.observer_rows import Resource, save_settings
from backend.store.writes.samples import SampleWriter

# A sample is about 600 bytes here: 60 MB at most. A cluster of 120 partitions x 3 replicas fills it in 7 minutes.
WAITING_SAMPLES_MAX: Final = 100_000
RETRY_FIRST_S: Final = 1.0
RETRY_MAX_S: Final = 15.0
RETENTION_INTERVAL_MS: Final = 600_000
# Samples come every 2 s: they wait for as long at most, and after a start a week of history is thinned in minutes.
RETENTION_S: Final = 2.0
# Twice what the longest write takes, thinning an hour of samples of 10,000 partitions. A server that hangs in the
# middle of a transaction is given up after a minute (`store.connection.limits`).
HANGS_S: Final = 10.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ObserverHeartbeat:
    """The observer's own state; the arguments of `cluster_rows.heartbeat`."""

    at_ms: int
    state: str
    message: str | None
    detail: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SampledSettings:
    """A sample of settings: values of some resources, and which resources there are."""

    at_ms: int
    entries: Mapping[Resource, Entries]
    resources: frozenset[Resource]


@dataclass(frozen=True, slots=True)
class RecorderEntry:
    """One round for the database, or only a sign of life or brokers that answer no more while no round ends."""

    heartbeat: ObserverHeartbeat | None = None
    round: SamplingRound | None = None
    cluster: Mapping[str, Any] | None = None
    brokers: Sequence[Mapping[str, Any]] = ()
    topics: Sequence[Mapping[str, Any]] = ()
    settings: SampledSettings | None = None

    @property
    def size(self) -> int:
        """Samples that it adds: those of partitions that were not listed are objects of the round before."""
        if self.round is None:
            return 1
        samples, partitions = len(self.round.partitions) + len(self.round.replicas), len(self.round.partitions)
        return 1 + samples * (partitions - len(self.round.earlier_ms)) // max(1, partitions)

    def with_earlier(self, earlier: RecorderEntry) -> RecorderEntry:
        """Without a round: this entry in place of one that waits, and with what only that one says."""
        heartbeat, brokers = self.heartbeat or earlier.heartbeat, self.brokers or earlier.brokers
        return replace(self, heartbeat=heartbeat, brokers=brokers)


@dataclass(slots=True)
class _Stored:
    """Content of the database after the last commit; nothing is known of it at first, nor after it was away: then it
    may be another one, which lacks what was committed last.
    """

    replicas: set[tuple[str, int, int]] = field(default_factory=set)
    settings: dict[Resource, Entries] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)


class SampleRecorder:
    """Belongs to one event loop; `run` is its only writer."""

    def __init__(
        self,
        database: Database,
        cluster_id: str,
        *,
        pid: int,
        started_ms: int,
        interval_ms: Callable[[], int],
        keep_days: int = KEEP_DAYS,
    ) -> None:
        self._database = database
        self._cluster_id = cluster_id
        self._pid, self._started_ms, self._interval_ms = pid, started_ms, interval_ms
        self._writer = SampleWriter(database.engine, cluster_id)
        self._retention = Retention(database.engine, cluster_id, keep_days)
        self._retention_ms = 0
        self._waiting: deque[RecorderEntry] = deque()
        self._waiting_samples = 0
        self._arrived = asyncio.Event()
        self._begun = asyncio.Event()
        self._stored: _Stored | None = None
        self._refused = ""
        self.dropped_rounds = 0
        self.away: str | None = None
        self._began_s: float | None = None  # the write that is under way
        self.stored_s: float | None = None  # by the monotonic clock: the end of the last write that was taken

    @property
    def takes_samples(self) -> bool:
        """Whether the database is neither away nor hangs in a write."""
        began_s = self._began_s
        return self.away is None and (began_s is None or time.monotonic() - began_s < HANGS_S)

    @property
    def unwritten_ms(self) -> int:
        """For how long the database has taken no write; 0: it takes them."""
        if self.takes_samples or self.stored_s is None:
            return 0
        return round((time.monotonic() - self.stored_s) * 1000)

    @property
    def waiting_rounds(self) -> int:
        """Rounds that the database has not taken yet."""
        return len(self._waiting)

    def submit(self, entry: RecorderEntry) -> None:
        """Queues an entry; never waits. One without a round takes the place of a waiting one that has none either."""
        if self._waiting and self._waiting[-1].round is None and entry.round is None:
            self._waiting[-1] = entry.with_earlier(self._waiting[-1])
        else:
            self._waiting.append(entry)
            self._waiting_samples += entry.size
        while self._waiting_samples > WAITING_SAMPLES_MAX and len(self._waiting) > 1:
            self._waiting_samples -= self._waiting.popleft().size
            self._dropped("The database is away")
        self._arrived.set()

    def _dropped(self, why: str) -> None:
        self.dropped_rounds += 1
        if self.dropped_rounds == 1 or self.dropped_rounds % 100 == 0 or why != self._refused:
            _log.warning("%s; %d rounds of samples were dropped", why, self.dropped_rounds)
        self._refused = why

    def begin(self) -> None:
        """From now on it writes: what the process before stored has been read, and may be replaced."""
        self._begun.set()

    async def run(self) -> None:
        """Writes until it is cancelled, once :meth:`begin` was called."""
        await self._begun.wait()
        pause_s = RETRY_FIRST_S
        while True:
            await self._arrived.wait()
            try:
                await self._drain()
                await self._remove_old()
            except DatabaseAway as error:
                if self.away is None:
                    _log.warning("Samples wait in memory: %s", error)
                self.away = str(error)
                self._stored = None
                await asyncio.sleep(pause_s)
                pause_s = min(RETRY_MAX_S, pause_s * 2)
                continue
            if self.away is not None:
                _log.info("The database answers again; waiting samples are stored")
            self.away, pause_s = None, RETRY_FIRST_S

    async def drain(self, timeout_s: float) -> None:
        """Writes what waits, once, before a stop; gives up after the time or on the first failure."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._drain()
        except (DatabaseAway, TimeoutError) as error:
            _log.warning("%d rounds of samples are lost at this stop: %s", len(self._waiting), error)

    async def _drain(self) -> None:
        while self._waiting:
            entry = self._waiting[0]
            self._began_s = time.monotonic()
            try:
                await self._database.observe(partial(self._write, entry))
                self.stored_s = time.monotonic()
            except SQLAlchemyError as error:
                # Not away: it refuses this very entry. Keeping it would hold up all that follow.
                self._stored = None
                self._dropped(f"The database refused a round of samples: {first_line(error)}")
            finally:
                self._began_s = None
            if self._waiting and self._waiting[0] is entry:
                self._waiting.popleft()
                self._waiting_samples -= entry.size
        self._arrived.clear()

    async def _remove_old(self) -> None:
        """Retention, one transaction after the other: the findings of brokers wait behind one of them at most."""
        at_ms = now_ms()
        if at_ms - self._retention_ms < RETENTION_INTERVAL_MS:
            return
        until_s = time.monotonic() + RETENTION_S
        try:
            # Not closed here: at a cancellation the database thread may still be within one of them.
            transactions = self._retention.transactions(at_ms)
            while await self._database.observe(partial(next, transactions, None)) is not None:
                if self._waiting and time.monotonic() > until_s:
                    return  # the rest is due once the samples that wait are stored
        except SQLAlchemyError as error:
            _log.warning("The database refused to remove old samples: %s", first_line(error))
        self._retention_ms = at_ms

    def _write(self, entry: RecorderEntry) -> None:
        """On the database thread. Repeating it after a failure in the middle gives the same rows."""
        with writing(self._database.engine) as connection:
            if entry.heartbeat is not None:
                self._heartbeat(connection, entry.heartbeat)
            if entry.cluster is not None:
                cluster_rows.save_cluster(connection, entry.cluster)
            if entry.brokers:
                cluster_rows.save_brokers(connection, self._cluster_id, list(entry.brokers))
                if entry.round is None:
                    cluster_rows.data_changed(connection, self._cluster_id, "observer")
            if entry.round is not None:
                cluster_rows.save_topics(connection, self._cluster_id, list(entry.topics))
                totals = {"cluster_id": self._cluster_id, "sampled_ms": entry.round.at_ms, **entry.round.totals}
                cluster_rows.save_cluster_sample(connection, totals)
        if self._stored is None:
            self._writer = SampleWriter(self._database.engine, self._cluster_id)
            with reading(self._database.engine) as connection:
                self._stored = _Stored(replicas=replica_keys(connection, self._cluster_id))
        if entry.round is not None:
            self._write_round(self._stored, entry.round, {str(row["topic"]) for row in entry.topics})
        if entry.settings is not None:
            self._write_settings(self._stored, entry.settings)

    def _heartbeat(self, connection: Any, heartbeat: ObserverHeartbeat) -> None:
        cluster_rows.heartbeat(
            connection,
            self._cluster_id,
            "observer",
            pid=self._pid,
            started_ms=self._started_ms,
            now_ms=heartbeat.at_ms,
            interval_ms=self._interval_ms(),
            state=heartbeat.state,
            message=heartbeat.message,
            detail=heartbeat.detail,
        )

    def _write_round(self, last_stored: _Stored, round_: SamplingRound, topics: set[str]) -> None:
        self._writer.forget(last_stored.topics - topics)
        last_stored.topics = topics
        replicas = {(r.topic, r.partition, r.broker_id) for r in round_.replicas}
        self._writer.remove_replicas(last_stored.replicas - replicas)
        last_stored.replicas = replicas
        self._writer.write(round_.partitions, round_.replicas, round_.at_ms, round_.earlier_ms)

    def _write_settings(self, last_stored: _Stored, settings: SampledSettings) -> None:
        sampled, stored, at_ms = settings.entries, last_stored.settings, settings.at_ms
        changed = {resource: entries for resource, entries in sampled.items() if entries != stored.get(resource)}
        rows = [row for key, entries in changed.items() for row in config_rows(self._cluster_id, key, entries, at_ms)]
        with writing(self._database.engine) as connection:
            save_settings(
                connection, self._cluster_id, rows, sampled.keys() - changed.keys(), settings.resources, at_ms
            )
            if changed:
                cluster_rows.data_changed(connection, self._cluster_id, "observer")
        stored |= changed
        for resource in stored.keys() - settings.resources:
            del stored[resource]
