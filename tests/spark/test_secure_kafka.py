"""The pipeline as a process reads through TLS, a client certificate and SASL, by our source and by Spark's own. Only in
`make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine

from backend.store.connection.database import create_engine
from spark.settings import PipelineSettings
from tests.certificates import Authority
from tests.databases import new_sqlite
from tests.engine_cluster import EngineCluster
from tests.secure_cluster import PASSWORD, USER, secure_layout
from tests.spark.kafka_peer import create_topic, produce
from tests.spark.records import mixed
from tests.spark.replay import expected
from tests.spark.running import CLUSTER, WAIT_S, content, pipeline_process, read_to
from tests.waiting import wait_until

TOPIC = "rlm-secured"


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return create_engine(new_sqlite(tmp_path / "ebbline.db"))


@pytest.mark.timeout(2 * WAIT_S)
@pytest.mark.parametrize("connector", ["rlmm", "kafka"])
def test_the_same_rows_come_through_tls_and_sasl(
    connector: str, engine: Engine, tmp_path: Path, connector_jars: Path | str
) -> None:
    if connector == "kafka" and isinstance(connector_jars, str):
        pytest.skip(connector_jars)
    authority = Authority()
    client = authority.identity("pipeline")
    files = {
        "ssl.ca.location": authority.pem,
        "ssl.certificate.location": client.certificate_pem,
        "ssl.key.location": client.key_pem,
    }
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    for name, text in files.items():
        properties[name] = str(tmp_path / name)
        (tmp_path / name).write_text(text)
    (tmp_path / "client.properties").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    layout = secure_layout(tmp_path, authority, settings={"listener.name.sasl_ssl.ssl.client.auth": "required"})
    records = mixed(2_000, seed=9)
    with EngineCluster(tmp_path, made=layout) as cluster:
        create_topic(cluster.bootstrap, TOPIC)
        produce(cluster.bootstrap, TOPIC, records)
        settings = PipelineSettings(
            tmp_path, CLUSTER, layout.bootstrap("SASL_SSL"), f"sqlite:///{engine.url.database}", TOPIC,
            records_per_batch=700,
        )  # fmt: skip
        more = {
            "EBBLINE_CLIENT_PROPERTIES": str(tmp_path / "client.properties"),
            "EBBLINE_PIPELINE_CONNECTOR": connector,
            "EBBLINE_PIPELINE_CONNECTOR_JARS": str(connector_jars) if connector == "kafka" else "",
        }
        with pipeline_process(settings, **more):
            wait_until("everything is stored", read_to(engine, records), WAIT_S)
    assert content(engine) == expected(records)
    engine.dispose()
