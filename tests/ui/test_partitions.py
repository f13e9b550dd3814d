"""The Partitions page over a seeded database: what it lists, in which order, and what it says of the selected one."""

from __future__ import annotations

import json
import re
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from app.components.partition.ledger_at_instant import link_text
from backend.store import tables as t
from backend.store.connection.database import writing
from backend.store.queries.lineage import FINISHED_MAX
from tests.ui.conftest import Database, now_ms, open_page, text_of
from tests.ui.seed import CLUSTER_ID, uuid_text

CURRENT = t.partition_current
SEGMENT = t.segment


def _listed(page: AppTest) -> list[str]:
    """The partitions of the bars, from the top."""
    figure = json.loads(page.get("plotly_chart")[0].proto.spec)
    return [name for name, _ in figure["data"][-1]["customdata"]]


def _picker(page: AppTest) -> Any:
    return next(box for box in page.selectbox if box.label == "Selected partition")


def _table(page: AppTest) -> Any:
    return next(frame.value for frame in page.dataframe if "pending records" in frame.value.columns)


def _of(topic: str, partition: int) -> Any:
    return (CURRENT.c.topic == topic) & (CURRENT.c.partition == partition)


def test_bars_show_the_furthest_behind_first(trouble: Database) -> None:
    page = open_page("partitions")
    assert not page.exception
    assert "Ranges top 22 of 412, by pending upload" in text_of(page)
    assert _listed(page)[:5] == ["telemetry-143", "telemetry-88", "clickstream-31", "clickstream-12", "orders-7"]
    assert len(_listed(page)) == 22


def test_first_partition_is_selected_and_explained(trouble: Database) -> None:
    shown = text_of(open_page("partitions")).replace("\u202f", " ")
    assert "▲ Copy hung ● Leader b6 ◆ In sync 2 of 3" in shown
    assert "Pending [767 669 621, 824 183 706) · 64.2 GB" in shown
    assert "Local retention 12.0 GB · 4 h · exceeded by" in shown
    assert "Why local data is not deleted 64.2 GB not copied yet" in shown
    assert "31 records past the high watermark" in shown
    assert "Copy rate 0 B/s for over" in shown


def test_selecting_another_partition_changes_the_summary(trouble: Database) -> None:
    page = open_page("partitions")
    _picker(page).set_value("orders-7").run()
    assert not page.exception
    shown = text_of(page)
    assert "● Leader b2 ◆ In sync 2 of 3" in shown
    assert "2.1 GB not copied yet" in shown
    assert _picker(page).value == "orders-7"
    assert page.query_params["selected"] in ("orders-7", ["orders-7"]), "the link of the view has the selection too"


def test_the_link_selects_a_partition_and_says_when_it_is_gone(trouble: Database) -> None:
    for view in ("Bars", "Table"):
        page = open_page("partitions", selected="sessions-40", view=view)
        assert _picker(page).value == "sessions-40"
        assert not page.toast
    gone = open_page("partitions", selected="no-such-topic-3")
    assert _picker(gone).value == "telemetry-143"
    assert gone.toast[0].value == "There is no tiered partition 'no-such-topic-3'; this is telemetry-143."
    assert "selected" not in gone.query_params
    assert not gone.run().toast, "said once"


def test_link_carries_filter_rank_and_view(trouble: Database) -> None:
    page = open_page("partitions", q="orders 1", rank="Rank: name", view="Table")
    assert not page.exception
    names = list(_table(page)["partition"])
    assert names[:3] == ["orders-1", "orders-10", "orders-11"]
    assert all("orders" in name and "1" in name for name in names)
    assert f"{len(names)} match of 412 partitions" in text_of(page)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("Not in sync", ["orders-7", "telemetry-143"]),
        ("Pending > 1 GB", ["clickstream-12", "clickstream-31", "orders-7", "telemetry-143", "telemetry-88"]),
        ("Gap or outside lineage", ["orders-7"]),
    ],
)
def test_state_in_the_link_keeps_only_its_partitions(trouble: Database, state: str, expected: list[str]) -> None:
    page = open_page("partitions", state=state)
    assert not page.exception
    assert sorted(_listed(page)) == expected


def test_unknown_parameters_are_named_and_ignored(trouble: Database) -> None:
    page = open_page("partitions", state="Nonsense", view="Pie")
    assert not page.exception
    assert len(page.toast) == 2
    assert "There is no state 'Nonsense'" in page.toast[0].value
    assert len(_listed(page)) == 22


def test_filter_that_finds_nothing_says_so_and_can_be_cleared(trouble: Database) -> None:
    page = open_page("partitions", q="no-such-topic")
    assert "None of 412 partitions matches “no-such-topic”." in text_of(page)
    page.button(key="clear").click().run()
    assert not page.exception
    assert len(_listed(page)) == 22


def test_no_tiered_topic_says_what_to_do(trouble: Database) -> None:
    trouble.change(CURRENT.update().values(tiered=False))
    page = open_page("partitions")
    shown = text_of(page)
    assert "No topic is tiered yet: none has remote.storage.enable=true." in shown
    assert any("--config remote.storage.enable=true" in block.value for block in page.code)


