"""Whether the disks of the data folder take writes: that of the folder itself, and those of the brokers' log dirs.

A full disk stops producers, the database and the logs of the processes; a service manager that asks `/readyz` is to
know. Each file system is asked for its free room, and the data folder takes a file in earnest, which also finds a
quota, a folder that has become read-only and a disk that fails.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

# A largest batch (max.message.bytes, 1 MiB) for each of nine brokers, the write-ahead log of the database (4 MiB), and
# the lines of the processes' logs. Below it the next writes fail.
FREE_BYTES_MIN: Final = 16 * 1024 * 1024
# Written and flushed: more than a block, so that a file system without room cannot put it into its inode.
PROBE_BYTES: Final = 64 * 1024
# Probes come every 100 ms while a start is watched; a flushed file every 5 s is nothing to any disk.
PROBE_EVERY_S: Final = 5.0
PROBE_TIMEOUT_S: Final = 3.0
PROBE_FILE: Final = "disk-probe"


class DiskRoom:
    """Belongs to one event loop; looks on a thread, since a disk that hangs would hold everything up."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._probe: asyncio.Future[str | None] | None = None
        self._probed_s = float("-inf")

    async def check(self) -> str | None:
        """None when there is room, else one sentence; at most 3 s."""
        if self._probe is None or (self._probe.done() and time.monotonic() - self._probed_s > PROBE_EVERY_S):
            self._probed_s = time.monotonic()
            self._probe = asyncio.ensure_future(asyncio.to_thread(problem, self._data_dir))
        done, _ = await asyncio.wait({self._probe}, timeout=PROBE_TIMEOUT_S)
        if not done:
            return f"The disk of {self._data_dir} did not take a file in {PROBE_TIMEOUT_S:.0f} s."
        return self._probe.result()


def problem(data_dir: Path) -> str | None:
    """The problem of the disks below a data folder, as one sentence; None: there is none. Blocks."""
    for folder in _folders(data_dir):
        with suppress(OSError):
            free = free_bytes(folder)
            if free < FREE_BYTES_MIN:
                return (
                    f"The disk of {folder} is full: {free // 1_000_000} MB are free, and below"
                    f" {FREE_BYTES_MIN // 1_000_000} MB writes fail. Make room; nothing has to be restarted."
                )
    return _refusal(data_dir / "run")


def free_bytes(folder: Path) -> int:
    """Bytes that a process without privileges can still write."""
    stats = os.statvfs(folder)
    return stats.f_bavail * stats.f_frsize


def _folders(data_dir: Path) -> Iterable[Path]:
    """One of each file system."""
    seen: set[int] = set()
    for folder in (data_dir, data_dir / "remote", *sorted(data_dir.glob("brokers/*/log"))):
        with suppress(OSError):
            device = folder.stat().st_dev
            if device not in seen:
                seen.add(device)
                yield folder


def _refusal(folder: Path) -> str | None:
    probe = folder / PROBE_FILE
    try:
        descriptor = os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, bytes(PROBE_BYTES))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        return f"The folder {folder} takes no file: {error.strerror}. See to its disk; nothing has to be restarted."
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return None
