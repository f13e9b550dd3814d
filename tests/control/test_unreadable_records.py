"""A stranger writes into the internal topics: no reader stops, and the operator gets a finding."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, select

from backend.control.observer.watches import reader_watch
from backend.protocol import events
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from backend.store.tables.observer import engine_event
from backend.tiering.ids import TopicPartition
from tests.control.site import TIERED, ControlSite
from tests.unit.engine.log.broken_batches import broken_batch

EVENTS = "__ebbline_events"
METADATA = "__remote_log_metadata"
METADATA_PARTITIONS = 5
WHERE: dict[str, Any] = {"broker": 2, "at_ms": 1_700_000_000_000, "topic": "t", "topic_id": bytes(16), "partition": 3}


def _changed(**members: Any) -> bytes:
    event = events.LeaderEvent(**WHERE, leader=1, leader_epoch=4)
    return json.dumps({**json.loads(events.encode(event)), **members}).encode()


# Records that end the event feed, or are no events.
STRANGE = (
    _changed(broker=10**30),
    _changed(at_ms=10**30),
    _changed(leader_epoch=1 << 40),
    _changed(topic="\ud800"),
    b'{"v":1',
    b"\xff",
)


def _append(site: ControlSite, topic: str, batch: bytearray, index: int = 0) -> None:
    """Into a partition's log as a broker would, whatever the batch holds."""

    async def append() -> None:
        for broker in site.cluster.cluster.brokers.values():
            replicas = broker.broker_services.replica_manager
            partition = replicas.find(topic, index)
            if partition is not None and getattr(partition, "is_leader", False):
                await replicas.append(TopicPartition(topic, index), memoryview(bytearray(batch)), timeout_ms=9000)

    site.cluster.call(append())


def _stored(site: ControlSite) -> list[tuple[str, int]]:
    engine = create_engine(site.database_url)
    with engine.connect() as connection:
        rows = connection.execute(select(engine_event.c.topic, engine_event.c.at_ms)).all()
    engine.dispose()
    return [(str(row[0]), int(row[1])) for row in rows]


def test_strange_events_are_passed_over_and_those_behind_them_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reader_watch, "INTERVAL_S", 0.5)
    with caplog.at_level(logging.INFO), ControlSite(tmp_path) as site:
        site.create_topic("orders", config=TIERED)
        site.wait_until("events are stored", lambda: _stored(site))
        for value in STRANGE:
            _append(site, EVENTS, build_batch([RecordData(0, b"k", value)]))
        _append(site, EVENTS, broken_batch())
        last = 1_700_000_000_123
        _append(site, EVENTS, build_batch([RecordData(0, b"k", _changed(at_ms=last))]))
        site.wait_until("the event behind them is stored", lambda: ("t", last) in _stored(site))
        assert site.plane.parts.observer.events.unreadable == len(STRANGE) + 1
        for index in range(METADATA_PARTITIONS):
            _append(site, METADATA, broken_batch(), index)
            _append(site, METADATA, build_batch([RecordData(0, None, b"\x01\x09\x00")]), index)
        expected = {"topic __ebbline_events"}
        site.wait_until("the findings open", lambda: expected <= set(_open(site)) and len(_open(site)) > 1)
        kinds = [row["severity"] for row in site.get("/v1/findings?slug=records-unreadable")["items"]]
        assert set(kinds) == {"warning"}
        site.produce("orders", 2000)
        site.wait_until(
            "copies go on",
            lambda: max(row["latest_tiered_offset"] or -1 for row in site.partitions("orders")) > 0,
            timeout_s=60,
        )
    assert not [record.getMessage() for record in caplog.records if record.exc_info]


def _open(site: ControlSite) -> list[str]:
    return [row["object"] for row in site.get("/v1/findings?slug=records-unreadable&state=open")["items"]]
