"""The settings of a group, and their limits in the brokers' settings (KIP-848; Kafka: `GroupConfig`).

Only those of consumer groups: share groups and streams groups are not served.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from backend.engine.config.broker_config import BROKER_SETTINGS, BrokerConfig
from backend.engine.config.setting_definition import (
    ConfigError,
    ConfigSynonym,
    ResolvedSetting,
    Setting,
    resolve_broker,
)
from backend.protocol.config_enums import ConfigSource, ConfigType

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"


def _setting(name: str, least: int) -> Setting:
    behind = BROKER_SETTINGS[f"group.{name}"]
    return Setting(name, ConfigType.INT, behind.default, minimum=least, synonyms=((behind.name, 1),))


GROUP_SETTINGS: Final[dict[str, Setting]] = {
    name: _setting(name, least)
    for name, least in ((ASSIGNMENT_INTERVAL, 0), (HEARTBEAT_INTERVAL, 1), (SESSION_TIMEOUT, 1))
}


def check_group_settings(values: Mapping[str, str], config: BrokerConfig) -> None:
    """ConfigError, in Kafka's words, unless a group may have these settings (`GroupConfig.validate`)."""
    if unknown := [name for name in values if name not in GROUP_SETTINGS]:
        raise ConfigError(f"Unknown group config name: {unknown[0]}")
    numbers = {name: number_of(values, name, config) for name in GROUP_SETTINGS}
    for name, least, most in (
        (HEARTBEAT_INTERVAL, config.group_consumer_min_heartbeat_interval_ms,
         config.group_consumer_max_heartbeat_interval_ms),
        (SESSION_TIMEOUT, config.group_consumer_min_session_timeout_ms, config.group_consumer_max_session_timeout_ms),
        (ASSIGNMENT_INTERVAL, config.group_consumer_min_assignment_interval_ms,
         config.group_consumer_max_assignment_interval_ms),
    ):  # fmt: skip
        if name not in values:
            continue
        kind = name.removeprefix("consumer.")
        if numbers[name] < least:
            raise ConfigError(f"{name} must be greater than or equal to group.consumer.min.{kind}")
        if numbers[name] > most:
            raise ConfigError(f"{name} must be less than or equal to group.consumer.max.{kind}")
    if values and numbers[SESSION_TIMEOUT] <= numbers[HEARTBEAT_INTERVAL]:
        raise ConfigError(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")


def number_of(values: Mapping[str, str], name: str, config: BrokerConfig) -> int:
    """A setting's value in force: the group's own, else the broker's. ConfigError when it is no such number."""
    if name in values:
        value = GROUP_SETTINGS[name].parse(values[name])
        assert isinstance(value, int)
        return value
    defaults = {
        SESSION_TIMEOUT: config.group_consumer_session_timeout_ms,
        HEARTBEAT_INTERVAL: config.group_consumer_heartbeat_interval_ms,
        ASSIGNMENT_INTERVAL: config.group_consumer_assignment_interval_ms,
    }
    return defaults[name]


def resolve_group(
    setting: Setting,
    *,
    group: Mapping[str, str],
    broker: Mapping[str, str],
    cluster: Mapping[str, str],
    static: Mapping[str, str],
) -> ResolvedSetting:
    """A group's setting for DescribeConfigs."""
    behind = resolve_broker(BROKER_SETTINGS[setting.synonyms[0][0]], broker=broker, cluster=cluster, static=static)
    if setting.name not in group:
        return ResolvedSetting(setting, behind.value, behind.source, behind.synonyms)
    own = ConfigSynonym(setting.name, group[setting.name], ConfigSource.DYNAMIC_GROUP_CONFIG)
    return ResolvedSetting(setting, own.value, own.source, (own, *behind.synonyms))
