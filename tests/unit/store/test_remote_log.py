"""Reads of the Remote log page that no plan of a statement shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from backend.store import tables as t
from backend.store.connection.database import create_engine, reading, writing
from backend.store.migrate import upgrade
from backend.store.queries.remote_log import events_of_segment, past_events

CLUSTER = "0J8z8jVtQb2nLrv6y1Yb4g"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Three events of two segments of orders-7, and one of another partition."""
    url = f"sqlite:///{tmp_path / 'ebbline.db'}"
    upgrade(url)
    made = create_engine(url)
    event = {"cluster_id": CLUSTER, "kind": 1, "topic": "orders", "topic_id": "t", "state": 1, "broker_id": 1}
    positions = [(7, 30), (7, 10), (7, 20), (8, 40)]
    with writing(made) as connection:
        connection.execute(
            t.segment_event.insert(),
            [
                event
                | {
                    "metadata_partition": partition,
                    "metadata_offset": offset,
                    "partition": partition,
                    "segment_id": f"s{offset % 20}",
                    "event_timestamp_ms": offset,
                    "record_timestamp_ms": offset,
                    "legal": True,
                }
                for partition, offset in positions
            ],
        )
    yield made
    made.dispose()


def test_the_past_of_a_partition_is_told_in_order_or_not_at_all(engine: Engine) -> None:
    with reading(engine) as connection:
        stored_events = past_events(connection, CLUSTER, "t", 7, limit=3)
        assert stored_events is not None
        assert [stored_event.metadata_offset for stored_event in stored_events] == [10, 20, 30]
        assert past_events(connection, CLUSTER, "t", 7, limit=2) is None
        assert past_events(connection, CLUSTER, "t", 9, limit=2) == []


def test_what_was_told_of_a_segment_is_told_in_order_and_nothing_else(engine: Engine) -> None:
    with reading(engine) as connection:

        def metadata_offsets(partition: int, segment_id: str, limit: int = 100) -> list[int]:
            events = events_of_segment(connection, CLUSTER, "t", partition, segment_id, limit)
            return [event.metadata_offset for event in events]

        assert metadata_offsets(7, "s10") == [10, 30]
        assert metadata_offsets(7, "s10", limit=1) == [10]
        assert metadata_offsets(7, "s0") == [20], "the neighbour has a segment of the same id"
        assert metadata_offsets(8, "s10") == []
