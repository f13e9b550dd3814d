"""A process that is kept down is killed each time that its supervisor starts it, and no other one is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.incidents.rigs.processes import KeptDown, is_alive
from tests.waiting import wait_until

pytestmark = pytest.mark.outside
MARK = "kept-down-by-this-test"


class Supervised:
    """A process that is started again whenever it ends, with its number in a file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "pid"
        self.starts = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        wait_until("it is started", self._file.exists, 10)

    def pid(self) -> int:
        return int(self._file.read_text())

    def _run(self) -> None:
        while not self._stop.is_set():
            command = [sys.executable, "-c", "import time; time.sleep(60)", MARK]
            process = subprocess.Popen(command, start_new_session=True)
            self._file.write_text(str(process.pid))
            self.starts += 1
            while process.poll() is None and not self._stop.wait(0.02):
                pass
            process.kill()
            process.wait()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    made = Supervised(tmp_path)
    yield made
    made.end()


def lives_on(supervised: Supervised) -> bool:
    """One that was killed last is still there for a moment."""
    before = supervised.starts
    return not threading.Event().wait(0.3) and supervised.starts == before and is_alive(supervised.pid())


def test_a_child_that_is_kept_down_is_killed_each_time_and_lives_once_it_is_let_go(supervised: Supervised) -> None:
    kept = KeptDown(supervised.pid, MARK)
    wait_until("it was started three times", lambda: supervised.starts >= 3, 20)
    kept.release()
    wait_until("it lives on", lambda: lives_on(supervised), 10)


def test_a_process_that_is_another_one_meanwhile_is_left_alone(supervised: Supervised) -> None:
    kept = KeptDown(lambda: os.getpid(), MARK)
    kept.release()
    kept = KeptDown(supervised.pid, "something else")
    assert not threading.Event().wait(0.2)
    kept.release()
    assert supervised.starts == 1
