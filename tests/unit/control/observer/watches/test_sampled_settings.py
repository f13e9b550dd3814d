"""Numbers that rules read from sampled settings."""

from __future__ import annotations

import pytest

from backend.control.gateway.requests.config_requests import ConfigEntry
from backend.control.observer.sampling.settings_sample import SettingsSample
from backend.control.observer.watches.sampled_settings import election_try_ms
from backend.protocol.config_enums import ConfigSource, ConfigType


def entries(**values: str) -> dict[str, ConfigEntry]:
    named = {name.replace("_", "."): value for name, value in values.items()}
    return {
        name: ConfigEntry(name, value, ConfigSource.STATIC_BROKER_CONFIG, ConfigType.LONG, True, False, ())
        for name, value in named.items()
    }


CHECKS_60_S = entries(leader_imbalance_check_interval_seconds="60")
CHECKS_30_S = entries(leader_imbalance_check_interval_seconds="30")
TRIES_10_S = entries(unclean_leader_election_interval_ms="10000")


@pytest.mark.parametrize(
    ("brokers", "try_ms"),
    [
        ({1: CHECKS_60_S}, 60_000),
        # Either may be the controller.
        ({1: CHECKS_60_S, 2: CHECKS_30_S}, 30_000),
        ({1: CHECKS_60_S | TRIES_10_S}, 10_000),
        ({1: {}}, None),
        ({}, None),
    ],
)
def test_the_shortest_time_to_the_next_election_counts(
    brokers: dict[int, dict[str, ConfigEntry]], try_ms: int | None
) -> None:
    assert election_try_ms(SettingsSample(brokers=brokers)) == try_ms
