"""One child process: its log file, its restarts with back-off, its orderly end."""

from __future__ import annotations

import ctypes
import logging
import logging.handlers
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Final

from backend.runtime import liveness
from backend.runtime.redact import printable

# Three files of 10 MB a process: at most 30 MB of logs each.
LOG_BYTES_MAX: Final = 10_000_000
LOG_FILES: Final = 2
LOG_LINE_BYTES_MAX: Final = 16_384
BACKOFF_FIRST_S: Final = 1.0
BACKOFF_MAX_S: Final = 30.0
# A process that ran this long was healthy: its next crash starts the back-off again.
HEALTHY_AFTER_S: Final = 60.0
LAST_LINE_CHARS: Final = 400
KILL_WAIT_S: Final = 10.0
# Time, level and logger as `log_context.LOG_FORMAT` has them, then the message.
_WAITS: Final = re.compile(r"\S+ \S+ WARNING (?:\[node \d+\] )?[\w.]+: (.* waits for .*)$")
_PR_SET_PDEATHSIG: Final = 1
# Found before any fork: between fork and exec of a process with threads nothing may be loaded.
_libc: Final = ctypes.CDLL(None)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How to run one child, and how long it may take to start and stop."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    address: str
    stop_timeout_s: float
    # Does it live? One that does not for long is restarted. None: a running process is enough.
    healthy: Callable[[], bool] | None = None
    # Once it has been healthy it lives as long as its event loop turns, also while its ports have no room for a probe.
    reports_liveness: bool = False
    # Does it serve? Asked at the start only: what it waits for later, a restart would not bring. None: as `healthy`.
    ready: Callable[[], bool] | None = None
    # Longer than a node's own start may take (initial.broker.registration.timeout.ms, 60 s, behind imports and the
    # recovery of its logs): its own sentence says what it waited for.
    start_timeout_s: float = 90.0
    # It prepares itself, and begins when `Child.release` says so.
    waits_for_start: bool = False
    # Tells it to end because all children do; also sent when the supervisor is killed.
    all_end_signal: signal.Signals = signal.SIGTERM


def backoff_s(restarts: int) -> float:
    """Pause before restart number ``restarts`` (1, 2, ...): 1, 2, 4, ... 30 s."""
    return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** (restarts - 1))


def _die_with_parent(number: signal.Signals) -> None:
    """Linux: the child gets a signal when its supervisor is killed, so that no orphan keeps a port."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, number)


class ChildProcess(subprocess.Popen[bytes]):
    """A process that may be asked whether its event loop turns."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        stdin: int,
        at_parents_death: signal.Signals,
    ) -> None:
        self.liveness, far = socket.socketpair()
        try:
            with far:
                super().__init__(
                    list(command),
                    env={**environment, liveness.VARIABLE: str(far.fileno())},
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=partial(_die_with_parent, at_parents_death),
                    pass_fds=(far.fileno(),),
                )
        except BaseException:
            self.liveness.close()
            raise


def spawn(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdin: int = subprocess.DEVNULL,
    at_parents_death: signal.Signals = signal.SIGTERM,
) -> ChildProcess:
    """A process in its own session, so that Ctrl-C reaches only the supervisor. OSError when it cannot start."""
    return ChildProcess(command, environment, stdin, at_parents_death)


