"""The places at which offsets are drawn: lanes and blocks of the Partition page."""

from __future__ import annotations

from typing import Any

import pytest

from app.components.partition import lineage_verdicts, partition_summary
from app.components.partition.replica_ranges import Block, ReplicaLane, html, lanes, markers, rows, whole, window
from backend.store.queries.partitions import ReplicaRow
from backend.tiering.segment_state import SegmentState
from tests.unit.app.partition_rows import partition_row, replica_row, segment_row

SEGMENTS = [segment_row(start, start + 100) for start in range(0, 700, 100)]


def _lanes(*replicas: ReplicaRow, segments: list[Any] = SEGMENTS, **changed: Any) -> list[ReplicaLane]:
    chain = lineage_verdicts.leader_chain([replica_row()])
    return lanes(partition_row(**changed), replicas or (replica_row(),), lineage_verdicts.judge(segments, chain))


def test_remote_lane_has_a_block_a_segment_and_replicas_split_at_what_is_tiered() -> None:
    remote, leader = _lanes()
    assert [(b.kind, b.start, b.end) for b in remote.blocks] == [("remote", s, s + 100) for s in range(0, 700, 100)]
    assert remote.sub == "7 segments"
    assert [(b.kind, b.start, b.end) for b in leader.blocks] == [("local", 500, 700), ("pending", 700, 1000)]


def test_fetching_replica_shows_what_it_has_still_to_go() -> None:
    follower = replica_row(3, phase="FETCHING", in_isr=False, local_log_start_offset=700, log_end_offset=880)
    lane = _lanes(replica_row(), follower)[2]
    assert lane.sub == "fetching"
    assert lane.blocks == (
        Block("pending", 700, 880, "no older local data"),
        Block("to-go", 880, 1000, "120 to go"),
    )


def test_empty_replica_has_only_what_is_to_go() -> None:
    follower = replica_row(3, phase="DELAYED", in_isr=False, local_log_start_offset=0, log_end_offset=0)
    lane = _lanes(replica_row(), follower)[2]
    assert [(b.kind, b.start, b.end, b.label) for b in lane.blocks] == [("to-go", 500, 1000, "1\u202f000 to go")]
    assert lane.sub == "stuck"


def test_unknown_replica_says_why_and_draws_nothing() -> None:
    silent = replica_row(3, phase=None, log_end_offset=None, error="Broker 3 does not answer.")
    lane = _lanes(replica_row(), silent)[2]
    assert lane.blocks == ()
    assert lane.note == "? Broker 3 does not answer."
    assert lane.sub == "? phase"


def test_local_data_is_not_called_copied_when_the_leader_does_not_know() -> None:
    leader = _lanes(
        earliest_pending_upload_offset=-1, pending_reason="leader_does_not_know", latest_tiered_offset=-1, segments=[]
    )[1]
    assert [(b.kind, b.start, b.end) for b in leader.blocks] == [("unsure", 500, 1000)]


def test_a_topic_that_is_not_tiered_is_local_only_and_nothing_about_it_is_unknown() -> None:
    changed = {"earliest_pending_upload_offset": -1, "pending_reason": "not_tiered", "latest_tiered_offset": -1}
    leader = _lanes(segments=[], **changed)[1]
    assert leader.blocks == (Block("unsure", 500, 1000, "local only"),)
    lines = partition_summary.why_local(partition_row(**changed), None)
    assert lines[0] == "The topic is not tiered: local data follows total retention."


def test_all_copied_means_that_nothing_is_pending() -> None:
    leader = _lanes(
        earliest_pending_upload_offset=-1, pending_reason="all_copied", latest_tiered_offset=999, segments=[]
    )[1]
    assert [(b.kind, b.start, b.end) for b in leader.blocks] == [("local", 500, 1000)]


def test_gap_between_tiers_is_drawn() -> None:
    remote = _lanes(latest_tiered_offset=399, segments=SEGMENTS[:4])[0]
    assert remote.blocks[-1] == Block("gap", 400, 500, "in neither tier")


def test_what_the_ledger_lacks_is_marked_and_not_called_remote() -> None:
    remote = _lanes(segments=[SEGMENTS[0], SEGMENTS[2]])[0]
    missing = [(b.start, b.end) for b in remote.blocks if b.kind == "missing"]
    assert missing == [(100, 200), (300, 700)]


def test_leader_is_believed_when_the_ledger_is_empty() -> None:
    remote = _lanes(segments=[], ledger_segments=None)[0]
    assert [(b.kind, b.start, b.end) for b in remote.blocks] == [("remote", 0, 700)]
    assert remote.sub == "not in the ledger"


