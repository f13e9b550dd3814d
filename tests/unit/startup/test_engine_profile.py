"""The settings of the brokers of `ebbline up`."""

from __future__ import annotations

import pytest

from backend.engine.config.broker_config import BrokerConfig
from backend.startup.engine_profile import embedded_settings


@pytest.mark.parametrize(("brokers", "in_sync"), [(1, 1), (2, 1), (3, 2), (5, 2)])
def test_three_brokers_keep_what_is_acknowledged_on_two_disks(brokers: int, in_sync: int) -> None:
    """It holds for topics without the setting, too, the internal ones among them; two brokers would refuse all writers
    while one is away.
    """
    config = BrokerConfig.parse({"node.id": "1", **embedded_settings("/remote", brokers)})
    assert config.min_insync_replicas == in_sync
    assert config.unclean_leader_election_enable is False
