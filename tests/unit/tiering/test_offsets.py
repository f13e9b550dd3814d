"""Ranges of a tiered partition follow from its offsets."""

import pytest

from backend.tiering.ids import OffsetRange
from backend.tiering.offsets import UNKNOWN, PartitionOffsets


def offsets(log_start: int, local_start: int, log_end: int, highest_remote: int = UNKNOWN) -> PartitionOffsets:
    return PartitionOffsets(log_start, local_start, log_end, log_end, highest_remote)


def test_segments_that_are_tiered_and_local_belong_to_both_ranges() -> None:
    golden = offsets(0, 3, 8, highest_remote=5)
    golden.check()
    assert golden.remote_only == OffsetRange(0, 3)
    assert golden.both == OffsetRange(3, 6)
    assert golden.tiered == OffsetRange(0, 6)
    assert golden.local == OffsetRange(3, 8)
    assert golden.pending_upload == OffsetRange(6, 8)


@pytest.mark.parametrize(
    ("log_start", "local_start", "log_end", "highest_remote", "expected"),
    [
        (0, 0, 8, UNKNOWN, 0),
        (0, 6, 8, UNKNOWN, UNKNOWN),
        (0, 0, 8, 5, 6),
        (7, 7, 8, 5, 7),
        (0, 14, 14, 13, 14),
    ],
)
def test_earliest_pending_upload_follows_kip_1023(
    log_start: int, local_start: int, log_end: int, highest_remote: int, expected: int
) -> None:
    assert offsets(log_start, local_start, log_end, highest_remote).earliest_pending_upload == expected


def test_nothing_is_pending_when_everything_is_tiered_or_unknown() -> None:
    assert offsets(0, 14, 14, 13).pending_upload.is_empty
    assert offsets(0, 6, 8).pending_upload.is_empty


@pytest.mark.parametrize(
    "wrong",
    [
        PartitionOffsets(-1, 0, 0, 0),
        PartitionOffsets(5, 4, 6, 6),
        PartitionOffsets(0, 5, 4, 6),
        PartitionOffsets(0, 0, 7, 6),
        PartitionOffsets(0, 0, 6, 6, -2),
    ],
)
def test_contradicting_offsets_are_found(wrong: PartitionOffsets) -> None:
    with pytest.raises(AssertionError):
        wrong.check()
