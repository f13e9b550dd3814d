"""The groups that this broker coordinates: finds them, runs their state machine, stores what it decides.

Leads a partition of `__consumer_offsets` → reads it and answers for its groups; loses it → forgets them and
answers waiting requests with NOT_COORDINATOR. Every decision is `classic_step.step`; here requests get tokens and
futures, time comes from timers, records go to the log and a response that depends on them waits until they are
replicated. Everything runs on the loop's thread. Kafka: `GroupCoordinatorService`, `GroupCoordinatorShard`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TypeVar, assert_never

from backend.engine.common.unreadable_records import UnreadableRecords
from backend.engine.config import BrokerConfig
from backend.engine.controller.image.metadata_image import GROUP_RESOURCE, MetadataImage
from backend.engine.coordinator.group.classic.classic_group import (
    Group,
    GroupEffect,
    GroupEvent,
    GroupHeartbeat,
    GroupLimits,
    GroupStored,
    GroupTick,
    Join,
    JoinResult,
    Leave,
    Reply,
    ReplyJoin,
    ReplyLeave,
    ReplySync,
    StaticStored,
    StoreGroup,
    StoreStatic,
    Sync,
    SyncResult,
)
from backend.engine.coordinator.group.classic.classic_step import step
from backend.engine.coordinator.group.consumer.consumer_group import JOIN_EPOCH, ConsumerGroup
from backend.engine.coordinator.group.consumer.consumer_group_coordinator import ConsumerGroupCoordinator
from backend.engine.coordinator.group.consumer.consumer_heartbeat import ConsumerHeartbeat, HeartbeatResult
from backend.engine.coordinator.group.group_offsets import GroupOffsets
from backend.engine.coordinator.group.group_records import (
    OFFSETS_TOPIC,
    encode_group,
)
from backend.engine.coordinator.group.group_shard import GROUPS, NEVER, GroupEntry, GroupShard, GroupShards
from backend.engine.coordinator.group.offset_store import OffsetStore
from backend.engine.coordinator.group.transactional_offsets import TransactionalOffsets
from backend.engine.coordinator.transaction.transaction_verifier import TransactionVerifier
from backend.engine.ports import Ports, tasks
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)
T = TypeVar("T")


class GroupCoordinator:
    """Use: `start`, `on_metadata` after the replica manager's for every image, `shutdown`."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        ports: Ports,
        replica_manager: ReplicaManager,
        verifier: TransactionVerifier,
        unreadable_records: UnreadableRecords | None = None,
    ) -> None:
        """`unreadable_records` notes the stored records that cannot be read."""
        self._ports = ports
        self._replicas = replica_manager
        self._shards = GroupShards(
            GROUPS,
            replica_manager,
            loaded=self._loaded,
            lost=self._lost,
            append_timeout_ms=lambda: config.offsets_commit_timeout_ms,
            unreadable_records=unreadable_records or UnreadableRecords(),
        )
        self._stored = OffsetStore(config, ports.clock, self._shards)
        in_transactions = TransactionalOffsets(replica_manager, self._shards, verifier)
        self.offsets = GroupOffsets(replica_manager, self._shards, self._stored, in_transactions, self.heartbeat)
        self.consumers = ConsumerGroupCoordinator(
            config=lambda: self._replicas.config,
            settings_of=lambda group_id: self._replicas.image.config(GROUP_RESOURCE, group_id),
            ports=ports,
            shards=self._shards,
            carry_out=self._carry_out,
            take_over=self._apply,
            schedule=self._schedule,
        )
        self._token = 0
        self._joins: dict[int, tasks.Future[JoinResult]] = {}
        self._syncs: dict[int, tasks.Future[SyncResult]] = {}

    # Life

    def start(self) -> None:
        """Begins the removal of expired offsets."""
        self._shards.spawn(self._stored.expire_repeatedly(), "offset expiry")

    async def shutdown(self) -> None:
        """Answers all waiting requests and coordinates nothing any more."""
        await self._shards.close()

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        """Takes over and gives up partitions of `__consumer_offsets` as this broker's leadership changes."""
        topic = new.topic(OFFSETS_TOPIC)
        self._shards.on_metadata(0 if topic is None else len(topic.partitions))
        self.consumers.on_metadata(old, new)
        if old.topics is new.topics:
            return
        deleted = {topic.name for topic_id, topic in old.topics.items() if topic_id not in new.topics}
        if deleted and any(shard.groups for shard in self._shards):
            some = ", ".join(sorted(deleted)[:3])
            self._shards.spawn(self._stored.forget_topics(deleted), f"offsets of deleted topics {some}")

    def _loaded(self, shard: GroupShard) -> None:
        now_ms = self._ports.clock.monotonic_ms()
        shard.begin(now_ms, lambda group_id: self.consumers.limits(group_id).session_timeout_ms)
        for entry in shard.groups.values():
            self._schedule(shard, entry)

    def _lost(self, shard: GroupShard) -> None:
        for entry in shard.groups.values():
            if entry.timer is not None:
                entry.timer.cancel()
            for member in entry.group.members.values():
                if member.join_token is not None:
                    result = JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id)
                    _respond(self._joins.pop(member.join_token, None), result)
                if member.sync_token is not None:
                    _respond(self._syncs.pop(member.sync_token, None), SyncResult(ErrorCode.NOT_COORDINATOR))
        shard.groups.clear()

    @property
    def _limits(self) -> GroupLimits:
        config = self._replicas.config
        return GroupLimits(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            session_timeout_ms_min=config.group_min_session_timeout_ms,
            session_timeout_ms_max=config.group_max_session_timeout_ms,
            members_max=config.group_max_size,
        )

    # Requests of members

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
        event = Join(
            token=self._next_token(),
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
        if entry.consumer is None:
            self._join_classic(shard, entry, event, done)
        else:
            self._shards.spawn(self._join_consumers(shard, entry, event, done), f"join of group {group_id}")
        return done

    def _join_classic(self, shard: GroupShard, entry: GroupEntry, event: Join, done: tasks.Future[JoinResult]) -> None:
        self._joins[event.token] = done
        self._apply(shard, entry, event)
        shard.drop_if_unused(entry)

    async def _join_consumers(
        self, shard: GroupShard, entry: GroupEntry, event: Join, done: tasks.Future[JoinResult]
    ) -> None:
        """A classic member joins a group of the consumer protocol; an empty one gives way (KIP-848)."""
        limits = self._limits
        try:
            if entry.consumer is not None and not entry.consumer.members:
                await self.consumers.delete_empty(shard, entry)
            if entry.consumer is None:
                self._join_classic(shard, entry, event, done)
                return
            if not limits.session_timeout_ms_min <= event.session_timeout_ms <= limits.session_timeout_ms_max:
                raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT, f"{event.session_timeout_ms} ms is out of range")
            _respond(done, await self.consumers.join(shard, entry, event))
        except KafkaError as refused:
            _log.debug("Group %s refuses the join of %s: %s", entry.group.group_id, event.member_id, refused)
            _respond(done, JoinResult(refused.code, event.member_id))

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
        entry = self._existing_group(shard, group_id)
        done: tasks.Future[SyncResult] = tasks.future()
        token = self._next_token()
        now_ms = self._ports.clock.monotonic_ms()
        event = Sync(token, now_ms, member_id, instance_id, generation, protocol_type, protocol_name, assignments)
        if entry.consumer is None:
            self._syncs[token] = done
            self._apply(shard, entry, event)
        else:
            self._shards.spawn(self._sync_consumers(shard, entry, event, done), f"sync of group {group_id}")
        return done

    async def _sync_consumers(
        self, shard: GroupShard, entry: GroupEntry, event: Sync, done: tasks.Future[SyncResult]
    ) -> None:
        try:
            _respond(done, await self.consumers.sync(shard, entry, event))
        except KafkaError as refused:
            _respond(done, SyncResult(refused.code))

    def heartbeat(self, group_id: str, *, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Keeps a member. Raises KafkaError."""
        shard = self._shard_of_members(group_id)
        entry = self._existing_group(shard, group_id)
        now_ms = self._ports.clock.monotonic_ms()
        event = GroupHeartbeat(self._next_token(), now_ms, member_id, instance_id, generation)
        if entry.consumer is not None:
            return self.consumers.classic_heartbeat(shard, entry, event)
        effects = self._apply(shard, entry, event)
        return next(effect.error for effect in effects if isinstance(effect, Reply))

    async def leave(self, group_id: str, members: Sequence[tuple[str, str | None]]) -> tuple[ErrorCode, ...]:
        """One code for each (member id, instance id). Raises KafkaError."""
        shard = self._shard_of_members(group_id)
        entry = shard.groups.get(group_id)
        if entry is None:
            return tuple(ErrorCode.UNKNOWN_MEMBER_ID for _ in members)
        event = Leave(self._next_token(), self._ports.clock.monotonic_ms(), tuple(members))
        if entry.consumer is not None:
            return await self.consumers.classic_leave(shard, entry, event)
        effects = self._apply(shard, entry, event)
        return next(effect.errors for effect in effects if isinstance(effect, ReplyLeave))

    async def consumer_heartbeat(self, group_id: str, event: ConsumerHeartbeat) -> HeartbeatResult:
        """A heartbeat of the consumer protocol (KIP-848). Raises KafkaError."""
        shard = self._shard_of_members(group_id)
        if group_id not in shard.groups and event.epoch != JOIN_EPOCH:
            what = "Group" if event.epoch < 0 else "Consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{what} {group_id} not found.")
        entry = shard.entry(group_id)
        try:
            return await self.consumers.heartbeat(shard, entry, event)
        finally:
            shard.drop_if_unused(entry)

    # Administration

    def describe(self, group_id: str) -> Group | None:
        """A classic group as it is; None when there is none. Raises KafkaError."""
        entry = self._shards.of(group_id).groups.get(group_id)
        return None if entry is None or entry.consumer is not None else entry.group

    def describe_consumers(self, group_id: str) -> ConsumerGroup | None:
        """A group of the consumer protocol as it is; None when there is none. Raises KafkaError."""
        entry = self._shards.of(group_id).groups.get(group_id)
        return None if entry is None else entry.consumer

    def list_groups(self) -> list[Group | ConsumerGroup]:
        """All groups coordinated here. Raises COORDINATOR_LOAD_IN_PROGRESS while some are being read."""
        if any(shard.loading for shard in self._shards):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are being read")
        return [entry.consumer or entry.group for shard in self._shards for entry in shard.groups.values()]

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Removes a group without members and its offsets."""
        shard = self._shards.of(group_id)
        entry = shard.groups.get(group_id)
        if entry is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not entry.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        return await self._stored.remove_group(shard, entry)

    # The state machine

    def _shard_of_members(self, group_id: str) -> GroupShard:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group with members has a name")
        return self._shards.of(group_id)

    def _existing_group(self, shard: GroupShard, group_id: str) -> GroupEntry:
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

    def _apply(self, shard: GroupShard, entry: GroupEntry, event: GroupEvent) -> list[GroupEffect]:
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
        self._carry_out(shard, entry, effects)
        return effects

    def _carry_out(self, shard: GroupShard, entry: GroupEntry, effects: Sequence[GroupEffect]) -> None:
        for effect in effects:
            self._effect(shard, entry, effect)

    def _effect(self, shard: GroupShard, entry: GroupEntry, effect: GroupEffect) -> None:
        match effect:
            case ReplyJoin(token, join):
                _respond(self._joins.pop(token, None), join)
            case ReplySync(token, sync):
                _respond(self._syncs.pop(token, None), sync)
            case Reply() | ReplyLeave():
                # Answered by the caller at once.
                return
            case StoreGroup(group, _) | StoreStatic(group):
                self._shards.spawn(self._store(shard, entry, effect), f"store of group {group.group_id}")
            case _:
                assert_never(effect)

    async def _store(self, shard: GroupShard, entry: GroupEntry, effect: StoreGroup | StoreStatic) -> None:
        group = effect.group
        error = ErrorCode.NONE
        try:
            await self._shards.append(shard, [encode_group(group, self._ports.clock.time_ms())])
        except KafkaError as failure:
            too_large = failure.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            error = ErrorCode.UNKNOWN_SERVER_ERROR if too_large else failure.code
            _log.warning("Group %s generation %d could not be stored: %s", group.group_id, group.generation, failure)
        if not self._shards.holds(shard):
            return
        now_ms = self._ports.clock.monotonic_ms()
        if isinstance(effect, StoreStatic):
            self._apply(shard, entry, StaticStored(now_ms, effect, error))
        elif effect.report:
            self._apply(shard, entry, GroupStored(now_ms, group.generation, error))

    def _schedule(self, shard: GroupShard, entry: GroupEntry) -> None:
        due_ms = entry.deadline_ms
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
            # The loop may call a rounding error too early; then a millisecond keeps that from going round and round.
            delay_ms = max(1.0, due_ms - self._ports.clock.monotonic_ms())
            entry.timer = tasks.call_later(delay_ms, lambda: self._time_has_come(shard, entry))

    def _time_has_come(self, shard: GroupShard, entry: GroupEntry) -> None:
        entry.timer = entry.timer_due_ms = None
        if self._shards.holds(shard):
            if entry.consumer is not None:
                self._shards.spawn(self.consumers.expire(shard, entry), f"expiry in group {entry.group.group_id}")
                return
            self._apply(shard, entry, GroupTick(self._ports.clock.monotonic_ms()))
            shard.drop_if_unused(entry)


def _respond(waiting: tasks.Future[T] | None, result: T) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(result)
