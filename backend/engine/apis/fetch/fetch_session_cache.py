"""Incremental fetch sessions on the serving side (KIP-227): a request names only the partitions that it adds or
changes, and a response only the partitions that have changed.

A session is found by its id and guarded by its epoch, which rises with every request. A partition that a follower has
completely is idle: no request reads it until it reports a change. So the cost of a request grows with the changes, not
with the partitions that are followed.
Kafka: `FetchSessionCache`, `FetchSession`, `CachedPartition`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from backend.engine.ports.random import Random
from backend.engine.replica.delayed_operations import FetchKey
from backend.engine.replica.fetch_data import FetchData, FetchParams, FetchSpec
from backend.engine.replica.partition import Partition
from backend.engine.replica.purgatory import DelayedFetch, PartitionRequest
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
# Version from which topics are named by id.
TOPIC_IDS_SINCE: Final = 13
# A session that was used more recently than this keeps its slot from another client (Kafka's constant).
EVICTION_MS: Final = 120_000


@dataclass(slots=True, eq=False)
class CachedPartition:
    """One partition of a request; in a session also what was answered last."""

    topic_id: bytes
    topic: str
    index: int
    spec: FetchSpec
    sent_high_watermark: int = -1
    sent_log_start_offset: int = -1

    def has_changed(self, data: FetchData, *, remember: bool) -> bool:
        """Whether the answer has anything that the client does not know; `remember` when it will be sent."""
        news = bool(
            data.records
            or data.error is not ErrorCode.NONE
            or data.diverging is not None
            or data.preferred_replica >= 0
            or data.high_watermark != self.sent_high_watermark
            or data.log_start_offset != self.sent_log_start_offset
        )
        if news and remember:
            # After an error the next answer is a change, whatever is in it.
            failed = data.error is not ErrorCode.NONE
            self.sent_high_watermark = -1 if failed else data.high_watermark
            self.sent_log_start_offset = data.log_start_offset
        return news


@dataclass(slots=True, eq=False)
class FetchSession:
    """The partitions that one client fetches: `entries`, in the order in which a response serves them, and `idle`."""

    id: int
    # CONSUMER, or the follower.
    replica_id: int
    uses_topic_ids: bool
    used_ms: float
    epoch: int = 1
    entries: dict[FetchKey, CachedPartition] = field(default_factory=dict)
    idle: dict[FetchKey, tuple[CachedPartition, Partition]] = field(default_factory=dict)
    # The request of this session that waits; a newer one ends its wait.
    waiting: DelayedFetch | None = None
    waiting_context: FetchContext | None = None

    @property
    def of_follower(self) -> bool:
        return self.replica_id >= 0

    def begin_wait(self, context: FetchContext, waiting: DelayedFetch) -> None:
        """The request can not be answered yet."""
        self.waiting, self.waiting_context = waiting, context

    def end_wait(self) -> None:
        """Nothing waits now."""
        self.waiting = self.waiting_context = None

    def park_idle(self, context: FetchContext, requests: Sequence[PartitionRequest], results: Sequence[FetchData],
                 params: FetchParams) -> None:  # fmt: skip
        """Parks those partitions of an answer of which the follower has, and knows, everything."""
        for entry, (partition, spec), data in zip(context.entries, requests, results, strict=True):
            if data.is_empty and isinstance(partition, Partition) and partition.is_idle_for(params, spec):
                key = _key(entry, self.uses_topic_ids)
                if self.entries.pop(key, None) is not None:
                    self.idle[key] = (entry, partition)
                    partition.delayed.watchers[self] = key

    def on_partition_change(self, partition: Partition, key: FetchKey) -> None:
        """An idle partition has changed, or is about to: the request that waits reads it too, as will the next."""
        entry, _ = self.idle.pop(key)
        self.entries[key] = entry
        # An idle partition counts as fetched at the session's last request.
        partition.followers.mark_caught_up(self.replica_id, self.used_ms)
        if self.waiting is not None and self.waiting_context is not None:
            self.waiting_context.entries.append(entry)
            self.waiting.join(partition, entry.spec)

    def unpark(self, key: FetchKey) -> None:
        """The client changes its request for the partition, idle or not."""
        parked = self.idle.get(key)
        if parked is not None:
            del parked[1].delayed.watchers[self]
            self.on_partition_change(parked[1], key)

    def end(self) -> None:
        """The session is used no more."""
        for _, partition in self.idle.values():
            del partition.delayed.watchers[self]
        self.idle = {}


class FetchContext(NamedTuple):
    """One request: the partitions to look at, and the session it belongs to (None: none, or one that may be made when
    it is answered)."""

    entries: list[CachedPartition]
    session: FetchSession | None = None
    wants_session: bool = False


class FetchSessionCache:
    """The sessions of one broker, least recently used first.

    A session costs some 500 bytes a partition: 1,000 slots (max.incremental.fetch.session.cache.slots) with 10
    partitions each are 5 MB.
    """

    def __init__(self) -> None:
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def context(self, request: m.FetchRequest, version: int, *, now_ms: float) -> FetchContext:
        """The partitions of the request. Raises KafkaError 70, 71, 106 for a session unlike the client's."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            old = self._sessions.pop(request.session_id, None)
            if old is not None:
                old.end()
                if old.waiting is not None:
                    old.waiting.complete()
            entries = list(_entries(request, version).values())
            return FetchContext(entries, wants_session=request.session_epoch == INITIAL_EPOCH)
        session = self._checked(request, version)
        if session.waiting is not None:
            session.waiting.complete()
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        self._sessions.move_to_end(session.id)
        _update(session, request, version)
        session.used_ms = now_ms
        if not session.entries and not session.idle:
            del self._sessions[session.id]
            return FetchContext([])
        return FetchContext(list(session.entries.values()), session)

    def _checked(self, request: m.FetchRequest, version: int) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.id} expects epoch {session.epoch}, not {request.session_epoch}",
            )
        if session.uses_topic_ids != (version >= TOPIC_IDS_SINCE):
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"fetch session {session.id} began {'with' if session.uses_topic_ids else 'without'} topic ids",
            )
        return session

    def response(
        self,
        context: FetchContext,
        results: Sequence[FetchData],
        *,
        slots: int,
        replica_id: int,
        uses_topic_ids: bool,
        random: Random,
        now_ms: float,
    ) -> tuple[int, list[tuple[CachedPartition, FetchData]]]:
        """The session id to answer with, and the partitions that belong into the answer."""
        pairs = list(zip(context.entries, results, strict=True))
        session = context.session
        if session is None:
            if not context.wants_session or not pairs:
                return NO_SESSION, pairs
            session = self._new(slots, replica_id, uses_topic_ids, random, now_ms)
            if session is None:
                return NO_SESSION, pairs
            for entry, data in pairs:
                entry.has_changed(data, remember=True)
                session.entries[_key(entry, uses_topic_ids)] = entry
            return session.id, pairs
        session.end_wait()
        news = [pair for pair in pairs if pair[0].has_changed(pair[1], remember=True)]
        for entry, data in news:
            if data.records:
                # Next time the others come first.
                key = _key(entry, session.uses_topic_ids)
                if session.entries.pop(key, None) is not None:
                    session.entries[key] = entry
        return session.id, news

    def _new(
        self, slots: int, replica_id: int, uses_topic_ids: bool, random: Random, now_ms: float
    ) -> FetchSession | None:
        if len(self._sessions) >= slots and not self._evict(replica_id >= 0, now_ms):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = 1 + random.randrange(_EPOCH_MAX)
        session = self._sessions[session_id] = FetchSession(session_id, replica_id, uses_topic_ids, now_ms)
        return session

    def _evict(self, for_follower: bool, now_ms: float) -> bool:
        """Makes room: the least recently used session when it is idle; for a follower any consumer's."""
        for session in self._sessions.values():
            if now_ms - session.used_ms > EVICTION_MS or (for_follower and not session.of_follower):
                session.end()
                del self._sessions[session.id]
                return True
            if not for_follower:
                return False
        return False


