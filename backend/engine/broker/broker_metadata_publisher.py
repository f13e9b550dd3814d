"""Carries every metadata image out on the parts of a broker. Kafka: `BrokerMetadataPublisher`.

The first image opens the logs, because topics' settings decide how, and starts the parts. It is the first that shows
this registration of the broker: an older one speaks of the life before, which may have led with data we lack.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from backend.engine.apis.services import BrokerServices
from backend.engine.broker.remote_tier import RemoteTier
from backend.engine.broker.role_listeners import RoleListeners
from backend.engine.config import BrokerConfig, ConfigError
from backend.engine.config.listener_security import is_store_setting
from backend.engine.controller.image.metadata_image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    EMPTY_IMAGE,
    MetadataImage,
)
from backend.engine.controller.registration.broker_lifecycle import BrokerLifecycle
from backend.engine.log.log_config import CleanerConfig
from backend.engine.ports import tasks
from backend.engine.replica.applied_metadata import AppliedMetadata
from backend.tiering.ids import TopicPartition


class BrokerMetadataPublisher:
    """Driven by the `MetadataLoader`, one image after the other."""

    name = "replicas"

    def __init__(
        self,
        config: BrokerConfig,
        services: BrokerServices,
        applied: AppliedMetadata,
        lifecycle: BrokerLifecycle,
        listeners: RoleListeners,
        remote: RemoteTier | None,
    ) -> None:
        self._config = config
        self._services = services
        self._applied = applied
        self._lifecycle = lifecycle
        self._listeners = listeners
        self._remote = remote
        self._registered: tasks.Future[None] = tasks.future()
        self._shown_registered = tasks.Event()
        self._first_image: tasks.Future[None] = tasks.future()
        self._removed_set_aside: set[str] = set()

    def registered(self) -> None:
        """The broker has its epoch: images count from now on."""
        self._registered.set_result(None)

    async def first_image_applied(self, timeout_ms: float) -> None:
        """Waits for metadata up to a limit (tasks.Timeout), and then for as long as its logs need to be opened."""
        await tasks.wait_for(self._shown_registered.wait(), timeout_ms)
        await tasks.shield(self._first_image)

    async def on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        """Carries out what has changed."""
        if self._first_image.done():
            # After a failed start nothing may run with logs that were not opened.
            if self._first_image.exception() is None:
                await self._apply(old, new)
            return
        await tasks.shield(self._registered)
        own = new.broker(self._config.id)
        if own is None or own.epoch != self._lifecycle.broker_epoch:
            return
        self._shown_registered.set()
        try:
            await self._apply_first(new)
        except Exception as error:
            # Without its logs the broker must not serve: the start ends with this.
            self._first_image.set_exception(error)
            raise
        self._first_image.set_result(None)

    def on_applied(self, old: MetadataImage, new: MetadataImage) -> None:
        """A leaving broker, and the remote tier of a deleted topic, wait until every broker has applied the image."""
        if len(new.topics) < len(old.topics) or any(
            broker.in_controlled_shutdown and broker is not old.broker(broker.id) for broker in new.brokers.values()
        ):
            self._lifecycle.report_soon()

    async def _apply_first(self, new: MetadataImage) -> None:
        services = self._services
        _refuse_tiered_topics(self._config, new)
        # Before the logs are opened: a topic's settings decide how.
        self._applied.image = new
        overlaid = self._config.overlay(new.broker_config(self._config.id))
        services.log_manager.cleaner.reconfigure(CleanerConfig.of(overlaid))
        await services.log_manager.load_all(
            services.replica_manager.topic_config,
            partial(_directory_of, new, self._config.id),
            partial(_has_others, new, self._config.id),
        )
        services.log_manager.start()
        services.replica_manager.start()
        self._reload_stores(EMPTY_IMAGE, new)
        await _in_steps(services.replica_manager.on_metadata(EMPTY_IMAGE, new))
        services.group_coordinator.start()
        services.group_coordinator.on_metadata(EMPTY_IMAGE, new)
        services.transaction_coordinator.start()
        services.transaction_coordinator.on_metadata(new)
        services.config = self._applied.config
        await self._remove_set_aside()

    async def _apply(self, old: MetadataImage, new: MetadataImage) -> None:
        services = self._services
        await _in_steps(services.replica_manager.on_metadata(old, new))
        services.group_coordinator.on_metadata(old, new)
        services.transaction_coordinator.on_metadata(new)
        services.config = self._applied.config
        services.log_manager.cleaner.reconfigure(CleanerConfig.of(self._applied.config))
        if self._remote is not None:
            await self._remote.apply_settings()
        self._reload_stores(old, new)
        if any(
            old.config(BROKER_RESOURCE, name) is not new.config(BROKER_RESOURCE, name)
            for name in (str(self._config.id), CLUSTER_DEFAULT)
        ):
            self._listeners.apply_connection_limits()
        await self._remove_set_aside()

    def _reload_stores(self, old: MetadataImage, new: MetadataImage) -> None:
        """A store setting that is set again, to the same value too, has the files read again (KAFKA-14136)."""
        before, now = (image.config(BROKER_RESOURCE, str(self._config.id)) for image in (old, new))
        if before is not now and any(is_store_setting(name) for name in (*before, *now)):
            self._listeners.reload_stores(now)

    async def _remove_set_aside(self) -> None:
        """Removes the set-aside folders that an operator has named, each once: names are not used again."""
        named = self._applied.config.ebbline_remove_set_aside
        unremoved = [name for name in named if name not in self._removed_set_aside]
        if unremoved:
            self._removed_set_aside.update(unremoved)
            await self._services.log_manager.directories.remove_set_aside(unremoved)


def _refuse_tiered_topics(config: BrokerConfig, image: MetadataImage) -> None:
    """Without the remote tier a tiered topic would look as if it began where its local part does."""
    if config.remote_log_storage_system_enable:
        return
    tiered = sorted(
        topic.name
        for topic in image.topics.values()
        if image.topic_config(topic.name).get("remote.storage.enable") == "true"
    )
    if tiered:
        raise ConfigError(
            f"remote.log.storage.system.enable is false, but {len(tiered)} topics are tiered ({', '.join(tiered[:3])}"
            f"{', …' if len(tiered) > 3 else ''}); delete them or switch their remote.storage.enable off before"
            " disabling tiered storage"
        )


def _directory_of(image: MetadataImage, broker_id: int, partition: TopicPartition) -> bytes | None:
    """The directory that the controller has for the broker's replica of a partition; None when it has none."""
    registration = image.partition(partition.topic, partition.partition)
    return None if registration is None else registration.directory_of(broker_id)


def _has_others(image: MetadataImage, broker_id: int, partition: TopicPartition) -> bool:
    """Whether the partition has replicas on this broker and on another one."""
    registration = image.partition(partition.topic, partition.partition)
    return registration is not None and broker_id in registration.replicas and len(registration.replicas) > 1


async def _in_steps(steps: Iterator[None]) -> None:
    """Carries out all steps; between them heartbeats go out and requests are answered."""
    for _ in steps:
        await tasks.sleep_ms(0)
