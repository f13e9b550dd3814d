"""Offsets and phases as the observer samples them: the latest row always, history only on change.

A partition that does not move costs one history row a minute, so that a chart has a point at
least that often and a year of a quiet cluster stays small: 10,000 partitions with 3 replicas
at one row a minute are 40,000 rows a minute, 58 million a day at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields
from typing import Any, Final

from sqlalchemy import Connection, Engine, Table, bindparam, delete, update

from backend.store import tables as t
from backend.store.engine import writing
from backend.store.writes import data_changed, upsert

HISTORY_INTERVAL_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSample:
    """What was learned of one partition. None: not known, and ``error`` says why."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSample:
    """What was learned of one replica. None: not known, and ``error`` says why."""

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
class _Known:
    """What the database holds of one key."""

    sample: Sample
    changed_ms: int
    history_ms: int


class SampleWriter:
    """Writes samples of one cluster. One writer per cluster at a time; not for several threads.

    It remembers what it wrote last, and only after the commit, so a failed write can simply be
    tried again with the same or newer samples.
    """

    def __init__(self, engine: Engine, cluster_id: str, *, process: str = "observer") -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._process = process
        self._known: dict[Key, _Known] = {}
        # By table: when the last round was written, and which rows carry that time.
        self._fresh: dict[str, tuple[int, frozenset[Key]]] = {}

    def write(self, partitions: Sequence[PartitionSample], replicas: Sequence[ReplicaSample], now_ms: int) -> int:
        """Store one round of samples in one transaction; returns how many history rows it added.

        Keys that are not in this round keep their row and its age.
        """
        with writing(self._engine) as connection:
            done = self._write(connection, t.partition_current, t.partition_sample, partitions, now_ms)
            done += self._write(connection, t.replica_current, t.replica_sample, replicas, now_ms)
            changed = any(known.changed_ms == now_ms for _, known, _ in done)
            if changed:
                data_changed(connection, self._cluster_id, self._process)
        self._known.update((key, known) for key, known, _ in done)
        for table, samples in ((t.partition_current, partitions), (t.replica_current, replicas)):
            answered = frozenset(_key(sample) for sample in samples if sample.answered_ms is None)
            self._fresh[table.name] = (now_ms, answered)
        return sum(history for _, _, history in done)

    def forget(self, topics: Iterable[str]) -> None:
        """Drop what is remembered of topics that no longer exist (their rows: `writes.save_topics`)."""
        gone = set(topics)
        self._known = {key: known for key, known in self._known.items() if key[0] not in gone}

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
            self._known.pop(key, None)

    def _write(
        self, connection: Connection, current: Table, history: Table, samples: Sequence[Sample], now_ms: int
    ) -> list[tuple[Key, _Known, bool]]:
        outcome: list[tuple[Key, _Known, bool]] = []
        changed_rows, history_rows = [], []
        unchanged_keys: list[Key] = []
        shared = _shared(current, history)
        for sample in samples:
            key = _key(sample)
            before = self._known.get(key)
            same = before is not None and before.sample == sample
            moved = before is None or not same or now_ms - before.history_ms >= HISTORY_INTERVAL_MS
            due = moved and sample.answered_ms is None  # old offsets are no point of a new moment
            known = _Known(
                sample,
                before.changed_ms if same and before else now_ms,
                now_ms if due or before is None else before.history_ms,
            )
            outcome.append((key, known, due))
            if not same or due:
                row = self._row(sample)
                if not same:
                    sampled_ms = now_ms if sample.answered_ms is None else sample.answered_ms
                    changed_rows.append(row | {"changed_ms": known.changed_ms, "sampled_ms": sampled_ms})
                if due:
                    history_rows.append({name: row[name] for name in shared} | {"sampled_ms": now_ms})
            if same and sample.answered_ms is None:
                unchanged_keys.append(key)
        self._renew(connection, current, unchanged_keys, {key for key, known, _ in outcome if _answered(known)}, now_ms)
        upsert(connection, current, changed_rows)
        upsert(connection, history, history_rows)
        return outcome

    def _renew(
        self, connection: Connection, current: Table, unchanged: Sequence[Key], answered: AbstractSet[Key], now_ms: int
    ) -> None:
        """Gives the rows of these keys the time of this round.

        In one statement for all that were written in the last round, unless one of them did not answer in this one.
        """
        last_ms, fresh = self._fresh.get(current.name, (0, frozenset()))
        of_cluster = current.c.cluster_id == self._cluster_id
        left = unchanged
        if unchanged and fresh and fresh <= answered:
            of_last_round = current.c.sampled_ms == last_ms
            connection.execute(update(current).where(of_cluster, of_last_round).values(sampled_ms=now_ms))
            left = [key for key in unchanged if key not in fresh]
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


def _answered(known: _Known) -> bool:
    return known.sample.answered_ms is None


def _key(sample: Sample) -> Key:
    if isinstance(sample, ReplicaSample):
        return sample.topic, sample.partition, sample.broker_id
    return sample.topic, sample.partition


def _shared(current: Table, history: Table) -> list[str]:
    return [column.name for column in history.columns if column.name in current.columns and column.name != "sampled_ms"]
