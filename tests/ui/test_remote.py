"""The Remote log page over a seeded database: life cycle, open copies, ledger, what was not followed, time travel."""

from __future__ import annotations

import re
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from backend.store import tables as t
from backend.store.connection.database import writing
from tests.ui.conftest import Database, html_of, now_ms, open_page, text_of
from tests.ui.seed import CLUSTER_ID, uuid_text

TOPIC_ID = uuid_text(102)
FIRST, SECOND = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


def _shown(page: AppTest) -> str:
    assert not page.exception
    return text_of(page).replace("\u202f", " ")


def _ledger(page: AppTest) -> Any:
    return next(frame.value for frame in page.dataframe if "lineage" in frame.value.columns)


def _event(offset: int, at_ms: int, state: int, **more: Any) -> dict[str, Any]:
    """An event of a segment [1204000, 1300000) of orders-7."""
    start = state == 0
    return {
        "cluster_id": CLUSTER_ID,
        "metadata_partition": 13,
        "metadata_offset": offset,
        "kind": 0 if start else 1,
        "topic": "orders",
        "topic_id": TOPIC_ID,
        "partition": 7,
        "segment_id": FIRST,
        "state": state,
        "broker_id": 2,
        "event_timestamp_ms": at_ms,
        "record_timestamp_ms": at_ms,
        "start_offset": 1_204_000 if start else None,
        "end_offset": 1_299_999 if start else None,
        "max_timestamp_ms": at_ms if start else None,
        "segment_size_bytes": 5_000_000 if start else None,
        "leader_epochs": [[11, 1_204_000]] if start else None,
        "legal": True,
        "illegal_reason": None,
        **more,
    }


def _store_events(database: Database, *events: dict[str, Any]) -> None:
    with writing(database.engine) as connection:
        for event in events:
            connection.execute(t.segment_event.insert(), [event])


def test_life_cycle_counts_the_whole_tier_and_says_what_is_hung(trouble: Database) -> None:
    shown = _shown(open_page("remote"))
    assert "Remote log 18 128 segments · " in shown
    assert "Segment life cycle the cluster" in shown
    assert "Copy finished 18 128 " in shown
    assert "in 412 partitions" in shown
    assert "Copy started 1 segment ▲ 1 hung" in shown
    assert "copying 48 s p99 " in shown


def test_healthy_tier_has_no_open_copy_and_everything_followed(healthy: Database) -> None:
    shown = _shown(open_page("remote"))
    assert "No copy is open now." in shown
    assert "Every event was followed" in shown
    assert "✓ none hung" in shown
    assert "✓ none overdue" in shown


def test_a_partition_in_the_link_shows_its_ledger_with_lineage_and_no_gaps(trouble: Database) -> None:
    page = open_page("remote", q="orders-7")
    shown = _shown(page)
    assert "Ledger 45 rows · orders-7" in shown
    assert "◆ 1 outside lineage" in shown
    assert "✓ no gaps" in shown
    assert set(_ledger(page)["partition"]) == {"orders-7"}


def test_a_missing_segment_is_a_gap(trouble: Database) -> None:
    table = t.segment
    with writing(trouble.engine) as connection:
        starts = connection.scalars(
            table.select()
            .with_only_columns(table.c.start_offset)
            .where(table.c.topic == "orders", table.c.partition == 7, table.c.copy_broker_id == 2)
            .order_by(table.c.start_offset)
        ).all()
    lost = (table.c.topic == "orders") & (table.c.partition == 7) & (table.c.start_offset == starts[10])
    trouble.change(table.delete().where(lost))
    shown = _shown(open_page("remote", q="orders-7"))
    assert "▲ gap [" in shown
    assert "no gaps" not in shown


def test_state_in_the_link_keeps_only_its_segments(trouble: Database) -> None:
    page = open_page("remote", q="orders-7", state="Outside lineage")
    assert list(_ledger(page)["state"]) == ["copy finished"]
    assert "1 match of 45" in _shown(page)


def test_a_topic_lists_the_newest_of_each_of_its_partitions(trouble: Database) -> None:
    page = open_page("remote", q="orders")
    assert set(_ledger(page)["partition"]) == {"orders-0", "orders-7"}
    assert "Segment life cycle orders" in _shown(page)


def test_a_segment_id_finds_its_partition_and_its_events(trouble: Database) -> None:
    moment = now_ms()
    with writing(trouble.engine) as connection:
        table = t.segment
        name = connection.scalars(
            table.select().with_only_columns(table.c.segment_id).where(table.c.topic == "orders").limit(1)
        ).one()
    _store_events(trouble, _event(1, moment - 9_000, 0, segment_id=name), _event(2, moment - 5_000, 1, segment_id=name))
    shown = _shown(open_page("remote", q=name))
    assert f"Segment {name} · orders-" in shown


def test_words_that_name_nothing_say_so(trouble: Database) -> None:
    shown = _shown(open_page("remote", q="order"))
    assert "Ledger" in shown
    shown = _shown(open_page("remote", q="no-such-thing"))
    assert "No topic, partition or segment is named “no-such-thing”" in shown


