"""From metadata images to roles: which replicas this broker creates, leads, follows, stops and deletes.

Each image's changes (`metadata_changes`) are carried out on the logs, the fetchers and the remote log manager. Facts:
Kafka's `ReplicaManager.applyDelta`, `BrokerMetadataPublisher`.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from backend.engine.config import BrokerConfig, topic_values
from backend.engine.controller.image.metadata_image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    MetadataImage,
)
from backend.engine.log.config import LogConfig
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.metrics import BrokerMetrics
from backend.engine.ports import tasks
from backend.engine.replica.assignments_manager import AssignmentsManager
from backend.engine.replica.fetchers.replica_fetcher_manager import ReplicaFetcherManager
from backend.engine.replica.metadata_changes import AssignedReplica, is_ours, local_changes
from backend.engine.replica.partition import Partition
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import ZERO_UUID, TopicIdPartition, TopicPartition

if TYPE_CHECKING:
    from backend.engine.replica.replica_manager import ReplicaManager

# Replicas that get their role, or are stopped, before other callbacks have a turn: a new one takes 1 to 3 ms.
REPLICAS_PER_TURN: Final = 5
# Partitions that one line of the log names.
NAMED_MAX: Final = 3

_log = logging.getLogger(__name__)


class HostedPartitions:
    """The partitions of one broker."""

    def __init__(self) -> None:
        self.by_name: dict[tuple[str, int], Partition] = {}
        self.by_id: dict[tuple[bytes, int], Partition] = {}
        # Hosted as metadata has it, but without a usable log: the reason.
        self.broken: dict[tuple[str, int], str] = {}


class RoleChanges:
    """What metadata says of one broker's replicas, carried out on its `HostedPartitions`."""

    def __init__(
        self,
        manager: ReplicaManager,
        hosted: HostedPartitions,
        fetchers: ReplicaFetcherManager,
        directories: AssignmentsManager,
        metrics: BrokerMetrics,
        static_config: BrokerConfig,
    ) -> None:
        self._manager = manager
        self._hosted = hosted
        self._fetchers = fetchers
        self._directories = directories
        self._metrics = metrics
        self._static_config = static_config
        self._topic_configs: dict[str, LogConfig] = {}
        # What they are made of, as long as the broker's own settings stay; None: to be made.
        self._default_config: LogConfig | None = None
        self._stopping: set[tasks.Task[None]] = set()
        # Replicas that were damaged and are copied anew, in this run.
        self._copied_again: set[TopicPartition] = set()

    async def settled(self) -> None:
        """Returns once the remote log manager has stopped what it was told to."""
        await tasks.gather_settled(self._stopping)

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> Iterator[None]:
        """Carries out what the new image says about this broker's replicas, one image after the other.

        To be iterated to its end: after each step other callbacks may run. A few replicas take no step at all.
        """
        self._manager.image = new
        self._manager.leader_quota.update(new)
        self._manager.follower_quota.update(new)
        changes = local_changes(old, new, self._manager.node_id)
        tiered_before = self._tiered_among(changes.changed_topics)
        # Before the settings of deleted topics go: they say which are tiered.
        yield from self._stop_in_turns(changes.deleted, topic_deleted=True)
        yield from self._stop_in_turns(changes.moved_away, topic_deleted=False)
        self._take_over_settings(changes.changed_topics)
        if old.offset < 0:
            self._set_strays_aside()
        leaders: list[Partition] = []
        followers: list[Partition] = []
        newly_led: list[TopicIdPartition] = []
        count = itertools.count(1)
        for assigned, role, taken in (
            *((one, self._lead, leaders) for one in changes.leaders),
            *((one, self._follow, followers) for one in changes.followers),
        ):
            partition = self._host(assigned)
            if partition is not None:
                if role(partition, assigned):
                    newly_led.append(assigned.tip)
                taken.append(partition)
            if next(count) % REPLICAS_PER_TURN == 0:
                yield
        if newly_led:
            named = ", ".join(str(tip.topic_partition) for tip in newly_led[:NAMED_MAX])
            more = ", …" if len(newly_led) > NAMED_MAX else ""
            _log.info("Broker %d leads %d partitions anew: %s%s", self._manager.node_id, len(newly_led), named, more)
        if old.brokers is not new.brokers:
            self._fetchers.reconnect(self._hosted.by_name.values())
        self._fetchers.stop_idle()
        self._tell_remote(filter(self._hosts, leaders), filter(self._hosts, followers), tiered_before)
        if self._manager.remote_logs is not None:
            # Once it has been told who leads.
            self._manager.remote_logs.tiered_again(self._is_tiered)

    def _is_tiered(self, tip: TopicIdPartition) -> bool:
        """Also of a partition that is not hosted here."""
        same = self._manager.image.topic_ids.get(tip.topic) == tip.topic_id
        return same and self.topic_config(tip.topic).remote_storage_enable

    def _hosts(self, partition: Partition) -> bool:
        """Whether it is still served: its log may have broken since."""
        tip = partition.topic_id_partition
        return self._hosted.by_name.get((tip.topic, tip.partition)) is partition

    def _take_over_settings(self, changed_topics: frozenset[str] | None) -> None:
        if changed_topics is None:
            self._manager.config = self._static_config.overlay(self._manager.image.broker_config(self._manager.node_id))
            self._topic_configs.clear()
            self._default_config = None
        else:
            for topic in changed_topics:
                self._topic_configs.pop(topic, None)
        for (topic, _), partition in self._hosted.by_name.items():
            if changed_topics is None or topic in changed_topics:
                partition.log.config = self.topic_config(topic)
                partition.log.producer_state.expiration_ms = self._manager.config.producer_id_expiration_ms
                partition.settings_changed()

    def topic_config(self, topic: str) -> LogConfig:
        """The settings in force for a topic's logs on this broker."""
        found = self._topic_configs.get(topic)
        if found is None:
            own = self._manager.image.topic_config(topic)
            found = self._topic_configs[topic] = LogConfig.from_properties(own, self._broker_config())
        return found

    def _broker_config(self) -> LogConfig:
        """The settings of a topic without any of its own."""
        if self._default_config is None:
            values = topic_values(
                {},
                broker=self._manager.image.config(BROKER_RESOURCE, str(self._manager.node_id)),
                cluster=self._manager.image.config(BROKER_RESOURCE, CLUSTER_DEFAULT),
                static=self._static_config.originals,
            )
            self._default_config = LogConfig.from_properties(values)
        return self._default_config

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
            partition = self._hosted.by_id.get((tip.topic_id, tip.partition))
            self._hosted.broken.pop(key, None)
            if partition is not None:
                if partition.log.remote_enabled and self._manager.remote_logs is not None:
                    tiered.append((tip, topic_deleted and partition.is_leader))
                self._drop(partition, self._manager.why_absent(tip.topic, tip.partition))
            log = self._manager.log_manager.get(tip.topic_partition)
            if log is None or log.topic_id_partition.topic_id == tip.topic_id:
                self._manager.log_manager.async_delete(tip.topic_partition)
            self._topic_configs.pop(tip.topic, None)
            stopped.add(tip.topic)
        for topic in stopped.difference(topic for topic, _ in self._hosted.by_name) if stopped else ():
            self._metrics.forget_topic(topic)
        for remote in (True, False):
            chosen = [tip for tip, delete in tiered if delete is remote]
            if chosen:
                self._stop_remote(chosen, delete_remote=remote, topic_deleted=topic_deleted)

    def _stop_remote(self, tips: list[TopicIdPartition], *, delete_remote: bool, topic_deleted: bool = False) -> None:
        assert self._manager.remote_logs is not None
        task = tasks.spawn(
            self._manager.remote_logs.stop_partitions(tips, delete_remote=delete_remote, topic_deleted=topic_deleted),
            name=f"remote stop of {len(tips)} partitions",
        )
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def _drop(self, partition: Partition, gone: ErrorCode) -> None:
        tip = partition.topic_id_partition
        self._fetchers.unfollow(tip)
        key = (tip.topic, tip.partition)
        if self._hosted.by_name.get(key) is partition:
            del self._hosted.by_name[key]
        self._hosted.by_id.pop((tip.topic_id, tip.partition), None)
        self._manager.log_dir_moves.stop(partition)
        partition.close(gone)

    def _set_strays_aside(self) -> None:
        """At start: logs whose topic or replica went away while this broker was down. They are kept: the metadata may
        be what is wrong (`LogManager.isStrayReplica`).
        """
        image, node_id, manager = self._manager.image, self._manager.node_id, self._manager.log_manager
        found = [log.topic_id_partition for log in manager.all_logs]
        found += [TopicIdPartition(one.topic, ZERO_UUID, one.partition) for one in manager.offline_partitions]
        for tip in found:
            if not is_ours(image, tip, node_id):
                self._set_aside(tip, f"metadata has no replica of {tip} on broker {node_id}")

    def _set_aside(self, tip: TopicIdPartition, reason: str) -> bool:
        """False when the folder cannot be renamed: the log's errors say so, and the replica stays unusable."""
        try:
            self._manager.log_manager.set_aside(tip.topic_partition, reason)
        except KafkaError as error:
            _log.error("Broker %d: %s", self._manager.node_id, error.message)
            return False
        return True

    def _host(self, assigned: AssignedReplica) -> Partition | None:
        """The partition with its log, created when it is new; None when its log cannot be used."""
        tip = assigned.tip
        found = self._hosted.by_id.get((tip.topic_id, tip.partition))
        if found is not None:
            return found
        key = (tip.topic, tip.partition)
        try:
            log = self._manager.log_manager.get(tip.topic_partition)
            if log is not None and log.topic_id_partition.topic_id not in (tip.topic_id, bytes(16)):
                self._manager.log_manager.set_aside(
                    tip.topic_partition, f"it belongs to {log.topic_id_partition}, a deleted topic of the same name"
                )
                log = None
            self._set_damaged_aside(assigned)
            if log is None:
                self._check_place(assigned)
            log = self._manager.log_manager.get_or_create(tip, self.topic_config(tip.topic))
        except KafkaError as error:
            _log.error("Broker %d cannot host %s: %s", self._manager.node_id, tip, error.message)
            self._hosted.broken[key] = error.message
            if not assigned.registration.is_lost(self._manager.node_id):
                self._directories.submit(tip, DIRECTORY_LOST)
            return None
        self._tell_directory(assigned, log, repaired=self._hosted.broken.pop(key, None) is not None)
        partition = Partition(tip, log, self._manager)
        self._hosted.by_name[key] = partition
        self._hosted.by_id[(tip.topic_id, tip.partition)] = partition
        self._manager.log_dir_moves.resume(partition)
        return partition

    def _set_damaged_aside(self, assigned: AssignedReplica) -> None:
        """A replica that cannot be read is copied anew once another leads without it. Its folder is kept.

        Once in a run: a disk that damages the copy as well is not to be filled with folders.
        """
        partition, registration = assigned.tip.topic_partition, assigned.registration
        manager, node_id = self._manager.log_manager, self._manager.node_id
        reason = manager.offline_reason(partition)
        if reason is None or partition in self._copied_again or manager.lies_in_failed_dir(partition):
            return
        if registration.leader in (NO_LEADER, node_id) or node_id in (*registration.isr, *registration.elr):
            return
        manager.set_aside(partition, reason)
        self._copied_again.add(partition)
        _log.warning("Broker %d copies %s again from broker %d", node_id, assigned.tip, registration.leader)

    def _check_place(self, assigned: AssignedReplica) -> None:
        """A replica that lies in a directory left out at the start must not begin anew, empty, in another one.

        Raises KAFKA_STORAGE_ERROR (`LogManager.getOrCreateLog` of Kafka).
        """
        manager, known = self._manager.log_manager, assigned.registration.directory_of(self._manager.node_id)
        here = {DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING, *manager.directory_ids.values()}
        if manager.left_out and known not in here:
            where = ", ".join(manager.left_out)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"its log is not here, and {where} cannot be read")

    def _tell_directory(self, assigned: AssignedReplica, log: UnifiedLog, *, repaired: bool) -> None:
        """Reports the replica's directory where metadata has another one (KIP-858).

        `repaired`: it was reported lost before; that report may be on its way still, and not in this image.
        """
        directory = self._manager.log_manager.directory_id(log)
        if repaired or assigned.registration.directory_of(self._manager.node_id) != directory:
            self._directories.submit(assigned.tip, directory)

    def _lead(self, partition: Partition, assigned: AssignedReplica) -> bool:
        """True when it leads under a new epoch."""
        tip = assigned.tip
        if not partition.is_leader:
            self._fetchers.unfollow(tip)
        new_epoch = partition.become_leader(assigned.registration)
        if new_epoch:
            _log.debug(
                "Broker %d leads %s from offset %d under leader epoch %d, ISR %s",
                self._manager.node_id, tip, partition.followers.epoch_start_offset, partition.leader_epoch,
                sorted(partition.isr.committed),
            )  # fmt: skip
            self._manager.events.emit(
                "leader",
                topic=tip.topic,
                topic_id=tip.topic_id,
                partition=tip.partition,
                leader=self._manager.node_id,
                leader_epoch=partition.leader_epoch,
            )
        return new_epoch

    def log_went_offline(self, log: UnifiedLog, reason: str) -> None:
        """The log was found unusable: its partition goes, when it is still the one in use."""
        tip = log.topic_id_partition
        partition = self._hosted.by_name.get((tip.topic, tip.partition))
        if partition is not None and partition.log is log:
            self._lose(partition, reason)

    def _lose(self, partition: Partition, reason: str) -> None:
        """The partition's log cannot be used any longer: it is served no more and the controller is told."""
        tip = partition.topic_id_partition
        self._hosted.broken[(tip.topic, tip.partition)] = reason
        self._drop(partition, ErrorCode.KAFKA_STORAGE_ERROR)
        if partition.log.remote_enabled and self._manager.remote_logs is not None:
            self._stop_remote([tip], delete_remote=False)
        self._directories.submit(tip, DIRECTORY_LOST)

    def _follow(self, partition: Partition, assigned: AssignedReplica) -> bool:
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
            for partition in self._hosted.by_name.values()
            if changed_topics is None or partition.topic_id_partition.topic in changed_topics
        }

    def _tell_remote(
        self, leaders: Iterable[Partition], followers: Iterable[Partition], tiered_before: dict[Partition, bool]
    ) -> None:
        """Roles, and changes of topics' remote settings (KIP-950), for the remote log manager."""
        if self._manager.remote_logs is None:
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
                    partition.reset_remote_state()
                stopped[delete].append(partition.topic_id_partition)
        for delete, tips in stopped.items():
            if tips:
                self._stop_remote(tips, delete_remote=delete)
        tiered_leaders = [partition for partition in leading if partition.log.remote_enabled]
        tiered_followers = [partition for partition in following if partition.log.remote_enabled]
        if tiered_leaders or tiered_followers:
            self._manager.remote_logs.on_leadership_change(
                tiered_leaders, tiered_followers, self._manager.image.topic_ids
            )
