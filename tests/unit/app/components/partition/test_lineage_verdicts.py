"""The remote segments that belong to the leader's chain, and the drawing of the chain."""

from __future__ import annotations

from app.components.partition import epoch_chain
from app.components.partition.epoch_chain import EpochBlock, diverges_at, spans
from app.components.partition.lineage_verdicts import (
    LeaderChain,
    LineageStanding,
    judge,
    leader_chain,
    outside_by_partition,
    with_orphans,
)
from backend.store.queries.lineage import FinishedSegment
from backend.tiering.segment_state import SegmentState
from tests.unit.app.partition_rows import replica_row, segment_row

CHAIN = LeaderChain(((3, 0), (5, 400)), 0, 1000)


def _standings(*segments: object, chain: LeaderChain | None = CHAIN) -> list[LineageStanding]:
    return [judged_segment.lineage_standing for judged_segment in judge(segments, chain)]  # type: ignore[arg-type]  # rows of the builder


def test_segments_of_the_leaders_epochs_are_in_lineage() -> None:
    assert (
        _standings(segment_row(0, 300), segment_row(300, 500), segment_row(500, 700))
        == [LineageStanding.IN_LINEAGE] * 3
    )


def test_segment_of_an_epoch_that_the_leader_skipped_is_outside_and_says_where() -> None:
    (judged_segment,) = judge([segment_row(350, 450, leader_epochs=[[4, 350]])], CHAIN)
    assert judged_segment.lineage_standing is LineageStanding.OUTSIDE
    assert judged_segment.why == "leader goes 3 → 5 here"


def test_segment_past_the_end_of_its_epoch_is_outside_with_the_reason() -> None:
    (judged_segment,) = judge([segment_row(300, 450, leader_epochs=[[3, 300]])], CHAIN)
    assert judged_segment.lineage_standing is LineageStanding.OUTSIDE
    assert "the leader's epoch 5 starts at 400" in judged_segment.why


def test_unfinished_segments_are_not_judged() -> None:
    copying = segment_row(700, 800, state=SegmentState.COPY_SEGMENT_STARTED)
    deleting = segment_row(0, 100, state=SegmentState.DELETE_SEGMENT_STARTED)
    deleted = segment_row(0, 100, state=SegmentState.DELETE_SEGMENT_FINISHED)
    assert _standings(copying, deleting, deleted) == [
        LineageStanding.COPYING,
        LineageStanding.DELETING,
        LineageStanding.DELETED,
    ]


def test_segment_below_log_start_is_expired_not_outside() -> None:
    chain = LeaderChain(((5, 400),), 400, 1000)
    assert _standings(segment_row(0, 300), chain=chain) == [LineageStanding.BELOW_LOG_START]


def test_without_the_leaders_epochs_nothing_is_judged() -> None:
    assert _standings(segment_row(0, 300), chain=None) == [LineageStanding.NOT_CHECKED]


def test_below_a_chain_that_was_cut_nothing_is_judged() -> None:
    truncated = LeaderChain(((5, 400),), 0, 1000, truncated=True)
    assert _standings(segment_row(0, 300), segment_row(500, 600), chain=truncated) == [
        LineageStanding.NOT_CHECKED,
        LineageStanding.IN_LINEAGE,
    ]


def test_segments_copied_twice_overlap() -> None:
    segments = judge([segment_row(0, 300), segment_row(200, 400), segment_row(400, 500)], CHAIN)
    assert [judged_segment.overlaps for judged_segment in segments] == [False, True, False]


def test_chain_comes_from_a_leader_that_told_it() -> None:
    assert leader_chain([replica_row(2), replica_row(1)]) == CHAIN
    assert leader_chain([replica_row(2)]) is None
    assert leader_chain([replica_row(1, leader_epochs=None)]) is None
    assert leader_chain([replica_row(1, log_end_offset=None)]) is None
    truncated = leader_chain([replica_row(1, evidence={"epochs_cut": True})])
    assert truncated is not None
    assert truncated.truncated


def segment(topic: str, partition: int, start: int, end: int, epoch: int) -> FinishedSegment:
    return FinishedSegment(topic, partition, f"{topic}-{start}", start, end, [[epoch, start]], 1000, None)


def test_outside_segments_are_counted_by_partition() -> None:
    chains = {("orders", 7): ([[3, 0], [5, 400]], 1000), ("audit", 0): ([[5, 400]], 1000)}
    segments = [
        segment("orders", 7, 350, 449, 4),
        segment("orders", 7, 0, 299, 3),
        segment("audit", 0, 0, 299, 3),  # below its log start
        segment("unknown", 0, 0, 10, 9),
    ]
    assert dict(outside_by_partition(segments, chains)) == {("orders", 7): 1}


