"""Whether a group or a subscription to clients' metrics may have such settings (KIP-848, KIP-714), in Kafka's words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from backend.engine.config import BrokerConfig, ConfigError
from backend.engine.config.client_metrics_config import (
    CLIENT_METRICS_SETTINGS,
    INTERVAL,
    INTERVAL_MS_MAX,
    INTERVAL_MS_MIN,
    MATCH,
    MATCHED,
)
from backend.engine.config.group_config import check_group_settings
from backend.protocol.errors import ErrorCode, KafkaError

# A pattern is only read here, never matched; this bounds what reading it takes.
PATTERN_CHARS_MAX: Final = 1000


def check_group(config: BrokerConfig, after: Mapping[str, str]) -> None:
    """INVALID_CONFIG unless a group may have all of these settings."""
    try:
        check_group_settings(after, config)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def check_client_metrics(after: Mapping[str, str]) -> None:
    """INVALID_REQUEST for an unknown name or interval, INVALID_CONFIG for any other value that cannot be."""
    for name, text in after.items():
        setting = CLIENT_METRICS_SETTINGS.get(name)
        if setting is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
        if "," in text and not all(part.strip() for part in text.split(",")):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Configuration '{name}' values must not be empty.")
        try:
            value = setting.parse(text)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
        if name == INTERVAL and isinstance(value, int) and not INTERVAL_MS_MIN <= value <= INTERVAL_MS_MAX:
            bounds = f"between {INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)"
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid value {value} for {name}, interval must be {bounds}")
        if name == MATCH and isinstance(value, tuple):
            for pattern in value:
                _check_pattern(pattern)


def _check_pattern(text: str) -> None:
    name, *expressions = text.split("=")
    try:
        good = name.strip() in MATCHED and len(expressions) == 1 and 0 < len(expressions[0]) <= PATTERN_CHARS_MAX
        if good:
            re.compile(expressions[0])
    except (re.error, RecursionError, OverflowError):
        good = False
    if not good:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {text}")
