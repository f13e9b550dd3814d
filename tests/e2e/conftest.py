"""The tests that are left to `make soak`, and the cluster that the tests of records share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import select

from backend.store import tables as t
from backend.store.connection.database import create_engine, reading
from tests.e2e.up_process import UpProcess
from tests.effort import effort

# Three JVMs of Apache Kafka take a minute to start; so does a move or a race that a browser waits for.
collect_ignore = effort(["test_attach.py", "test_journeys.py"], [])


@pytest.fixture(scope="package")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    """`ebbline up` with its pipeline and without a dashboard, for tests with separate topics; it ends in order."""
    with UpProcess(tmp_path_factory.mktemp("up") / "data", options=("--no-demo", "--no-ui")) as running:
        yield running
        assert running.stop() == 0
    engine = create_engine(running.database_url)
    with reading(engine) as connection:
        rows = connection.execute(select(t.process_status.c.process, t.process_status.c.state))
        states = {row.process: row.state for row in rows}
    engine.dispose()
    assert states["pipeline"] == "stopped"