class LogFile(logging.handlers.RotatingFileHandler):
    """A log file that a full disk or a folder that is gone makes incomplete, and nothing worse."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=LOG_BYTES_MAX, backupCount=LOG_FILES, delay=True)

    def handleError(self, record: logging.LogRecord) -> None:
        """The line is lost: there is no other place for it."""


@dataclass
class Child:
    """A supervised process. Methods are called on the supervisor's thread only."""

    spec: ChildSpec
    log_dir: Path
    # Lets a process of this spec begin that was started before; used once. None from it: that one has ended.
    waiting: Callable[[Mapping[str, str]], ChildProcess | None] | None = None
    restarts: int = 0
    started_at_s: float = 0.0
    next_start_at_s: float = 0.0
    unhealthy_since_s: float | None = None
    # Since its process began.
    has_answered: bool = False
    process: ChildProcess | None = None
    last_line: str = ""
    # The message of its newest line about a wait (`said_to_wait`).
    waits: str = ""
    _pump: threading.Thread | None = None
    _logger: logging.Handler | None = field(default=None, repr=False)

    @property
    def log_path(self) -> Path:
        return self.log_dir / f"{self.spec.name}.log"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return None if self.process is None else self.process.poll()

    def how_it_ended(self) -> str:
        """For people: killed by a signal, or its exit code and the last line it wrote, which says why."""
        code = self.exit_code
        if code is not None and code < 0:
            return f"was killed by signal {-code}"
        return f"ended with code {code} ({self.last_line[:LAST_LINE_CHARS]})"

    def start(self, now_s: float) -> None:
        """Spawns the process, or lets begin the one that waits for it."""
        if self._logger is None:
            self._logger = LogFile(self.log_path)
        if self.process is not None:
            self.process.liveness.close()
        waiting, self.waiting = self.waiting, None
        self.process = None if waiting is None else waiting(self.spec.environment)
        if self.process is None:
            stdin = subprocess.PIPE if self.spec.waits_for_start else subprocess.DEVNULL
            self.process = spawn(
                self.spec.command,
                {**os.environ, **self.spec.environment},
                stdin=stdin,
                at_parents_death=self.spec.all_end_signal,
            )
        assert self.process.stdout is not None
        self.started_at_s = now_s
        self.unhealthy_since_s = None
        self.has_answered = False
        self.waits = ""
        self._pump = threading.Thread(
            target=self._pump_output, args=(self.process.stdout,), name=f"log-{self.spec.name}", daemon=True
        )
        self._pump.start()
        try:
            # A reader meanwhile gets the old one or the new one, whole.
            written = self._pid_path.with_suffix(".new")
            written.write_text(f"{self.process.pid}\n")
            written.replace(self._pid_path)
        except OSError as error:
            # For people and tests only; the process runs.
            _log.warning("%s could not be written: %s", self._pid_path, error)

    def release(self) -> None:
        """Lets a process begin that waits for it; one that has ended is found by `running`."""
        if self.process is None or self.process.stdin is None:
            return
        with suppress(OSError), self.process.stdin as pipe:
            pipe.write(b"\n")
        self.process.stdin = None

    @property
    def _pid_path(self) -> Path:
        return self.log_dir.parent / "run" / f"{self.spec.name}.pid"

    def _pump_output(self, stream: IO[bytes]) -> None:
        handler = self._logger
        assert handler is not None
        with stream:
            while raw := stream.readline(LOG_LINE_BYTES_MAX):
                # Other's texts in it, and what a JVM writes, are for a terminal in the end.
                line = printable(raw.decode(errors="replace").rstrip("\n").expandtabs(4))
                if line.strip():
                    self.last_line = line
                self.waits = said_to_wait(line) or self.waits
                handler.emit(logging.LogRecord(self.spec.name, logging.INFO, "", 0, line, None, None))

    def note_exit(self, now_s: float) -> float:
        """Plans the restart of a process that ended; seconds until then."""
        if now_s - self.started_at_s >= HEALTHY_AFTER_S:
            self.restarts = 0
        self.restarts += 1
        pause_s = backoff_s(self.restarts)
        self.next_start_at_s = now_s + pause_s
        return pause_s

    def end_with_all(self) -> None:
        """Tells a process that is about to be stopped that all are; returns at once."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(self.spec.all_end_signal)

    def stop(self, timeout_s: float | None = None) -> None:
        """SIGTERM, a wait of its stop time or of the one given, then SIGKILL for it and what it started."""
        wait_s = self.spec.stop_timeout_s if timeout_s is None else timeout_s
        process = self.process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(wait_s)
            except subprocess.TimeoutExpired:
                _log.warning("%s did not stop within %.0f s and is killed", self.spec.name, wait_s)
        self._kill_session(process.pid)
        process.wait(KILL_WAIT_S)
        process.liveness.close()
        if self._pump is not None:
            self._pump.join(timeout=KILL_WAIT_S)
        if self._logger is not None:
            self._logger.close()
            self._logger = None
        self._pid_path.unlink(missing_ok=True)

    @staticmethod
    def _kill_session(pid: int) -> None:
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def probe(self, now_s: float) -> bool:
        """Asks the health check; remembers since when it fails."""
        ok = self.running and (self.spec.healthy is None or self.spec.healthy() or self._loop_turns())
        if ok:
            self.unhealthy_since_s = None
            self.has_answered = True
        elif self.unhealthy_since_s is None:
            self.unhealthy_since_s = now_s
        return ok

    def _loop_turns(self) -> bool:
        """Whether a process that has served, and whose ports are silent now, lives all the same."""
        if not (self.spec.reports_liveness and self.has_answered) or self.process is None:
            return False
        return liveness.is_alive(self.process.liveness)

    def silent_s(self, now_s: float) -> float:
        """For how long the health check has failed; 0 when it does not."""
        return 0.0 if self.unhealthy_since_s is None else now_s - self.unhealthy_since_s


def said_to_wait(line: str) -> str | None:
    """The message of a log line that says whom a node waits for (metadata quorum, last ISRs, best logs), or None."""
    match = _WAITS.match(line)
    return None if match is None else match[1]


def wait_until_healthy(
    child: Child, *, stopping: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None
) -> bool:
    """True once the child serves; False when it ended, ran out of its start time, or we are stopping.

    `meanwhile` is called between two checks.
    """
    deadline = time.monotonic() + child.spec.start_timeout_s
    while time.monotonic() < deadline:
        if not child.running:
            return False
        # Before `stopping`: what ends after this one serves, ends after the start.
        if child.spec.ready() if child.spec.ready is not None else child.probe(time.monotonic()):
            child.has_answered = True
            return True
        if stopping():
            return False
        meanwhile()
        time.sleep(0.1)
    return False
