"""Whether a broker's dynamic settings may be changed so (DynamicBrokerConfig); refused ones answer INVALID_REQUEST."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from backend.engine.config import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigError,
    Setting,
    UpdateMode,
    resolve_broker,
    resolve_topic,
)
from backend.engine.config.address_limits import (
    MAX_PER_ADDRESS,
    NO_LIMIT,
    OVERRIDES,
    check_address_limits,
    overrides_of,
)
from backend.engine.config.listeners import LISTENER_PREFIX, MAX_CONNECTIONS
from backend.engine.config.setting_definition import LONG_MAX, SettingValue
from backend.engine.config.without_effect import NOT_SERVED_DYNAMIC, NOT_SERVED_READ_ONLY
from backend.engine.controller.image.metadata_image import BROKER_RESOURCE, CLUSTER_DEFAULT, MetadataImage
from backend.protocol.config_enums import ConfigType
from backend.protocol.errors import ErrorCode, KafkaError

ASSIGNMENT_INTERVAL: Final = "group.consumer.assignment.interval.ms"
CLEANER_THREADS: Final = "log.cleaner.threads"
# Pools that grow and shrink step by step: a change to less than half or more than double is refused.
POOL_SIZES: Final = frozenset(
    {
        "background.threads",
        CLEANER_THREADS,
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
    }
)

# log.local.retention.*: the same as log.retention.*; and of both: no limit.
SAME_AS_TOTAL: Final = -2
UNLIMITED: Final = -1

# DynamicConfig.Broker: no settings of a broker's file, and not listed before somebody has set them.
THROTTLES: Final = {
    name: Setting(name, ConfigType.LONG, LONG_MAX, UpdateMode.CLUSTER_WIDE, minimum=0)
    for name in (
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
}


def check_broker_settings(
    image: MetadataImage, config: BrokerConfig, broker: str, changes: Mapping[str, str | None]
) -> None:
    """KafkaError INVALID_REQUEST unless every change (None deletes) may be made while brokers run.

    `broker` is an id, or empty for the cluster-wide default. Names that Kafka does not know either are let through, as
    it does for settings of plug-ins.
    """
    read_only = [name for name in changes if _is_read_only(name)]
    if read_only:
        raise _refused(f"Cannot update these configs dynamically: [{', '.join(sorted(read_only))}]")
    if broker == CLUSTER_DEFAULT:
        own = [
            name for name in changes if name in BROKER_SETTINGS and BROKER_SETTINGS[name].scope is UpdateMode.PER_BROKER
        ]
        if own:
            raise _refused(f"Cannot update these configs at default cluster level: [{', '.join(sorted(own))}]")
    not_served = [
        name for name, text in changes.items() if text is not None and _of_listener(name) in NOT_SERVED_DYNAMIC
    ]
    if not_served:
        raise _refused(f"These configs are not supported: [{', '.join(sorted(not_served))}]")
    for name, text in changes.items():
        if text is not None and name in BROKER_SETTINGS:
            _check_value(image, config, broker, name, text)
        elif text is not None and name in THROTTLES:
            _parsed(THROTTLES[name], text)
        elif text is not None and _of_listener(name) == MAX_CONNECTIONS:
            _parsed(BROKER_SETTINGS[MAX_CONNECTIONS], text)
    _check_local_retention(image, config, broker, changes)
    if changes.keys() & {MAX_PER_ADDRESS, OVERRIDES}:
        _check_addresses(image, config, broker, changes)


def _is_read_only(name: str) -> bool:
    """A listener's own value of a setting is as read-only as the setting."""
    name = _of_listener(name)
    setting = BROKER_SETTINGS.get(name)
    return name in NOT_SERVED_READ_ONLY or (setting is not None and setting.scope is UpdateMode.READ_ONLY)


def _of_listener(name: str) -> str:
    """A setting's name without that of the listener that it is for."""
    return name.split(".", 3)[3] if name.startswith(LISTENER_PREFIX) and name.count(".") > 2 else name


def _check_addresses(
    image: MetadataImage, config: BrokerConfig, broker: str, changes: Mapping[str, str | None]
) -> None:
    """Kafka looks at the whole only where one broker's settings change."""
    try:
        if broker == CLUSTER_DEFAULT:
            overrides_of(changes.get(OVERRIDES) or "")
        else:
            own = {name: text for name, text in image.config(BROKER_RESOURCE, broker).items() if name not in changes}
            given = {name: text for name, text in changes.items() if text is not None}
            merged = {**config.originals, **image.config(BROKER_RESOURCE, CLUSTER_DEFAULT), **own, **given}
            check_address_limits(int(merged.get(MAX_PER_ADDRESS) or NO_LIMIT), merged.get(OVERRIDES) or "")
    except ConfigError as error:
        raise _refused(str(error)) from None


