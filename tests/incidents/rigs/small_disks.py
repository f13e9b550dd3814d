"""Small disks: file systems of some hundred megabytes in files, that fill up and fail for real. They need root."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from typing import Final

FILLER: Final = "filler"
BLOCK: Final = b"\0" * (1 << 20)


class CannotPlay(Exception):
    """An incident needs something that this machine does not have; the message says what."""


class SmallDisk:
    """An ext4 on a folder; `image`: its file, beside the folder if not named."""

    def __init__(self, folder: Path, size_mb: int, image: Path | None = None) -> None:
        if os.geteuid() != 0:
            raise CannotPlay("small disks are mounted, which only root may do")
        self.folder = folder
        self._image = image or folder.with_name(f"{folder.name}.img")
        folder.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as file:
            file.truncate(size_mb << 20)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-o", "loop,errors=remount-ro", str(self._image), str(self.folder))
        # It would be a topic-partition to a broker; the file system's check makes it again.
        with contextlib.suppress(FileNotFoundError):
            (self.folder / "lost+found").rmdir()

    def fill(self, percent: int) -> None:
        """Until so much is used."""
        with (self.folder / FILLER).open("ab", buffering=0) as file:
            while True:
                room = os.statvfs(self.folder)
                left = (room.f_bavail - room.f_blocks * (100 - percent) // 100) * room.f_frsize
                if left <= 0:
                    return
                try:
                    file.write(BLOCK[:left])
                except OSError:
                    # Full: a journal takes some of what is said to be free.
                    return

    def free(self) -> None:
        (self.folder / FILLER).unlink(missing_ok=True)

    def fail(self) -> None:
        """From now on each write is an error, also of files that are open: as after an error of the disk itself."""
        _run("mount", "-o", "remount,abort", str(self.folder))

    def mend(self) -> None:
        """Checks the file system and mounts it again; nobody may have a file open there."""
        _run("umount", str(self.folder))
        # 1: errors were corrected.
        _run("e2fsck", "-p", str(self._image), right=(0, 1))
        self._mount()

    def close(self) -> None:
        _run("umount", "--lazy", str(self.folder), right=(0, 32))
        self._image.unlink(missing_ok=True)


def _run(*command: str, right: tuple[int, ...] = (0,)) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise CannotPlay(f"small disks need {command[0]}") from None
    if done.returncode not in right:
        raise CannotPlay(f"{command[0]} does not work here: {done.stderr.strip()}")
