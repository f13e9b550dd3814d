"""The page of one partition: ranges, chain, replicas, ledger, events; and what it says when there is none."""

from __future__ import annotations

import re
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.access.identity import OPERATOR, User
from app.components.shared.page import Page
from app.theme import LIGHT
from app.views.partition import partition_report
from backend.store import tables as t
from tests.ui.conftest import Database, html_of, now_ms, open_page, text_of
from tests.ui.seed import CLUSTER_ID, uuid_text

ORDERS_ID = uuid_text(102)


def _text(page: AppTest) -> str:
    """The text that is shown, groups of digits written with ordinary spaces."""
    return text_of(page).replace("\u202f", " ")


def _of(table: Any, topic: str = "orders", partition: int = 7) -> Any:
    return (table.c.topic == topic) & (table.c.partition == partition)


def _ledger(page: AppTest) -> Any:
    return next(frame.value for frame in page.dataframe if "segment id" in frame.value.columns)


def _event(number: int, kind: str, body: dict[str, Any], **changed: Any) -> dict[str, Any]:
    values = {
        "cluster_id": CLUSTER_ID,
        "source_partition": 0,
        "source_offset": number,
        "type": kind,
        "broker_id": 5,
        "at_ms": now_ms() - 1000 * (100 - number),
        "topic": "orders",
        "topic_id": ORDERS_ID,
        "partition": 7,
        "body": body,
    }
    return values | changed


def test_offsets_of_every_replica_are_drawn_and_told(trouble: Database) -> None:
    page = open_page("partition", tp="orders-7")
    assert not page.exception
    shown = _text(page)
    assert "orders-7 led by broker 2 · epoch 17" in shown
    assert "Local start 8 410 112 Latest tiered 9 120 447 incl. Earliest pending upload 9 120 448" in shown
    assert "High watermark · Log end 9 402 880 · 9 402 911" in shown
    assert "Remote tier 44 segments Broker 2 leader Broker 4 in sync Broker 5 fetching" in shown
    assert "no older local data" in shown
    assert "112 985 to go" in shown
    assert "whole log" in shown
    assert "log start 1 204 000" in shown


def test_chain_finds_the_segment_outside_lineage(trouble: Database) -> None:
    shown = _text(open_page("partition", tp="orders-7"))
    assert "● 44 of 45 segments in lineage ◆ 1 outside, retention skips it" in shown
    assert "epoch 13, [4 310 020, 4 602 119), 2.0 GB: leader goes 12 → 14 here" in shown


def test_chain_of_a_replica_that_diverges_is_told(trouble: Database) -> None:
    table = t.replica_current
    other = [[11, 1_204_000], [12, 2_909_373], [16, 4_000_000]]
    trouble.change(table.update().where(_of(table), table.c.broker_id == 4).values(leader_epochs=other))
    page = open_page("partition", tp="orders-7")
    assert "▲ broker 4 diverges at 4 000 000" in _text(page)
    assert "eb-epoch-diverged" in html_of(page)


def test_replicas_show_phase_source_and_evidence(trouble: Database) -> None:
    page = open_page("partition", tp="telemetry-143")
    shown = _text(page)
    assert re.search(r"▲ Stuck 8 m (\d+ s )?exact none 824 183 706", shown)
    assert "Broker 2 3 attempts to build remote state failed. exact" in shown
    assert "6 leader ✓ Leads epoch 17" in shown
    assert "▲ copy hung for 2 h 55 m" in shown


def _level(database: Database, level: int) -> None:
    """The backend tells this level of eligible leader replicas."""
    detail = {"quorum": {"features": {"eligible.leader.replicas.version": {"level": level, "max_level": 1}}}}
    table = t.process_status
    database.change(table.update().where(table.c.process == "backend").values(detail=detail))