def _check_local_retention(
    image: MetadataImage, config: BrokerConfig, broker: str, changes: Mapping[str, str | None]
) -> None:
    """The defaults of tiered topics must agree as a topic's own settings must (`DynamicLogConfig`)."""
    own = dict(image.config(BROKER_RESOURCE, broker))
    for name, text in changes.items():
        if text is None:
            own.pop(name, None)
        else:
            own[name] = text

    def value(name: str) -> int:
        resolved = resolve_topic(
            TOPIC_SETTINGS[name],
            topic={},
            broker={} if broker == CLUSTER_DEFAULT else own,
            cluster=own if broker == CLUSTER_DEFAULT else image.config(BROKER_RESOURCE, CLUSTER_DEFAULT),
            static=config.originals,
            broker_settings=BROKER_SETTINGS,
        )
        return int(resolved.value or UNLIMITED)

    for unit in ("ms", "bytes"):
        total_name, local_name = f"log.retention.{unit}", f"log.local.retention.{unit}"
        if not changes.keys() & {total_name, local_name}:
            continue
        total, local = value(f"retention.{unit}"), value(f"local.retention.{unit}")
        if total == UNLIMITED or local == SAME_AS_TOTAL:
            continue
        problem = f"Invalid value {local} for configuration {local_name}: Value must not be"
        if local == UNLIMITED:
            raise _refused(f"{problem} {UNLIMITED} as {total_name} value is set as {total}.")
        if local > total:
            raise _refused(f"{problem} more than {total_name} property value: {total}")


def _check_value(image: MetadataImage, config: BrokerConfig, broker: str, name: str, text: str) -> None:
    setting = BROKER_SETTINGS[name]
    value = _parsed(setting, text)
    if name == MAX_CONNECTIONS and value == 0:
        # No client could connect any more to undo it.
        raise _refused(f"Invalid {MAX_CONNECTIONS} 0")
    if name == ASSIGNMENT_INTERVAL and isinstance(value, int):
        _check_assignment_interval(value, config)
    if name in POOL_SIZES and isinstance(value, int):
        current = resolve_broker(
            setting,
            broker=image.config(BROKER_RESOURCE, broker or str(config.id)),
            cluster=image.config(BROKER_RESOURCE, CLUSTER_DEFAULT),
            static=config.originals,
        )
        size = int(current.value or 0)
        if name == CLEANER_THREADS:
            _check_cleaner_threads(value, size)
        if value < size // 2:
            raise _refused(
                f"Dynamic thread count update validation failed for {name}={text}: value should be at least"
                f" half the current value {size}"
            )
        if value > size * 2:
            raise _refused(
                f"Dynamic thread count update validation failed for {name}={text}: value should not be"
                f" greater than double the current value {size}"
            )


def _parsed(setting: Setting, text: str) -> SettingValue:
    try:
        return setting.parse(text)
    except ConfigError as error:
        raise _refused(str(error)) from None


def _check_cleaner_threads(threads: int, current: int) -> None:
    """The same rule in the words of `LogCleaner.validateReconfiguration`."""
    if threads < 1:
        raise _refused("Log cleaner threads should be at least 1")
    if threads < current // 2:
        raise _refused(f"Log cleaner threads cannot be reduced to less than half the current value {current}")
    if threads > current * 2:
        raise _refused(f"Log cleaner threads cannot be increased to more than double the current value {current}")


def _check_assignment_interval(interval_ms: int, config: BrokerConfig) -> None:
    """Checks as Kafka's `GroupCoordinatorConfig` does."""
    bounds = "group.consumer.{}.assignment.interval.ms"
    if interval_ms < config.group_consumer_min_assignment_interval_ms:
        raise _refused(f"{ASSIGNMENT_INTERVAL} must be greater than or equal to {bounds.format('min')}")
    if interval_ms > config.group_consumer_max_assignment_interval_ms:
        raise _refused(f"{ASSIGNMENT_INTERVAL} must be less than or equal to {bounds.format('max')}")


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
