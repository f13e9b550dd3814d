"""The pipeline's environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.connector import jars_in, java_properties
from spark.settings import SOURCE_TOPIC, SettingsError, from_environment
from tests.certificates import Authority

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


@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        ({"EBBLINE_PIPELINE_CONNECTOR": "other"}, "neither rlmm nor kafka"),
        ({"EBBLINE_PIPELINE_CONNECTOR": "kafka"}, "EBBLINE_PIPELINE_CONNECTOR_JARS is not set"),
        ({"EBBLINE_PIPELINE_SPARK_MASTER": "spark://host:7077"}, "needs PostgreSQL"),
        ({"EBBLINE_PIPELINE_TASKS": "0"}, "EBBLINE_PIPELINE_TASKS"),
    ],
)
def test_what_cannot_be_together_is_refused(more: dict[str, str], refusal: str) -> None:
    with pytest.raises(SettingsError, match=refusal):
        from_environment({**COMPLETE, **more})


def test_a_folder_without_the_connector_is_named(tmp_path: Path) -> None:
    (tmp_path / "kafka-clients-3.9.2.jar").touch()
    with pytest.raises(SettingsError, match="does not have the jars"):
        jars_in(tmp_path)


def test_client_settings_are_told_to_java_in_its_own_words() -> None:
    result = java_properties(
        {"security.protocol": "SASL_SSL", "sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "u",
         "sasl.password": 'p"\\', "ssl.ca.location": "/ca.pem", "ssl.endpoint.identification.algorithm": "none"}
    )  # fmt: skip
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert result == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="u" password="p\\"\\\\";',
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.endpoint.identification.algorithm": "",
    }
    with pytest.raises(SettingsError, match=r"socket\.timeout\.ms, which Spark's Kafka connector does not know"):
        java_properties({"socket.timeout.ms": "1"})
    with pytest.raises(SettingsError, match="OAUTHBEARER has no user"):
        java_properties({"sasl.mechanism": "OAUTHBEARER", "sasl.username": "u"})


def test_a_client_certificate_is_told_to_java_as_text(tmp_path: Path) -> None:
    identity = Authority().identity("pipeline")
    (tmp_path / "certificate").write_text(identity.certificate_pem)
    (tmp_path / "key").write_text(identity.key_pem)
    files = {"ssl.certificate.location": str(tmp_path / "certificate"), "ssl.key.location": str(tmp_path / "key")}
    assert java_properties(files) == {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": identity.certificate_pem,
        "ssl.keystore.key": identity.key_pem,
    }
    (tmp_path / "key").write_text(identity.encrypted_key_pem)
    with pytest.raises(SettingsError, match="openssl pkcs8 -topk8 -nocrypt"):
        java_properties(files)
    (tmp_path / "key").unlink()
    with pytest.raises(SettingsError, match=r"key of ssl\.key\.location in .* cannot be read"):
        java_properties(files)


@pytest.mark.parametrize("value", ["0", "-1", "many", "²", "500001"])
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