def test_losses_that_it_survives_are_told(trouble: Database) -> None:
    shown = _text(open_page("partition", tp="orders-7"))
    assert "Survives the loss of any one disk while the other replicas run: 3 replicas, min.insync.replicas 2." in shown
    assert "the cluster has not told eligible.leader.replicas.version." in shown
    _level(trouble, 1)
    shown = _text(open_page("partition", tp="orders-7"))
    assert "Survives the loss of any one disk: 3 replicas, min.insync.replicas 2." in shown
    assert "Now only brokers 2 and 4 are in sync: when one of them goes away, acks=all is refused." in shown
    _level(trouble, 0)
    shown = _text(open_page("partition", tp="orders-7"))
    assert "nobody leads until an operator decides: eligible.leader.replicas.version is 0." in shown


def test_who_may_lead_is_told_with_its_source_and_age(trouble: Database) -> None:
    shown = _text(open_page("partition", tp="orders-7"))
    # Its ISR has min.insync.replicas members, but nobody was asked yet.
    assert "In-sync replicas (ISR) 2, 4 Eligible leader replicas (ELR) ? Last known ELR ?" in shown
    features = {"eligible.leader.replicas.version": {"level": 1, "max_level": 1}}
    rows = [["orders", 7, [4], [5]], ["orders", 6, [1], []]]
    eligible = {"seen_ms": now_ms() - 4_000, "complete": True, "cause": None, "rows": rows}
    status, current = t.process_status, t.partition_current
    trouble.change(
        status.update()
        .where(status.c.process == "backend")
        .values(detail={"quorum": {"features": features}, "eligible": eligible}),
        current.update().where(current.c.topic == "orders", current.c.partition == 7).values(isr=[2], leader=2),
    )
    page = open_page("partition", tp="orders-7")
    shown = _text(page)
    assert "In-sync replicas (ISR) 2 Eligible leader replicas (ELR) 4 Last known ELR 5" in shown
    assert "If broker 2 is lost, broker 4 leads once it is up: it is eligible, with every acknowledged" in shown
    source = r"DescribeTopicPartitions where the ISR is below min.insync.replicas, \d+ s old"
    assert re.search(source, html_of(page))
    _level(trouble, 0)
    assert "Eligible leader replicas (ELR) ?" in _text(open_page("partition", tp="orders-7"))


def test_the_setting_of_one_replica_in_sync_is_told_for_its_price(trouble: Database) -> None:
    _level(trouble, 1)
    table = t.topic
    config = {"min.insync.replicas": "1"}
    trouble.change(table.update().where(table.c.topic == "orders").values(config=config))
    expected = "One lost disk may lose acknowledged records: min.insync.replicas is 1"
    assert expected in _text(open_page("partition", tp="orders-7"))
    assert expected in _text(open_page("partitions", selected="orders-7"))


def test_inferred_phase_is_called_inferred(trouble: Database) -> None:
    table = t.replica_current
    evidence = {"rule": "log-end-still", "sentence": "Its log end stands.", "confidence": "medium"}
    trouble.change(
        table.update()
        .where(_of(table), table.c.broker_id == 5)
        .values(phase="DELAYED", phase_source="inferred", evidence=evidence)
    )
    assert "Broker 5 Its log end stands. inferred, medium confidence" in _text(open_page("partition", tp="orders-7"))


def test_ledger_lists_segments_newest_first_with_lineage(trouble: Database) -> None:
    table = _ledger(open_page("partition", tp="orders-7"))
    assert len(table) == 45
    assert table["next offset"].iloc[0] == 9_120_448
    outside = table[table["lineage"].str.startswith("outside")]
    assert list(outside["first offset"]) == [4_310_020]


def test_window_of_the_link_is_used_and_a_wrong_one_is_named(trouble: Database) -> None:
    requested: dict[str, Any] = {"tp": "orders-7", "from": "0"}
    whole = open_page("partition", **requested)
    assert not whole.exception
    assert "whole log" not in _text(whole)
    wrong = open_page("partition", **(requested | {"from": "abc"}))
    assert not wrong.exception
    assert any("'from' is not an offset" in toast.value for toast in wrong.toast)
    assert "whole log" in _text(wrong)


