"""The pipeline's environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.settings import SOURCE_TOPIC, SettingsError, from_environment

COMPLETE = {
    "EBBLINE_DATA_DIR": "/data",
    "EBBLINE_CLUSTER_ID": "c",
    "EBBLINE_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "EBBLINE_DATABASE_URL": "sqlite:///x.db",
}


def test_four_variables_are_enough() -> None:
    settings = from_environment(COMPLETE)
    assert settings.spark_dir == Path("/data/spark")
    assert settings.source_topic == SOURCE_TOPIC
    assert settings.client_properties == {}


@pytest.mark.parametrize("name", sorted(COMPLETE))
def test_a_missing_variable_is_named(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        from_environment({**COMPLETE, name: " "})


@pytest.mark.parametrize("value", ["0", "-1", "many", "500001"])
def test_a_batch_size_out_of_range_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="EBBLINE_PIPELINE_RECORDS_PER_BATCH"):
        from_environment({**COMPLETE, "EBBLINE_PIPELINE_RECORDS_PER_BATCH": value})


def test_client_properties_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# how to connect\nsecurity.protocol=SASL_SSL\n\nsasl.password = a=b\n")
    settings = from_environment({**COMPLETE, "EBBLINE_CLIENT_PROPERTIES": str(file)})
    assert settings.client_properties == {"security.protocol": "SASL_SSL", "sasl.password": "a=b"}
    file.write_text("nonsense\n")
    with pytest.raises(SettingsError, match="without '='"):
        from_environment({**COMPLETE, "EBBLINE_CLIENT_PROPERTIES": str(file)})
    with pytest.raises(SettingsError, match="cannot be read"):
        from_environment({**COMPLETE, "EBBLINE_CLIENT_PROPERTIES": str(tmp_path / "missing")})
