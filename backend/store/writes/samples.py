"""Offsets and phases as the observer samples them: the latest row always, history only on change.

Once a minute, or once a whole round where these are rarer, the history gets all rows, so that a chart has a
point at least that often and a year of a quiet cluster stays small: 10,000 partitions with 3 replicas
are 40,000 rows a whole round, and with one every 150 s (`control.observer.sampling.sampling_interval`) 23 million a
day; at most 173 million, while all of them move in each of the rounds between, one every 20 s: seven million at a time,
until those older than an hour are thinned (`history.sample_retention`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from sqlalchemy import Connection, Engine, Table, bindparam, delete, select, update

from backend.store import tables as t
from backend.store.connection.database import writing
from backend.store.writes.cluster_rows import data_changed, insert_into, upsert

HISTORY_INTERVAL_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSample:
    """The sample of one partition. None: not known, and ``error`` says why."""

    topic: str
    partition: int
    topic_id: str
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    tiered: bool
    log_start_offset: int | None = None
    local_log_start_offset: int | None = None
    latest_tiered_offset: int | None = None
    earliest_pending_upload_offset: int | None = None
    high_watermark: int | None = None
    log_end_offset: int | None = None
    local_log_bytes: int | None = None
    remote_log_bytes: int | None = None
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    pending_reason: str | None = None  # what a -1 of earliest_pending_upload_offset means
    error: str | None = None
    answered_ms: int | None = None  # None: in this round; else offsets and bytes are those of then
    last_stable_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSample:
    """The sample of one replica. None: not known, and ``error`` says why."""

    topic: str
    partition: int
    broker_id: int
    role: str  # leader | follower
    in_isr: bool
    log_start_offset: int | None = None
    local_log_start_offset: int | None = None
    latest_tiered_offset: int | None = None
    log_end_offset: int | None = None
    local_log_bytes: int | None = None
    leader_epochs: tuple[tuple[int, int], ...] | None = None
    log_dir: str | None = None
    phase: str | None = None
    phase_since_ms: int | None = None
    phase_source: str | None = None  # exact | inferred
    evidence: Any = None
    error: str | None = None
    answered_ms: int | None = None  # None: in this round; else offsets and bytes are those of then


Key = tuple[str, int] | tuple[str, int, int]
Sample = PartitionSample | ReplicaSample


@dataclass(slots=True)
class _LatestSample:
    """The last sample that was written of one key."""

    sample: Sample
    changed_ms: int
    sampled_ms: int


class SampleWriter:
    """Writes samples of one cluster. One writer per cluster at a time; not for several threads.

    It remembers what it wrote last, and only after the commit, so a failed write can simply be
    tried again with the same or newer samples.
    """

    def __init__(self, engine: Engine, cluster_id: str, *, process: str = "observer") -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._process = process
        self._latest: dict[Key, _LatestSample] = {}
        self._whole_ms = 0  # when the history last got all rows

    def write(
        self,
        partitions: Sequence[PartitionSample],
        replicas: Sequence[ReplicaSample],
        now_ms: int,
        earlier_ms: Mapping[tuple[str, int], int] | None = None,
    ) -> int:
        """Store one round of samples in one transaction; returns how many history rows it added.

        Keys that are not in this round, and those of partitions in `earlier_ms`, keep their age.
        """
        earlier_ms = earlier_ms or {}
        with writing(self._engine) as connection:
            latest = self._write(connection, t.partition_current, partitions, now_ms, earlier_ms)
            latest |= self._write(connection, t.replica_current, replicas, now_ms, earlier_ms)
            # Not in a round that lists moving partitions only; or the clock was set back.
            whole = not earlier_ms and not 0 <= now_ms - self._whole_ms < HISTORY_INTERVAL_MS
            added = _add_history(connection, self._cluster_id, t.partition_current, t.partition_sample, now_ms, whole)
            added += _add_history(connection, self._cluster_id, t.replica_current, t.replica_sample, now_ms, whole)
            if any(written.changed_ms == now_ms for written in latest.values()):
                data_changed(connection, self._cluster_id, self._process)
        self._latest |= latest
        if whole:
            self._whole_ms = now_ms
        return added

    def forget(self, topics: Iterable[str]) -> None:
        """Drop what is remembered of topics that no longer exist (their rows: `cluster_rows.save_topics`)."""
        gone = set(topics)
        self._latest = {key: latest for key, latest in self._latest.items() if key[0] not in gone}

    def remove_replicas(self, keys: Iterable[tuple[str, int, int]]) -> None:
        """Remove the latest rows of (topic, partition, broker id) that are no longer assigned; history stays."""
        gone = list(keys)
        if not gone:
            return
        table = t.replica_current
        where = [table.c[name] == bindparam(f"key_{name}") for name in _KEYS]
        rows = [{f"key_{name}": value for name, value in zip(_KEYS, key, strict=True)} for key in gone]
        with writing(self._engine) as connection:
            connection.execute(delete(table).where(table.c.cluster_id == self._cluster_id, *where), rows)
        for key in gone:
            self._latest.pop(key, None)

    def _write(
        self,
        connection: Connection,
        current: Table,
        samples: Sequence[Sample],
        now_ms: int,
        earlier_ms: Mapping[tuple[str, int], int],
    ) -> dict[Key, _LatestSample]:
        """The newest rows; what is to be remembered of them."""
        latest: dict[Key, _LatestSample] = {}
        changed_rows: list[dict[str, Any]] = []
        unchanged: list[Key] = []
        for sample in samples:
            key, sampled_ms = _key(sample), sample.answered_ms
            if sampled_ms is None:
                sampled_ms = earlier_ms.get((sample.topic, sample.partition), now_ms)
            before = self._latest.get(key)
            late = before is not None and before.changed_ms > before.sampled_ms and sampled_ms == now_ms
            if before is None or late or (before.sample is not sample and before.sample != sample):
                latest[key] = _LatestSample(sample, now_ms, sampled_ms)
                changed_rows.append(self._row(sample) | {"changed_ms": now_ms, "sampled_ms": sampled_ms})
            elif sampled_ms == now_ms:
                latest[key] = _LatestSample(before.sample, before.changed_ms, now_ms)
                unchanged.append(key)
            else:
                latest[key] = before
        changed = [key for key, written in latest.items() if written.changed_ms == now_ms and key in self._latest]
        self._renew(connection, current, unchanged, changed, now_ms)
        upsert(connection, current, changed_rows)
        return latest

    def _renew(
        self,
        connection: Connection,
        current: Table,
        unchanged: Sequence[Key],
        changed: Sequence[Key],
        now_ms: int,
    ) -> None:
        """Gives the rows of the unchanged keys the time of this round; those of the `changed` are written afterwards.

        In one statement all that have one time, unless there is a row of that time that is in neither.
        """
        if not unchanged:
            return
        of_cluster = current.c.cluster_id == self._cluster_id
        size = len(unchanged[0])
        rows_of = Counter(latest.sampled_ms for key, latest in self._latest.items() if len(key) == size)
        written_of = Counter(self._latest[key].sampled_ms for key in (*unchanged, *changed))
        by_time: dict[int, list[Key]] = defaultdict(list)
        for key in unchanged:
            by_time[self._latest[key].sampled_ms].append(key)
        left: list[Key] = []
        for sampled_ms, keys in by_time.items():
            if rows_of[sampled_ms] == written_of[sampled_ms]:
                of_time = current.c.sampled_ms == sampled_ms
                renewed = connection.execute(update(current).where(of_cluster, of_time).values(sampled_ms=now_ms))
                # Fewer, if a commit failed only in our eyes: then the rows have another time.
                if renewed.rowcount == rows_of[sampled_ms]:
                    continue
            left += keys
        if left:
            names = _KEYS[: len(left[0])]
            where = [current.c[name] == bindparam(f"key_{name}") for name in names]
            rows = [{f"key_{name}": value for name, value in zip(names, key, strict=True)} for key in left]
            connection.execute(update(current).where(of_cluster, *where).values(sampled_ms=now_ms), rows)

    def _row(self, sample: Sample) -> dict[str, Any]:
        row: dict[str, Any] = {"cluster_id": self._cluster_id}
        for name in _COLUMNS[type(sample)]:
            value = getattr(sample, name)
            row[name] = list(value) if isinstance(value, tuple) else value
        return row


_KEYS: Final = ("topic", "partition", "broker_id")
_COLUMNS: Final = {
    kind: tuple(field.name for field in fields(kind) if field.name != "answered_ms")
    for kind in (PartitionSample, ReplicaSample)
}


def _key(sample: Sample) -> Key:
    if isinstance(sample, ReplicaSample):
        return sample.topic, sample.partition, sample.broker_id
    return sample.topic, sample.partition


def _add_history(
    connection: Connection, cluster_id: str, current: Table, history: Table, now_ms: int, whole: bool
) -> int:
    """Add what was learned in this round, or only what changed, by the newest rows; how many rows.

    Offsets of an earlier moment are no point of this one.
    """
    shared = [column.name for column in history.columns if column.name in current.columns]
    of_round = [current.c.cluster_id == cluster_id, current.c.sampled_ms == now_ms]
    if not whole:
        of_round.append(current.c.changed_ms == now_ms)
    rows = select(*(current.c[name] for name in shared)).where(*of_round)
    insert = insert_into(connection, history).from_select(shared, rows)
    return connection.execute(insert.on_conflict_do_nothing()).rowcount  # a round may be written once more