# --- the drawing ---


def test_epochs_without_records_are_not_drawn() -> None:
    assert spans([(3, 0), (4, 400), (5, 400)], 100, 1000) == [EpochBlock(3, 3, 100, 400), EpochBlock(5, 5, 400, 1000)]


def test_divergence_is_the_first_offset_with_another_epoch() -> None:
    leader = [(3, 0), (5, 400)]
    assert diverges_at(leader, leader, 0, 1000) is None
    assert diverges_at([(3, 0), (4, 400)], leader, 0, 1000) == 400
    assert diverges_at([(3, 0)], leader, 0, 1000) == 400
    assert diverges_at([(3, 0)], leader, 0, 400) is None, "its log ends where the leader's next epoch begins"
    assert diverges_at([(5, 400)], leader, 0, 1000) is None, "before its first entry nothing is known of it"


def test_diverging_replica_is_hatched_from_there_on() -> None:
    other = replica_row(2, leader_epochs=[[3, 0], [4, 400]])
    strips = epoch_chain.strips(CHAIN, [replica_row(), other], [])
    assert [(b.kind, b.start, b.end) for b in strips[1].blocks] == [("plain", 0, 400), ("diverged", 400, 1000)]
    assert epoch_chain.divergences(CHAIN, [replica_row(), other]) == {2: 400}
    assert "broker 2 diverges at 400" in epoch_chain.pills_html(CHAIN, [replica_row(), other], [])


def test_what_the_observer_says_of_a_divergence_counts_first() -> None:
    other = replica_row(2, evidence={"disagrees_with_leader_at": 380})
    assert epoch_chain.divergences(CHAIN, [other]) == {2: 380}


def test_remote_strip_joins_segments_of_one_epoch() -> None:
    judged = judge([segment_row(0, 300), segment_row(300, 500), segment_row(500, 700)], CHAIN)
    remote = epoch_chain.strips(CHAIN, [replica_row()], judged)[-1]
    assert [(b.first, b.start, b.end) for b in remote.blocks] == [(3, 0, 400), (5, 400, 700)]


def test_outside_segments_get_rows_of_their_own_and_the_rest_is_counted() -> None:
    odd = [segment_row(at, at + 10, leader_epochs=[[4, at]]) for at in range(300, 350, 10)]
    strips = epoch_chain.strips(CHAIN, [replica_row()], judge(odd, CHAIN))
    assert [strip.name for strip in strips] == ["Leader, broker 1", "Remote segments", "Outside lineage", "", "", ""]
    assert strips[2].note == "epoch 4, [300, 310), 100 B: leader goes 3 → 5 here"
    assert strips[-1].note == "2 more outside; the ledger below lists them"


def test_verdict_counts_what_is_in_lineage() -> None:
    odd = segment_row(350, 360, leader_epochs=[[4, 350]])
    judged = judge([segment_row(0, 300), odd], CHAIN)
    pills = epoch_chain.pills_html(CHAIN, [replica_row()], judged)
    assert "1 of 2 segments in lineage" in pills
    assert "1 outside, retention skips it" in pills
    assert "not told its epochs" in epoch_chain.pills_html(None, [], [])


def test_many_narrow_epochs_are_drawn_as_one_block() -> None:
    entries = tuple((epoch, epoch) for epoch in range(300))
    chain = LeaderChain(entries, 0, 100_000)
    leader = replica_row(leader_epochs=[list(entry) for entry in entries], log_end_offset=100_000)
    drawn = epoch_chain.html(chain, [leader], [])
    assert drawn.count("eb-block ") < 10
    assert "0–298" in drawn


def test_replica_without_epochs_says_why() -> None:
    silent = replica_row(2, leader_epochs=None, error="Broker 2 does not answer.")
    assert epoch_chain.strips(CHAIN, [silent], [])[0].note == "? Broker 2 does not answer."


def test_a_copy_that_another_replaced_in_its_epoch_s_index_is_orphaned() -> None:
    first = segment_row(0, 300, segment_id="first", copy_finished_ms=1)
    shorter = segment_row(0, 200, segment_id="shorter", copy_finished_ms=2)
    segments = with_orphans(judge([first, shorter], CHAIN))
    assert [judged_segment.orphaned for judged_segment in segments] == [True, False]
    longer = segment_row(0, 400, segment_id="longer", copy_finished_ms=3)
    assert not any(judged_segment.orphaned for judged_segment in with_orphans(judge([first, longer], CHAIN))), (
        "what it held is held again"
    )
