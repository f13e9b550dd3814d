"""The pages' reads go by an index: SQLite's own plan of each statement names no table that is scanned."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from inspect import isfunction
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from backend.store import tables as t
from backend.store.connection.database import create_engine, reading, writing
from backend.store.queries import (
    activity,
    audit,
    config,
    copy_attempts,
    findings,
    followers,
    health,
    lineage,
    maintenance,
    observer,
    operations,
    overview,
    partition_detail,
    partitions,
    pipeline,
    remote_log,
    time_travel,
)
from backend.store.queries.remote_log import Scope
from tests.databases import new_sqlite
from tests.source_trees import source_tree

PACKAGE = "backend.store.queries"
CLUSTER = "0J8z8jVtQb2nLrv6y1Yb4g"
TABLES = frozenset(t.metadata.tables)
# Millions of rows; the other tables have a row a partition, a replica or an act of a person.
GROWING = frozenset(
    {"segment", "segment_event", "segment_interval", "engine_event", "replica_sample", "partition_sample"}
)
# A row for each cluster that was ever watched.
SMALL = frozenset({"cluster"})
Query = Callable[[Connection], Any]
APP = Path(__file__).parents[3] / "app"
DAY_MS = 86_400_000


def queries(topic_id: str = "t", segment_id: str = "id", now_ms: int = 1_700_000_000_000) -> dict[str, Query]:
    """Every read of a page by its name, of partition 7 of the topic `orders`, at that moment."""
    return {
        "maintenance windows": lambda c: maintenance.windows(c, CLUSTER, now_ms),
        "totals of the cluster": lambda c: remote_log.cycle_totals(c, CLUSTER, Scope()),
        "totals of a partition": lambda c: remote_log.cycle_totals(c, CLUSTER, Scope("orders", 7)),
        "newest segments of the cluster": lambda c: remote_log.newest_segments(c, CLUSTER, Scope()),
        "newest segments of a topic": lambda c: remote_log.newest_segments(c, CLUSTER, Scope("orders")),
        "newest segments of a partition": lambda c: remote_log.newest_segments(c, CLUSTER, Scope("orders", 7)),
        "recent deletions": lambda c: remote_log.recent_deletions(c, CLUSTER),
        "a segment by its id": lambda c: remote_log.find_segment(c, CLUSTER, segment_id),
        "events of the past": lambda c: remote_log.past_events(c, CLUSTER, topic_id, 7),
        "events of a segment": lambda c: remote_log.events_of_segment(c, CLUSTER, topic_id, 7, segment_id),
        "events not followed": lambda c: remote_log.unfollowed(c, CLUSTER, Scope()),
        "events not followed of a partition": lambda c: remote_log.unfollowed(c, CLUSTER, Scope("orders", 7)),
        "pace of the pipeline": lambda c: remote_log.metadata_pace(c, CLUSTER),
        "copies of an hour": lambda c: remote_log.copies_since(c, CLUSTER, now_ms - 3_600_000),
        "bytes of a topic on each broker": lambda c: remote_log.local_bytes(c, CLUSTER, "__remote_log_metadata"),
        "segments before an offset": lambda c: partitions.segments_before(c, CLUSTER, "orders", 7, topic_id, 5),
        "when the log end passed an offset": lambda c: partitions.log_end_passed(c, CLUSTER, "orders", 7, 5, 1),
        "reading of the metadata topic": lambda c: remote_log.metadata_reading(c, CLUSTER),
        "followers by phase": lambda c: followers.phase_counts(c, CLUSTER),
        "followers": lambda c: followers.followers(c, CLUSTER, phases=("DELAYED", None), changed_since_ms=1, name="o"),
        "phase events": lambda c: followers.phase_events(c, CLUSTER, "orders", 7, 5, 1),
        "log ends of a replica": lambda c: followers.log_ends(c, CLUSTER, "orders", 7, 5, 1),
        "phase changes": lambda c: followers.phase_changes(c, CLUSTER, "orders", 7, 5, 1),
        "findings": lambda c: activity.findings(c, CLUSTER, 1),
        "broker events": lambda c: activity.broker_events(c, CLUSTER, 1),
        "brokers": lambda c: overview.brokers(c, CLUSTER),
        "history of the cluster": lambda c: overview.history(c, CLUSTER, 1),
        "bytes copied by time": lambda c: overview.copied_bytes(c, CLUSTER, now_ms - DAY_MS, 60_000),
        "totals of the ledger": lambda c: overview.ledger_totals(c, CLUSTER),
        "p99 of copies": lambda c: overview.copy_p99_ms(c, CLUSTER, [("orders", 7)]),
        "p99 of the newest copies": lambda c: overview.cluster_copy_p99_ms(c, CLUSTER),
        "replicas behind": lambda c: overview.replicas_behind(c, CLUSTER),
        "partitions": lambda c: partitions.partitions(c, CLUSTER),
        "partitions of then": lambda c: partitions.partitions_then(c, CLUSTER, 2, 1),
        "a partition": lambda c: partitions.partition(c, CLUSTER, "orders", 7),
        "replicas of a partition": lambda c: partitions.replicas(c, CLUSTER, "orders", 7),
        "segments of a partition": lambda c: partitions.segments(c, CLUSTER, "orders", 7),
        "open segments": lambda c: partitions.open_segments(c, CLUSTER),
        "offsets of a partition over time": lambda c: partitions.offset_history(c, CLUSTER, "orders", 7, 1),
        "engine events of a partition": lambda c: partition_detail.engine_events(c, CLUSTER, "orders", 7),
        "newest segment events of a partition": lambda c: partition_detail.segment_events(c, CLUSTER, topic_id, 7),
        "what remains of a partition": lambda c: partition_detail.remains(c, CLUSTER, "orders", 7),
        "ages of the data": lambda c: health.source_ages(c, CLUSTER, 1),
        "copies as told by brokers": lambda c: findings.copy_events(c, CLUSTER, now_ms - 600_000),
        "copies that failed": lambda c: copy_attempts.failed_attempts(c, CLUSTER, now_ms - 600_000),
        "copies that finished": lambda c: copy_attempts.finished_copies(c, CLUSTER, now_ms - 600_000),
        "open work": lambda c: observer.open_work(c, CLUSTER),
        "reads that failed": lambda c: findings.failed_reads(c, CLUSTER, now_ms - 60_000),
        "finished segments for the lineage": lambda c: lineage.finished_segments(c, CLUSTER),
        "chains of the leaders": lambda c: lineage.leader_chains(c, CLUSTER),
        "what was remote": lambda c: time_travel.remote_at(c, CLUSTER, topic_id, 7, now_ms, 500),
        "how much was remote": lambda c: time_travel.remote_totals_at(c, CLUSTER, topic_id, 7, now_ms),
        # `ebbline pipeline at`; at the first day of a year, since it reads all that was remote then.
        "where anything was remote": lambda c: time_travel.partitions_at(c, CLUSTER, now_ms - 364 * DAY_MS),
        "where a topic was remote": lambda c: time_travel.partitions_at(c, CLUSTER, now_ms - 364 * DAY_MS, "orders"),
        "the pipeline": lambda c: pipeline.pipeline_status(c, CLUSTER, 1),
        "audit": lambda c: audit.entries(c, CLUSTER),
        "who muted what": lambda c: audit.actors(c, CLUSTER, "mute finding", now_ms - 30 * DAY_MS),
        "muted findings": lambda c: overview.muted_findings(c, CLUSTER, now_ms),
        "plans": lambda c: audit.operations(c, CLUSTER),
        "a plan": lambda c: audit.operation(c, CLUSTER, 1),
        "findings of all times": lambda c: findings.findings(c, CLUSTER, state="all"),
        "what a finding explains": lambda c: findings.findings(c, CLUSTER, cause=("broker-away", "broker 3")),
        "open findings": lambda c: overview.open_findings(c, CLUSTER),
        "replicas by broker": lambda c: overview.replica_counts(c, CLUSTER),
        "settings": lambda c: config.config_values(c, CLUSTER, "topic", names=("retention.ms",), resource="orders"),
        "number of settings": lambda c: config.config_count(c, CLUSTER, "topic", resource="orders"),
        "topics": lambda c: config.topics(c, CLUSTER, tiered_only=True),
        "followers that the flag concerns": lambda c: config.follower_counts(c, CLUSTER),
        "how fast is produced": lambda c: config.produce_rates(c, CLUSTER, [("orders", 7)], now_ms - DAY_MS),
        "what new replicas copy": lambda c: operations.bootstrap_estimate(c, CLUSTER, kafka_rules=True, now_ms=now_ms),
        "remote parts of a name": lambda c: partition_detail.ledgers(c, CLUSTER, "orders", 7),
        "clusters": lambda c: health.clusters(c),
        "processes": lambda c: health.processes(c, CLUSTER, now_ms),
        "version of the data": lambda c: health.data_version(c, CLUSTER),
    }


QUERIES = queries()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A migrated database in which a partition has a remote part, so that look-ups by partition are made."""
    url = new_sqlite(tmp_path_factory.mktemp("plans") / "ebbline.db")
    made = create_engine(url)
    numbers = {column.name: 1 for column in t.remote_partition.columns if column.name.endswith(("segments", "bytes"))}
    row = {"cluster_id": CLUSTER, "topic_id": "t", "partition": 7, "topic": "orders", "illegal_events": 0}
    with writing(made) as connection:
        connection.execute(t.remote_partition.insert().values(**row, **numbers, last_event_ms=1))
    yield made
    made.dispose()