def _key(entry: CachedPartition, uses_topic_ids: bool) -> FetchKey:
    return (entry.topic_id if uses_topic_ids else entry.topic, entry.index)


def _entries(request: m.FetchRequest, version: int) -> dict[FetchKey, CachedPartition]:
    """The partitions that the request itself carries; of a partition named twice the last one counts."""
    by_id = version >= TOPIC_IDS_SINCE
    entries: dict[FetchKey, CachedPartition] = {}
    for topic in request.topics:
        name: Hashable = topic.topic_id if by_id else topic.topic
        for part in topic.partitions:
            spec = FetchSpec(
                part.fetch_offset,
                part.partition_max_bytes,
                part.log_start_offset,
                part.current_leader_epoch,
                part.last_fetched_epoch,
                part.high_watermark,
            )
            entries[(name, part.partition)] = CachedPartition(topic.topic_id, topic.topic, part.partition, spec)
    return entries


def _update(session: FetchSession, request: m.FetchRequest, version: int) -> None:
    """Takes over what the request changes."""
    for key, entry in _entries(request, version).items():
        session.unpark(key)
        cached = session.entries.get(key)
        if cached is None:
            session.entries[key] = entry
        else:
            cached.spec = entry.spec
            if session.of_follower:
                # The follower may have dropped the answer to an earlier request, with the watermarks in it.
                cached.sent_high_watermark = cached.sent_log_start_offset = -1
    by_id = version >= TOPIC_IDS_SINCE
    for topic in request.forgotten_topics_data:
        name: Hashable = topic.topic_id if by_id else topic.topic
        for index in topic.partitions:
            session.unpark((name, index))
            session.entries.pop((name, index), None)
