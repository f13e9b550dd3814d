"""The amount that is pending, its limit, and the moment from which the page warns of it."""

from __future__ import annotations

import pytest

from app.components.partition import pending_limits
from backend.tiering.pending import PendingReason
from tests.unit.app.overview_rows import broker, disk, partition, topic


def test_pending_is_what_lies_from_the_first_not_uploaded_offset_to_the_log_end() -> None:
    assert pending_limits.pending_offsets(partition()) == 200
    assert pending_limits.pending_bytes(partition()) == 200


def test_pending_bytes_are_never_more_than_the_local_log() -> None:
    row = partition(earliest_pending_upload_offset=100)  # a leader whose local log was cut
    assert pending_limits.pending_bytes(row) == row.local_log_bytes


def test_all_copied_means_zero_and_not_unknown() -> None:
    row = partition(earliest_pending_upload_offset=-1, pending_reason=PendingReason.ALL_COPIED)
    assert pending_limits.pending_bytes(row) == 0


@pytest.mark.parametrize("reason", [PendingReason.LEADER_DOES_NOT_KNOW, PendingReason.CHANGING])
def test_what_the_leader_does_not_tell_is_unknown_with_its_cause(reason: PendingReason) -> None:
    row = partition(earliest_pending_upload_offset=-1, pending_reason=reason)
    assert pending_limits.pending_bytes(row) is None
    assert pending_limits.pending_unknown_cause(row) == pending_limits.REASONS[reason]


def test_an_unanswered_partition_gives_its_error_as_the_cause() -> None:
    row = partition(earliest_pending_upload_offset=None, latest_tiered_offset=None, error="broker 1 timed out")
    assert pending_limits.pending_bytes(row) is None
    assert pending_limits.pending_unknown_cause(row) == "broker 1 timed out"


def test_a_broker_that_does_not_know_the_pending_offset_has_it_inferred() -> None:
    row = partition(earliest_pending_upload_offset=None)
    assert (pending_limits.pending_start(row), pending_limits.inferred_note(row)) == (800, " · inferred")
    assert pending_limits.inferred_note(partition()) == ""


@pytest.mark.parametrize(
    ("local", "total", "expected"),
    [("100", "-1", 100), ("-2", "700", 700), ("-2", "-1", None), ("-1", "700", None), ("x", "700", None)],
)
def test_the_limit_is_the_effective_local_retention(local: str, total: str, expected: int | None) -> None:
    row = topic(local_retention_bytes=local, retention_bytes=total)
    assert pending_limits.pending_limit_bytes(row) == expected


@pytest.mark.parametrize(
    ("pending", "limit", "expected"),
    [(49, 100, None), (50, 100, "warning"), (99, 100, "warning"), (100, 100, "critical"), (None, 100, None)],
)
def test_amber_begins_at_half_the_limit_and_red_at_it(pending: int | None, limit: int, expected: str | None) -> None:
    assert pending_limits.pending_status(pending, limit) == expected


def test_the_worst_partition_gives_the_status_of_all() -> None:
    rows = [partition("a"), partition("b")]
    assert pending_limits.worst_pending_status(rows, {"a": 1_000, "b": 1_000}) is None
    assert pending_limits.worst_pending_status(rows, {"a": 1_000, "b": 300}) == "warning"
    assert pending_limits.worst_pending_status(rows, {"a": 300, "b": 200}) == "critical"


def test_disk_share_is_that_of_the_fullest_and_unknown_without_sizes() -> None:
    assert pending_limits.disk_share(broker(log_dirs=[disk(0.2), disk(0.9)])) == pytest.approx(0.9)
    assert pending_limits.disk_share(broker(log_dirs=[disk(0.2, total_bytes=-1, usable_bytes=-1)])) is None
    assert pending_limits.disk_share(broker(log_dirs=None)) is None
    small, large = disk(0.2), disk(0.9, total_bytes=100_000, usable_bytes=10_000)
    assert pending_limits.free_bytes(broker(log_dirs=[small, large])) == 10_000, "of the fullest, not the smallest"
    assert pending_limits.free_bytes(broker(log_dirs=None)) is None
    assert [pending_limits.disk_status(share) for share in (None, 0.84, 0.86, 0.96)] == [
        None,
        None,
        "warning",
        "critical",
    ]
