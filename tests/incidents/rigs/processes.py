"""Processes that are frozen, thawed, killed, and kept from coming back."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

LOOK_S: Final = 0.02


def is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def signal_all(pid: int, number: signal.Signals) -> None:
    """A process and all that it started: children of `ebbline up` have their own sessions."""
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


class KeptDown:
    """Kills a child of a supervisor, and each one that is started in its place, until it is let go.

    A start takes a second before it serves anybody, so none is ever seen by the cluster.
    """

    def __init__(self, pid_of: Callable[[], int], belongs: str) -> None:
        """`belongs` stands in the command line of the right process: its number may be another's meanwhile."""
        self._pid_of, self._belongs = pid_of, belongs
        self._stop = threading.Event()
        self._kill()
        self._thread = threading.Thread(target=self._run, name="kept-down", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            self._kill()

    def _kill(self) -> None:
        with suppress(OSError, ValueError):
            pid = self._pid_of()
            if is_alive(pid) and self._belongs in Path(f"/proc/{pid}/cmdline").read_text():
                os.killpg(pid, signal.SIGKILL)

    def release(self) -> None:
        self._stop.set()
        self._thread.join()
