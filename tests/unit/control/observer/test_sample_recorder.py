"""Entries that wait for the database: those without a round are one entry, which says all that each of them said."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from backend.control.control_database import Database
from backend.control.observer.sample_recorder import ObserverHeartbeat, RecorderEntry, SampleRecorder
from backend.control.supervised_tasks import keep_running
from tests.databases import new_sqlite


def test_a_sign_of_life_does_not_take_the_place_of_brokers_that_wait_to_be_stored() -> None:
    dead = RecorderEntry(brokers=[{"broker_id": 2, "reachable": False}])
    sign = RecorderEntry(ObserverHeartbeat(2_000, "waiting", "The cluster does not answer."))
    assert sign.with_earlier(dead) == RecorderEntry(sign.heartbeat, brokers=dead.brokers)
    assert dead.with_earlier(sign) == RecorderEntry(sign.heartbeat, brokers=dead.brokers)
    newer = RecorderEntry(ObserverHeartbeat(3_000, "running", None))
    assert newer.with_earlier(sign) == newer


def test_a_stop_within_a_statement_of_the_retention_ends_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The database's thread is within it as the recorder is cancelled."""
    database = Database(new_sqlite(tmp_path / "own.db"))
    began, released = threading.Event(), threading.Event()

    def slow(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("DELETE"):
            began.set()
            released.wait(20)

    async def stop() -> bool:
        recorder = SampleRecorder(database, "c", pid=1, started_ms=0, interval_ms=lambda: 2_000)
        recorder.begin()
        recorder.submit(RecorderEntry())
        task = asyncio.ensure_future(keep_running("recorder", recorder.run))
        await asyncio.to_thread(began.wait, 20)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        stopped = task.done()
        released.set()
        await database.close()
        task.cancel()
        return stopped

    event.listen(database.engine, "before_cursor_execute", slow)
    assert asyncio.run(stop())
    assert began.is_set()
    assert caplog.text == ""
