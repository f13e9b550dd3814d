"""Small disks fill and fail as disks do. They need root and loop devices, which a container may not have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.incidents.rigs.small_disks import CannotPlay, SmallDisk

pytestmark = pytest.mark.outside


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        made = SmallDisk(tmp_path / "small", 40)
    except CannotPlay as reason:
        pytest.skip(str(reason))
    yield made
    made.close()


def share(disk: SmallDisk) -> float:
    room = os.statvfs(disk.folder)
    return 1 - room.f_bavail / room.f_blocks


def test_a_disk_is_filled_and_emptied(disk: SmallDisk) -> None:
    assert share(disk) < 0.2
    disk.fill(90)
    assert share(disk) == pytest.approx(0.9, abs=0.02)
    disk.free()
    assert share(disk) < 0.2
    disk.fill(100)
    with pytest.raises(OSError, match="No space left"):
        (disk.folder / "more").write_bytes(bytes(1 << 20))


def test_a_disk_fails_for_files_that_are_open_and_is_mended_with_what_it_held(disk: SmallDisk) -> None:
    (disk.folder / "kept").write_text("kept")
    os.sync()
    with (disk.folder / "open").open("wb", buffering=0) as file:
        file.write(b"a")
        disk.fail()
        with pytest.raises(OSError, match="Read-only file system"):
            file.write(b"b")
    disk.mend()
    assert (disk.folder / "kept").read_text() == "kept"
    (disk.folder / "new").write_text("new")
