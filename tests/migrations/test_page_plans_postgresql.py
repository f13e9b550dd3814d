"""The pages' reads on PostgreSQL: of a table that grows, the planner takes an index by more than the cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, event, text

from backend.store.connection.database import create_engine, reading
from backend.store.history.event_months import ensure, is_part
from backend.store.migrate import upgrade
from backend.tiering.segment_state import SegmentState
from spark.verify import _COMPARED, _forgotten
from tests.migrations.postgresql import Server, new_database
from tests.unit.store.test_page_plans import CLUSTER, GROWING, QUERIES, Query, queries

# 20 partitions of 1,000 segments, samples and events: enough for the planner to prefer what it would at millions.
FILL = (
    """INSERT INTO segment SELECT :c, 't' || p, p, 's' || n, 'orders', n * 100, n * 100 + 99,
       CASE WHEN n > 998 THEN 0 WHEN n < 500 THEN 3 ELSE 1 END, 1000, n, '[[0, 0]]', NULL,
       true, 1, 1, n * 1000, n * 1000 + 5,
       NULL, NULL, p % 50, n, n FROM generate_series(0, 19) p, generate_series(0, 999) n""",
    """INSERT INTO segment_interval SELECT :c, 't' || p, p, 's' || n, 1699999000000 + n * 1000, NULL, 0,
       n * 100, n * 100 + 99, 1000
       FROM generate_series(0, 19) p, generate_series(0, 999) n""",
    """INSERT INTO segment_event SELECT :c, p % 50, p * 10000 + n, 1, 'orders', 't' || p, p, 's' || n / 4, n % 4, 1,
       1700000000000 + (n % 4) * 2678400000, n, NULL, NULL, NULL, NULL, NULL, NULL, NULL, n % 100 <> 0, 'why'
       FROM generate_series(0, 19) p, generate_series(0, 1999) n""",
    """INSERT INTO engine_event SELECT :c, p % 3, p * 10000 + n, 'copy', 1, n * 1000, 'orders', 't' || p, p,
       '{"outcome": "finished"}'
       FROM generate_series(0, 19) p, generate_series(0, 999) n""",
    """INSERT INTO partition_sample SELECT :c, 'orders', p, n * 2000, 't' || p, 1, 1, '[1]', '[1]'
       FROM generate_series(0, 19) p, generate_series(0, 999) n""",
    """INSERT INTO replica_sample SELECT :c, 'orders', p, 1, n * 2000, 'leader', true
       FROM generate_series(0, 19) p, generate_series(0, 999) n""",
    """INSERT INTO remote_partition SELECT :c, 't' || p, p, 'orders', 1, 1000, 499, 499000, 0, 0, 500, 500000,
       1, 0, NULL, NULL, 1
       FROM generate_series(0, 19) p""",
)  # fmt: skip


@pytest.fixture(scope="module")
def engine(postgresql_server: Server) -> Iterator[Engine]:
    url = new_database(postgresql_server.url, f"p{uuid4().hex}")
    upgrade(url)
    made = create_engine(url)
    with made.begin() as connection:
        times = [1_700_000_000_000 + month * 2_678_400_000 for month in range(4)]
        ensure(connection, times, times[1])
        for statement in FILL:
            connection.execute(text(statement), {"c": CLUSTER})
    with made.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
    yield made
    made.dispose()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def _reads_too_much(node: dict[str, Any]) -> bool:
    """All of a growing table, or all that it has of the cluster, which is the same; sorted by an index it may stop."""
    relation = str(node.get("Relation Name", ""))
    if (relation in GROWING or is_part(relation)) and node["Node Type"] == "Seq Scan":
        return relation not in ("segment_event_before", "segment_event_after")  # they have no rows here
    index = str(node.get("Index Name", ""))
    condition = str(node.get("Index Cond", ""))
    of_growing = any(f"_{table}_" in f"_{index}_" for table in GROWING)
    by_cluster = of_growing and condition.count(" = ") + condition.count(">") + condition.count("NULL") < 2
    illegal = index.startswith("segment_event_") and "_topic_partition_" in index  # the month's part of that index
    return by_cluster and not illegal and index != "ix_segment_open"


def plans(engine: Engine, query: Query) -> dict[str, list[dict[str, Any]]]:
    """The nodes of the plan of each SELECT of a read."""
    requested: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, ___: Any, ____: Any) -> None:
        requested.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        with reading(engine) as connection:
            query(connection)
    finally:
        event.remove(engine, "before_cursor_execute", note)
    by_statement = {}
    with engine.connect() as connection:
        connection.exec_driver_sql("SET plan_cache_mode = force_custom_plan")
        for statement, parameters in requested:
            if statement.lstrip().startswith(("SELECT", "WITH")):
                (plan,) = connection.exec_driver_sql("EXPLAIN (FORMAT JSON) " + statement, parameters).scalar_one()
                by_statement[statement] = list(nodes(plan["Plan"]))
    return by_statement


@pytest.mark.parametrize("name", QUERIES)
def test_no_read_of_a_page_walks_a_growing_table(engine: Engine, name: str) -> None:
    for statement, plan_nodes in plans(engine, QUERIES[name]).items():
        too_much = [
            {key: node[key] for key in ("Node Type", "Relation Name", "Index Name", "Index Cond") if key in node}
            for node in plan_nodes
            if _reads_too_much(node)
        ]
        assert too_much == [], statement


def of_events(plan_nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The nodes that read the four months with rows."""
    return [node for node in plan_nodes if re.fullmatch(r"segment_event_y\d+m\d+", node.get("Relation Name", ""))][:4]