def test_events_of_the_engine_and_of_the_remote_log_are_listed(trouble: Database) -> None:
    copied = {"segment_id": "abc", "start": 0, "end": 99, "bytes": 1000, "outcome": "failed", "error": "no bucket"}
    leads = _event(2, "leader", {"leader": 2, "leader_epoch": 17})
    elsewhere = _event(3, "leader", {"leader": 1, "leader_epoch": 99}, partition=8)
    remote = {
        "cluster_id": CLUSTER_ID,
        "metadata_partition": 13,
        "metadata_offset": 5,
        "kind": 0,
        "topic": "orders",
        "topic_id": ORDERS_ID,
        "partition": 7,
        "segment_id": "abc",
        "state": 0,
        "broker_id": 2,
        "event_timestamp_ms": now_ms() - 200_000,
        "record_timestamp_ms": now_ms(),
        "start_offset": 0,
        "end_offset": 99,
        "legal": False,
        "illegal_reason": "it was finished before",
    }
    events = [_event(1, "copy", copied), leads, elsewhere]
    trouble.change(t.engine_event.insert().values(events), t.segment_event.insert().values([remote]))
    shown = _text(open_page("partition", tp="orders-7"))
    assert "Last events the newest 3 of 3" in shown
    assert "leads from epoch 17 on" in shown
    assert "◆ copy failed [0, 100), 1.0 kB: no bucket" in shown
    assert "copy started [0, 100), segment abc, not followed: it was finished before" in shown
    assert "epoch 99" not in shown


def test_nothing_in_the_remote_tier_is_said(trouble: Database) -> None:
    current, replica = t.partition_current, t.replica_current
    nothing = {"latest_tiered_offset": -1, "earliest_pending_upload_offset": 0, "local_log_start_offset": 0}
    trouble.change(
        t.segment.delete().where(_of(t.segment)),
        t.remote_partition.delete().where(_of(t.remote_partition)),
        current.update().where(_of(current)).values(**nothing, log_start_offset=0, remote_log_bytes=0),
        replica.update().where(_of(replica)).values(latest_tiered_offset=-1, local_log_start_offset=0),
    )
    page = open_page("partition", tp="orders-7")
    assert not page.exception
    shown = _text(page)
    assert "nothing copied yet" in shown
    assert "No remote segment is known" in shown
    assert "no finished segment in the ledger" in shown
    assert "Latest tiered, incl. none" in shown


def test_unknown_offsets_are_question_marks_never_zero(trouble: Database) -> None:
    current, replica = t.partition_current, t.replica_current
    offsets = ("log_start_offset", "local_log_start_offset", "latest_tiered_offset", "log_end_offset")
    nothing: dict[str, None] = dict.fromkeys(offsets)
    trouble.change(
        current.update()
        .where(_of(current))
        .values(
            **nothing,
            high_watermark=None,
            earliest_pending_upload_offset=None,
            local_log_bytes=None,
            error="Broker 2 does not answer.",
        ),
        replica.update()
        .where(_of(replica))
        .values(**nothing, local_log_bytes=None, leader_epochs=None, phase=None, phase_since_ms=None, evidence=None),
    )
    page = open_page("partition", tp="orders-7")
    assert not page.exception
    shown = _text(page)
    assert "◆ ? Broker 2 does not answer." in shown
    assert "pending ? Broker 2 does not answer." in shown
    assert "Log end ? ? ? -1 as replica" in shown
    assert "High watermark ? -1" in shown
    assert "? The leader's epochs are not known, so no segment can be judged." in shown
    assert set(_ledger(page)["lineage"]) == {"not checked: the leader's epochs are not known"}


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("leader_does_not_know", "Earliest pending upload the leader does not know yet"),
        ("all_copied", "Earliest pending upload all copied"),
    ],
)
def test_minus_one_says_which_of_its_meanings_it_has(trouble: Database, reason: str, words: str) -> None:
    current = t.partition_current
    trouble.change(
        current.update().where(_of(current)).values(earliest_pending_upload_offset=-1, pending_reason=reason)
    )
    page = open_page("partition", tp="orders-7")
    assert not page.exception
    assert words in _text(page)
    assert "Earliest pending upload -1" not in _text(page)


