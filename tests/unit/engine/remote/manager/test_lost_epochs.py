"""A tiered log whose leader epoch checkpoint was damaged: its records and the remote tier have the epochs together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from backend.engine.remote.manager.copied_offsets import find_lost_epochs
from backend.engine.remote.manager.copy_task import CopyTask
from backend.engine.remote.manager.expiration_task import ExpirationTask
from backend.engine.remote.storage.object_store_manager import EventType
from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.tiering.segment_state import SegmentState
from tests.unit.engine.log.logs import NOW_MS, TIP, append, open_test_log, replicate
from tests.unit.engine.remote.tiers import TIERED, View, tier_broker
from tests.unit.engine.virtual_time import run_virtual

KEPT = replace(TIERED, retention_ms=-1, local_retention_ms=1)


def segment(number: int, start: int, end: int, epochs: Sequence[tuple[int, int]]) -> SegmentMetadata:
    key, state = bytes([number]) * 16, SegmentState.COPY_SEGMENT_FINISHED
    return SegmentMetadata(TIP, key, start, end, 1, NOW_MS, 0, tuple(epochs), 10, None, state)


THREE = [segment(1, 0, 9, [(0, 0)]), segment(2, 10, 19, [(0, 10), (2, 15)]), segment(3, 20, 29, [(2, 20), (3, 25)])]


@pytest.mark.parametrize(
    ("epochs", "log_start", "segments", "expected"),
    [
        ([(4, 30)], 0, THREE, [(0, 0), (2, 15), (3, 25)]),
        ([(3, 30)], 0, THREE, [(0, 0), (2, 15), (3, 25)]),
        ([(3, 27), (4, 40)], 12, THREE, [(0, 12), (2, 15), (3, 25)]),
        ([(4, 30)], 30, THREE, []),
        ([], 0, THREE, []),
        # A gap ends the search: the segments before it are not contiguous with any other.
        ([(4, 30)], 0, [THREE[0], THREE[2]], [(2, 20), (3, 25)]),
        ([(4, 40)], 0, THREE, []),
        # A deposed leader's copy of the same offsets, and one from a later history than ours.
        ([(4, 30)], 0, [*THREE, segment(4, 20, 29, [(1, 20)]), segment(5, 20, 35, [(7, 20)])],
         [(0, 0), (2, 15), (3, 25)]),
    ],
)  # fmt: skip
def test_the_remote_tier_has_what_is_missing(
    epochs: Sequence[tuple[int, int]], log_start: int, segments: list[SegmentMetadata], expected: list[tuple[int, int]]
) -> None:
    assert list(find_lost_epochs(epochs, log_start, lambda: segments)) == expected


def test_a_leader_with_a_damaged_checkpoint_keeps_its_remote_segments_and_serves_them(tmp_path: Path) -> None:
    async def play() -> None:
        log = open_test_log(tmp_path, KEPT, remote=True)
        for index in range(6):
            append(log, index, epoch=index // 2)
            log.roll()
        append(log, 6, epoch=3)
        replicate(log)
        async with tier_broker(tmp_path) as broker:
            await CopyTask(View(log), broker.tier).run()
            log.delete_old_segments(NOW_MS + 1000)
            log.maybe_increment_local_log_start_offset(log.segments.first_base_offset)
            whole = log.leader_epochs.entries
            log.close()
            file = tmp_path / "orders-0" / "leader-epoch-checkpoint"
            file.write_bytes(b"\xff" * 43)
            # Also when the broker starts twice before it has seen the remote tier.
            for _ in range(2):
                log = open_test_log(tmp_path, KEPT, remote=True, clean=True, recovery_point=7)
                assert (log.log_start_offset, log.epoch_checkpoint.lost) == (0, True)
                assert log.leader_epochs.entries[0][1] == log.segments.first_base_offset > 0
                log.close_files()
            log = open_test_log(tmp_path, KEPT, remote=True, clean=True, recovery_point=7)
            replicate(log)
            await ExpirationTask(View(log), broker.tier).run()
            await CopyTask(View(log), broker.tier).run()
            assert log.leader_epochs.entries == whole
            assert (log.log_start_offset, log.epoch_checkpoint.lost) == (0, False)
            assert broker.history(EventType.DELETE_SEGMENT) == []
            read = await broker.manager.read(log, 0, 100, min_one_message=True, read_committed=False)
            assert len(read.records) > 0
            log.close_files()
            again = open_test_log(tmp_path, KEPT, remote=True, clean=True, recovery_point=7)
            assert (again.leader_epochs.entries, again.log_start_offset, again.epoch_checkpoint.lost) == (
                whole,
                0,
                False,
            )

    run_virtual(play())
