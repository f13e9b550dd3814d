"""The chain of leader epochs decides which remote segments belong to the present leader."""

import pytest

from backend.tiering.epoch_lineage import EpochEntry, Reason, segment_lineage, without_empty_epochs

LINEAGE: tuple[EpochEntry, ...] = ((7, 51), (9, 100))


@pytest.mark.parametrize(
    ("epochs", "reason"),
    [
        (((5, 14), (7, 15), (9, 100)), Reason.WITHIN),
        (((7, 15), (9, 100), (10, 200)), Reason.EPOCH_OUT_OF_RANGE),
        (((7, 15), (9, 101)), Reason.NEXT_EPOCH_DIFFERS),
        (((9, 99),), Reason.STARTS_BEFORE_EPOCH),
        (((5, 14),), Reason.EPOCH_OUT_OF_RANGE),
        (((7, 51), (8, 60), (9, 100)), Reason.NEXT_EPOCH_DIFFERS),
        (((8, 60), (9, 100)), Reason.EPOCH_UNKNOWN),
    ],
)
def test_segment_up_to_150_against_a_chain_of_epochs_7_and_9(epochs: tuple[EpochEntry, ...], reason: Reason) -> None:
    assert segment_lineage(epochs, 150, LINEAGE, 210).reason is reason


def test_epoch_with_records_beyond_the_leaders_fork_is_outside() -> None:
    verdict = segment_lineage(((7, 60),), 100, LINEAGE, 210)
    assert verdict.reason is Reason.ENDS_AFTER_EPOCH
    assert verdict.explanation == "it ends at 100, but the leader's epoch 9 starts at 100"
    assert segment_lineage(((7, 60),), 99, LINEAGE, 210).within


def test_segment_must_end_below_the_log_end() -> None:
    assert segment_lineage(((9, 100),), 209, LINEAGE, 210).within
    assert segment_lineage(((9, 100),), 210, LINEAGE, 210).reason is Reason.ENDS_AFTER_LOG_END


def test_segment_may_start_before_the_first_epoch_that_log_start_left() -> None:
    assert segment_lineage(((7, 15),), 60, LINEAGE, 210).within


def test_empty_epochs_are_dropped_before_comparing() -> None:
    assert without_empty_epochs(((1, 0), (2, 5), (3, 5), (4, 9))) == ((1, 0), (3, 5), (4, 9))
    assert segment_lineage(((6, 51), (7, 51), (9, 100)), 150, LINEAGE, 210).within


def test_nothing_to_compare_is_not_within() -> None:
    assert not segment_lineage((), 5, LINEAGE, 210).within
    assert not segment_lineage(((7, 51),), 60, (), 210).within