def test_segments_of_an_earlier_topic_of_the_name_are_mentioned_not_listed(trouble: Database) -> None:
    table = t.remote_partition
    zero = {c.name: 0 for c in table.columns if c.name.endswith(("_segments", "_bytes"))}
    old = {**zero, "cluster_id": CLUSTER_ID, "topic_id": uuid_text(5000), "partition": 7, "topic": "orders"}
    old |= {"copy_finished_segments": 3, "illegal_events": 0, "last_event_ms": now_ms()}
    trouble.change(table.insert().values(old))
    assert "3 segments of an earlier topic of this name" in _text(open_page("partition", tp="orders-7"))


def test_stale_data_is_greyed(trouble: Database) -> None:
    fresh = open_page("partition", tp="orders-7")
    assert "Not live" not in _text(fresh)
    trouble.silence("backend", "observer")
    trouble.change(t.partition_current.update().values(sampled_ms=now_ms() - 3_600_000))
    page = open_page("partition", tp="orders-7")
    assert not page.exception
    assert "Not live since" in _text(page)
    assert "112 985 to go" in _text(page), "old facts stay readable"


# --- a partition that is not there ---


def test_link_without_a_partition_leads_to_the_list(trouble: Database) -> None:
    page = open_page("partition")
    assert not page.exception
    assert "The link names no partition. Choose one in the list." in _text(page)


@pytest.mark.parametrize("name", ["orders", "orders-", "-3", "<b>x</b>", "orders-99999999999999999999"])
def test_name_that_is_none_is_explained(trouble: Database, name: str) -> None:
    page = open_page("partition", tp=name)
    assert not page.exception
    assert f"“{name}” is no partition's name." in _text(page)
    assert "<b>x</b>" not in html_of(page)


def test_number_beyond_the_topic_says_how_many_it_has(trouble: Database) -> None:
    shown = _text(open_page("partition", tp="orders-700"))
    assert "There is no partition orders-700 in prod-eu." in shown
    assert "Topic orders has partitions 0 to 31." in shown


def test_unknown_topic_offers_topics_of_a_like_name(trouble: Database) -> None:
    shown = _text(open_page("partition", tp="order-1"))
    assert "There is no partition order-1 in prod-eu. Topics of a like name: orders." in shown


def test_deleted_partition_shows_what_is_left_of_it(trouble: Database) -> None:
    trouble.change(
        t.partition_current.delete().where(_of(t.partition_current)),
        t.replica_current.delete().where(_of(t.replica_current)),
        t.topic.delete().where(t.topic.c.topic == "orders"),
    )
    page = open_page("partition", tp="orders-7")
    assert not page.exception
    shown = _text(page)
    assert "orders-7 does not exist any more. Last seen" in shown
    assert "44 of its segments are still in the remote tier, by the ledger." in shown
    assert len(_ledger(page)) == 45


def test_partition_deleted_with_its_remote_data_says_so(trouble: Database) -> None:
    table = t.remote_partition
    trouble.change(
        t.partition_current.delete().where(_of(t.partition_current)),
        t.segment.delete().where(_of(t.segment)),
        table.update().where(_of(table)).values(copy_finished_segments=0, delete_finished_segments=44),
    )
    assert "Its remote segments are deleted." in _text(open_page("partition", tp="orders-7"))


