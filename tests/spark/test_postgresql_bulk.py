"""Many rows at once, as PostgreSQL takes them: COPY in binary, which must refuse and break off as few rows do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.exc import DataError, OperationalError

from backend.store import tables as t
from backend.store.connection.database import reading, writing
from spark.sinks.postgresql import PostgresqlBulk
from tests.spark.running import CLUSTER, content

pytestmark = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


class _BreaksOff(list[tuple[Any, ...]]):
    """Rows in the middle of whose COPY the server ends it, or its connection."""

    def __init__(self, rows: Sequence[tuple[Any, ...]], engine: Engine, ended_by: str, pid: int) -> None:
        super().__init__(rows)
        self._engine, self._ended_by, self._pid = engine, ended_by, pid
        self.ended = 0

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for at, row in enumerate(super().__iter__()):
            if at == len(self) // 2:
                self._end_the_copy()
            yield row

    def _end_the_copy(self) -> None:
        """Does nothing while the rows are only looked at."""
        under_way = "FROM pg_stat_activity WHERE pid = %s AND state = 'active' AND query LIKE 'COPY%%'"
        with self._engine.begin() as other:
            self.ended += len(other.exec_driver_sql(f"SELECT {self._ended_by}(pid) {under_way}", (self._pid,)).all())


@pytest.mark.parametrize("ended_by", ["pg_terminate_backend", "pg_cancel_backend"])
def test_a_copy_that_the_server_ends_half_way_is_a_database_that_is_away(engine: Engine, ended_by: str) -> None:
    columns = ("cluster_id", "job", "topic", "partition", "next_offset", "updated_ms")
    rows = [(CLUSTER, "ledger", "t", number, 1, 1) for number in range(100)]

    broken: list[_BreaksOff] = []

    def store() -> None:
        with writing(engine) as connection:
            pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            broken.append(_BreaksOff(rows, engine, ended_by, pid))
            PostgresqlBulk().insert(connection, t.source_offsets, columns, broken[0], "replace")

    with pytest.raises(OperationalError):
        store()
    assert broken[0].ended == 1
    with reading(engine) as connection:
        assert connection.execute(select(t.source_offsets)).all() == []


@pytest.mark.parametrize("rows", [20, 40])
@pytest.mark.parametrize("number", [1 << 31, -(1 << 31) - 1, 1 << 63])
def test_a_number_that_does_not_fit_is_refused_however_many_rows_there_are(
    engine: Engine, rows: int, number: int
) -> None:
    columns = ("cluster_id", "topic", "partition", "offset", "reason", "record_timestamp_ms", "ingested_ms")
    values: list[tuple[Any, ...]] = [(CLUSTER, "t", 1, offset, "why", 1, 1) for offset in range(rows)]
    values[7] = (CLUSTER, "t", number, 7, "why", 1, 1)
    with pytest.raises(DataError), writing(engine) as connection:
        PostgresqlBulk().insert(connection, t.quarantine, columns, values, "leave")
    assert content(engine)["quarantine"] == set()
