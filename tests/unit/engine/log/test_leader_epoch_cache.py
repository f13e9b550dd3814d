"""The leader epochs of a log: what they answer, and what of them is in their file."""

from __future__ import annotations

from pathlib import Path

from backend.engine.log.leader_epoch_cache import LeaderEpochCache
from tests.unit.engine.log.logs import append, batch, open_test_log


def cache(*entries: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache(entries)


def test_an_epoch_replaces_those_at_or_past_it() -> None:
    epochs = cache((0, 0), (2, 5))
    assert not epochs.assign(2, 7)
    assert epochs.assign(3, 9)
    assert list(epochs.entries) == [(0, 0), (2, 5), (3, 9)]
    assert epochs.assign(4, 9)
    assert list(epochs.entries) == [(0, 0), (2, 5), (4, 9)]
    assert epochs.assign(1, 11)
    assert list(epochs.entries) == [(0, 0), (1, 11)]
    assert epochs.assign(1, 10)
    assert list(epochs.entries) == [(0, 0), (1, 10)]


def test_the_checkpoint_is_saved_at_every_change_and_only_then() -> None:
    saved: list[bytes] = []
    epochs = LeaderEpochCache([(0, 0)], saved.append)
    epochs.assign(0, 5)
    epochs.truncate_from_end(7)
    epochs.truncate_from_start(0)
    assert saved == []
    epochs.assign(1, 3)
    epochs.truncate_from_end(3)
    epochs.clear()
    assert saved == [b"0\n2\n0 0\n1 3\n", b"0\n1\n0 0\n", b"0\n0\n"]


def test_end_offsets_are_those_that_kafka_answered() -> None:
    epochs = cache((0, 0), (2, 5))
    requested = (0, 1, 2, 3, 99, -1, -2)
    answers = [(0, 5), (0, 5), (2, 11), (-1, -1), (-1, -1), (-1, -1), (-2, 0)]
    assert [epochs.end_offset_for(epoch, 11) for epoch in requested] == answers
    epochs.truncate_from_start(6)
    assert epochs.entries == ((2, 6),)
    assert [epochs.end_offset_for(epoch, 11) for epoch in (0, 1)] == [(0, 6), (1, 6)]
    assert cache((0, 40), (3, 90)).end_offset_for(1, 100) == (0, 90)


def test_a_segments_entries_begin_at_its_base() -> None:
    epochs = cache((0, 0), (1, 4), (2, 10))
    assert epochs.entries_in_range(3, 6) == ((0, 3), (1, 4))
    assert epochs.entries_in_range(4, 6) == ((1, 4),)
    assert epochs.entries_in_range(-1, 6) == ((0, 0), (1, 4))
    assert epochs.entries_in_range(12, 14) == ((2, 12),)
    assert cache((3, 7)).entries_in_range(6, 8) == ((3, 7),)


def test_the_epoch_of_an_offset() -> None:
    epochs = cache((1, 4), (2, 10))
    assert [epochs.epoch_for_offset(o) for o in (3, 4, 9, 10, 99)] == [None, 1, 1, 2, 2]
    assert (epochs.previous_epoch(2), epochs.next_epoch(1), epochs.previous_epoch(1)) == (1, 2, None)


def test_the_epoch_of_a_new_leader_is_in_the_file_before_its_first_record(tmp_path: Path) -> None:
    file = tmp_path / "orders-0" / "leader-epoch-checkpoint"
    log = open_test_log(tmp_path)
    log.leader_epochs.begin(1, 0)
    assert log.leader_epochs.entries == ((1, 0),)
    assert not file.exists(), "a thousand leaders that are idle write nothing"
    log.leader_epochs.begin(2, 0)
    append(log, 0, epoch=2)
    assert file.read_text() == "0\n1\n2 0\n"
    written = file.stat().st_mtime_ns, file.stat().st_ino
    append(log, 1, epoch=2)
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == written
    log.leader_epochs.begin(5, 2)
    log.close_files()
    again = open_test_log(tmp_path, clean=True)
    assert again.leader_epochs.entries == ((2, 0),)
    again.leader_epochs.begin(7, 2)
    append(again, 2, epoch=7)
    again.close_files()
    assert open_test_log(tmp_path).leader_epochs.entries == ((2, 0), (7, 2))


def test_the_epoch_of_a_leader_that_wrote_nothing_goes_without_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "orders-0" / "leader-epoch-checkpoint"
    log = open_test_log(tmp_path)
    append(log, 0, epoch=1)
    written = file.stat().st_mtime_ns, file.stat().st_ino
    log.leader_epochs.begin(4, 1)
    log.truncate_to(1)
    assert list(log.leader_epochs.entries) == [(1, 0)]
    log.append_as_follower(memoryview(batch(1, base_offset=1, leader_epoch=1)), 5)
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == written
    log.leader_epochs.begin(6, 2)
    log.append_as_follower(memoryview(batch(2, base_offset=2, leader_epoch=7)), 7)
    assert list(log.leader_epochs.entries) == [(1, 0), (7, 2)]
    log.leader_epochs.begin(8, 3)
    log.truncate_to(2)
    log.close_files()
    assert open_test_log(tmp_path).leader_epochs.entries == ((1, 0),)
    assert file.read_text() == "0\n1\n1 0\n"
