"""Databases, a Kafka and one Spark session for the tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from backend.store.connection import database as store_engine
from backend.store.connection.database import create_engine
from spark import class_archive, source
from spark.connector import jars_in
from spark.java import NoUsableJava, find_java
from spark.session import prepare_environment, start_session
from spark.settings import PipelineSettings
from tests.databases import new_postgresql, new_sqlite
from tests.effort import effort
from tests.migrations.postgresql import NoPostgreSQL, Server, running_server
from tests.oracle.apache_kafka import Unavailable, resolve_spark_jars
from tests.spark.kafka_peer import NoKafka, create_topic, running_broker
from tests.spark.outage import locked, stopped
from tests.spark.running import CLUSTER

# Jobs of Spark alone and a year of metadata take minutes; `make soak` runs them.
LONG = ("batch_analysis", "full_disk", "secure_kafka", "spark_cluster", "year")
collect_ignore = effort([f"test_{name}.py" for name in LONG], [])


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Server]:
    try:
        with running_server() as server:
            yield server
    except NoPostgreSQL as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a migrated, empty database, once for each dialect."""
    if request.param == "sqlite":
        return new_sqlite(tmp_path / "ebbline.db")
    return new_postgresql(request.getfixturevalue("postgresql_server"))


@pytest.fixture
def outage(
    request: pytest.FixtureRequest, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], AbstractContextManager[None]]:
    """Makes the database unusable during a block: SQLite is locked by another writer, PostgreSQL is stopped.

    Engines made after this fixture say so after 0.1 s of waiting for the lock.
    """
    if database_url.startswith("sqlite"):
        monkeypatch.setattr(store_engine, "BUSY_TIMEOUT_MS", 100)
        return lambda: locked(database_url)
    return lambda: stopped(request.getfixturevalue("postgresql_server"))


@pytest.fixture(scope="session")
def kafka_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Kafka to read from and write to."""
    try:
        with running_broker(tmp_path_factory.mktemp("kafka")) as bootstrap:
            yield bootstrap
    except NoKafka as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def connector_jars() -> Path | str:
    """The folder of the jars of Spark's own Kafka connector, or why it cannot be had."""
    try:
        return resolve_spark_jars()
    except Unavailable as reason:
        return f"Spark's Kafka connector is unavailable: {reason}"


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory, connector_jars: Path | str) -> Iterator[SparkSession]:
    """The pipeline's own session with its own settings, once for all tests: it takes 5 s and 400 MB."""
    folder = tmp_path_factory.mktemp("spark")
    try:
        java = find_java(folder / "java", os.environ)
    except NoUsableJava as reason:
        pytest.skip(str(reason))
    prepare_environment(java, folder)
    jars = jars_in(connector_jars) if isinstance(connector_jars, Path) else []
    session = start_session(folder, name="tests", jars=jars, java_options=class_archive.java_options(java))
    source.register(session)
    yield session
    session.stop()


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def settings(kafka_bootstrap: str, database_url: str, tmp_path: Path) -> PipelineSettings:
    topic = f"rlm-{uuid4().hex}"
    create_topic(kafka_bootstrap, topic)
    return PipelineSettings(
        data_dir=tmp_path,
        cluster_id=CLUSTER,
        bootstrap_servers=kafka_bootstrap,
        database_url=database_url,
        source_topic=topic,
        records_per_batch=700,
    )
