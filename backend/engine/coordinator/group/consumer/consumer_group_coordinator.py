"""The consumer groups that this broker coordinates (KIP-848): requests in, records out, answers when those are safe.

Every decision is a pure function of `consumer_heartbeat` or `classic_members`. A change is appended to
`__consumer_offsets` and applied in the same moment, so that the next request builds on it; the response waits until the
records are replicated. A request that writes nothing waits for what is still on its way: no client learns of a state
that a new coordinator might not know.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from backend.engine.config import BrokerConfig
from backend.engine.config.group_config import ASSIGNMENT_INTERVAL, HEARTBEAT_INTERVAL, SESSION_TIMEOUT, number_of
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.coordinator.group.classic.classic_group import (
    Group,
    GroupEffect,
    GroupHeartbeat,
    Join,
    JoinResult,
    Leave,
    Sync,
    SyncResult,
    Takeover,
)
from backend.engine.coordinator.group.consumer import classic_members as classic
from backend.engine.coordinator.group.consumer import consumer_heartbeat as state
from backend.engine.coordinator.group.consumer.consumer_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
)
from backend.engine.coordinator.group.consumer.consumer_group_records import changes
from backend.engine.coordinator.group.consumer.consumer_group_update import ConsumerLimits, preferred_assignor
from backend.engine.coordinator.group.consumer.consumer_heartbeat import ConsumerHeartbeat, HeartbeatResult
from backend.engine.coordinator.group.group_records import encode_group, encode_group_tombstone
from backend.engine.coordinator.group.group_shard import NEVER, GroupEntry, GroupShard, GroupShards
from backend.engine.coordinator.topics_view import TopicsView, view_of
from backend.engine.ports import Ports, tasks
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.protocol.record_batches.record_codec import RecordData

# A member whose removal could not be written is looked at again after this time.
RETRY_MS = 1000.0

_log = logging.getLogger(__name__)


class ConsumerGroupCoordinator:
    """Use: `on_metadata` for every image.

    `settings_of` has what was set on a group itself. `answer` carries out effects of classic groups that change their
    protocol, `take_over` goes on with a group that has become classic, `schedule` sets an entry's timer.
    """

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        settings_of: Callable[[str], Mapping[str, str]],
        ports: Ports,
        shards: GroupShards,
        carry_out: Callable[[GroupShard, GroupEntry, Sequence[GroupEffect]], None],
        take_over: Callable[[GroupShard, GroupEntry, Takeover], object],
        schedule: Callable[[GroupShard, GroupEntry], None],
    ) -> None:
        self._config, self._settings_of = config, settings_of
        self._ports = ports
        self._shards = shards
        self._carry_out, self._take_over, self._schedule = carry_out, take_over, schedule
        self._image: MetadataImage | None = None
        self._topics: TopicsView | None = None
        self._version = self._names_version = -1

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        """Topics may have changed; members learn of it with their next heartbeat."""
        if old.topics is new.topics and self._image is not None:
            return
        if old.topic_ids is not new.topic_ids or self._image is None:
            self._names_version = new.offset
        self._version, self._image, self._topics = new.offset, new, None

    @property
    def topics(self) -> TopicsView:
        """Made when it is first needed after a change."""
        if self._topics is None:
            if self._image is None:
                return TopicsView()
            self._topics = view_of(self._image, self._version, self._names_version)
        return self._topics

    def limits(self, group_id: str) -> ConsumerLimits:
        """The settings in force for a group: its own, else the broker's."""
        config, own = self._config(), self._settings_of(group_id)
        return ConsumerLimits(
            session_timeout_ms=number_of(own, SESSION_TIMEOUT, config),
            heartbeat_interval_ms=number_of(own, HEARTBEAT_INTERVAL, config),
            members_max=config.group_consumer_max_size,
            assignors=config.group_consumer_assignors,
            assignment_interval_ms=number_of(own, ASSIGNMENT_INTERVAL, config),
        )

    def assignor(self, group: ConsumerGroup) -> str:
        """The assignor that a group uses."""
        return preferred_assignor(group, self.limits(group.group_id))

    # Members of the consumer protocol

    async def heartbeat(self, shard: GroupShard, entry: GroupEntry, event: ConsumerHeartbeat) -> HeartbeatResult:
        """Joins, goes on or leaves. Raises KafkaError."""
        if event.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return await self._leave(shard, entry, event)
        group, first = self._group_for(entry, event)
        after, result = state.heartbeat(group, event, self.topics, self.limits(group.group_id))
        effects = classic.refusals(entry.group) if entry.consumer is None else []
        records = first + changes(entry.consumer, after, self._ports.clock.time_ms())

        def apply_change() -> None:
            if entry.consumer is None and entry.group.members:
                _log.info("Group %s changes from the classic to the consumer protocol with %d members",
                          entry.group.group_id, len(entry.group.members))  # fmt: skip
            entry.consumer, entry.group = after, Group(entry.group.group_id)
            self._carry_out(shard, entry, effects)

        await self._write(shard, entry, records, apply_change)
        return result

    def _group_for(self, entry: GroupEntry, event: ConsumerHeartbeat) -> tuple[ConsumerGroup, list[RecordData]]:
        """The consumer group, made of a classic one when it has to be, and the record that ends that one."""
        if entry.consumer is not None:
            return entry.consumer, []
        group = entry.group
        group_id = group.group_id
        missing = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        if event.epoch != JOIN_EPOCH:
            raise missing
        stored = group.generation > 0 or group.protocol_type is not None
        tombstones = [encode_group_tombstone(group_id, event.time_ms)] if stored else []
        if not group.members:
            return ConsumerGroup(group_id), tombstones
        policy = self._config().group_consumer_migration_policy
        if policy not in ("upgrade", "bidirectional") or not classic.can_upgrade(group, self.limits(group_id)):
            raise missing
        try:
            return classic.upgraded(group, self.topics, event.now_ms), tombstones
        except DecodeError as error:
            text = f"Cannot upgrade the classic group {group_id}: its members' metadata cannot be read ({error})."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text) from error

    async def _leave(self, shard: GroupShard, entry: GroupEntry, event: ConsumerHeartbeat) -> HeartbeatResult:
        group = entry.consumer
        if group is None:
            text = f"Group {entry.group.group_id} is not a consumer group."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        member = state.leaving(group, event, self.topics, self.limits(group.group_id))
        if event.epoch == LEAVE_STATIC_EPOCH:
            after = state.leave_for_a_while(group, member)
            await self._change(shard, entry, group, after)
        else:
            await self._remove(shard, entry, group, [member.member_id])
        return HeartbeatResult(member.member_id, event.epoch)

    # Members of the classic protocol

    async def join(self, shard: GroupShard, entry: GroupEntry, event: Join) -> JoinResult:
        """Joins a consumer group with members. Raises KafkaError."""
        group = self._consumer(entry)
        time_ms = self._ports.clock.time_ms()
        joined = classic.join(group, event, self.topics, self.limits(group.group_id), time_ms)
        if joined.replaced is not None and self._turns_classic(group, [joined.replaced]):
            # The last member of the consumer protocol came back as a classic one.
            after = self._downgraded(joined.group)
            if after is not None:
                await self._downgrade(shard, entry, group, after)
                return joined.result
        await self._change(shard, entry, group, joined.group)
        return joined.result

    async def sync(self, shard: GroupShard, entry: GroupEntry, event: Sync) -> SyncResult:
        """The member's present assignment. Raises KafkaError."""
        group = self._consumer(entry)
        after, result = classic.sync(group, event, self.topics)
        await self._change(shard, entry, group, after)
        return result

    def classic_heartbeat(self, shard: GroupShard, entry: GroupEntry, event: GroupHeartbeat) -> ErrorCode:
        """Keeps a classic member. Raises KafkaError."""
        entry.consumer, error = classic.heartbeat(self._consumer(entry), event)
        self._schedule(shard, entry)
        return error

    async def classic_leave(self, shard: GroupShard, entry: GroupEntry, event: Leave) -> tuple[ErrorCode, ...]:
        """One code for each. Raises KafkaError."""
        group = self._consumer(entry)
        leaving, errors = classic.leave(group, event)
        await self._remove(shard, entry, group, leaving)
        return errors

    async def delete_empty(self, shard: GroupShard, entry: GroupEntry) -> None:
        """A consumer group without members makes room for a classic one. Raises KafkaError."""

        def apply_change() -> None:
            entry.consumer = None

        records = changes(entry.consumer, None, self._ports.clock.time_ms())
        await self._write(shard, entry, records, apply_change)

    def _consumer(self, entry: GroupEntry) -> ConsumerGroup:
        if entry.consumer is None:
            text = f"group {entry.group.group_id} has changed its protocol; join it again"
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)
        return entry.consumer

    # Time

    async def expire(self, shard: GroupShard, entry: GroupEntry) -> None:
        """Drops members whose time is up."""
        group = entry.consumer
        if group is None:
            return
        expired = state.expired(group, self._ports.clock.monotonic_ms())
        if expired:
            _log.info("Group %s: members %s are dropped: their time is up", group.group_id, ", ".join(expired))
        try:
            await self._remove(shard, entry, group, expired)
        except KafkaError as error:
            _log.warning("Group %s: removal of members could not be stored: %s", group.group_id, error)
            await tasks.sleep_ms(RETRY_MS)
        if self._shards.holds(shard):
            self._schedule(shard, entry)

    # Changes

    async def _remove(
        self, shard: GroupShard, entry: GroupEntry, group: ConsumerGroup, member_ids: Collection[str]
    ) -> None:
        after = state.without(group, member_ids, self.topics, self.limits(group.group_id))
        if self._turns_classic(group, member_ids):
            # The generation is the epoch that the members know, so that they hear of a rebalance and are not refused.
            left = self._downgraded(replace(after, epoch=group.epoch))
            if left is not None:
                await self._downgrade(shard, entry, group, left, rebalance=True)
                return
        await self._change(shard, entry, group, after)

    def _turns_classic(self, group: ConsumerGroup, leaving: Collection[str]) -> bool:
        config = self._config()
        allowed = config.group_consumer_migration_policy in ("downgrade", "bidirectional")
        return allowed and classic.can_downgrade(group, leaving, config.group_max_size)

    def _downgraded(self, group: ConsumerGroup) -> Group | None:
        try:
            return classic.downgraded(group, self.topics, self._ports.clock.monotonic_ms())
        except DecodeError as error:
            _log.warning(
                "Group %s stays with the consumer protocol: metadata cannot be read: %s", group.group_id, error
            )
            return None

    async def _downgrade(
        self, shard: GroupShard, entry: GroupEntry, group: ConsumerGroup, after: Group, *, rebalance: bool = False
    ) -> None:
        def apply_change() -> None:
            _log.info("Group %s changes from the consumer to the classic protocol with %d members",
                      after.group_id, len(after.members))  # fmt: skip
            entry.consumer, entry.group = None, after
            self._schedule(shard, entry)
            if rebalance:
                self._take_over(shard, entry, Takeover(self._ports.clock.monotonic_ms()))

        now_ms = self._ports.clock.time_ms()
        await self._write(shard, entry, [*changes(group, None, now_ms), encode_group(after, now_ms)], apply_change)

    async def _change(self, shard: GroupShard, entry: GroupEntry, before: ConsumerGroup, after: ConsumerGroup) -> None:
        def apply_change() -> None:
            entry.consumer = after

        await self._write(shard, entry, changes(before, after, self._ports.clock.time_ms()), apply_change)

    async def _write(
        self, shard: GroupShard, entry: GroupEntry, records: Sequence[RecordData], apply_change: Callable[[], None]
    ) -> None:
        """Takes the change over once its records are in the log, and waits until they are replicated."""

        def apply_and_note() -> None:
            before = entry.consumer
            apply_change()
            self._note(before, entry)
            self._schedule(shard, entry)

        if not records:
            apply_and_note()
            if entry.writing is not None:
                await tasks.shield(entry.writing)
            return
        writing: tasks.Future[None] = tasks.future()

        def appended() -> None:
            entry.writing = writing
            apply_and_note()

        try:
            await self._shards.append(shard, records, appended=appended)
        finally:
            # Waiting requests are answered; the next request notices a state that got lost.
            writing.set_result(None)
            if entry.writing is writing:
                entry.writing = None

    def _note(self, before: ConsumerGroup | None, entry: GroupEntry) -> None:
        after = entry.consumer
        if after is None or entry.group.members:
            return
        entry.empty_since_ms = NEVER if after.members else self._ports.clock.time_ms()
        if before is None or before.epoch != after.epoch:
            _log.info("Group %s is %s with %d members in epoch %d", after.group_id, after.state, len(after.members),
                      after.epoch)  # fmt: skip