@pytest.mark.parametrize(
    ("changed", "sub", "note"),
    [
        ({"latest_tiered_offset": -1}, "empty", "nothing copied yet"),
        ({"latest_tiered_offset": None}, "empty", "? the leader did not tell"),
        ({"tiered": False, "latest_tiered_offset": -1}, "not tiered", "remote.storage.enable is false"),
    ],
)
def test_empty_remote_tier_says_what_that_means(changed: dict[str, Any], sub: str, note: str) -> None:
    remote = _lanes(segments=[], local_log_start_offset=0, **changed)[0]
    assert (remote.blocks, remote.sub, remote.note) == ((), sub, note)


def test_open_copies_and_deletions_are_not_drawn_as_remote() -> None:
    copying = segment_row(700, 800, state=SegmentState.COPY_SEGMENT_STARTED, copy_finished_ms=None)
    deleting = segment_row(0, 100, state=SegmentState.DELETE_SEGMENT_STARTED)
    remote = _lanes(segments=[deleting, *SEGMENTS[1:], copying])[0]
    kinds = {(b.start, b.end): b.kind for b in remote.blocks if b.kind in ("copying", "deleting")}
    assert kinds == {(700, 800): "copying", (0, 100): "deleting"}
    assert remote.sub == "6 segments"


def test_window_begins_below_the_lowest_local_start() -> None:
    axis = window(partition_row(), [replica_row(), replica_row(2, local_log_start_offset=600)], None, None)
    assert axis is not None
    assert (axis.start, axis.end) == (450, 1000)


def test_an_empty_replica_does_not_pull_the_window() -> None:
    empty = replica_row(3, local_log_start_offset=0, log_end_offset=0)
    axis = window(partition_row(), [replica_row(), empty], None, None)
    assert axis is not None
    assert axis.start == 450


@pytest.mark.parametrize(
    ("first", "last", "expected"), [(0, None, (50, 1000)), (100, 300, (100, 300)), (900, 100, (900, 901))]
)
def test_window_follows_the_link(first: int | None, last: int | None, expected: tuple[int, int]) -> None:
    axis = window(partition_row(log_start_offset=50), [replica_row()], first, last)
    assert axis is not None
    assert (axis.start, axis.end) == expected


def test_there_is_no_window_without_a_log_end() -> None:
    assert window(partition_row(log_end_offset=None), [], None, None) is None
    assert whole(partition_row(log_start_offset=None)) is None


def test_minus_one_is_never_marked() -> None:
    names = [m.name for m in markers(partition_row(earliest_pending_upload_offset=-1, latest_tiered_offset=-1))]
    assert names == ["Local start", "High watermark", "Log end"]
    assert all(m.offset >= 0 for m in markers(partition_row(earliest_pending_upload_offset=-1)))


def test_an_open_transaction_is_marked_where_it_begins() -> None:
    row = partition_row(last_stable_offset=650, high_watermark=900)
    assert ("Last stable", 650) in [(marker.name, marker.offset) for marker in markers(row)]
    stable = partition_row(last_stable_offset=900, high_watermark=900)
    assert "Last stable" not in [marker.name for marker in markers(stable)]


def test_watermark_and_log_end_share_a_label_when_they_are_close() -> None:
    close = [m.name for m in markers(partition_row(high_watermark=999))]
    apart = [m.name for m in markers(partition_row(high_watermark=900))]
    same = [m.name for m in markers(partition_row(high_watermark=1000))]
    assert close[-1] == "High watermark · Log end"
    assert apart[-2:] == ["High watermark", "Log end"]
    assert same[-1] == "High watermark = Log end"


def test_markup_escapes_what_comes_from_outside() -> None:
    silent = replica_row(3, log_end_offset=None, error="<script>alert(1)</script>")
    row, axis = partition_row(), window(partition_row(), [replica_row()], None, None)
    assert axis is not None
    drawn = html(row, [replica_row(), silent], [], axis)
    assert "<script>" not in drawn
    assert "&lt;script&gt;" in drawn


def test_thousands_of_segments_become_few_blocks() -> None:
    segments = [segment_row(start, start + 1, leader_epochs=[[5, start]]) for start in range(400, 700)]
    axis = window(partition_row(), [replica_row()], 0, None)
    assert axis is not None
    chain = lineage_verdicts.leader_chain([replica_row()])
    drawn = html(partition_row(), [replica_row()], lineage_verdicts.judge(segments, chain), axis)
    assert drawn.count("eb-block-remote") < 10


def test_table_twin_tells_every_block() -> None:
    chain = lineage_verdicts.leader_chain([replica_row()])
    result = rows(partition_row(), [replica_row()], lineage_verdicts.judge(SEGMENTS, chain))
    assert list(result["what"]) == ["remote"] * 7 + ["local", "pending"]
    assert result["range"].iloc[-1] == "[700, 1\u202f000)"
