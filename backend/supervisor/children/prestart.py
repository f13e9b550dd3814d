"""The backend's process, started before it is known whether it may begin: it imports the engine meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from backend.startup.backend_entry import WAIT_FOR_START
from backend.supervisor.children.child import ChildProcess, spawn


class PrestartedBackend:
    """Writes nothing and opens no port until `begin`."""

    def __init__(self) -> None:
        """OSError when no process can be started."""
        self._begun = False
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._process = spawn(
            [sys.executable, "-m", "backend.startup.backend_entry", WAIT_FOR_START], environment, stdin=subprocess.PIPE
        )

    def begin(self, environment: Mapping[str, str]) -> ChildProcess | None:
        """The process, which now runs with `environment` added to its own; None when it has ended already."""
        process = self._process
        assert process.stdin is not None
        if process.poll() is not None:
            return None
        try:
            with process.stdin:
                process.stdin.write(json.dumps(dict(environment)).encode() + b"\n")
        except OSError:
            return None
        # Closed: nobody is to flush it at the end.
        process.stdin = None
        self._begun = True
        return process

    def drop(self) -> None:
        """Ends a process that has not begun; returns once it is gone."""
        if self._begun:
            return
        process = self._process
        process.kill()
        process.wait()
        process.liveness.close()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


@contextmanager
def prestarted_backend() -> Iterator[PrestartedBackend | None]:
    """For the time of a run; None where no process can be started, which the run itself will tell."""
    try:
        prestarted = PrestartedBackend()
    except OSError:
        yield None
        return
    try:
        yield prestarted
    finally:
        prestarted.drop()