@pytest.mark.parametrize("name", QUERIES)
def test_no_read_of_a_page_scans_a_table(engine: Engine, name: str) -> None:
    requested: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, ___: Any, ____: Any) -> None:
        requested.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        with reading(engine) as connection:
            QUERIES[name](connection)
    finally:
        event.remove(engine, "before_cursor_execute", note)
    selects = [
        (statement, parameters)
        for statement, parameters in requested
        if statement.lstrip().startswith(("SELECT", "WITH"))
    ]
    assert selects
    with engine.connect() as connection:
        for statement, parameters in selects:
            plan = connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, parameters).all()
            details = [str(line[3]) for line in plan]
            scanned = [line for line in details if line.startswith("SCAN ") and line.split()[1] in TABLES - SMALL]
            assert not scanned, f"{scanned} in {statement}"
            walked = [line for line in details if _walks_the_cluster(line)]
            assert not walked, f"{walked} in {statement}"


def test_every_read_that_a_page_makes_is_in_the_list() -> None:
    listed = _reads_of(ast.parse(Path(__file__).read_text()))
    used = set().union(*(_reads_of(source_tree(path)) for path in APP.rglob("*.py")))
    assert len(used) > 40
    assert used - listed == set()


def _reads_of(tree: ast.AST) -> set[tuple[str, str]]:
    """The functions of `backend.store.queries` that a module names, each with its own module."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    modules = {a.asname or a.name: a.name for node in imports if node.module == PACKAGE for a in node.names}
    reads = {
        (str(node.module).rpartition(".")[2], alias.name)
        for node in imports
        if str(node.module).startswith(f"{PACKAGE}.")
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            reads.add((modules[node.value.id], node.attr))
    return {(module, name) for module, name in reads if isfunction(getattr(sys.modules[f"{PACKAGE}.{module}"], name))}


def _walks_the_cluster(line: str) -> bool:
    """A table that grows with time is read by the cluster alone, and not by an index that holds only what is wrong."""
    words = line.split()
    by_cluster = words[0] == "SEARCH" and words[1] in GROWING and line.endswith("(cluster_id=?)")
    return by_cluster and "ix_segment_event_illegal" not in line


def test_illegal_events_are_found_by_their_partial_index(engine: Engine) -> None:
    where = "cluster_id = 'c' AND segment_event.legal = 0"
    with engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN SELECT * FROM segment_event WHERE {where}").all()
    assert any("ix_segment_event_illegal" in str(line[3]) for line in plan)
