"""The settings of a subscription to clients' metrics (KIP-714; `ClientMetricsConfigs` of Kafka).

They are kept and shown. No client is asked for metrics: as on a broker of Kafka without a plug-in that takes them, the
requests of KIP-714 are absent from ApiVersions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from backend.engine.config.setting_definition import ConfigSynonym, ResolvedSetting, Setting
from backend.protocol.config_enums import ConfigSource, ConfigType

INTERVAL: Final = "interval.ms"
INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000
MATCH: Final = "match"
# The properties of a client that a pattern of `match` may name.
MATCHED: Final = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)

CLIENT_METRICS_SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting
    for setting in (
        Setting(INTERVAL, ConfigType.INT, 300_000),
        Setting(MATCH, ConfigType.LIST, ()),
        Setting("metrics", ConfigType.LIST, ()),
    )
}


def resolve_client_metrics(setting: Setting, own: Mapping[str, str]) -> ResolvedSetting:
    """A subscription's setting for DescribeConfigs; a default has no synonyms."""
    if setting.name not in own:
        return ResolvedSetting(setting, setting.text(setting.default), ConfigSource.DEFAULT_CONFIG, ())
    place = ConfigSynonym(setting.name, own[setting.name], ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG)
    return ResolvedSetting(setting, place.value, place.source, (place,))
