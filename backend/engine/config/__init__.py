"""A broker's and a topic's settings: frozen values and tables, under Kafka's names."""

from backend.engine.config.broker_config import BROKER_SETTINGS, BrokerConfig
from backend.engine.config.properties_file import format_properties, parse_properties
from backend.engine.config.setting_definition import (
    ConfigError,
    ConfigSynonym,
    ResolvedSetting,
    Setting,
    UpdateMode,
    resolve_broker,
    resolve_topic,
)
from backend.engine.config.topic_config import TOPIC_SETTINGS, topic_values
from backend.engine.config.without_effect import WITHOUT_EFFECT, set_without_effect

__all__ = [
    "BROKER_SETTINGS",
    "TOPIC_SETTINGS",
    "WITHOUT_EFFECT",
    "BrokerConfig",
    "ConfigError",
    "ConfigSynonym",
    "ResolvedSetting",
    "Setting",
    "UpdateMode",
    "format_properties",
    "parse_properties",
    "resolve_broker",
    "resolve_topic",
    "set_without_effect",
    "topic_values",
]
