"""From metadata images to roles: which replicas this broker creates, leads, follows, stops and deletes.

Each image's changes (`metadata_changes`) are carried out on the logs, the fetchers and the remote log manager.

Kafka: `ReplicaManager.applyDelta`, `BrokerMetadataPublisher`.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import Final

from backend.engine.controller.image.metadata_image import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    MetadataImage,
)
from backend.engine.log.manager.log_manager import LogManager
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.replica.assignments_manager import AssignmentsManager
from backend.engine.replica.fetchers.replica_fetcher_manager import ReplicaFetcherManager
from backend.engine.replica.hosted_partitions import HostedPartitions
from backend.engine.replica.log_dir_moves import LogDirMoves
from backend.engine.replica.metadata_changes import AssignedReplica, is_ours, local_changes
from backend.engine.replica.partition import Partition
from backend.engine.replica.partition_context import PartitionContext
from backend.engine.replica.remote_roles import RemoteRoles
from backend.engine.replica.topic_configs import TopicConfigs
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import ZERO_UUID, TopicIdPartition, TopicPartition

# Replicas that get their role, or are stopped, before other callbacks have a turn: a new one takes 1 to 3 ms.
REPLICAS_PER_TURN: Final = 5
# Partitions that one line of the log names.
NAMED_MAX: Final = 3

_log = logging.getLogger(__name__)


class RoleChanges:
    """Carries metadata out on the `HostedPartitions` of one broker."""

    def __init__(
        self,
        context: PartitionContext,
        hosted: HostedPartitions,
        fetchers: ReplicaFetcherManager,
        assignments: AssignmentsManager,
        log_manager: LogManager,
        log_dir_moves: LogDirMoves,
    ) -> None:
        self._context = context
        self._metadata = context.metadata
        self._node_id = context.metadata.node_id
        self._hosted = hosted
        self._fetchers = fetchers
        self._assignments = assignments
        self._logs = log_manager
        self._log_dir_moves = log_dir_moves
        self._remote = RemoteRoles(context.metadata, context.remote_logs)
        self.topic_configs = TopicConfigs(context.metadata)
        # Damaged replicas that are copied again in this run.
        self._copied_again: set[TopicPartition] = set()

    async def stopped(self) -> None:
        """Returns once the remote log manager has stopped every partition that has left this broker."""
        await self._remote.stopped()

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> Iterator[None]:
        """Carries out what the new image says about this broker's replicas, one image after the other.

        To be iterated to its end: after each step other callbacks may run. A few replicas take no step at all.
        """
        self._metadata.image = new
        self._context.leader_quota.update(new)
        self._context.follower_quota.update(new)
        changes = local_changes(old, new, self._node_id)
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
            *((assigned, self._lead, leaders) for assigned in changes.leaders),
            *((assigned, self._become_follower, followers) for assigned in changes.followers),
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
            _log.info("Broker %d leads %d partitions again: %s%s", self._node_id, len(newly_led), named, more)
        if old.brokers is not new.brokers:
            self._fetchers.reconnect(self._hosted.by_name.values())
        self._fetchers.stop_idle()
        hosts = self._hosted.has
        self._remote.apply(
            filter(hosts, leaders),
            filter(hosts, followers),
            # A partition that was deleted or moved away has been stopped already.
            {partition: tiered for partition, tiered in tiered_before.items() if hosts(partition)},
            self._is_tiered,
        )

    def _is_tiered(self, tip: TopicIdPartition) -> bool:
        """Also of a partition that is not hosted here."""
        same = self._metadata.image.topic_ids.get(tip.topic) == tip.topic_id
        return same and self.topic_configs.of(tip.topic).remote_storage_enable

    def _take_over_settings(self, changed_topics: frozenset[str] | None) -> None:
        if changed_topics is None:
            self._metadata.apply_dynamic_config()
            self.topic_configs.forget_all()
        else:
            for topic in changed_topics:
                self.topic_configs.forget(topic)
        for (topic, _), partition in self._hosted.by_name.items():
            if changed_topics is None or topic in changed_topics:
                partition.log.config = self.topic_configs.of(topic)
                partition.log.producer_state.expiration_ms = self._metadata.config.producer_id_expiration_ms
                partition.settings_changed()

    def _stop_in_turns(self, tips: tuple[TopicIdPartition, ...], *, topic_deleted: bool) -> Iterator[None]:
        for start in range(0, len(tips), REPLICAS_PER_TURN):
            if start:
                yield
            self._stop(tips[start : start + REPLICAS_PER_TURN], topic_deleted=topic_deleted)

    def _stop(self, tips: Iterable[TopicIdPartition], *, topic_deleted: bool) -> None:
        tiered = []
        stopped: set[str] = set()
        for tip in tips:
            partition = self._hosted.of_tip(tip)
            self._hosted.broken.pop((tip.topic, tip.partition), None)
            if partition is not None:
                if partition.log.remote_enabled:
                    tiered.append((tip, topic_deleted and partition.is_leader))
                self._drop(partition, self._hosted.why_absent(tip.topic, tip.partition))
            log = self._logs.get(tip.topic_partition)
            if log is None or log.topic_id_partition.topic_id == tip.topic_id:
                self._logs.async_delete(tip.topic_partition)
            self.topic_configs.forget(tip.topic)
            stopped.add(tip.topic)
        for topic in stopped.difference(topic for topic, _ in self._hosted.by_name) if stopped else ():
            self._context.metrics.forget_topic(topic)
        for delete_remote in (True, False):
            chosen = [tip for tip, delete in tiered if delete is delete_remote]
            self._remote.stop(chosen, delete_remote=delete_remote, topic_deleted=topic_deleted)

    def _drop(self, partition: Partition, error: ErrorCode) -> None:
        self._fetchers.remove_partition(partition.topic_id_partition)
        self._hosted.remove(partition)
        self._log_dir_moves.stop(partition)
        partition.close(error)

    def _set_strays_aside(self) -> None:
        """At start: logs whose topic or replica went away while this broker was down. They are kept: the metadata may
        be what is wrong (`LogManager.isStrayReplica`).
        """
        image, node_id, logs = self._metadata.image, self._node_id, self._logs
        on_disk = [log.topic_id_partition for log in logs.all_logs]
        on_disk += [TopicIdPartition(lost.topic, ZERO_UUID, lost.partition) for lost in logs.offline_partitions]
        for tip in on_disk:
            if not is_ours(image, tip, node_id):
                self._set_aside(tip, f"metadata has no replica of {tip} on broker {node_id}")

    def _set_aside(self, tip: TopicIdPartition, reason: str) -> bool:
        """False when the folder cannot be renamed: the log's errors say so, and the replica stays unusable."""
        try:
            self._logs.set_aside(tip.topic_partition, reason)
        except KafkaError as error:
            _log.error("Broker %d: %s", self._node_id, error.message)
            return False
        return True

    def _host(self, assigned: AssignedReplica) -> Partition | None:
        """The partition with its log, created when it is new; None when its log cannot be used."""
        tip = assigned.tip
        hosted = self._hosted.of_tip(tip)
        if hosted is not None:
            return hosted
        key = (tip.topic, tip.partition)
        try:
            log = self._logs.get(tip.topic_partition)
            if log is not None and log.topic_id_partition.topic_id not in (tip.topic_id, bytes(16)):
                self._logs.set_aside(
                    tip.topic_partition, f"it belongs to {log.topic_id_partition}, a deleted topic of the same name"
                )
                log = None
            self._set_damaged_aside(assigned)
            if log is None:
                self._check_place(assigned)
            log = self._logs.get_or_create(tip, self.topic_configs.of(tip.topic))
        except KafkaError as error:
            _log.error("Broker %d cannot host %s: %s", self._node_id, tip, error.message)
            self._hosted.broken[key] = error.message
            if not assigned.registration.is_lost(self._node_id):
                self._assignments.submit(tip, DIRECTORY_LOST)
            return None
        self._report_directory(assigned, log, repaired=self._hosted.broken.pop(key, None) is not None)
        partition = Partition(tip, log, self._context)
        self._hosted.add(partition)
        self._log_dir_moves.resume(partition)
        return partition

    def _set_damaged_aside(self, assigned: AssignedReplica) -> None:
        """A replica that cannot be read is copied again once another leads without it. Its folder is kept.

        Once in a run: a disk that damages the copy as well is not to be filled with folders.
        """
        partition, registration = assigned.tip.topic_partition, assigned.registration
        logs, node_id = self._logs, self._node_id
        reason = logs.offline_reason(partition)
        if reason is None or partition in self._copied_again or logs.lies_in_failed_dir(partition):
            return
        if registration.leader in (NO_LEADER, node_id) or node_id in (*registration.isr, *registration.elr):
            return
        logs.set_aside(partition, reason)
        self._copied_again.add(partition)
        _log.warning("Broker %d copies %s again from broker %d", node_id, assigned.tip, registration.leader)

    def _check_place(self, assigned: AssignedReplica) -> None:
        """A replica that lies in a directory left out at the start must not begin again, empty, in another one.

        Raises KAFKA_STORAGE_ERROR (`LogManager.getOrCreateLog` of Kafka).
        """
        logs, assigned_directory = self._logs, assigned.registration.directory_of(self._node_id)
        here = {DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING, *logs.directories.directory_ids.values()}
        if logs.directories.left_out and assigned_directory not in here:
            where = ", ".join(logs.directories.left_out)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"its log is not here, and {where} cannot be read")

    def _report_directory(self, assigned: AssignedReplica, log: UnifiedLog, *, repaired: bool) -> None:
        """Reports the replica's directory where metadata has another one (KIP-858).

        `repaired`: it was reported lost before; that report may be on its way still, and not in this image.
        """
        directory = self._logs.directory_id(log)
        if repaired or assigned.registration.directory_of(self._node_id) != directory:
            self._assignments.submit(assigned.tip, directory)

    def _lead(self, partition: Partition, assigned: AssignedReplica) -> bool:
        """True when it leads under a new epoch."""
        tip = assigned.tip
        if not partition.is_leader:
            self._fetchers.remove_partition(tip)
        new_epoch = partition.become_leader(assigned.registration)
        if new_epoch:
            _log.debug(
                "Broker %d leads %s from offset %d under leader epoch %d, ISR %s",
                self._node_id, tip, partition.followers.epoch_start_offset, partition.leader_epoch,
                sorted(partition.isr.committed),
            )  # fmt: skip
            self._context.events.emit(
                "leader",
                topic=tip.topic,
                topic_id=tip.topic_id,
                partition=tip.partition,
                leader=self._node_id,
                leader_epoch=partition.leader_epoch,
            )
        return new_epoch

    def log_changed(self, log: UnifiedLog) -> None:
        """A log that has gone offline takes its partition with it, when it is still the one in use."""
        tip = log.topic_id_partition
        partition = self._hosted.by_name.get((tip.topic, tip.partition))
        if partition is None or partition.log is not log:
            return
        if log.offline_reason is None:
            partition.log_start_raised()
        else:
            self._lose(partition, log.offline_reason)

    def _lose(self, partition: Partition, reason: str) -> None:
        """The partition's log cannot be used any longer: it is served no more, and the controller learns it."""
        tip = partition.topic_id_partition
        self._hosted.broken[(tip.topic, tip.partition)] = reason
        self._drop(partition, ErrorCode.KAFKA_STORAGE_ERROR)
        if partition.log.remote_enabled:
            self._remote.stop([tip], delete_remote=False)
        self._assignments.submit(tip, DIRECTORY_LOST)

    def _become_follower(self, partition: Partition, assigned: AssignedReplica) -> bool:
        """False: it does not lead."""
        before = partition.leader
        new_epoch = partition.become_follower(assigned.registration)
        if new_epoch or before != partition.leader:
            self._fetchers.add_partition(partition)
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
