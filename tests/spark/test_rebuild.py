"""`ebbline pipeline rebuild`: the way out after a gap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from backend.cli.main import app
from backend.data_folder.data_folder import ClusterIdentity, DataFolder
from backend.store.connection.database import create_engine, reading
from spark.decode import to_batch
from spark.lock import only_one
from spark.settings import JOB
from spark.sinks.ledger_sink import LedgerSink
from tests.spark.records import mixed
from tests.spark.replay import expected, stored

OURS, OTHER = "cluster-1", "cluster-2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder of one cluster; its database holds the ledgers of two."""
    identity = ClusterIdentity(
        format=1, cluster_id=OURS, cluster_name="demo", brokers=3, broker_port=1, controller_port=2
    )
    DataFolder(tmp_path).write_identity(identity)
    return tmp_path


def rebuild(folder: Path, database_url: str) -> Result:
    return CliRunner().invoke(
        app, ["pipeline", "rebuild", "--forget", "--data", str(folder), "--database-url", database_url]
    )


def test_a_rebuild_forgets_the_ledger_of_its_cluster_and_no_other(folder: Path, database_url: str) -> None:
    records = mixed(500)
    engine = create_engine(database_url)
    sinks = [LedgerSink(engine, cluster_id=cluster_id, job=JOB, source_topic="t") for cluster_id in (OURS, OTHER)]

    def content(cluster_id: str) -> dict[str, Any]:
        with reading(engine) as connection:
            return stored(connection, cluster_id)

    for sink in sinks:
        sink.write(0, pa.Table.from_batches([to_batch(records)]))
    done = rebuild(folder, database_url)
    assert (done.exit_code, done.output.split()[0]) == (0, str(len(expected(records)["events"])))
    assert not any(content(OURS).values())
    assert sinks[0].next_offsets() == {}
    assert content(OTHER) == expected(records)
    sinks[0].write(0, pa.Table.from_batches([to_batch(records)]))
    assert content(OURS) == expected(records)
    engine.dispose()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_rebuild_is_refused_while_a_pipeline_runs(folder: Path, database_url: str) -> None:
    with only_one(folder / "spark"):
        done = rebuild(folder, database_url)
    assert done.exit_code == 2
    assert "Another pipeline works" in done.output
    assert len(done.output.splitlines()) == 1


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_folder_without_a_cluster_is_named(tmp_path: Path, database_url: str) -> None:
    done = rebuild(tmp_path / "nothing", database_url)
    assert done.exit_code == 2
    assert "holds no cluster" in done.output
    assert len(done.output.splitlines()) == 1
