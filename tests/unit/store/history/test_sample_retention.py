"""The age and the density of samples that are kept."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, select

from backend.store import tables as t
from backend.store.connection.database import create_engine, reading, writing
from backend.store.history.sample_retention import DAY_MS, HOUR_MS, MINUTE_MS, TIERS, Retention
from backend.store.writes.samples import PartitionSample, ReplicaSample, SampleWriter
from tests.databases import new_sqlite

NOW_MS = 1_800_000_000_000 // DAY_MS * DAY_MS
# With its indexes, in SQLite.
ROW_BYTES = 215


def rows_kept(days: int, *, every_ms: int, replicas: int = 3) -> int:
    """Rows of one partition and its replicas that are sampled so often, `days` after the first one."""
    rounds, since_ms, spacing_ms = 0, 0, every_ms
    for tier in TIERS:
        rounds += (tier.after_ms - since_ms) // spacing_ms
        since_ms, spacing_ms = tier.after_ms, max(every_ms, tier.every_ms)
    rounds += (days * DAY_MS - since_ms) // spacing_ms
    return rounds * (1 + replicas)


def row(table: Table, **given: Any) -> dict[str, Any]:
    """A row whose other columns have some value of their kind."""
    some = {int: 1, str: "x", bool: True, bytes: b""}
    columns = [column for column in table.c if not column.nullable and column.name not in given]
    return given | {column.name: some.get(getattr(column.type, "python_type", dict), []) for column in columns}


@pytest.mark.parametrize(("keep_days", "oldest_days"), [(4, 3), (8, 7), (1, None)])
def test_samples_are_thinned_with_age_and_removed_after_the_days_that_are_set(
    tmp_path: Path, keep_days: int, oldest_days: int | None
) -> None:
    url = new_sqlite(tmp_path / "ebbline.db")
    engine = create_engine(url)
    times = [NOW_MS - 2_000 * n for n in range(1, 11)]  # young: all stay
    times += [NOW_MS - 3 * HOUR_MS + 2_000 * n for n in range(10)]  # one of five minutes
    times += [NOW_MS - day * DAY_MS + 10 * MINUTE_MS * n for day in (3, 7) for n in range(1, 5)]  # one of an hour
    table = t.cluster_sample
    with writing(engine) as connection:
        connection.execute(table.insert(), [row(table, cluster_id="c", sampled_ms=at_ms) for at_ms in times])
    Retention(engine, "c", keep_days).run(NOW_MS)
    with reading(engine) as connection:
        left = set(connection.scalars(select(table.c.sampled_ms)))
    young = {at_ms for at_ms in left if at_ms > NOW_MS - HOUR_MS}
    middle = {at_ms for at_ms in left if NOW_MS - DAY_MS < at_ms <= NOW_MS - HOUR_MS}
    old = left - young - middle
    assert (len(young), middle) == (10, {NOW_MS - 3 * HOUR_MS + 18_000})
    expected = {3: {3}, 7: {3, 7}, None: set()}[oldest_days]
    assert old == {NOW_MS - day * DAY_MS + 40 * MINUTE_MS for day in expected}
    engine.dispose()


def test_what_was_thinned_before_an_interruption_is_not_read_again(tmp_path: Path) -> None:
    """Findings get the thread between two transactions."""
    engine = create_engine(new_sqlite(tmp_path / "ebbline.db"))
    table = t.cluster_sample
    times = [NOW_MS - 5 * HOUR_MS + 2_000 * n for n in range(3)] + [NOW_MS - 3 * HOUR_MS + 2_000 * n for n in range(3)]
    with writing(engine) as connection:
        connection.execute(table.insert(), [row(table, cluster_id="c", sampled_ms=at_ms) for at_ms in times])
    retention = Retention(engine, "c")
    interrupted = retention.transactions(NOW_MS)
    first = next(removed for removed in interrupted if removed)
    rest = list(retention.transactions(NOW_MS))
    assert (first, sum(rest)) == (2, 2)
    again = list(retention.transactions(NOW_MS))
    assert len(again) < len(rest), "only what became due since"
    engine.dispose()


def test_a_month_of_ten_thousand_partitions_takes_the_size_that_is_stated(tmp_path: Path) -> None:
    path = tmp_path / "ebbline.db"
    url = new_sqlite(path)
    engine = create_engine(url)
    with writing(engine) as connection:
        connection.execute(t.cluster.insert(), [row(t.cluster, cluster_id="c")])
    writer = SampleWriter(engine, "c")
    keys = [(f"payments-of-region-{n // 20}", n % 20) for n in range(200)]

    def write(round_: int) -> None:
        end = 1_000_000_000 + round_
        partitions = [
            PartitionSample(
                topic=topic, partition=p, topic_id="Q" * 22, leader=1, leader_epoch=7, replicas=(1, 2, 3),
                isr=(1, 2, 3), tiered=True, log_start_offset=0, local_log_start_offset=end - 10_000,
                latest_tiered_offset=end - 5_000, earliest_pending_upload_offset=end - 4_999, high_watermark=end,
                log_end_offset=end, local_log_bytes=10_000_000, remote_log_bytes=10_000_000_000,
            )
            for topic, p in keys
        ]  # fmt: skip
        replicas = [
            ReplicaSample(
                topic=topic, partition=p, broker_id=broker, role="follower", in_isr=True, log_start_offset=0,
                local_log_start_offset=end - 10_000, latest_tiered_offset=end - 5_000, log_end_offset=end,
                local_log_bytes=10_000_000, leader_epochs=((7, 0),), log_dir="/var/lib/kafka", phase="IN_SYNC",
                phase_since_ms=NOW_MS, phase_source="exact", evidence={"rule": "in the ISR"},
            )
            for topic, p in keys
            for broker in (1, 2, 3)
        ]  # fmt: skip
        writer.write(partitions, replicas, NOW_MS + round_ * MINUTE_MS)

    write(0)

    def size_bytes() -> int:
        with writing(engine) as connection:
            return int(connection.exec_driver_sql("PRAGMA page_count").scalar_one()) * 4096

    before = size_bytes()
    for round_ in range(1, 11):
        write(round_)
    row_bytes = (size_bytes() - before) / (10 * 4 * len(keys))
    engine.dispose()
    assert row_bytes <= ROW_BYTES
    # A round a minute, which is what sampling_interval.py allows a cluster of this size.
    assert 10_000 * rows_kept(30, every_ms=MINUTE_MS) * ROW_BYTES <= 9_000_000_000


def test_no_lock_is_held_between_the_transactions_of_retention(tmp_path: Path) -> None:
    """Another job of the observer comes in between: it waited for the lock, failed, and took the rest with it."""
    url = new_sqlite(tmp_path / "ebbline.db")
    engine, other = create_engine(url), sqlite3.connect(tmp_path / "ebbline.db", isolation_level=None, timeout=0)
    table, steps = t.cluster_sample, 0
    times = [NOW_MS - 3 * HOUR_MS + 2_000 * n for n in range(10)]
    with writing(engine) as connection:
        connection.execute(table.insert(), [row(table, cluster_id="c", sampled_ms=at_ms) for at_ms in times])
    for _ in Retention(engine, "c").transactions(NOW_MS):
        steps += 1
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    assert steps > 1
    other.close()
    engine.dispose()
