"""Reads `__ebbline_events`, where an embedded engine reports its state changes exactly, into the database.

Polling would miss a bootstrap of 0.3 s; the events do not. The topic is absent on any other cluster: then phases are
concluded from samples. The next offset to read is the one after the newest stored row, so a restart repeats nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import Engine
from sqlalchemy.exc import DataError, IntegrityError

from backend.control.control_database import Database, DatabaseAway
from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import Gateway, describe_failure
from backend.control.gateway.requests.metadata_requests import PartitionMetadata
from backend.control.gateway.requests.offset_requests import CONSUMER, list_offsets
from backend.control.gateway.requests.record_requests import fetch_records
from backend.protocol import events, offset_timestamps
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.protocol.record_batches.record_batch import Record
from backend.store.connection.database import writing
from backend.store.queries.observer import newest_phases, next_event_offsets
from backend.store.writes.cluster_rows import append_engine_events, data_changed
from backend.tiering.follower_phase import FollowerPhase
from backend.tiering.ids import TopicPartition, uuid_text
from backend.tiering.phase_inference import ExactPhase

TOPIC: Final = "__ebbline_events"
RETRY_S: Final = 1.0
# An event is answered at once; without any, a broker and we wake up this often. A partition that moves to another
# leader is read at most this and RETRY_S later.
FETCH_WAIT_MS: Final = 2_000
# A phase reported longer ago than the topic keeps its records (24 h) is no longer proof of anything.
PHASE_AGE_MS_MAX: Final = 24 * 3_600_000
# Errors of a database for a value that it cannot hold.
REFUSED: Final = (DataError, IntegrityError, OverflowError, UnicodeError)
PhaseKey = tuple[str, int, int]
"""(topic id text, partition, broker id)."""
_log = logging.getLogger(__name__)


class EngineEventReader:
    """Reads the topic when there is one. Belongs to one event loop."""

    def __init__(self, gateway: Gateway, database: Database, cluster_id: str, now_ms: Callable[[], int]) -> None:
        self._gateway = gateway
        self._database = database
        self._cluster_id = cluster_id
        self._now_ms = now_ms
        self._partitions: tuple[PartitionMetadata, ...] = ()
        self._changed = asyncio.Event()
        self._next: dict[int, int] = {}
        self._in_flight: set[int] = set()  # partitions that a leader is being asked about
        self.phases: dict[PhaseKey, ExactPhase] = {}
        self._loaded = -1  # of which opening of the database `_next` is
        self.events_read = 0
        self.unreadable = 0

    def set_partitions(self, partitions: Iterable[PartitionMetadata]) -> None:
        """The topic's partitions as of the newest Metadata; none: the cluster reports no events."""
        newest = tuple(partitions)
        if newest != self._partitions:
            self._partitions = newest
            self._changed.set()

    def forget_others(self, partitions: Iterable[PartitionMetadata]) -> None:
        """Drops phases of replicas that are not assigned there: the memory follows the cluster's size."""
        if self.phases:
            assigned = {(uuid_text(p.topic_id), p.partition, broker_id) for p in partitions for broker_id in p.replicas}
            self.phases = {key: phase for key, phase in self.phases.items() if key in assigned}

    async def run(self) -> None:
        """Follows until it is cancelled: each leader by itself, so that none waits for the events of another."""
        await self._load()
        async with asyncio.TaskGroup() as group:
            following: dict[int, asyncio.Task[None]] = {}
            while True:
                self._changed.clear()
                for leader in {p.leader for p in self._partitions}:
                    if leader not in following or following[leader].done():
                        following[leader] = group.create_task(self._follow_leader(leader))
                await self._changed.wait()

    async def _follow_leader(self, leader: int) -> None:
        """As long as it leads any partition; -1, no leader, is never asked.

        A partition that its leader before is still asked about waits for that answer.
        """
        while led := [p for p in self._partitions if p.leader == leader]:
            free = [p for p in led if leader >= 0 and p.partition not in self._in_flight]
            requested = {p.partition for p in free}
            self._in_flight |= requested
            try:
                if self._loaded != self._database.openings:
                    await self._load()
                await self._read_leader(leader, free)
            except (GatewayError, KafkaError, DatabaseAway) as error:
                reason = str(error) if isinstance(error, DatabaseAway) else describe_failure(error)
                _log.info("Events of %s on broker %d wait: %s", TOPIC, leader, reason)
                await asyncio.sleep(RETRY_S)
            finally:
                self._in_flight -= requested

    async def _load(self) -> None:
        since_ms = self._now_ms() - PHASE_AGE_MS_MAX
        while True:
            try:
                openings = self._database.openings
                self._next = await self._database.read(lambda c: next_event_offsets(c, self._cluster_id))
                stored = await self._database.read(lambda c: newest_phases(c, self._cluster_id, since_ms))
                self._loaded = openings
                break
            except DatabaseAway as error:
                _log.debug("events of %s wait: %s", TOPIC, error)
                await asyncio.sleep(RETRY_S)
        for event in stored:
            self._take_phase((event.topic_id, event.partition, event.broker_id), event.body)

    async def _read_leader(self, leader: int, partitions: list[PartitionMetadata]) -> None:
        """One fetch from one leader; with nothing to ask about it waits a moment."""
        if not partitions:
            await asyncio.sleep(RETRY_S)
            return
        new = [p.topic_partition for p in partitions if p.partition not in self._next]
        if new:
            await self._start_at_beginning(leader, new)
        offsets = {p.topic_partition: self._next[p.partition] for p in partitions if p.partition in self._next}
        if not offsets:
            await asyncio.sleep(RETRY_S)
            return
        records = await fetch_records(self._gateway, leader, partitions[0].topic_id, offsets, max_wait_ms=FETCH_WAIT_MS)
        for tp, fetched in records.items():
            if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                del self._next[tp.partition]
            elif fetched.error is not ErrorCode.NONE:
                raise KafkaError(fetched.error, f"{tp} cannot be read from broker {leader}")
            elif fetched.next_offset > offsets[tp]:
                for offset, reason in fetched.unreadable:
                    self._pass_over(tp.partition, offset, reason)
                await self._store(tp.partition, fetched.records)
                self._next[tp.partition] = fetched.next_offset

    async def _start_at_beginning(self, leader: int, partitions: list[TopicPartition]) -> None:
        listed_offsets = await list_offsets(
            self._gateway, leader, offset_timestamps.EARLIEST, partitions, replica_id=CONSUMER, lane=Lane.EVENTS
        )
        for tp, listed in listed_offsets.items():
            if listed.error is ErrorCode.NONE:
                self._next[tp.partition] = listed.offset

    async def _store(self, partition: int, records: Iterable[Record]) -> None:
        rows = [row for record in records if (row := self._row(partition, record)) is not None]
        if not rows:
            return

        def job() -> list[tuple[dict[str, Any], str]]:
            return _append(self._database.engine, self._cluster_id, rows)

        for row, reason in await self._database.observe(job):
            self._pass_over(partition, row["source_offset"], reason)
            rows.remove(row)
        self.events_read += len(rows)
        for row in rows:
            if row["type"] == "phase":
                self._take_phase((row["topic_id"], row["partition"], row["broker_id"]), row["body"])

    def _row(self, partition: int, record: Record) -> dict[str, Any] | None:
        try:
            event = events.decode(record.value)
        except DecodeError as error:
            self._pass_over(partition, record.offset, str(error))
            return None
        return {
            "cluster_id": self._cluster_id,
            "source_partition": partition,
            "source_offset": record.offset,
            "type": event.type,
            "broker_id": event.broker,
            "at_ms": event.at_ms,
            "topic": event.topic,
            "topic_id": uuid_text(event.topic_id),
            "partition": event.partition,
            "body": event_body(event),
        }

    def _pass_over(self, partition: int, offset: int, reason: str) -> None:
        self.unreadable += 1
        if str(self.unreadable).strip("0") == "1":  # the 1st, the 10th, the 100th: who writes there fills no log
            _log.warning(
                "%s-%d offset %d is passed over (%d since the start): %s",
                TOPIC, partition, offset, self.unreadable, reason,
            )  # fmt: skip

    def _take_phase(self, key: PhaseKey, body: dict[str, Any]) -> None:
        phase = exact_phase(body)
        if phase is not None:
            self.phases[key] = phase