def test_events_of_a_segment_are_looked_for_in_the_key_alone(engine: Engine) -> None:
    query = queries("t7", "s3")["events of a segment"]
    with reading(engine) as connection:
        assert [event.metadata_offset for event in query(connection)] == [70012, 70013, 70014, 70015]
    looked_for, fetched = (of_events(plan_nodes) for plan_nodes in plans(engine, query).values())
    assert [(node["Node Type"], node["Index Name"]) for node in looked_for] == [
        ("Index Only Scan", f"{node['Relation Name']}_pkey") for node in looked_for
    ]
    assert len(looked_for) == 4
    for node in fetched:
        assert node["Index Name"] == f"{node['Relation Name']}_pkey"
        assert "(metadata_offset = ANY" in node["Index Cond"], "only rows of the segment are read"
    assert len(fetched) == 4


@pytest.mark.parametrize("name", ["events of the past", "newest segment events of a partition"])
def test_events_of_a_partition_are_read_by_the_key(engine: Engine, name: str) -> None:
    for plan_nodes in plans(engine, queries("t7")[name]).values():
        used = [(node["Node Type"].split(" Scan")[0], node["Index Name"]) for node in of_events(plan_nodes)]
        assert len(used) == 4
        assert all(kind.startswith("Index") and index.endswith("_pkey") for kind, index in used), used


def test_what_the_ledger_has_forgotten_is_told_by_the_key_alone(engine: Engine) -> None:
    gone = {"s3": tuple(int(SegmentState.DELETE_SEGMENT_FINISHED) for _ in _COMPARED)}
    result = plans(engine, lambda connection: _forgotten(connection, CLUSTER, ("t7", 7), {}, gone))
    (read,) = (of_events(plan_nodes) for plan_nodes in result.values())
    assert [node["Node Type"] for node in read] == ["Index Only Scan"] * 4


def test_the_check_notices_a_read_without_an_index(engine: Engine) -> None:
    with engine.connect() as connection:
        sql = "EXPLAIN (FORMAT JSON) SELECT * FROM segment WHERE segment_size_bytes = 5"
        (plan,) = connection.exec_driver_sql(sql).scalar_one()
    assert any(_reads_too_much(node) for node in nodes(plan["Plan"]))
