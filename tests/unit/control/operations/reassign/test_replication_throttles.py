"""The replication throttles that are set, from the settings in the brokers' responses."""

from __future__ import annotations

from typing import Any

from backend.control.findings.finding_context import ThrottleSetting
from backend.control.gateway.requests.config_requests import ConfigEntry
from backend.control.observer.sampling.settings_sample import SettingsSample
from backend.control.observer.watches.sampled_settings import throttles
from backend.protocol.config_enums import ConfigSource, ConfigType

RATE = "leader.replication.throttled.rate"
REPLICAS = "follower.replication.throttled.replicas"


def entry(value: str, source: ConfigSource) -> dict[str, ConfigEntry]:
    return {RATE: ConfigEntry(RATE, value, source, ConfigType.LONG, False, False, ())}


def topic(name: str, config: dict[str, str] | None) -> dict[str, Any]:
    return {"topic": name, "config": config}


def test_a_throttle_is_what_somebody_has_set() -> None:
    settings = SettingsSample(
        brokers={
            1: entry("100", ConfigSource.DYNAMIC_BROKER_CONFIG),
            2: entry("9223372036854775807", ConfigSource.DEFAULT_CONFIG),
            3: entry("200", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),  # listed once, as the cluster default
        },
        cluster_default=entry("200", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    )
    topics = [topic("orders", {REPLICAS: "0:1"}), topic("bills", {REPLICAS: ""}), topic("new", None)]
    assert throttles(settings, topics) == [
        ThrottleSetting(REPLICAS, "0:1", topic="orders"),
        ThrottleSetting(RATE, "100", broker_id=1),
        ThrottleSetting(RATE, "200", broker_id=-1),
    ]


def test_no_settings_are_no_throttle() -> None:
    assert throttles(SettingsSample(), []) == []
