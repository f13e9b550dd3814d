"""The replicas of one broker: which there are, who leads and follows them, and the requests that wait for them.

`on_metadata` turns images into roles: it creates and deletes logs, starts and stops fetchers, and tells the remote log
manager. Handlers find partitions here and append, fetch and wait. Everything runs on the loop's thread. Facts:
Kafka's `ReplicaManager`, `BrokerMetadataPublisher`.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.common.event_sink import EventSink
from backend.engine.common.rates import Windows
from backend.engine.config import BrokerConfig, topic_values
from backend.engine.controller.image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    EMPTY_IMAGE,
    MetadataImage,
)
from backend.engine.log.config import LogConfig
from backend.engine.log.log_manager import LogManager
from backend.engine.log.unified_log import AppendInfo, Origin, UnifiedLog
from backend.engine.metrics import BrokerMetrics
from backend.engine.ports import Clock, Ports, tasks
from backend.engine.replica.alter_partition import AlterPartitionSender
from backend.engine.replica.deadlines import Deadlines
from backend.engine.replica.directory_sender import DirectorySender
from backend.engine.replica.fetch_reads import FetchReads
from backend.engine.replica.fetch_state import FetchState
from backend.engine.replica.fetcher_manager import FetcherManager
from backend.engine.replica.leader_endpoint import ConnectToLeader
from backend.engine.replica.leader_replicas import IsrProposal
from backend.engine.replica.log_dir_moves import LogDirMoves
from backend.engine.replica.metadata_changes import Assigned, is_ours, local_changes
from backend.engine.replica.offset_lookup import FoundOffset, Query
from backend.engine.replica.partition import Partition
from backend.engine.replica.purgatory import Purgatory, WaitingDelete, WaitingProduce
from backend.engine.replica.remote_logs import RemoteLogs
from backend.engine.replica.remote_waits import WaitingListOffsets
from backend.engine.replica.replica_metrics import register_replica_metrics
from backend.engine.replica.replication_quota import ReplicationQuota
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicIdPartition, TopicPartition

NO_BROKER_EPOCH: Final = -1
# Replicas that get their role, or are stopped, before other callbacks have a turn: a new one takes 1 to 3 ms.
REPLICAS_PER_TURN: Final = 5
# Partitions that one line of the log names.
NAMED_MAX: Final = 3

_log = logging.getLogger(__name__)


class ReplicaManager:
    """Use: `start`, then `on_metadata` for every image, `shutdown`."""

    def __init__(
        self,
        *,
        node_id: int,
        config: BrokerConfig,
        ports: Ports,
        log_manager: LogManager,
        controller_channel: ControllerChannel,
        connect_to_leader: ConnectToLeader,
        events: EventSink,
        metrics: BrokerMetrics,
        remote_logs: RemoteLogs | None = None,
    ) -> None:
        self.node_id = node_id
        self.image: MetadataImage = EMPTY_IMAGE
        self.config = config
        self.events = events
        self.log_manager = log_manager
        # Set before `start` when tiered storage is on.
        self.remote_logs = remote_logs
        self._static_config = config
        self._ports = ports
        self._metrics = metrics
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._partitions_by_id: dict[tuple[bytes, int], Partition] = {}
        # Hosted as metadata has it, but without a usable log: the reason.
        self._broken: dict[tuple[str, int], str] = {}
        self._topic_configs: dict[str, LogConfig] = {}
        self._fetchers = FetcherManager(self, connect_to_leader)
        self._deadlines = Deadlines(ports.clock)
        self.purgatory = Purgatory(self._deadlines)
        self.reads = FetchReads(self.purgatory, lambda: self.remote_logs, lambda: self.config)
        self._alter_partition = AlterPartitionSender(node_id, lambda: self.broker_epoch, controller_channel)
        self._directories = DirectorySender(node_id, lambda: self.broker_epoch, controller_channel)
        windows = Windows(config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000)
        self.leader_quota = ReplicationQuota("leader", node_id, windows)
        self.follower_quota = ReplicationQuota("follower", node_id, windows)
        self.log_dir_moves = LogDirMoves(log_manager, self._directories.submit)
        self._to_wake: dict[Partition, None] = {}
        self._shrinking: tasks.Task[None] | None = None
        self._stopping: set[tasks.Task[None]] = set()
        self.isr_expands = 0
        self.isr_shrinks = 0
        register_replica_metrics(self, metrics)

    # --- life

    def start(self) -> None:
        """Begins background work; `on_metadata` brings the replicas."""
        self._alter_partition.start()
        self._directories.start()
        self.log_manager.on_offline = lambda log, reason: tasks.call_soon(lambda: self._log_went_offline(log, reason))
        self._shrinking = tasks.spawn(self._shrink_isrs(), name=f"ISR check of broker {self.node_id}")

    async def shutdown(self) -> None:
        """Follows and leads nothing any more and answers what waits; logs stay open for the log manager to close."""
        self.log_manager.on_offline = None
        await tasks.cancel(self._shrinking)
        await self._alter_partition.stop()
        await self._directories.stop()
        await self.log_dir_moves.shutdown()
        await self._fetchers.shutdown()
        for partition in self._partitions.values():
            partition.close()
        await tasks.gather_settled(self._stopping)
        self._deadlines.close()

    async def _shrink_isrs(self) -> None:
        while True:
            await tasks.sleep_ms(self.config.replica_lag_time_max_ms / 2)
            for partition in list(self._partitions.values()):
                partition.shrink_isr()

    # --- what partitions and fetchers need of their broker

    @property
    def clock(self) -> Clock:
        return self._ports.clock

    @property
    def broker_epoch(self) -> int:
        """Epoch of this broker's registration, -1 before metadata shows it."""
        broker = self.image.broker(self.node_id)
        return NO_BROKER_EPOCH if broker is None else broker.epoch

    @property
    def aux_states(self) -> RemoteLogs | None:
        return self.remote_logs

    def wake(self, partition: Partition) -> None:
        """Settles the partition's waiting requests after the present callback, so that its answer goes out first."""
        if not self._to_wake:
            tasks.call_soon(self._settle)
        self._to_wake[partition] = None

    def _settle(self) -> None:
        changed, self._to_wake = self._to_wake, {}
        for partition in changed:
            partition.settle_waiting()

    def propose_isr(self, proposal: IsrProposal) -> None:
        """Sends an ISR change to the controller."""
        if len(proposal.members) > len(proposal.partition.isr.committed):
            self.isr_expands += 1
        else:
            self.isr_shrinks += 1
        self._alter_partition.submit(proposal)

    def replicated(self, partition: TopicPartition, bytes_in: int) -> None:
        """Counts bytes appended as a follower."""
        self._metrics.all_topics.replicationbytesin += bytes_in
        if self.follower_quota.is_throttled(partition.topic, partition.partition):
            self.follower_quota.record(bytes_in, self.clock.monotonic_ms())

    def sent_to_follower(self, partition: TopicPartition, bytes_out: int) -> None:
        """Counts bytes answered to a follower."""
        if self.leader_quota.is_throttled(partition.topic, partition.partition):
            self.leader_quota.record(bytes_out, self.clock.monotonic_ms())

    # --- partitions

    @property
    def partitions(self) -> Iterable[Partition]:
        """Every partition hosted here with a usable log."""
        return self._partitions.values()

    def partition(self, topic: str, index: int) -> Partition:
        """A hosted partition. Raises 56 when its log is unusable, 6 when only others have it, 3 when there is none."""
        found = self.find(topic, index)
        if isinstance(found, Partition):
            return found
        reason = self._broken.get((topic, index)) or f"broker {self.node_id} has no replica of {topic}-{index}"
        raise KafkaError(found, reason)

    def find(self, topic: str, index: int) -> Partition | ErrorCode:
        """As :meth:`partition`, with the error as a value."""
        found = self._partitions.get((topic, index))
        return self._why_absent(topic, index) if found is None else found

    def _why_absent(self, topic: str, index: int) -> ErrorCode:
        if (topic, index) in self._broken:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.image.partition(topic, index) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | ErrorCode:
        """As :meth:`find`; 100 when there is no topic with the id."""
        found = self._partitions_by_id.get((topic_id, index))
        if found is not None:
            return found
        topic = self.image.topics.get(topic_id)
        return ErrorCode.UNKNOWN_TOPIC_ID if topic is None else self.find(topic.name, index)

    @property
    def broken_partitions(self) -> dict[TopicPartition, str]:
        """Replicas that metadata puts here and that cannot be used, with the reason."""
        return {TopicPartition(topic, index): reason for (topic, index), reason in self._broken.items()}

    def fetch_state(self, tip: TopicIdPartition) -> FetchState | None:
        """Where a followed partition stands; None when it is not followed."""
        return self._fetchers.state_of(tip)

    def max_lag(self) -> int:
        """The largest known lag of a replica that follows, in records."""
        return self._fetchers.max_lag()

    # --- appends and waiting for them

    def wait_for_acks(
        self,
        required: list[tuple[int, Partition, int]],
        timeout_ms: float,
        answer: Callable[[dict[int, ErrorCode]], None],
    ) -> None:
        """Calls `answer` once, with errors by index, when each (index, partition, offset) is acknowledged or late."""
        pending = []
        errors: dict[int, ErrorCode] = {}
        for index, partition, offset in required:
            error = partition.acknowledged(offset)
            if error is None:
                pending.append((index, partition, offset))
            elif error is not ErrorCode.NONE:
                errors[index] = error
        if not pending:
            answer(errors)
            return
        WaitingProduce(self.purgatory, pending, max(0.0, timeout_ms), lambda late: answer(errors | late))

    async def append(
        self,
        partition: TopicPartition,
        records: memoryview,
        *,
        acks: int = -1,
        timeout_ms: float = 5000,
        origin: Origin = "coordinator",
        appended: Callable[[], None] | None = None,
    ) -> AppendInfo:
        """Appends records of this broker's own parts and waits for the ISR. Raises KafkaError.

        `appended` is called before anything else can happen once they are in the log here.
        """
        hosted = self.partition(partition.topic, partition.partition)
        info = hosted.append(records, acks=acks, origin=origin)
        if appended is not None:
            appended()
        if acks == -1:
            done: tasks.Future[dict[int, ErrorCode]] = tasks.future()
            self.wait_for_acks([(0, hosted, info.last_offset + 1)], timeout_ms, lambda errors: _resolve(done, errors))
            errors = await done
            if errors:
                raise KafkaError(errors[0], f"records appended to {partition} were not acknowledged")
        return info

    def wait_for_deletes(
        self,
        required: list[tuple[int, Partition, int]],
        timeout_ms: float,
        answer: Callable[[dict[int, tuple[ErrorCode, int]]], None],
    ) -> None:
        """Calls `answer` once with (error, low watermark) by index."""
        waiting = WaitingDelete(self.purgatory, required, max(0.0, timeout_ms), answer)
        for _, partition, _ in required:
            waiting.poke(partition)

    def search_offsets(
        self,
        asked: Sequence[tuple[Partition, Query]],
        timeout_ms: float | None,
        answer: Callable[[list[FoundOffset | KafkaError]], None],
    ) -> None:
        """Looks for times in both tiers and calls `answer` once with what was found by then, in order (KIP-1075).
        Without a timeout of the client's it is ``remote.list.offsets.request.timeout.ms``.
        """
        assert self.remote_logs is not None
        delay_ms = self.config.remote_list_offsets_request_timeout_ms if timeout_ms is None else timeout_ms
        WaitingListOffsets(self.purgatory, self.remote_logs, asked, delay_ms, answer)

    # --- metadata

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> Iterator[None]:
        """Carries out what the new image says about this broker's replicas, one image after the other.

        To be iterated to its end: after each step other callbacks may run. A few replicas take no step at all.
        """
        self.image = new
        self.leader_quota.update(new)
        self.follower_quota.update(new)
        changes = local_changes(old, new, self.node_id)
        tiered_before = self._tiered_among(changes.changed_topics)
        # Before the settings of deleted topics go: they say which are tiered.
        yield from self._stop_in_turns(changes.deleted, topic_deleted=True)
        yield from self._stop_in_turns(changes.moved_away, topic_deleted=False)
        self._take_over_settings(changes.changed_topics)
        if old.offset < 0:
            self._delete_strays()
        leaders: list[Partition] = []
        followers: list[Partition] = []
        newly_led: list[TopicIdPartition] = []
        count = itertools.count(1)
        for assigned, role, taken in (
            *((one, self._lead, leaders) for one in changes.leaders),
            *((one, self._follow, followers) for one in changes.followers),
        ):
            partition = self._hosted(assigned)
            if partition is not None:
                if role(partition, assigned):
                    newly_led.append(assigned.tip)
                taken.append(partition)
            if next(count) % REPLICAS_PER_TURN == 0:
                yield
        if newly_led:
            named = ", ".join(str(tip.topic_partition) for tip in newly_led[:NAMED_MAX])
            _log.info("Broker %d leads %d partitions anew: %s%s",
                      self.node_id, len(newly_led), named, ", …" if len(newly_led) > NAMED_MAX else "")  # fmt: skip
        if old.brokers is not new.brokers:
            self._fetchers.reconnect(self._partitions.values())
        self._fetchers.stop_idle()
        self._tell_remote(filter(self._hosts, leaders), filter(self._hosts, followers), tiered_before)

    def _hosts(self, partition: Partition) -> bool:
        """Whether it is still served: its log may have broken since."""
        tip = partition.topic_id_partition
        return self._partitions.get((tip.topic, tip.partition)) is partition

    def _take_over_settings(self, changed_topics: frozenset[str] | None) -> None:
        if changed_topics is None:
            self.config = self._static_config.overlay(self.image.broker_config(self.node_id))
            self._topic_configs.clear()
        else:
            for topic in changed_topics:
                self._topic_configs.pop(topic, None)
        for (topic, _), partition in self._partitions.items():
            if changed_topics is None or topic in changed_topics:
                partition.log.config = self.topic_config(topic)
                partition.log.producer_state.expiration_ms = self.config.producer_id_expiration_ms

    def topic_config(self, topic: str) -> LogConfig:
        """The settings in force for a topic's logs on this broker."""
        found = self._topic_configs.get(topic)
        if found is None:
            values = topic_values(
                self.image.topic_config(topic),
                broker=self.image.config(BROKER_RESOURCE, str(self.node_id)),
                cluster=self.image.config(BROKER_RESOURCE, CLUSTER_DEFAULT),
                static=self._static_config.originals,
            )
            found = self._topic_configs[topic] = LogConfig.from_properties(values)
        return found

    def _stop_in_turns(self, tips: tuple[TopicIdPartition, ...], *, topic_deleted: bool) -> Iterator[None]:
        for start in range(0, len(tips), REPLICAS_PER_TURN):
            if start:
                yield
            self._stop(tips[start : start + REPLICAS_PER_TURN], topic_deleted=topic_deleted)

    def _stop(self, tips: Iterable[TopicIdPartition], *, topic_deleted: bool) -> None:
        tiered = []
        stopped: set[str] = set()
        for tip in tips:
            key = (tip.topic, tip.partition)
            partition = self._partitions_by_id.get((tip.topic_id, tip.partition))
            self._broken.pop(key, None)
            if partition is not None:
                if partition.log.remote_enabled and self.remote_logs is not None:
                    tiered.append((tip, topic_deleted and partition.is_leader))
                self._drop(partition, self._why_absent(tip.topic, tip.partition))
            log = self.log_manager.get(tip.topic_partition)
            if log is None or log.topic_id_partition.topic_id == tip.topic_id:
                self.log_manager.async_delete(tip.topic_partition)
            self._topic_configs.pop(tip.topic, None)
            stopped.add(tip.topic)
        for topic in stopped.difference(topic for topic, _ in self._partitions) if stopped else ():
            self._metrics.forget_topic(topic)
        for remote in (True, False):
            chosen = [tip for tip, delete in tiered if delete is remote]
            if chosen:
                self._stop_remote(chosen, delete_remote=remote, topic_deleted=topic_deleted)

    def _stop_remote(self, tips: list[TopicIdPartition], *, delete_remote: bool, topic_deleted: bool = False) -> None:
        assert self.remote_logs is not None
        task = tasks.spawn(
            self.remote_logs.stop_partitions(tips, delete_remote=delete_remote, topic_deleted=topic_deleted),
            name=f"remote stop of {len(tips)} partitions",
        )
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def _drop(self, partition: Partition, gone: ErrorCode) -> None:
        tip = partition.topic_id_partition
        self._fetchers.unfollow(tip)
        key = (tip.topic, tip.partition)
        if self._partitions.get(key) is partition:
            del self._partitions[key]
        self._partitions_by_id.pop((tip.topic_id, tip.partition), None)
        self.log_dir_moves.stop(partition)
        partition.close(gone)

    def _delete_strays(self) -> None:
        """At start: logs whose topic or replica went away while this broker was down."""
        for log in self.log_manager.all_logs:
            tip = log.topic_id_partition
            if not is_ours(self.image, tip, self.node_id):
                _log.warning("Broker %d removes the stray log %s: metadata has no replica of %s here",
                             self.node_id, log.dir, tip)  # fmt: skip
                self.log_manager.async_delete(tip.topic_partition)

    def _hosted(self, assigned: Assigned) -> Partition | None:
        """The partition with its log, created when it is new; None when its log cannot be used."""
        tip = assigned.tip
        found = self._partitions_by_id.get((tip.topic_id, tip.partition))
        if found is not None:
            return found
        key = (tip.topic, tip.partition)
        try:
            log = self.log_manager.get(tip.topic_partition)
            if log is not None and log.topic_id_partition.topic_id not in (tip.topic_id, bytes(16)):
                _log.warning("%s belongs to a deleted topic of the same name and is removed", log.dir)
                self.log_manager.async_delete(tip.topic_partition)
                log = None
            if log is None:
                self._check_place(assigned)
            log = self.log_manager.get_or_create(tip, self.topic_config(tip.topic))
        except KafkaError as error:
            _log.error("Broker %d cannot host %s: %s", self.node_id, tip, error.message)
            self._broken[key] = error.message
            if not assigned.registration.is_lost(self.node_id):
                self._directories.submit(tip, DIRECTORY_LOST)
            return None
        self._broken.pop(key, None)
        if assigned.registration.is_lost(self.node_id):
            # It was unusable before this start, and is repaired.
            self._directories.submit(tip, self.log_manager.directory_id(log))
        elif len(self.log_manager.dirs) > 1:
            self._tell_directory(assigned, log)
        partition = Partition(tip, log, self)
        self._partitions[key] = partition
        self._partitions_by_id[(tip.topic_id, tip.partition)] = partition
        self.log_dir_moves.resume(partition)
        return partition

    def _check_place(self, assigned: Assigned) -> None:
        """A replica that lies in a directory left out at the start must not begin anew, empty, in another one.

        Raises KAFKA_STORAGE_ERROR (`LogManager.getOrCreateLog` of Kafka).
        """
        manager, known = self.log_manager, assigned.registration.directory_of(self.node_id)
        here = {DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING, *manager.directory_ids.values()}
        if manager.left_out and known not in here:
            where = ", ".join(manager.left_out)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"its log is not here, and {where} cannot be read")

    def _tell_directory(self, assigned: Assigned, log: UnifiedLog) -> None:
        """Where there are several the controller cannot know which one a replica lies in (KIP-858)."""
        directory = self.log_manager.directory_id(log)
        if assigned.registration.directory_of(self.node_id) != directory:
            self._directories.submit(assigned.tip, directory)

    def _lead(self, partition: Partition, assigned: Assigned) -> bool:
        """True when it leads under a new epoch."""
        tip = assigned.tip
        if not partition.is_leader:
            self._fetchers.unfollow(tip)
        try:
            new_epoch = partition.become_leader(assigned.registration)
        except KafkaError as error:
            self._lose(partition, error.message)
            return False
        if new_epoch:
            _log.debug(
                "Broker %d leads %s from offset %d under leader epoch %d, ISR %s",
                self.node_id, tip, partition.followers.epoch_start_offset, partition.leader_epoch,
                sorted(partition.isr.committed),
            )  # fmt: skip
            self.events.emit(
                "leader",
                topic=tip.topic,
                topic_id=tip.topic_id,
                partition=tip.partition,
                leader=self.node_id,
                leader_epoch=partition.leader_epoch,
            )
        return new_epoch

    def _log_went_offline(self, log: UnifiedLog, reason: str) -> None:
        tip = log.topic_id_partition
        partition = self._partitions.get((tip.topic, tip.partition))
        if partition is not None and partition.log is log:
            self._lose(partition, reason)

    def _lose(self, partition: Partition, reason: str) -> None:
        """The partition's log cannot be used any longer: it is served no more and the controller is told."""
        tip = partition.topic_id_partition
        self._broken[(tip.topic, tip.partition)] = reason
        self._drop(partition, ErrorCode.KAFKA_STORAGE_ERROR)
        if partition.log.remote_enabled and self.remote_logs is not None:
            self._stop_remote([tip], delete_remote=False)
        self._directories.submit(tip, DIRECTORY_LOST)

    def _follow(self, partition: Partition, assigned: Assigned) -> bool:
        """False: it does not lead."""
        before = partition.leader
        new_epoch = partition.become_follower(assigned.registration)
        if new_epoch or before != partition.leader:
            self._fetchers.follow(partition)
        else:
            self._fetchers.note_isr(partition)
        return False

    def _tiered_among(self, changed_topics: frozenset[str] | None) -> dict[Partition, bool]:
        """Whether each partition is tiered whose settings are about to change."""
        if changed_topics is not None and not changed_topics:
            return {}
        return {
            partition: partition.log.remote_enabled
            for partition in self._partitions.values()
            if changed_topics is None or partition.topic_id_partition.topic in changed_topics
        }

    def _tell_remote(
        self, leaders: Iterable[Partition], followers: Iterable[Partition], tiered_before: dict[Partition, bool]
    ) -> None:
        """Roles, and changes of topics' remote settings (KIP-950), for the remote log manager."""
        if self.remote_logs is None:
            return
        leading, following = dict.fromkeys(leaders), dict.fromkeys(followers)
        stopped: dict[bool, list[TopicIdPartition]] = {True: [], False: []}
        for partition, was_tiered in tiered_before.items():
            if not self._hosts(partition):
                continue  # Deleted or moved away: it has been stopped.
            if partition.log.remote_enabled:
                (leading if partition.is_leader else following)[partition] = None
            elif was_tiered:
                partition.log.forget_highest_remote_offset()
                delete = partition.is_leader and partition.log.config.remote_log_delete_on_disable
                if delete:
                    partition.forget_remote()
                stopped[delete].append(partition.topic_id_partition)
        for delete, tips in stopped.items():
            if tips:
                self._stop_remote(tips, delete_remote=delete)
        tiered_leaders = [partition for partition in leading if partition.log.remote_enabled]
        tiered_followers = [partition for partition in following if partition.log.remote_enabled]
        if tiered_leaders or tiered_followers:
            self.remote_logs.on_leadership_change(tiered_leaders, tiered_followers, self.image.topic_ids)


def _resolve(done: tasks.Future[dict[int, ErrorCode]], errors: dict[int, ErrorCode]) -> None:
    if not done.done():
        done.set_result(errors)
