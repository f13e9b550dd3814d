"""How long samples stay, and how dense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, select

from backend.store import tables as t
from backend.store.engine import create_engine, reading, writing
from backend.store.retention import DAY_MS, HOUR_MS, MINUTE_MS, Retention
from tests.databases import new_sqlite

NOW_MS = 1_800_000_000_000 // DAY_MS * DAY_MS


def row(table: Table, **given: Any) -> dict[str, Any]:
    """A row whose other columns have some value of their kind."""
    some = {int: 1, str: "x", bool: True, bytes: b""}
    wanted = [column for column in table.c if not column.nullable and column.name not in given]
    return given | {column.name: some.get(getattr(column.type, "python_type", dict), []) for column in wanted}


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
    wanted = {3: {3}, 7: {3, 7}, None: set()}[oldest_days]
    assert old == {NOW_MS - day * DAY_MS + 40 * MINUTE_MS for day in wanted}
    engine.dispose()
