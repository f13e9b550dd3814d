"""The months of ``segment_event`` on PostgreSQL: a partition each, made when an event needs it, dropped when too old.

Events say their own time, by their brokers' clocks, and one may say anything: only months from `FIRST_YEAR` to
`LAST_YEAR` have a partition each (360 at most), all else is in ``segment_event_before`` and ``_after``. A month
is counted from the year 0, in UTC. On SQLite nothing here does anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection, text

TABLE: Final = "segment_event"
# Tiered storage is younger, and what says a later time does not know it. The same years are in migration 0008.
FIRST_YEAR, LAST_YEAR = 2020, 2049
COMING: Final = 2  # months ahead of this one that are made in time, when nobody waits for it
DAY_MS: Final = 86_400_000
# One at a time makes or drops a partition, whatever the cluster: "ebbm".
_LOCK: Final = 0x6562626D
_NAME: Final = re.compile(rf"{TABLE}_y(\d{{4}})m(\d{{2}})")
_FIRST, _END = 12 * FIRST_YEAR, 12 * (LAST_YEAR + 1)


def begin_ms(month: int) -> int:
    """The first millisecond of a month."""
    return int(datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp()) * 1000


def month_of(at_ms: int) -> int:
    """The month of a time from 1970 to 9999."""
    day = datetime.fromtimestamp(at_ms // 1000, UTC)
    return 12 * day.year + day.month - 1


def name_of(month: int) -> str:
    """The name of a month's table."""
    return f"{TABLE}_y{month // 12:04d}m{month % 12 + 1:02d}"


def is_part(table: str | None) -> bool:
    """Whether a table is a part of ``segment_event``, which the schema's own description does not name."""
    return table is not None and (bool(_NAME.fullmatch(table)) or table in (f"{TABLE}_before", f"{TABLE}_after"))


def needed(times_ms: Iterable[int], now_ms: int) -> set[int]:
    """The months of these times that have a partition, this month and the coming ones."""
    low, high = begin_ms(_FIRST), begin_ms(_END)
    days = {at_ms // DAY_MS for at_ms in times_ms if low <= at_ms < high}
    this = month_of(now_ms)
    return {month_of(day * DAY_MS) for day in days} | {*range(max(this, _FIRST), min(this + COMING + 1, _END))}


def existing(connection: Connection) -> set[int]:
    """The months that have a partition."""
    sql = "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = "
    names = (_NAME.fullmatch(name) for name in connection.scalars(text(f"{sql} '{TABLE}'::regclass")))
    return {12 * int(match[1]) + int(match[2]) - 1 for match in names if match}


def ensure(connection: Connection, times_ms: Iterable[int], now_ms: int) -> list[int]:
    """Make the partitions that events of these times need, and the coming ones; the months that were made.

    Call it before the transaction touches the table: making one waits for all who read it.
    """
    if connection.dialect.name != "postgresql":
        return []
    months = needed(times_ms, now_ms)
    if not months - existing(connection):
        return []
    connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
    missing = sorted(months - existing(connection))  # another one may have been faster
    for month in missing:
        limits = f"FROM ({begin_ms(month)}) TO ({begin_ms(month + 1)})"
        connection.execute(text(f"CREATE TABLE {name_of(month)} PARTITION OF {TABLE} FOR VALUES {limits}"))
    return missing


def drop(connection: Connection, month: int, cluster_id: str) -> None:
    """Remove the events of a cluster in a month: the whole partition, unless another cluster has events there.

    Raises OperationalError when readers hold the table for longer than 2 s; nothing is removed then.
    """
    connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
    if month not in existing(connection):
        return
    if not _has_others(connection, month, cluster_id):
        # A statement that waits for this lock makes all later ones wait.
        connection.execute(text("SET LOCAL lock_timeout = '2s'"))
        connection.execute(text(f"LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE"))
        if not _has_others(connection, month, cluster_id):
            connection.execute(text(f"DROP TABLE {name_of(month)}"))
            return
    connection.execute(text(f"DELETE FROM {name_of(month)} WHERE cluster_id = :c"), {"c": cluster_id})


def _has_others(connection: Connection, month: int, cluster_id: str) -> bool:
    some = f"EXISTS (SELECT FROM {name_of(month)} WHERE cluster_id"
    return bool(connection.scalar(text(f"SELECT {some} < :c) OR {some} > :c)"), {"c": cluster_id}))
