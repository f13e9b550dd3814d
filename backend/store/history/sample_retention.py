"""Samples are thinned with age and removed at last.

Arithmetic, per partition with 3 replicas (4 rows a round), sampled every 2 s, about 200 bytes a row with its indexes:

| age           | moving partition               | quiet partition (1 row a minute) |
|---------------|--------------------------------|----------------------------------|
| up to 1 h     | 1,800 rounds                   | 60                               |
| up to 24 h    | 23 h at one in 5 min = 276     | 276                              |
| up to 7 days  | 6 days at one an hour = 144    | 144                              |
| rows x 4      | 8,880, 1.8 MB                  | 1,920, 0.4 MB                    |

A laptop's cluster (10 moving, 110 quiet partitions) stays near 60 MB. Engine events are removed after 7 days too.
A month (EBBLINE_SAMPLE_DAYS=30) of 10,000 partitions, which are sampled once a minute whether they move or not
(`sampling_interval.py`), is 60 + 276 + 696 rounds: 41 million rows, at most 9 GB.
EBBLINE_SAMPLE_DAYS is another number of days: each more is 24 rounds, 96 rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Engine, Table, delete, exists, func, select

from backend.store import tables as t
from backend.store.connection.database import reading, writing
from backend.store.writes.cluster_rows import prune

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
# One transaction thins this much history at most, so that the other writer waits for milliseconds, not seconds.
SLICE_MS: Final = 10 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class RetentionTier:
    """Rows older than `after_ms` are kept once per `every_ms`."""

    after_ms: int
    every_ms: int


TIERS: Final = (RetentionTier(HOUR_MS, 5 * MINUTE_MS), RetentionTier(DAY_MS, HOUR_MS))
KEEP_DAYS: Final = 7
HISTORY: Final[tuple[Table, ...]] = (t.partition_sample, t.replica_sample, t.cluster_sample)


class Retention:
    """Thins and removes samples of one cluster; remembers how far it has thinned. Not for several threads."""

    def __init__(self, engine: Engine, cluster_id: str, keep_days: int = KEEP_DAYS) -> None:
        self._engine = engine
        self._keep_ms = keep_days * DAY_MS
        self._cluster_id = cluster_id
        self._thinned_to_ms: dict[tuple[str, RetentionTier], int] = {}

    def run(self, now_ms: int) -> int:
        """Does what is due at `now_ms`; returns how many rows went."""
        return sum(self.transactions(now_ms))

    def transactions(self, now_ms: int) -> Iterator[int]:
        """Does what is due at `now_ms`, one short transaction for each `next`, which returns how many rows went.

        It is over when `next` returns: a job in between would wait for its lock, and then for each other's.
        """
        for table in HISTORY:
            for tier in TIERS:
                yield from self._thin(table, tier, now_ms)
        with writing(self._engine, retention=True) as connection:
            removed = prune(connection, self._cluster_id, now_ms, self._keep_ms)
        yield removed

    def _thin(self, table: Table, tier: RetentionTier, now_ms: int) -> Iterator[int]:
        until_ms = (now_ms - tier.after_ms) // tier.every_ms * tier.every_ms
        from_ms = self._thinned_to_ms.get((table.name, tier))
        if from_ms is None:
            oldest_ms = self._oldest(table)
            from_ms = (
                until_ms
                if oldest_ms is None
                else max(oldest_ms, now_ms - self._keep_ms) // tier.every_ms * tier.every_ms
            )
        step_ms = max(SLICE_MS, tier.every_ms)
        while from_ms < until_ms:
            to_ms = min(from_ms + step_ms, until_ms)
            with writing(self._engine, retention=True) as connection:
                removed = thin(connection, table, self._cluster_id, from_ms, to_ms, tier.every_ms)
            from_ms = self._thinned_to_ms[table.name, tier] = to_ms
            yield removed
        self._thinned_to_ms[table.name, tier] = max(from_ms, until_ms)

    def _oldest(self, table: Table) -> int | None:
        oldest = select(func.min(table.c.sampled_ms)).where(table.c.cluster_id == self._cluster_id)
        with reading(self._engine) as connection:
            oldest_ms = connection.scalar(oldest)
        return None if oldest_ms is None else int(oldest_ms)


def thin(connection: Connection, table: Table, cluster_id: str, from_ms: int, to_ms: int, every_ms: int) -> int:
    """Keeps the newest row of each key and `every_ms` bucket in [from_ms, to_ms); returns how many rows went."""
    later = table.alias("later")
    keys = [column.name for column in table.primary_key if column.name != "sampled_ms"]
    bucket_end = (table.c.sampled_ms // every_ms + 1) * every_ms
    has_later = exists(
        select(1).where(
            *(later.c[name] == table.c[name] for name in keys),
            later.c.sampled_ms > table.c.sampled_ms,
            later.c.sampled_ms < bucket_end,
        )
    )
    done = connection.execute(
        delete(table).where(
            table.c.cluster_id == cluster_id, table.c.sampled_ms >= from_ms, table.c.sampled_ms < to_ms, has_later
        )
    )
    return done.rowcount