def test_a_partition_is_compared_at_two_instants_of_the_link(healthy: Database) -> None:
    shown = text_of(open_page("partition", tp="orders-7", at="10m", vs="1s"))
    assert "Then and now" in shown
    assert "Remote segments" in shown
    assert "Last remote offset, incl." in shown


def test_the_report_of_a_partition_holds_what_its_page_shows(healthy: Database) -> None:
    page = open_page("partition", tp="orders-7")
    assert any("Report of this partition" in str(button.proto.label) for button in page.get("download_button"))
    facts = Page(LIGHT, CLUSTER_ID, "1h", None, User("ann", OPERATOR))
    text = partition_report.document(facts, "orders", 7, "http://127.0.0.1/partition?tp=orders-7").decode()
    for words in ("Partition orders-7", "Offsets by tier and replica", "Leader-epoch chain", "Ledger", "Last events"):
        assert words in text
    assert "<script" not in text
    gone = partition_report.document(facts, "no-such-topic", 0, "").decode()
    assert "The partition does not exist any more." in gone


def test_groups_that_read_it_from_the_remote_tier_are_listed_with_what_they_have_left(trouble: Database) -> None:
    assert "? The groups have not been looked at yet" in text_of(open_page("partition", tp="orders-7"))
    reads = {"group": "<b>backfill", "topic": "orders", "partition": 7, "committed_offset": 2_318_004}
    row = {**reads, "offsets_left": 6_092_000, "bytes_left": 45_300_000_000, "moved": True}
    readers = {"seen_ms": now_ms() - 4_000, "count": 1, "rows": [row], "cause": None, "fetched_bytes": None}
    status = t.process_status
    trouble.change(status.update().where(status.c.process == "backend").values(detail={"readers": readers}))
    page = open_page("partition", tp="orders-7")
    assert not page.exception
    shown = text_of(page).replace("\u202f", " ")
    assert "Groups reading from remote committed below local start" in shown
    assert "<b>backfill 2 318 004 45.3 GB · 6.09 M yes" in shown
    assert "<b>backfill" not in html_of(page)
    assert "No group is below the leader's local start" in text_of(open_page("partition", tp="orders-0"))


def test_no_button_removes_records_for_a_leaked_segment(trouble: Database) -> None:
    """Consumers can read what lies below its end: the page says what the finding says, and offers no offset."""
    leak = {
        "cluster_id": CLUSTER_ID,
        "slug": "segment-leak",
        "object": "orders-7",
        "topic": "orders",
        "partition": 7,
        "severity": "warning",
        "sentence": "1 remote segment that retention does not see: orders-7",
        "action": "Leave them: they cost storage only.",
        "evidence": {"sentence": "2.0 GB."},
        "opened_ms": now_ms(),
        "seen_ms": now_ms(),
    }
    trouble.change(t.finding.insert().values(leak))
    page = open_page("partition", tp="orders-7")
    assert "1 outside, retention skips it" in _text(page)
    said = "1 remote segment that retention does not see: orders-7. 2.0 GB. Leave them: they cost storage only."
    assert said in _text(page)
    assert {button.label for button in page.button if "emove" in button.label} == {"Remove records…"}
    assert page.text_input(key="remove-below").value == ""
    assert page.button(key="remove-records").disabled
    assert said not in _text(open_page("partition", tp="orders-0"))


def test_the_replica_of_a_broker_that_is_down_is_as_it_was_last_seen(healthy: Database) -> None:
    table = t.broker
    healthy.change(table.update().where(table.c.broker_id == 5).values(reachable=False, error="Connection refused."))
    page = open_page("partition", tp="orders-7")
    shown, drawn = _text(page), html_of(page)
    assert not page.exception
    assert re.search(r"Broker 5 last seen \d\d:\d\d:\d\d", shown), "the lane"
    assert "eb-block-unsure" in drawn
    assert "to go" not in shown
    assert re.search(r"Its broker does not answer, last seen \d\d:\d\d:\d\d: what it has now is not known\.", shown)
    assert "5 ◆ Broker down" in shown
