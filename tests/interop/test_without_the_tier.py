"""This suite is about brokers with `remote.log.storage.system.enable=false`, Kafka's default.

Every test that does not ask for the tier runs without it; the soak runs all of them with it as well
(`EBBLINE_TEST_TIERING=on`). What clients see must be the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.engine_cluster import TIERING_VARIABLE, EngineCluster

WAIT_S: Final = 30.0
SWITCH: Final = "remote.log.storage.system.enable"


@pytest.mark.parametrize("tiering", ["off", "on"])
def test_a_cluster_whose_test_says_nothing_has_the_tier_only_where_the_run_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiering: str
) -> None:
    monkeypatch.setenv(TIERING_VARIABLE, tiering)
    with EngineCluster(tmp_path, brokers=1) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        resource = ConfigResource(ResourceType.BROKER, "1")
        settings = admin.describe_configs([resource])[resource].result(WAIT_S)
        assert settings[SWITCH].value == ("true" if tiering == "on" else "false")
        assert (cluster.broker(1).services.remote_log_manager is not None) == (tiering == "on")
        topic = NewTopic("tiered", 1, 1, config={"remote.storage.enable": "true"})
        created = admin.create_topics([topic])["tiered"]
        if tiering == "on":
            created.result(WAIT_S)
            return
        with pytest.raises(KafkaException) as refused:
            created.result(WAIT_S)
        assert refused.value.args[0].name() == "INVALID_CONFIG"
        # Nothing of the tier is made, not even its topic.
        assert "__remote_log_metadata" not in admin.list_topics(timeout=WAIT_S).topics
