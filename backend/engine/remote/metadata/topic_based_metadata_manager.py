"""The built-in metadata manager: which remote segments exist, as ``__remote_log_metadata`` says (KIP-405).

Every change of a segment is a record on that topic. A publisher's call returns only after all in-sync replicas have
the record and this broker's own reading half (``metadata_consumer``) has applied it, so publishers see their own
writes. Kafka: `TopicBasedRemoteLogMetadataManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from backend.engine.common.event_sink import EventSink
from backend.engine.common.unreadable_records import UnreadableRecords
from backend.engine.ports import Ports, tasks
from backend.engine.remote.metadata.cached_lookups import CachedLookups
from backend.engine.remote.metadata.hosted_partition import Hosted
from backend.engine.remote.metadata.metadata_consumer import MetadataConsumer
from backend.engine.remote.metadata.metadata_files import MetadataFiles
from backend.engine.remote.metadata.metadata_topic import METADATA_TOPIC, MetadataTopic, MetadataTopicSettings
from backend.engine.remote.metadata.remote_log_metadata_cache import Overlap, RemoteLogMetadataCache
from backend.engine.remote.metadata.remote_log_metadata_manager import check_new, check_update
from backend.engine.remote.storage.remote_storage_manager import (
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.remote_log.metadata_serde import (
    PartitionDelete,
    SegmentMetadata,
    SegmentUpdate,
    encode,
    metadata_partition,
)
from backend.tiering.ids import TopicIdPartition, uuid_text

PUBLISH_RETRY_MS: Final = 100
# While fewer brokers are registered than the topic asks for; the next one may come at any time.
FEW_BROKERS_PAUSE_MS: Final = 1000
CREATION_DELAY: Final = "ebbline.remote.log.metadata.topic.creation.delay.ms"
PUBLISH_RETRY_MAX_MS: Final = 2000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RlmmSettings:
    """Settings under ``rlmm.config.`` (`TopicBasedRemoteLogMetadataManagerConfig`)."""

    topic: MetadataTopicSettings = field(default_factory=MetadataTopicSettings)
    consume_wait_ms: int = 120_000
    initialization_retry_max_timeout_ms: int = 120_000
    initialization_retry_interval_ms: int = 100
    overlap: Overlap = Overlap.KIP
    # Folder of the local files; None: a restart reads the topic from its beginning.
    log_dir: str | None = None
    files_flush_interval_ms: int = 60_000
    # Time that creating the topic of a new cluster may wait for the first tiered partition; 0: it is created at the
    # start, as Kafka does.
    creation_delay_ms: int = 0

    @classmethod
    def parse(cls, config: Mapping[str, str], overlap: str = Overlap.KIP.value) -> RlmmSettings:
        """From settings without their prefix. ValueError names the one that is wrong."""
        retention_ms = _number(config, "remote.log.metadata.topic.retention.ms", -1)
        if retention_ms < -1 or retention_ms == 0:
            raise ValueError("rlmm.config.remote.log.metadata.topic.retention.ms must be -1 (for ever) or positive")
        return cls(
            topic=MetadataTopicSettings(
                partitions=_number(config, "remote.log.metadata.topic.num.partitions", 50, least=1),
                replication_factor=_number(config, "remote.log.metadata.topic.replication.factor", 3, least=1),
                min_insync_replicas=_number(config, "remote.log.metadata.topic.min.isr", 2, least=1),
                retention_ms=retention_ms,
            ),
            consume_wait_ms=_number(config, "remote.log.metadata.consume.wait.ms", 120_000, least=0),
            initialization_retry_max_timeout_ms=_number(
                config, "remote.log.metadata.initialization.retry.max.timeout.ms", 120_000, least=0
            ),
            initialization_retry_interval_ms=_number(
                config, "remote.log.metadata.initialization.retry.interval.ms", 100, least=0
            ),
            overlap=Overlap(overlap),
            log_dir=config.get("log.dir"),
            files_flush_interval_ms=_number(config, "remote.log.metadata.files.flush.interval.ms", 60_000, least=1),
            creation_delay_ms=_number(config, CREATION_DELAY, 0, least=0),
        )


def _too_few_brokers(topic: MetadataTopicSettings) -> str:
    return (
        f"rlmm.config.remote.log.metadata.topic.replication.factor is {topic.replication_factor}, and fewer brokers are"
        " registered; start the others, which is waited for, or set it, and"
        " rlmm.config.remote.log.metadata.topic.min.isr, to the number of brokers and start this one again"
    )


def _number(config: Mapping[str, str], name: str, default: int, *, least: int | None = None) -> int:
    text = config.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"rlmm.config.{name} is {text!r}; it must be a whole number") from None
    if least is not None and value < least:
        raise ValueError(f"rlmm.config.{name} is {value}; it must be at least {least}")
    return value


class TopicBasedRemoteLogMetadataManager(CachedLookups):
    """The built-in :class:`RemoteLogMetadataManager`."""

    def __init__(
        self,
        topic: MetadataTopic,
        settings: RlmmSettings,
        ports: Ports,
        events: EventSink,
        *,
        on_fatal: Callable[[str], None],
        unreadable_records: UnreadableRecords | None = None,
    ) -> None:
        """Calls `on_fatal` with the reason why this broker must not go on: the topic is not as configured, or cannot be
        created."""
        self._topic = topic
        self._settings = settings
        self._ports = ports
        self._events = events
        self._on_fatal = on_fatal
        self._unreadable = unreadable_records or UnreadableRecords()
        self.deleted: tasks.Queue[TopicIdPartition] = tasks.Queue()
        """Hosted partitions whose topic is deleted, as the metadata topic says; for the remote log manager."""
        self._hosted: dict[TopicIdPartition, None] = {}
        self._consumer: MetadataConsumer | None = None
        self._partitions_count = 0
        self._initialized = tasks.Event()
        # A tiered partition is here, or something is to be published.
        self._is_needed = tasks.Event()
        self._running: list[tasks.Task[None]] = []

    def start(self) -> None:
        """Begins to look for the topic; call it once the broker serves requests."""
        self._running.append(tasks.spawn(self._initialize(), name=f"initialization of {METADATA_TOPIC}"))

    async def _initialize(self) -> None:
        """Creates the topic if need be and checks its partition count, retrying for a while.

        As long as too few brokers are registered nothing is tiered, and all else goes on: the others may come.
        """
        settings = self._settings
        if settings.creation_delay_ms:
            with suppress(tasks.Timeout):
                await tasks.wait_for(self._is_needed.wait(), settings.creation_delay_ms)
        began_ms = self._ports.clock.monotonic_ms()
        is_logged = False
        while True:
            try:
                count = await self._topic.ensure_created(settings.topic)
                break
            except (KafkaError, OSError) as error:
                if isinstance(error, KafkaError) and error.code is ErrorCode.INVALID_REPLICATION_FACTOR:
                    if not is_logged:
                        is_logged = True
                        _log.warning("Nothing is tiered yet: %s", _too_few_brokers(settings.topic))
                    await tasks.sleep_ms(FEW_BROKERS_PAUSE_MS)
                    began_ms = self._ports.clock.monotonic_ms()
                    continue
                waited_ms = settings.initialization_retry_max_timeout_ms
                if self._ports.clock.monotonic_ms() >= began_ms + waited_ms:
                    self._on_fatal(f"Topic {METADATA_TOPIC} could not be created within {waited_ms} ms: {error}")
                    return
                _log.debug("Topic %s is not there yet: %s", METADATA_TOPIC, error)
                await tasks.sleep_ms(settings.initialization_retry_interval_ms)
        if count != settings.topic.partitions:
            self._on_fatal(
                f"Topic {METADATA_TOPIC} has {count} partitions, but remote.log.metadata.topic.num.partitions is "
                f"{settings.topic.partitions}; metadata would be looked for in the wrong place. Set it to {count}"
            )
            return
        self._partitions_count = count
        log_dir = settings.log_dir
        files = None if log_dir is None else MetadataFiles(self._ports.disk, log_dir, settings.overlap)
        self._consumer = MetadataConsumer(
            self._topic,
            count,
            self._ports,
            self._events,
            settings.overlap,
            files,
            self._unreadable,
            deleted=self.deleted,
        )
        self._consumer.assign(self._hosted)
        self._running.append(tasks.spawn(self._consumer.run(), name=f"reader of {METADATA_TOPIC}"))
        self._running.append(tasks.spawn(self._keep_files(self._consumer), name=f"files of {METADATA_TOPIC}"))
        self._initialized.set()
        _log.info("Remote log metadata manager reads %s with %d partitions", METADATA_TOPIC, count)

    async def _keep_files(self, consumer: MetadataConsumer) -> None:
        while True:
            await tasks.sleep_ms(self._settings.files_flush_interval_ms)
            await consumer.save()

    @property
    def hosted(self) -> Mapping[TopicIdPartition, Hosted]:
        """The state of each partition that this broker hosts; for observers."""
        return {} if self._consumer is None else self._consumer.hosted

    @property
    def records_skipped(self) -> int:
        """Records of the topic that could not be read."""
        return 0 if self._consumer is None else self._consumer.records_skipped

    async def add_segment(self, metadata: SegmentMetadata) -> None:
        check_new(metadata)
        await self._publish(metadata)

    async def update_segment(self, update: SegmentUpdate) -> None:
        check_update(update)
        await self._publish(update)

    async def put_partition_delete(self, event: PartitionDelete) -> None:
        await self._publish(event)

    async def _publish(self, event: SegmentMetadata | SegmentUpdate | PartitionDelete) -> None:
        partition = event.topic_id_partition
        removal = isinstance(event, PartitionDelete)
        subject = f"{event.state.name} of {partition}"
        if not isinstance(event, PartitionDelete):
            subject += f" segment {uuid_text(event.segment_id)}"
        deadline_ms = self._ports.clock.monotonic_ms() + self._settings.consume_wait_ms
        self._is_needed.set()
        try:
            await tasks.wait_for(self._initialized.wait(), self._settings.consume_wait_ms)
            consumer = self._consumer
            assert consumer is not None
            target = metadata_partition(partition.topic_id, partition.partition, self._partitions_count)
            if not removal and not consumer.reads(target):
                raise RemoteStorageError(f"{subject} cannot be published: {partition} is not hosted by this broker")
            offset = await self._produce(target, encode(event), deadline_ms)
            if consumer.reads(target):
                await consumer.wait_applied(target, offset, deadline_ms - self._ports.clock.monotonic_ms())
        except tasks.Timeout as error:
            waited_ms = self._settings.consume_wait_ms
            raise RetriableRemoteStorageError(
                f"{subject} was not seen on {METADATA_TOPIC} in {waited_ms} ms"
            ) from error
        except KafkaError as error:
            kind = RetriableRemoteStorageError if error.retriable else RemoteStorageError
            raise kind(f"{subject} could not be published: {error}") from error
        except OSError as error:
            raise RetriableRemoteStorageError(f"{subject} could not be published: {error}") from error

    async def _produce(self, target: int, value: bytes, deadline_ms: float) -> int:
        """Appends the record, trying again what may succeed later: a second copy of an event changes nothing."""
        retry_ms = PUBLISH_RETRY_MS
        while True:
            try:
                return await self._topic.produce(target, value)
            except (KafkaError, OSError) as error:
                final = isinstance(error, KafkaError) and not error.retriable
                if final or self._ports.clock.monotonic_ms() + retry_ms >= deadline_ms:
                    raise
                _log.debug("Produce to %s-%d failed, trying again: %s", METADATA_TOPIC, target, error)
                await tasks.sleep_ms(retry_ms)
                retry_ms = min(2 * retry_ms, PUBLISH_RETRY_MAX_MS)

    def lookup(self, partition: TopicIdPartition, epoch: int, offset: int) -> SegmentMetadata | None:
        # As the inherited method, in fewer calls: they would be a quarter of the time.
        hosted = None if self._consumer is None else self._consumer.hosted.get(partition)
        cache = hosted.cache if hosted is not None and hosted.is_ready else self._cache(partition)
        return cache.lookup(epoch, offset)

    def _cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        cache = None if self._consumer is None else self._consumer.ready_cache(partition)
        if cache is not None:
            return cache
        if partition not in self._hosted:
            raise RemoteResourceNotFound(f"{partition} has no remote log metadata here: this broker does not host it")
        raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"remote log metadata of {partition} is still being read")

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return self._consumer is not None and self._consumer.is_ready(partition)

    async def wait_ready(self, partition: TopicIdPartition, timeout_ms: float) -> bool:
        deadline_ms = self._ports.clock.monotonic_ms() + timeout_ms
        if not self._initialized.is_set():
            try:
                await tasks.wait_for(self._initialized.wait(), timeout_ms)
            except tasks.Timeout:
                return False
        consumer = self._consumer
        return consumer is not None and await consumer.wait_ready(
            partition, max(0.0, deadline_ms - self._ports.clock.monotonic_ms())
        )

    def on_partition_leadership_changes(
        self, leaders: Iterable[TopicIdPartition], followers: Iterable[TopicIdPartition]
    ) -> None:
        # In the order given: a run must not depend on how names hash.
        hosted = dict.fromkeys((*leaders, *followers))
        self._hosted.update(hosted)
        if hosted:
            self._is_needed.set()
        if self._consumer is not None:
            self._consumer.assign(hosted)

    def on_stop_partitions(self, partitions: Iterable[TopicIdPartition]) -> None:
        stopped = list(partitions)
        for partition in stopped:
            self._hosted.pop(partition, None)
        if self._consumer is not None:
            self._consumer.unassign(stopped)

    async def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        for task in self._running:
            await tasks.cancel(task)
        if self._consumer is not None:
            await self._consumer.save()
        await self._topic.close()
