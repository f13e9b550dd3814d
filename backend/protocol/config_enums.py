"""Codes of configs on the wire: types, sources and operations (Kafka: DescribeConfigsResponse, AlterConfigOp)."""

from __future__ import annotations

from enum import IntEnum


class ConfigType(IntEnum):
    """Type of a config (Kafka: DescribeConfigsResponse.ConfigType)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The level that a value comes from (Kafka: ConfigEntry.ConfigSource).

    For one resource the lower of the dynamic sources wins (KIP-226).
    """

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class AlterConfigOp(IntEnum):
    """Operation of an IncrementalAlterConfigs entry (KIP-339; Kafka: AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
