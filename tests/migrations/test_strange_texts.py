"""Texts of strangers in the tables: no round is refused for what somebody has named a group, a client or a host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from sqlalchemy import JSON, Engine, Table, func, select

from backend.control.findings.evaluate import evaluate
from backend.control.findings.finding_context import GroupOffset
from backend.control.http.api_tokens import KnownToken, TokenRole, add_token, tokens_by_hash, withdraw_token
from backend.control.observer.watches.finding_watch import FindingWatch
from backend.control.observer.watches.reader_watch import reads_summary
from backend.store import tables as t
from backend.store.connection.database import create_engine, reading, writing
from backend.store.queries import findings as queries
from backend.store.storable import KeyText, Text
from backend.store.writes import cluster_rows, finding_rows, operation_rows
from backend.store.writes.observer_rows import save_settings
from tests.unit.control.findings.sights import context, partition
from tests.unit.store.history.test_sample_retention import row

# A zero character, half a surrogate pair, more than an index takes.
STRANGE: Final = ["a\0b", "\0", "x\ud800", "".join(chr(0x4E00 + number * 7 % 20_000) for number in range(30_000))]
# The pipeline writes only checked values: topics of at most 249 characters, and ids (`spark.decode`).
TABLES: Final = [
    t.cluster, t.broker, t.process_status, t.topic, t.partition_current, t.replica_current, t.config_value,
    t.engine_event, t.finding, t.operation, t.audit,
]  # fmt: skip


@pytest.fixture
def engine(migrated_database: str) -> Iterator[Engine]:
    made = create_engine(migrated_database)
    with writing(made) as connection:
        connection.execute(t.cluster.insert(), [row(t.cluster, cluster_id="c")])
    yield made
    made.dispose()


def strange_row(table: Table, text: str) -> dict[str, Any]:
    """The text in every column but those of keys that the product itself chooses."""
    indexed = {column.name for index in table.indexes for column in index.columns}
    ours = indexed | {"id", "cluster_id", "process", "resource_type", "slug"}
    made = row(table, cluster_id="strange")
    for column in table.c:
        if isinstance(column.type, JSON):
            made[column.name] = {text: [text, {"deep": text}]}
        elif isinstance(column.type, KeyText) or (isinstance(column.type, Text) and column.name not in ours):
            made[column.name] = text
    return {name: value for name, value in made.items() if name != "id"}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@pytest.mark.parametrize("text", STRANGE, ids=["zero", "only zero", "surrogate", "long"])
def test_every_table_takes_every_text(engine: Engine, table: Table, text: str) -> None:
    with writing(engine) as connection:
        connection.execute(table.insert(), [strange_row(table, text)])
    with reading(engine) as connection:
        assert len(connection.execute(select(table).where(table.c.cluster_id == "strange")).all()) == 1


def test_a_round_with_strange_names_is_stored_and_stays(engine: Engine) -> None:
    of_cluster = {("broker", text) for text in STRANGE}
    for at_ms in (1, 2):
        rows = [
            row(t.config_value, cluster_id="c", resource_type="broker", resource=text, name=text, value=text,
                synonyms=[{"name": text}], sampled_ms=at_ms)
            for text in STRANGE
        ]  # fmt: skip
        topics = [row(t.topic, cluster_id="c", topic=text, config={text: text}, sampled_ms=at_ms) for text in STRANGE]
        with writing(engine) as connection:
            save_settings(
                connection, "c", rows if at_ms == 1 else [], of_cluster if at_ms == 2 else set(), of_cluster, at_ms
            )
            cluster_rows.save_topics(connection, "c", topics)
            cluster_rows.save_brokers(connection, "c", [row(t.broker, cluster_id="c", broker_id=1, host=STRANGE[0])])
    with reading(engine) as connection:
        assert connection.scalar(select(func.count()).select_from(t.topic)) == len(STRANGE)
        assert set(connection.scalars(select(t.config_value.c.sampled_ms))) == {2}
        assert connection.scalar(select(func.count()).select_from(t.config_value)) == len(STRANGE)
        # It is found by the name that it has in the cluster.
        for text in STRANGE:
            assert connection.scalar(select(func.count()).select_from(t.topic).where(t.topic.c.topic == text)) == 1


def test_a_group_of_any_name_is_one_finding_that_opens_once_and_closes(engine: Engine) -> None:
    watch: Any = FindingWatch.__new__(FindingWatch)
    watch._cluster_id = "c"
    offsets = [GroupOffset(text, "orders", 0, 0, moved=True) for text in STRANGE]
    opened = closed = 0
    waiting: Any = {}
    for at_ms, present in ((0, True), (50_000, True), (100_000, True), (150_000, False)):
        seen = context(
            at_ms=at_ms,
            group_offsets=offsets if present else [],
            partitions=[partition(tiered=True, log_start_offset=0, local_log_start_offset=10)],
        )
        with writing(engine) as connection:
            changes = evaluate(seen, queries.all_open(connection, "c"), waiting)
            waiting = changes.waiting
            storms = [finding for finding in changes.opened if finding.slug == "remote-read-storm"]
            opened += len(storms)
            closed += sum(finding.slug == "remote-read-storm" for finding in changes.closed)
            finding_rows.open_findings(connection, [watch._row(finding, at_ms, None) for finding in changes.opened])
            finding_rows.close_findings(connection, [finding.id for finding in changes.closed], at_ms)
            detail = reads_summary(offsets, seen.partitions, at_ms)
            cluster_rows.heartbeat(
                connection, "c", "observer", pid=1, started_ms=1, now_ms=at_ms, interval_ms=1, state="running",
                message=STRANGE[0], detail=detail,
            )  # fmt: skip
    assert (opened, closed) == (len(STRANGE), len(STRANGE))


def test_what_people_write_is_stored(engine: Engine) -> None:
    for at, text in enumerate(STRANGE[:3]):
        with writing(engine) as connection:
            operation = row(t.operation, cluster_id="c", reason=text, inputs={text: text}, state="draft")
            operation.pop("id", None)
            number = operation_rows.add_operation(connection, operation)
            values = {"idempotency_key": text, "result": {"error": text}}
            assert operation_rows.advance_operation(connection, "c", number, ["draft"], values)
            assert operation_rows.operation_of_key(connection, "c", text) == number
            entry = row(t.audit, cluster_id="c", actor=text, object=text, detail=text, diff=[text])
            entry.pop("id", None)
            operation_rows.add_audit(connection, entry)
            add_token(connection, "c", KnownToken(f"{text}{at}", TokenRole.VIEWER, None))
            assert len(tokens_by_hash(connection, "c")) == 1
            assert withdraw_token(connection, "c", f"{text}{at}")