def test_table_lists_all_with_offsets_and_a_question_mark_for_unknown(trouble: Database) -> None:
    nothing = dict.fromkeys(("log_end_offset", "local_log_bytes", "high_watermark", "latest_tiered_offset"))
    trouble.change(CURRENT.update().where(_of("orders", 3)).values(**nothing, error="Broker 4 does not answer."))
    page = open_page("partitions", view="Table", state="Not known")
    assert not page.exception
    (row,) = _table(page).to_dict("records")
    assert row["partition"] == "orders-3"
    assert row["note"] == "Broker 4 does not answer."
    assert pd.isna(row["log end"])
    shown = text_of(page)
    assert "◆ ? Broker 4 does not answer." in shown
    assert "Pending ? Broker 4 does not answer." in shown


def test_heatmap_has_a_cell_for_each_partition(trouble: Database) -> None:
    page = open_page("partitions", view="Heatmap")
    assert not page.exception
    figure = json.loads(page.get("plotly_chart")[0].proto.spec)
    assert len(figure["data"][-1]["customdata"]) == 412
    assert "Pending upload by partition 412 partitions" in text_of(page)


def test_above_two_thousand_partitions_the_heatmap_comes_first(database: Database) -> None:
    database.fill(topics=("audit-log",))
    stamp = now_ms()
    row = {
        "cluster_id": CLUSTER_ID,
        "topic": "many",
        "topic_id": uuid_text(999),
        "leader": 1,
        "leader_epoch": 0,
        "replicas": [1],
        "isr": [1],
        "tiered": True,
        "changed_ms": stamp,
        "sampled_ms": stamp,
        "error": "Broker 1 does not answer.",
    }
    database.change(CURRENT.insert().values([{**row, "partition": number} for number in range(2000)]))
    page = open_page("partitions")
    assert not page.exception
    assert page.button_group(key="view").value == "Heatmap"
    assert "2 012 partitions" in text_of(page).replace("\u202f", " ")
    page = open_page("partitions", view="Bars")
    assert len(_listed(page)) == 22


def test_ledger_too_large_to_judge_is_said(trouble: Database) -> None:
    segment = {
        "cluster_id": CLUSTER_ID,
        "topic_id": uuid_text(102),
        "partition": 7,
        "topic": "orders",
        "start_offset": 1_204_000,
        "end_offset": 1_204_001,
        "state": 1,
        "segment_size_bytes": 1,
        "max_timestamp_ms": 0,
        "leader_epochs": [[11, 1_204_000]],
        "txn_index_empty": True,
        "copy_broker_id": 2,
        "broker_id": 2,
        "copy_started_ms": 0,
        "metadata_partition": 0,
        "last_event_offset": 0,
        "last_event_ms": 0,
    }
    many = [{**segment, "segment_id": f"many-{number}"} for number in range(FINISHED_MAX)]
    with writing(trouble.engine) as connection:
        connection.execute(SEGMENT.insert(), many)
    shown = text_of(open_page("partitions", state="Gap or outside lineage"))
    assert "Lineage was not judged: the ledger is too large." in shown


def test_stale_data_is_grey_and_says_since_when(trouble: Database) -> None:
    trouble.silence("backend", "observer")
    long_ago = now_ms() - 3_600_000
    trouble.change(CURRENT.update().values(sampled_ms=long_ago))
    page = open_page("partitions")
    assert not page.exception
    assert "▲ Not live since" in text_of(page)
    assert "Backend down since" in text_of(page)


def test_a_name_from_outside_cannot_become_markup(trouble: Database) -> None:
    evil = "<img src=x onerror=alert(1)>"
    trouble.change(CURRENT.update().where(_of("telemetry", 143)).values(error=evil))
    page = open_page("partitions")
    assert not page.exception
    assert evil not in "\n".join(str(element.proto.body) for element in page.get("html"))


# --- time travel ---


def test_the_list_of_an_instant_shows_the_samples_of_then(trouble: Database) -> None:
    now = text_of(open_page("partitions", q="telemetry-143"))
    then_ms = now_ms() - 30 * 60_000
    page = open_page("partitions", q="telemetry", at=link_text(then_ms))
    assert not page.exception
    shown = text_of(page).replace("\u202f", " ")
    assert "Time travel. As of " in shown
    assert "Of 400 partitions no sample of that time is kept." in shown
    # Pending grows by the hour: half an hour ago it was less.
    pending = [
        float(gigabytes) for words in (now, shown) for gigabytes in re.findall(r"Pending \[.*?\) · ([\d.]+) GB", words)
    ]
    assert len(pending) == 2
    assert 0 < pending[1] < pending[0]
    assert "Copy hung" not in shown, "open copies of then are not known"
    table = open_page("partitions", q="telemetry-1", view="Table", at=link_text(then_ms)).dataframe[0].value
    assert len(table) > 50
    assert page.button(key="now").label == "Now"
    page.button(key="now").click().run()
    assert "Time travel." not in text_of(page)
    assert "Copy hung" in text_of(page)


def test_an_instant_without_samples_shows_question_marks_and_a_wrong_one_is_named(trouble: Database) -> None:
    long_ago = open_page("partitions", q="telemetry-143", at="2020-01-01 00:00")
    assert not long_ago.exception
    assert "Of 412 partitions no sample of that time is kept." in text_of(long_ago)
    assert "?" in text_of(long_ago)
    wrong = open_page("partitions", at="<b>soon")
    assert "is no time in the past; this is now" in wrong.toast[0].value
    assert "Time travel." not in text_of(wrong)
