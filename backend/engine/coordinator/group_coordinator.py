"""The groups that this broker coordinates: finds them, runs their state machine, stores what it decides.

Leads a partition of `__consumer_offsets` → reads it and answers for its groups; loses it → forgets them and tells
whoever waits. Every decision is `group_state.step`; here requests get tokens and futures, time comes from timers,
records go to the log and an answer that depends on them waits until they are replicated. Everything runs on the loop's
thread. Facts: Kafka's `GroupCoordinatorService`, `GroupCoordinatorShard`.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar, assert_never

from backend.engine.config import BrokerConfig
from backend.engine.controller.image import MetadataImage
from backend.engine.coordinator.group import (
    Effect,
    Event,
    Group,
    GroupState,
    Heartbeat,
    Join,
    JoinResult,
    Leave,
    Limits,
    Reply,
    ReplyJoin,
    ReplyLeave,
    ReplySync,
    Store,
    Stored,
    Sync,
    SyncResult,
    Tick,
)
from backend.engine.coordinator.group_records import (
    OFFSETS_TOPIC,
    CommittedOffset,
    OffsetRecord,
    coordinator_partition,
    encode_group,
    encode_group_tombstone,
    encode_offset,
)
from backend.engine.coordinator.group_state import check_commit, step
from backend.engine.coordinator.shard import NEVER, GroupEntry, Shard
from backend.engine.ports import Ports, tasks
from backend.engine.replica.partition import Partition
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol import codec
from backend.protocol import messages as m
from backend.protocol.batch import build_batch
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.protocol.records import RecordData
from backend.tiering.ids import TopicPartition

MINUTE_MS: Final = 60_000
_STORE_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}

_log = logging.getLogger(__name__)
T = TypeVar("T")


class GroupCoordinator:
    """Use: `start`, `on_metadata` after the replica manager's for every image, `shutdown`."""

    def __init__(self, *, config: BrokerConfig, ports: Ports, replica_manager: ReplicaManager) -> None:
        self._config = config
        self._ports = ports
        self._replicas = replica_manager
        self._shards: dict[int, Shard] = {}
        self._partitions = 0  # of __consumer_offsets; 0 while the topic is not there
        self._token = 0
        self._joins: dict[int, tasks.Future[JoinResult]] = {}
        self._syncs: dict[int, tasks.Future[SyncResult]] = {}
        self._tasks: set[tasks.Task[None]] = set()
        self._expiry: tasks.Task[None] | None = None
        self._closed = False

    # Life

    def start(self) -> None:
        """Begins the removal of offsets that nobody has used for long."""
        self._expiry = tasks.spawn(self._expire_repeatedly(), name="offset expiry")

    async def shutdown(self) -> None:
        """Answers whoever waits and coordinates nothing any more."""
        self._closed = True
        for index in list(self._shards):
            self._unload(index)
        await tasks.cancel(self._expiry)
        for task in list(self._tasks):
            await tasks.cancel(task)

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        """Takes over and gives up partitions of `__consumer_offsets` as this broker's leadership changes."""
        topic = new.topic(OFFSETS_TOPIC)
        self._partitions = 0 if topic is None else len(topic.partitions)
        led: dict[int, Partition] = {}
        for index in range(self._partitions):
            found = self._replicas.find(OFFSETS_TOPIC, index)
            if isinstance(found, Partition) and found.is_leader:
                led[index] = found
        for index in list(self._shards):
            partition = led.get(index)
            if partition is None or partition.leader_epoch != self._shards[index].leader_epoch:
                self._unload(index)
        for index, partition in led.items():
            if index not in self._shards and not self._closed:
                shard = self._shards[index] = Shard(index, partition.leader_epoch)
                self._spawn(self._load(shard, partition), f"load of {OFFSETS_TOPIC}-{index}")
        deleted = {topic.name for topic_id, topic in old.topics.items() if topic_id not in new.topics}
        if deleted and any(shard.groups for shard in self._shards.values()):
            self._spawn(self._forget_topics(deleted), f"offsets of deleted topics {', '.join(sorted(deleted)[:3])}")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = tasks.spawn(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load(self, shard: Shard, partition: Partition) -> None:
        try:
            count = await shard.load(partition.log, self._ports.clock.monotonic_ms())
        except (KafkaError, DecodeError) as error:
            # Until the next leadership change its groups are answered COORDINATOR_LOAD_IN_PROGRESS, and the log says
            # why.
            _log.error("%s-%d cannot be read, so its groups have no coordinator: %s", OFFSETS_TOPIC, shard.index, error)
            return
        if self._shards.get(shard.index) is not shard:
            return
        shard.loading = False
        for entry in shard.groups.values():
            self._schedule(shard, entry)
        _log.info(
            "Coordinates %d groups of %s-%d after %d records", len(shard.groups), OFFSETS_TOPIC, shard.index, count
        )

    def _unload(self, index: int) -> None:
        shard = self._shards.pop(index)
        for entry in shard.groups.values():
            if entry.timer is not None:
                entry.timer.cancel()
            for member in entry.group.members.values():
                if member.join_token is not None:
                    result = JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id)
                    self._effect(shard, entry, ReplyJoin(member.join_token, result))
                if member.sync_token is not None:
                    self._effect(shard, entry, ReplySync(member.sync_token, SyncResult(ErrorCode.NOT_COORDINATOR)))
        shard.groups.clear()

    # Finding groups

    def partition_of(self, group_id: str) -> int | None:
        """The partition of `__consumer_offsets` of a group; None while the topic does not exist."""
        return coordinator_partition(group_id, self._partitions) if self._partitions else None

    def _shard(self, group_id: str) -> Shard:
        """Raises INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        if self._closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is shutting down")
        index = self.partition_of(group_id)
        shard = None if index is None else self._shards.get(index)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"group {group_id!r} is coordinated by another broker")
        if shard.loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the state of group {group_id!r} is being read")
        return shard

    @property
    def _limits(self) -> Limits:
        config = self._replicas.config
        return Limits(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            session_timeout_ms_min=config.group_min_session_timeout_ms,
            session_timeout_ms_max=config.group_max_session_timeout_ms,
            members_max=config.group_max_size,
        )

    # Requests

    def join(
        self,
        group_id: str,
        *,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocol_type: str,
        protocols: Sequence[tuple[str, bytes]],
        requires_known_member: bool,
        may_skip_assignment: bool,
    ) -> tasks.Future[JoinResult]:
        """The answer comes when the rebalance does. Raises KafkaError."""
        shard = self._shard_of_members(group_id)
        if not member_id or group_id in shard.groups:
            entry = shard.entry(group_id)
        else:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id!r} has no member {member_id!r}")
        done: tasks.Future[JoinResult] = tasks.future()
        token = self._next_token()
        self._joins[token] = done
        event = Join(
            token=token,
            now_ms=self._ports.clock.monotonic_ms(),
            member_id=member_id,
            instance_id=instance_id,
            client_id=client_id,
            client_host=client_host,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=tuple(protocols),
            fresh_id=f"{instance_id or client_id}-{self._uuid()}",
            requires_known_member=requires_known_member,
            may_skip_assignment=may_skip_assignment,
        )
        self._apply(shard, entry, event)
        self._drop_if_unused(shard, entry)
        return done

    def sync(
        self,
        group_id: str,
        *,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol_name: str | None,
        assignments: Mapping[str, bytes],
    ) -> tasks.Future[SyncResult]:
        """The answer comes when the leader's assignments are stored. Raises KafkaError."""
        shard = self._shard_of_members(group_id)
        entry = self._known(shard, group_id)
        done: tasks.Future[SyncResult] = tasks.future()
        token = self._next_token()
        self._syncs[token] = done
        now_ms = self._ports.clock.monotonic_ms()
        event = Sync(token, now_ms, member_id, instance_id, generation, protocol_type, protocol_name, assignments)
        self._apply(shard, entry, event)
        return done

    def heartbeat(self, group_id: str, *, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Keeps a member. Raises KafkaError."""
        shard = self._shard_of_members(group_id)
        entry = self._known(shard, group_id)
        now_ms = self._ports.clock.monotonic_ms()
        effects = self._apply(shard, entry, Heartbeat(self._next_token(), now_ms, member_id, instance_id, generation))
        return next(effect.error for effect in effects if isinstance(effect, Reply))

    def leave(self, group_id: str, members: Sequence[tuple[str, str | None]]) -> tuple[ErrorCode, ...]:
        """One code for each (member id, instance id). Raises KafkaError."""
        shard = self._shard_of_members(group_id)
        entry = shard.groups.get(group_id)
        if entry is None:
            return tuple(ErrorCode.UNKNOWN_MEMBER_ID for _ in members)
        effects = self._apply(shard, entry, Leave(self._next_token(), self._ports.clock.monotonic_ms(), tuple(members)))
        return next(effect.errors for effect in effects if isinstance(effect, ReplyLeave))

    async def commit(
        self,
        group_id: str,
        *,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> dict[TopicPartition, ErrorCode]:
        """Stores offsets; one code for each. Raises KafkaError when the group refuses all of them."""
        shard = self._shard(group_id)
        entry = shard.groups.get(group_id)
        if entry is None and generation >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"group {group_id!r} has no generation {generation}")
        entry = shard.entry(group_id)
        error = check_commit(entry.group, member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            self._drop_if_unused(shard, entry)
            raise KafkaError(error, f"group {group_id!r} refuses the commit of member {member_id!r}")
        if generation >= 0:
            self.heartbeat(group_id, member_id=member_id, instance_id=instance_id, generation=generation)
        size_max = self._replicas.config.offset_metadata_max_bytes
        codes = {
            partition: ErrorCode.OFFSET_METADATA_TOO_LARGE if len(one.metadata) > size_max else ErrorCode.NONE
            for partition, one in offsets.items()
        }
        stored = {partition: one for partition, one in offsets.items() if codes[partition] is ErrorCode.NONE}
        if not entry.group.members and entry.empty_since_ms == NEVER:
            entry.empty_since_ms = self._ports.clock.time_ms()
        error = await self._store_offsets(shard, group_id, stored)
        return {partition: code if code is not ErrorCode.NONE else error for partition, code in codes.items()}

    async def _store_offsets(
        self, shard: Shard, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset | None]
    ) -> ErrorCode:
        if not offsets:
            return ErrorCode.NONE
        now_ms = self._ports.clock.time_ms()
        records = [encode_offset(OffsetRecord(group_id, partition, one), now_ms) for partition, one in offsets.items()]
        try:
            first = await self._append(shard, records)
        except KafkaError as error:
            return _STORE_ERRORS.get(error.code, error.code)
        if self._shards.get(shard.index) is not shard:
            return ErrorCode.NOT_COORDINATOR
        for at, (partition, one) in enumerate(offsets.items()):
            shard.apply_offset(group_id, partition, one, first + at)
        return ErrorCode.NONE

    def offsets(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Committed offsets; empty for an unknown group. Raises KafkaError."""
        entry = self._shard(group_id).groups.get(group_id)
        return {} if entry is None else entry.offsets

    # Administration

    def describe(self, group_id: str) -> Group | None:
        """A group as it is; None when there is none. Raises KafkaError."""
        entry = self._shard(group_id).groups.get(group_id)
        return None if entry is None else entry.group

    def list_groups(self) -> list[Group]:
        """All groups coordinated here. Raises COORDINATOR_LOAD_IN_PROGRESS while some are being read."""
        if any(shard.loading for shard in self._shards.values()):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are being read")
        return [entry.group for shard in self._shards.values() for entry in shard.groups.values()]

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Removes a group without members and its offsets."""
        shard = self._shard(group_id)
        entry = shard.groups.get(group_id)
        if entry is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if entry.group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        return await self._remove_group(shard, entry)

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Removes committed offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP and those of finding the group."""
        shard = self._shard(group_id)
        entry = shard.groups.get(group_id)
        if entry is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        if entry.group.members and entry.group.protocol_type != "consumer":
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members")
        subscribed = _subscribed_topics(entry.group)
        codes = {
            one: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if one.topic in subscribed else ErrorCode.NONE
            for one in partitions
        }
        gone = {one: None for one, code in codes.items() if code is ErrorCode.NONE and one in entry.offsets}
        error = await self._store_offsets(shard, group_id, gone)
        return {one: error if one in gone else code for one, code in codes.items()}

    # The state machine

    def _shard_of_members(self, group_id: str) -> Shard:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group with members has a name")
        return self._shard(group_id)

    def _known(self, shard: Shard, group_id: str) -> GroupEntry:
        entry = shard.groups.get(group_id)
        if entry is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        return entry

    def _next_token(self) -> int:
        self._token += 1
        return self._token

    def _uuid(self) -> str:
        text = self._ports.random.uuid().hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    def _apply(self, shard: Shard, entry: GroupEntry, event: Event) -> list[Effect]:
        before = entry.group
        entry.group, effects = step(before, event, self._limits)
        if entry.group.generation != before.generation:
            _log.info("Group %s is %s with %d members in generation %d", entry.group.group_id, entry.group.state,
                      len(entry.group.members), entry.group.generation)  # fmt: skip
        if entry.group.members:
            entry.empty_since_ms = NEVER
        elif entry.empty_since_ms == NEVER:
            entry.empty_since_ms = self._ports.clock.time_ms()
        self._schedule(shard, entry)
        for effect in effects:
            self._effect(shard, entry, effect)
        return effects

    def _effect(self, shard: Shard, entry: GroupEntry, effect: Effect) -> None:
        match effect:
            case ReplyJoin(token, join):
                _answer(self._joins.pop(token, None), join)
            case ReplySync(token, sync):
                _answer(self._syncs.pop(token, None), sync)
            case Reply() | ReplyLeave():
                # Answered by the caller at once.
                return
            case Store(group, report):
                self._spawn(self._store(shard, entry, group, report), f"store of group {group.group_id}")
            case _:
                assert_never(effect)

    async def _store(self, shard: Shard, entry: GroupEntry, group: Group, report: bool) -> None:
        error = ErrorCode.NONE
        try:
            await self._append(shard, [encode_group(group, self._ports.clock.time_ms())])
        except KafkaError as failure:
            error = _STORE_ERRORS.get(failure.code, failure.code)
            if error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
                error = ErrorCode.UNKNOWN_SERVER_ERROR
            _log.warning("Group %s generation %d could not be stored: %s", group.group_id, group.generation, failure)
        if report and self._shards.get(shard.index) is shard:
            self._apply(shard, entry, Stored(self._ports.clock.monotonic_ms(), group.generation, error))

    async def _append(self, shard: Shard, records: Sequence[RecordData]) -> int:
        """Offset of the first record once all are replicated."""
        if self._shards.get(shard.index) is not shard:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{OFFSETS_TOPIC}-{shard.index} is led by another broker")
        info = await self._replicas.append(
            TopicPartition(OFFSETS_TOPIC, shard.index),
            memoryview(build_batch(records)),
            timeout_ms=self._config.offsets_commit_timeout_ms,
        )
        return info.first_offset

    def _schedule(self, shard: Shard, entry: GroupEntry) -> None:
        due_ms = entry.group.deadline_ms
        if due_ms == entry.timer_due_ms:
            return
        if entry.timer is not None:
            # A timer that comes too early looks again: heartbeats, which only put it off, need not move it.
            if due_ms is not None and entry.timer_due_ms is not None and due_ms > entry.timer_due_ms:
                return
            entry.timer.cancel()
            entry.timer = None
        entry.timer_due_ms = due_ms
        if due_ms is not None:
            delay_ms = max(0.0, due_ms - self._ports.clock.monotonic_ms())
            entry.timer = tasks.call_later(delay_ms, lambda: self._time_has_come(shard, entry))

    def _time_has_come(self, shard: Shard, entry: GroupEntry) -> None:
        entry.timer = entry.timer_due_ms = None
        if self._shards.get(shard.index) is shard:
            self._apply(shard, entry, Tick(self._ports.clock.monotonic_ms()))
            self._drop_if_unused(shard, entry)

    def _drop_if_unused(self, shard: Shard, entry: GroupEntry) -> None:
        """A group that never came to be (a refused join, a pending member that stayed away) leaves nothing behind."""
        group = entry.group
        if group.generation == 0 and not group.members and not group.pending and not entry.offsets:
            shard.groups.pop(group.group_id, None)

    # Forgetting

    async def _remove_group(self, shard: Shard, entry: GroupEntry) -> ErrorCode:
        now_ms = self._ports.clock.time_ms()
        group_id = entry.group.group_id
        records = [encode_offset(OffsetRecord(group_id, partition, None), now_ms) for partition in entry.offsets]
        try:
            await self._append(shard, [*records, encode_group_tombstone(group_id, now_ms)])
        except KafkaError as error:
            return _STORE_ERRORS.get(error.code, error.code)
        if shard.groups.get(group_id) is entry and not entry.group.members:
            if entry.timer is not None:
                entry.timer.cancel()
            del shard.groups[group_id]
        return ErrorCode.NONE

    async def _forget_topics(self, topics: set[str]) -> None:
        for shard in list(self._shards.values()):
            for group_id, entry in list(shard.groups.items()):
                gone: dict[TopicPartition, CommittedOffset | None] = {
                    partition: None for partition in entry.offsets if partition.topic in topics
                }
                await self._store_offsets(shard, group_id, gone)

    async def _expire_repeatedly(self) -> None:
        while True:
            await tasks.sleep_ms(self._config.offsets_retention_check_interval_ms)
            await self.expire_offsets()

    async def expire_offsets(self) -> None:
        """Removes offsets of groups without members for `offsets.retention.minutes`, and then the groups (KIP-211)."""
        now_ms = self._ports.clock.time_ms()
        retention_ms = self._config.offsets_retention_minutes * MINUTE_MS
        for shard in list(self._shards.values()):
            for group_id, entry in list(shard.groups.items()):
                if entry.group.state is not GroupState.EMPTY:
                    continue
                gone: dict[TopicPartition, CommittedOffset | None] = {
                    partition: None
                    for partition, one in entry.offsets.items()
                    if _expired(one, entry.empty_since_ms, now_ms, retention_ms)
                }
                if len(gone) == len(entry.offsets) and entry.empty_since_ms + retention_ms <= now_ms:
                    await self._remove_group(shard, entry)
                else:
                    await self._store_offsets(shard, group_id, gone)


def _answer(waiting: tasks.Future[T] | None, result: T) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(result)


def _expired(one: CommittedOffset, empty_since_ms: int, now_ms: int, retention_ms: int) -> bool:
    if one.expire_time_ms >= 0:
        return one.expire_time_ms <= now_ms
    # A group that commits without ever having had members counts from each commit.
    since_ms = max(one.commit_time_ms, empty_since_ms)
    return since_ms + retention_ms <= now_ms


def _subscribed_topics(group: Group) -> set[str]:
    """Topics of a consumer group's members, as their metadata says (ConsumerProtocolSubscription)."""
    topics: set[str] = set()
    for member in group.members.values():
        metadata = member.metadata(group.protocol_name)
        try:
            version = min(int.from_bytes(metadata[:2], "big", signed=True), m.ConsumerProtocolSubscription.MAX_VERSION)
            topics.update(codec.decode(m.ConsumerProtocolSubscription, version, metadata, 2)[0].topics)
        except DecodeError:
            # Not a consumer's metadata: it names no topics.
            continue
    return topics
