"""Lets writers of a SQLite file take turns, as SQLite does not queue them.

A writer that finds the file locked tries again after up to 100 ms, so one that writes without a stop would leave the
others nothing. Hence a writer that waits for the lock holds the file ``<database>-turn`` shared meanwhile, and one that
is about to write again waits while it is held. Only advice: a file that cannot be opened or locked counts as not held.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# SQLite's longest wait between two tries, and half of that for a machine that is busy.
GIVE_WAY_MAX_S: Final = 0.15
_RETRY_INTERVAL_S: Final = 0.002
_TRIES: Final = 10


@contextmanager
def waiting(database: Path) -> Iterator[None]:
    """Says so while the block waits for the database's write lock."""
    held = _open(database)
    try:
        if held is not None:
            _share(held)
        yield
    finally:
        if held is not None:
            os.close(held)


def give_way(database: Path, at_most_s: float = GIVE_WAY_MAX_S) -> None:
    """Returns when nobody waits for the write lock, which the caller does not hold; at the latest after the time."""
    probe = _open(database)
    if probe is None:
        return
    until_s = time.monotonic() + at_most_s
    try:
        while not _is_unlocked(probe) and time.monotonic() < until_s:
            time.sleep(_RETRY_INTERVAL_S)
    finally:
        os.close(probe)


def _share(held: int) -> None:
    """Not by waiting: a process has it alone only for the time of a check, and one that was stopped then must not stop
    others.
    """
    for _ in range(_TRIES):
        try:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_RETRY_INTERVAL_S)
        except OSError:
            return
        else:
            return


def _is_unlocked(probe: int) -> bool:
    try:
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no such locks on this file system
        return True
    fcntl.flock(probe, fcntl.LOCK_UN)
    return True


def _open(database: Path) -> int | None:
    try:
        return os.open(f"{database}-turn", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