def test_time_travel_folds_the_stored_events_of_the_partition(trouble: Database) -> None:
    moment = now_ms()
    _store_events(
        trouble,
        _event(1, moment - 60_000, 0),
        _event(2, moment - 50_000, 1),
        _event(3, moment - 20_000, 2),
        _event(4, moment - 10_000, 3),
    )
    page = open_page("remote", q="orders-7", at=str(moment - 30_000))
    shown = _shown(page)
    assert "computed from 2 of 4 stored events of __remote_log_metadata partition 13, up to offset 2." in shown
    assert "Exact: these are the first events of the log." in shown
    assert list(_ledger(page)["state"]) == ["copy finished"]
    assert list(_ledger(open_page("remote", q="orders-7", at=str(moment - 55_000)))["state"]) == ["copy started"]
    assert list(_ledger(open_page("remote", q="orders-7", at=str(moment - 15_000)))["state"]) == ["delete started"]


def test_clocks_that_differ_make_the_past_inexact_and_it_is_said(trouble: Database) -> None:
    moment = now_ms()
    _store_events(
        trouble,
        _event(1, moment - 60_000, 0),
        _event(2, moment - 20_000, 1),
        _event(3, moment - 40_000, 0, segment_id=SECOND),
    )
    shown = _shown(open_page("remote", q="orders-7", at=str(moment - 30_000)))
    assert "Not exact: 1 of them stand in the log after later ones" in shown


def test_time_travel_without_a_partition_says_what_it_needs(trouble: Database) -> None:
    shown = _shown(open_page("remote", at="10m"))
    assert "The past is computed from the stored events of one partition." in shown


def test_a_time_that_is_none_is_named_and_now_is_shown(trouble: Database) -> None:
    page = open_page("remote", q="orders-7", at="tomorrow")
    assert "'tomorrow' is no time in the past" in page.toast[0].value
    assert "Ledger 45 rows" in _shown(page)


def test_events_that_were_not_followed_are_listed_with_their_reason(trouble: Database) -> None:
    moment = now_ms()
    reason = "DELETE_SEGMENT_FINISHED cannot follow COPY_SEGMENT_STARTED"
    _store_events(trouble, _event(9, moment - 1_000, 3, legal=False, illegal_reason=reason))
    shown = _shown(open_page("remote"))
    assert f"orders-7 {reason}" in shown
    assert reason not in _shown(open_page("remote", q="orders-0"))


def test_an_empty_ledger_says_what_that_means(healthy: Database) -> None:
    healthy.change(t.segment.delete(), t.remote_partition.delete())
    shown = _shown(open_page("remote"))
    assert "No remote segment is known: nothing has been copied, or the pipeline has not read its events yet." in shown
    assert "Remote log 0 segments · 0 B" in shown


def test_without_the_pipeline_the_ledger_is_grey_and_says_since_when(trouble: Database) -> None:
    trouble.silence("pipeline")
    page = open_page("remote")
    assert "Pipeline down since" in _shown(page)
    assert any("stale-cycle" in str(block.proto) for block in page.get("flex_container"))


def test_without_the_backend_the_ledger_still_stands(trouble: Database) -> None:
    trouble.silence("backend", "observer")
    trouble.change(t.partition_current.update().values(sampled_ms=now_ms() - 3_600_000))
    shown = _shown(open_page("remote"))
    assert "Backend down since" in shown
    assert "Copy finished 18 128 " in shown


def test_names_from_outside_cannot_become_markup(trouble: Database) -> None:
    evil = "<img src=x onerror=alert(1)>"
    _store_events(trouble, _event(9, now_ms(), 3, legal=False, illegal_reason=evil, topic=evil))
    assert evil not in html_of(open_page("remote"))
    assert evil not in html_of(open_page("remote", q=evil, seg=evil))


def _storage(shown: str) -> float:
    match = re.search(r"Storage \$([\d. ]+) / month", shown)
    assert match is not None, shown
    return float(match[1].replace(" ", ""))


def test_debt_is_told_by_reason_and_what_the_tier_costs_at_the_prices_given(trouble: Database) -> None:
    page = open_page("remote", q="telemetry-143")
    shown = _shown(page)
    # 96 GB local, 64 GB of them not copied; 12 GB may stay.
    assert re.search(r"Local data past retention [\d.]+ GB (?!·)", shown)
    then = _shown(open_page("remote", q="telemetry-143", at="10m"))
    assert re.search(r"Local data past retention [\d.]+ GB · as of now", then)
    assert re.search(r"Not copied yet 52\.\d GB Active segment", shown)
    usual = _storage(shown)
    page.number_input(key="price-storage").set_value(0.046).run()
    assert usual > 0
    assert _storage(_shown(page)) == pytest.approx(2 * usual, abs=0.02)
    assert "about" not in shown.partition("Replay after a restart")[2].partition("Pipeline behind")[0]
    assert "? no batch is large enough to tell a pace" in shown or "? no record read yet" in shown


def test_the_replay_of_the_metadata_topic_is_estimated_by_what_the_pipeline_took(healthy: Database) -> None:
    moment = now_ms()
    batch = {"cluster_id": CLUSTER_ID, "job": "remote-log", "replayed_records": 0, "illegal_events": 0}
    times = {"quarantined_records": 0, "newest_event_ms": moment, "finished_ms": moment}
    healthy.change(
        t.pipeline_batch.insert().values(**batch, **times, batch_id=1, records=500, started_ms=moment - 1_000),
        t.source_offsets.insert().values(
            cluster_id=CLUSTER_ID, job="remote-log", topic="m", partition=0, next_offset=1_500, updated_ms=moment
        ),
    )
    assert "Replay after a restart about 3 s" in _shown(open_page("remote"))