def _append(engine: Engine, cluster_id: str, rows: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """Stores events, all at once or, when the database does not take them, one by one: those that it does not take,
    each with the reason. One of them must not keep the others out for ever.
    """
    try:
        _append_all(engine, cluster_id, rows)
        return []
    except REFUSED as error:
        if len(rows) == 1:
            return [(rows[0], str(getattr(error, "orig", None) or error).splitlines()[0])]
    return [refused for row in rows for refused in _append(engine, cluster_id, [row])]


def _append_all(engine: Engine, cluster_id: str, rows: Sequence[dict[str, Any]]) -> None:
    with writing(engine) as connection:
        append_engine_events(connection, rows)
        data_changed(connection, cluster_id, "observer")


def event_body(event: events.EbblineEvent) -> dict[str, Any]:
    """The fields of an event's type, as JSON values."""
    common = {"broker", "at_ms", "topic", "topic_id", "partition"}
    fields = {name: value for name, value in asdict(event).items() if name not in common}
    return {name: uuid_text(value) if isinstance(value, bytes) else value for name, value in fields.items()}


def exact_phase(body: dict[str, Any]) -> ExactPhase | None:
    """The phase of a phase event; None for one that this version does not know."""
    try:
        phase = FollowerPhase(body["phase"])
    except (KeyError, ValueError):
        return None
    evidence = {name: body[name] for name in ("target_offset", "attempts") if body.get(name)}
    return ExactPhase(phase, int(body.get("since_ms") or 0), evidence | dict(body.get("evidence") or {}))
