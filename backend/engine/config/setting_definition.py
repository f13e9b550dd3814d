"""The definition of a setting: name, type, default, limits, update mode; its text form and its Python value.

Kafka: `ConfigDef`, and DescribeConfigs (types and sources as they go over the wire).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from backend.protocol.config_enums import ConfigSource, ConfigType

SettingValue = bool | int | float | str | tuple[str, ...] | None


class UpdateMode(IntEnum):
    """Kafka's dynamic update mode: whether and for which brokers a setting may be changed while they run."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2  # cluster default or per broker


class ConfigError(ValueError):
    """A setting whose value cannot be used; the message is one sentence that names both."""


_LIMITS: Final[dict[ConfigType, tuple[int, int]]] = {
    ConfigType.SHORT: (-(1 << 15), (1 << 15) - 1),
    ConfigType.INT: (-(1 << 31), (1 << 31) - 1),
    ConfigType.LONG: (-(1 << 63), (1 << 63) - 1),
}
LONG_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. ``default`` is a Python value; ``synonyms`` are those behind a topic's or group's."""

    name: str
    type: ConfigType
    default: SettingValue
    scope: UpdateMode = UpdateMode.READ_ONLY
    minimum: float | None = None
    maximum: float | None = None
    one_of: tuple[str, ...] = ()
    doc: str = ""
    # (broker setting, factor that turns its value into ours), first one that is set wins.
    synonyms: tuple[tuple[str, int], ...] = ()

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str | None) -> SettingValue:
        """The Python value of a text, or ConfigError."""
        if text is None:
            return None
        value = self._convert(text.strip())
        self._check(text, value)
        return value

    def text(self, value: SettingValue) -> str | None:
        """The text form that Kafka shows."""
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float) and value == DOUBLE_MAX:
            return "1.7976931348623157E308"
        return str(value)

    def _refuse(self, text: str, reason: str) -> ConfigError:
        shown = "[hidden]" if self.sensitive else text
        return ConfigError(f"Invalid value {shown} for configuration {self.name}: {reason}")

    def _convert(self, text: str) -> SettingValue:
        match self.type:
            case ConfigType.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise self._refuse(text, "Expected value to be either true or false")
                return text.lower() == "true"
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                try:
                    number = int(text)
                except ValueError:
                    raise self._refuse(text, f"Not a number of type {self.type.name}") from None
                low, high = _LIMITS[self.type]
                if not low <= number <= high:
                    raise self._refuse(text, f"Not a number of type {self.type.name}")
                return number
            case ConfigType.DOUBLE:
                try:
                    return float(text)
                except ValueError:
                    raise self._refuse(text, "Not a number of type DOUBLE") from None
            case ConfigType.LIST:
                return tuple(part.strip() for part in text.split(",") if part.strip())
            case _:
                return text

    def _check(self, text: str, value: SettingValue) -> None:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if self.minimum is not None and value < self.minimum:
                raise self._refuse(text, f"Value must be at least {_number_text(self.minimum)}")
            if self.maximum is not None and value > self.maximum:
                raise self._refuse(text, f"Value must be no more than {_number_text(self.maximum)}")
        if self.one_of:
            for part in value if isinstance(value, tuple) else (value,):
                if part not in self.one_of:
                    raise self._refuse(text, f"String must be one of: {', '.join(self.one_of)}")


DOUBLE_MAX: Final = 1.7976931348623157e308


def _number_text(limit: float) -> str:
    return str(int(limit)) if float(limit).is_integer() else str(limit)


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One place where a value was found."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ResolvedSetting:
    """The effective value of a setting for one resource, and every place that gives one, strongest first."""

    setting: Setting
    value: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]


def resolve_broker(
    setting: Setting, *, broker: Mapping[str, str], cluster: Mapping[str, str], static: Mapping[str, str]
) -> ResolvedSetting:
    """A broker's setting: its dynamic value, else the cluster-wide one, its own file's, the default."""
    return _resolved(setting, _broker_places(setting, setting.name, broker, cluster, static))


def resolve_topic(
    setting: Setting,
    *,
    topic: Mapping[str, str],
    broker: Mapping[str, str],
    cluster: Mapping[str, str],
    static: Mapping[str, str],
    broker_settings: Mapping[str, Setting],
) -> ResolvedSetting:
    """A topic's setting: its own value, else what the broker that is asked would use for it."""
    places: list[ConfigSynonym] = []
    shown: list[ConfigSynonym] = []
    if setting.name in topic:
        places.append(ConfigSynonym(setting.name, topic[setting.name], ConfigSource.DYNAMIC_TOPIC_CONFIG))
        shown += places
    behind: list[ConfigSynonym] = []
    for position, (name, factor) in enumerate(setting.synonyms):
        for broker_place in _broker_places(broker_settings[name], name, broker, cluster, static):
            behind.append(broker_place)
            # The default of the first synonym counts only; a later one counts once somebody has set it.
            if broker_place.source is not ConfigSource.DEFAULT_CONFIG or position == 0:
                places.append(ConfigSynonym(name, _scaled(broker_place.value, factor), broker_place.source))
    places.sort(key=lambda place: place.source is ConfigSource.DEFAULT_CONFIG)
    behind.sort(key=lambda place: place.source)
    # Kafka shows them from the first one under the main name on (ConfigHelper.configSynonyms), as they were written.
    main = next((at for at, place in enumerate(behind) if place.name == setting.synonyms[0][0]), len(behind))
    shown += behind[main:]
    value = places[0].value if places else setting.text(setting.default)
    return ResolvedSetting(setting, value, shown[0].source if shown else ConfigSource.DEFAULT_CONFIG, tuple(shown))


def topic_value(
    setting: Setting,
    *,
    topic: Mapping[str, str],
    broker: Mapping[str, str],
    cluster: Mapping[str, str],
    static: Mapping[str, str],
    broker_settings: Mapping[str, Setting],
) -> str | None:
    """The value of :func:`resolve_topic` alone: each change of metadata asks for those of many topics."""
    if setting.name in topic:
        return topic[setting.name]
    for name, factor in setting.synonyms:
        for values in (broker, cluster, static):
            if name in values:
                return _scaled(values[name], factor)
    for name, factor in setting.synonyms[:1]:
        behind = broker_settings[name]
        if behind.default is not None:
            return _scaled(behind.text(behind.default), factor)
    return setting.text(setting.default)


def _scaled(text: str | None, factor: int) -> str | None:
    if text is None or factor == 1:
        return text
    # Every negative retention means "no limit" and stays -1 in any unit.
    return str(-1 if int(text) < 0 else int(text) * factor)


def _broker_places(
    setting: Setting, name: str, broker: Mapping[str, str], cluster: Mapping[str, str], static: Mapping[str, str]
) -> list[ConfigSynonym]:
    places = []
    for values, source in (
        (broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (static, ConfigSource.STATIC_BROKER_CONFIG),
    ):
        if name in values:
            places.append(ConfigSynonym(name, values[name], source))
    if setting.default is not None:
        places.append(ConfigSynonym(name, setting.text(setting.default), ConfigSource.DEFAULT_CONFIG))
    return places


def _resolved(setting: Setting, places: list[ConfigSynonym]) -> ResolvedSetting:
    if not places:
        return ResolvedSetting(setting, setting.text(setting.default), ConfigSource.DEFAULT_CONFIG, ())
    return ResolvedSetting(setting, places[0].value, places[0].source, tuple(places))
