"""Precedence of the levels of a broker config, and the effect of a change at one level (KIP-226). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from backend.control.gateway.requests.config_requests import ConfigEntry
from backend.protocol.config_enums import ConfigSource

PRECEDENCE: Final = (
    ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
    ConfigSource.DEFAULT_CONFIG,
)
"""The first of these that is set wins."""
SOURCE_NAMES: Final = {
    ConfigSource.DYNAMIC_BROKER_CONFIG: "this broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "cluster default",
    ConfigSource.STATIC_BROKER_CONFIG: "broker's file",
    ConfigSource.DEFAULT_CONFIG: "default",
}
ValuesBySource = Mapping[str, str | None]
"""Value by name of ConfigSource; None or absent: not set there."""


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """The value in effect and the level it comes from."""

    value: str | None
    source: ConfigSource

    def __str__(self) -> str:
        return f"{self.value} ({SOURCE_NAMES[self.source]})"


def values_by_source(entry: ConfigEntry) -> dict[str, str | None]:
    """Every level of a config, from the synonyms of DescribeConfigs."""
    return {source.name: entry.at(source) for source in PRECEDENCE}


def effective(values: ValuesBySource) -> EffectiveValue:
    """The value that wins; the default when nothing is set."""
    for source in PRECEDENCE:
        value = values.get(source.name)
        if value is not None:
            return EffectiveValue(value, source)
    return EffectiveValue(None, ConfigSource.DEFAULT_CONFIG)


def with_change(values: ValuesBySource, source: ConfigSource, value: str | None) -> dict[str, str | None]:
    """The levels after `value` was set at one of them; None: the setting is removed there."""
    return {**values, source.name: value}
