"""A disk that takes no more: nothing of the append stays, the log goes on once there is space.

The operating system refuses for real: a limit on the size of files ends writes as a full disk does, half-way.
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from backend.engine.log.log_errors import NoSpace
from tests.unit.engine.log.logs import DENSE, NOW_MS, append, files, open_test_log, replicate, values

BATCH_BYTES = 72
LOG = "00000000000000000000.log"


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_an_append_that_does_not_fit_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0, 1)
    before = files(tmp_path)
    with files_of_at_most(2 * BATCH_BYTES + 30):
        for _ in range(2):
            with pytest.raises(NoSpace, match="free some space"):
                append(log, 2)
    assert files(tmp_path) == before
    assert log.offline_reason is None
    assert values(log) == [(0, b"v0"), (1, b"v1")]
    append(log, 3)
    assert values(log) == [(0, b"v0"), (1, b"v1"), (2, b"v3")]
    log.check()


def test_a_full_disk_is_told_once_and_so_is_its_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_test_log(tmp_path)
    append(log, 0)
    with caplog.at_level(logging.INFO), files_of_at_most(BATCH_BYTES):
        for _ in range(3):
            with pytest.raises(NoSpace):
                append(log, 1)
    with caplog.at_level(logging.INFO):
        append(log, 1, 2)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert said[0].startswith("Partition orders-0 takes no records")
    assert str(tmp_path) in said[0]
    assert said[1] == "Partition orders-0 takes records again"


def test_a_roll_that_does_not_fit_is_tried_again_with_the_next_append(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, replace(DENSE, segment_bytes=2 * BATCH_BYTES))
    append(log, 0, 1)
    with files_of_at_most(4), pytest.raises(NoSpace):
        append(log, 2)
    assert not log.active_segment.sealed
    append(log, 2, 3)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert values(log) == [(index, b"v%d" % index) for index in range(4)]
    log.check()


def test_a_kill_while_the_disk_is_full_loses_nothing_that_was_taken(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0, 1)
    with files_of_at_most(2 * BATCH_BYTES + 30), pytest.raises(NoSpace):
        append(log, 2)
    log.close_files()
    again = open_test_log(tmp_path)
    assert values(again) == [(0, b"v0"), (1, b"v1")]
    append(again, 2)
    assert again.log_end_offset == 3


def test_old_segments_go_while_the_disk_is_full_and_their_epochs_with_them(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0, epoch=0)
    append(log, 1, epoch=1)
    log.roll()
    append(log, 2, epoch=1)
    replicate(log)
    with files_of_at_most(0):
        assert log.maybe_increment_log_start_offset(2)
        assert log.delete_old_segments(NOW_MS) == 1
        with pytest.raises(NoSpace, match="free some space"):
            log.epoch_checkpoint.require_saved()
    assert log.offline_reason is None
    assert (log.log_start_offset, log.leader_epochs.entries) == (2, ((1, 2),))
    log.epoch_checkpoint.require_saved()
    append(log, 3, epoch=2)
    log.close()
    again = open_test_log(tmp_path, clean=True, remote=True)
    assert again.leader_epochs.entries == ((1, 2), (2, 3))


def test_a_kill_while_the_epochs_on_disk_are_older_than_the_log_start_changes_nothing(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0, epoch=0)
    append(log, 1, epoch=1)
    replicate(log)
    with files_of_at_most(0):
        assert log.maybe_increment_log_start_offset(2)
    log.close_files()
    again = open_test_log(tmp_path, log_start=2)
    assert again.leader_epochs.entries == ((1, 2),)


def test_a_leader_whose_epoch_does_not_fit_takes_no_record_and_goes_on_once_it_does(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0, epoch=0)
    log.leader_epochs.begin(3, 1)
    with files_of_at_most(0), pytest.raises(NoSpace, match="free some space"):
        append(log, 1, epoch=3)
    assert log.offline_reason is None
    assert values(log) == [(0, b"v0")]
    append(log, 1, epoch=3)
    log.close_files()
    assert open_test_log(tmp_path, clean=True).leader_epochs.entries == ((0, 0), (3, 1))
