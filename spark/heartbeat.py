"""Tells the database every two seconds how the pipeline is doing, also while there are no events.

It runs in a thread of the driver and asks the brokers itself, so it knows that they are away
while the stream is waiting for them, and how many records the stream is behind. Where the
history has a limit, it also removes what is too old.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from backend.store.connection.database import writing
from backend.store.connection.database_faults import first_line
from backend.store.history.segment_history import prune_history
from backend.store.writes.cluster_rows import heartbeat
from spark.kafka import BrokersAway, TopicMissing, TopicOffsets
from spark.sinks.ledger_sink import PROCESS, LedgerSink

log = logging.getLogger(__name__)

INTERVAL_MS: Final = 2_000
DAY_MS: Final = 86_400_000
PRUNE_INTERVAL_MS: Final = 600_000
# An answer that took longer says nothing of now.
LAG_VALID_S: Final = 5.0


@dataclass(slots=True)
class Progress:
    """The state of the job for its heartbeat; written by the job's threads, read by the heartbeat's."""

    state: str = "starting"  # starting | running | waiting | failed | stopped
    message: str | None = None
    next_offsets: dict[int, int] = field(default_factory=dict)
    records: int = 0
    quarantined: int = 0
    illegal: int = 0
    newest_event_ms: int | None = None  # of the last transaction that stored events, by the events' own clock
    last_batch: Mapping[str, int] | None = None


def waited_ms(
    now_ms: int, lag_records: int | None, caught_up_ms: int | None, newest_event_ms: int | None
) -> int | None:
    """At most how long the oldest record that waits has waited; None where that cannot be known.

    It came after the moment at which nothing waited, and after what was stored last. Times of the future say nothing.
    """
    if lag_records is None or lag_records == 0:
        return lag_records
    times_ms = [at_ms for at_ms in (caught_up_ms, newest_event_ms) if at_ms is not None and at_ms <= now_ms]
    return now_ms - max(times_ms) if times_ms else None


def lag_now(lag_records: int | None, took_s: float) -> int | None:
    """None where the answer took so long that more may have come since: this process was frozen, or a broker slow."""
    return lag_records if took_s <= LAG_VALID_S else None


class Heartbeat:
    """Writes the row ``pipeline`` of ``process_status``. `start` once, `stop` writes the last state."""

    def __init__(
        self,
        engine: Engine,
        cluster_id: str,
        offsets: TopicOffsets,
        sink: LedgerSink,
        progress: Progress,
        history_days: int = 0,
    ) -> None:
        self._engine = engine
        self._cluster_id = cluster_id
        self._offsets = offsets
        self._sink = sink
        self._progress = progress
        self._history_ms = history_days * DAY_MS
        self._pruned_ms = 0
        self._started_ms = _now_ms()
        self._waiting_since_ms: int | None = None
        self._caught_up_ms: int | None = None
        self._failing = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and write the state once more, so that the page shows how it ended."""
        self._end.set()
        self._thread.join(timeout=10)
        self._write(self._progress.state, self._progress.message, None)

    def _run(self) -> None:
        # Before the brokers are asked: while they are away, that takes seconds.
        self._write(self._progress.state, self._progress.message, None)
        while True:
            self._beat()
            self._prune()
            if self._end.wait(INTERVAL_MS / 1000):
                return

    def _beat(self) -> None:
        lag: int | None = None
        away: str | None = None
        began_s = time.monotonic()
        try:
            lag = sum(max(0, h.high - max(h.low, self._next(p))) for p, h in self._offsets.offsets_held().items())
        except (BrokersAway, TopicMissing) as error:
            away = str(error)
        state, message = self._progress.state, self._progress.message
        if state == "running" and away is not None:
            state, message = "waiting", away
        if state == "running" and self._sink.fault is not None:
            state, message = "waiting", self._sink.fault
        self._write(state, message, lag_now(lag, time.monotonic() - began_s))

    def _prune(self) -> None:
        """A part of what is too old, so that the next beat is not late: 10 transactions of 100 ms."""
        now_ms = _now_ms()
        if not self._history_ms or now_ms - self._pruned_ms < PRUNE_INTERVAL_MS:
            return
        try:
            went = prune_history(self._engine, self._cluster_id, now_ms - self._history_ms, transactions_max=10)
        except (DBAPIError, PoolTimeout) as error:
            log.warning("pipeline history: not shortened now: %s", first_line(error))
            went = 0
        if went == 0:
            self._pruned_ms = now_ms  # nothing left: look again after a while

    def _next(self, partition: int) -> int:
        return self._progress.next_offsets.get(partition, 0)

    def _write(self, state: str, message: str | None, lag: int | None) -> None:
        now_ms = _now_ms()
        if state != "waiting":
            self._waiting_since_ms = None
        elif self._waiting_since_ms is None:
            self._waiting_since_ms = now_ms
        if lag == 0:
            self._caught_up_ms = now_ms
        detail: dict[str, Any] = {
            "lag_records": lag,
            "lag_ms": waited_ms(now_ms, lag, self._caught_up_ms, self._progress.newest_event_ms),
            "records": self._progress.records,
            "quarantined_records": self._progress.quarantined,
            "illegal_events": self._progress.illegal,
            "last_batch": None if self._progress.last_batch is None else dict(self._progress.last_batch),
            "waiting_since_ms": self._waiting_since_ms,
            "caught_up_ms": self._caught_up_ms,
        }
        try:
            with writing(self._engine) as connection:
                heartbeat(
                    connection,
                    self._cluster_id,
                    PROCESS,
                    pid=os.getpid(),
                    started_ms=self._started_ms,
                    now_ms=now_ms,
                    interval_ms=INTERVAL_MS,
                    state=state,
                    message=message,
                    detail=detail,
                )
            self._failing = False
        except (DBAPIError, PoolTimeout) as error:
            if not self._failing:  # once per outage; the page sees the age of the last row
                log.warning("pipeline heartbeat: the database does not take it: %s", first_line(error))
            self._failing = True


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
