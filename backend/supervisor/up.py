"""`ebbline up`: checks, identity, migration, children, one status table, and the way back down.

Order of a start: everything that can be refused is checked before anything is written; the backend comes first,
migrates the database once its brokers serve, and must be ready before pipeline and dashboard. The pipeline starts
Spark meanwhile and waits for a line that says that the backend is ready. A stop goes the other way.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from backend.data_folder.dashboard_login import KEY_OF_START_S, PROVIDER_HINT, DashboardLogin, login_url
from backend.data_folder.data_folder import ClusterIdentity, DataFolder
from backend.runtime.private_files import close_to_others
from backend.runtime.redact import printable
from backend.settings.settings import Settings, misspelt
from backend.supervisor.checks.preparation import Refused, prepare
from backend.supervisor.children.child import Child, wait_until_healthy
from backend.supervisor.children.child_specs import child_specs
from backend.supervisor.children.prestart import PrestartedBackend
from backend.supervisor.children.process_health import provider_signs_in, readyz, waits_for

WATCH_INTERVAL_S: Final = 0.5
HEALTH_INTERVAL_S: Final = 2.0
# A process that answers no health check for this long is restarted.
HUNG_AFTER_S: Final = 60.0
# One that has not answered at all since it began may still be recovering logs, which takes a minute for some 50 GB.
BEGINS_WITHIN_S: Final = 600.0
# A process that does not answer will hardly stop in order: so long it may try, then it is killed. In all a hung process
# is replaced 71 s after its last answer.
HUNG_STOP_S: Final = 10.0
EXIT_OK, EXIT_REFUSED, EXIT_FAILED = 0, 2, 1
LOGIN_HINT: Final = "The link signs one browser in, once; `ebbline login` prints another."
_log = logging.getLogger(__name__)


def hung_after_s(child: Child) -> float:
    """After how long without an answer a running process is taken for hung."""
    return HUNG_AFTER_S if child.has_answered else BEGINS_WITHIN_S


class Supervisor:
    """Runs the children until asked to stop. One instance a process; the main thread drives it."""

    def __init__(
        self,
        settings: Settings,
        folder: DataFolder,
        identity: ClusterIdentity,
        console: Console,
        prestarted: PrestartedBackend | None = None,
    ) -> None:
        """`prestarted` becomes the backend's first process."""
        self._settings = settings
        self._folder = folder
        self._identity = identity
        self._console = console
        self._children = [Child(spec, folder.logs) for spec in child_specs(settings, folder, identity)]
        for child in self._children:
            if child.spec.name == "backend" and prestarted is not None:
                child.waiting = prestarted.begin
        self._stop = threading.Event()
        self._told_waits: dict[str, str] = {}

    def run(self) -> int:
        """Starts, watches, stops; the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        code = EXIT_OK
        try:
            if self._start_all():
                self._print_status()
                self._watch()
            elif not self._stop.is_set():
                code = EXIT_FAILED
        finally:
            self._stop_all()
        return code

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._stop.is_set():
            self._console.print("Already stopping; one moment.")
        self._stop.set()

    def _start_all(self) -> bool:
        for child in self._children:
            if self._stop.is_set():
                return False
            if child.process is None:
                child.start(time.monotonic())
            if child.spec.name == "backend":
                # The backend's start takes one core: a child that waits for its line prepares itself meanwhile.
                for other in self._children:
                    if other.spec.waits_for_start:
                        other.start(time.monotonic())
                if not self._backend_serves(child):
                    return False
                if (waits := waits_for(readyz(self._settings.api_url))) is not None:
                    self._console.print(
                        f"[yellow]Without its database:[/yellow] {escape(waits)} Brokers and API run; what needs the"
                        " database waits for it.",
                        highlight=False,
                        soft_wrap=True,
                    )
            child.release()
        for child in self._children:
            if child.spec.healthy is not None:
                wait_until_healthy(child, stopping=self._stop.is_set, meanwhile=self._report_waits)
        return not self._stop.is_set()

    def _backend_serves(self, backend: Child) -> bool:
        """Waits for it, and for what was started before it; says who did not start."""

        def ended() -> list[Child]:
            begun = (child for child in self._children if child.process is not None and not child.spec.waits_for_start)
            return [child for child in begun if not child.running]

        def stopping() -> bool:
            return self._stop.is_set() or bool(ended())

        if wait_until_healthy(backend, stopping=stopping, meanwhile=self._report_waits):
            return True
        if not self._stop.is_set():
            failed = next(iter(ended()), backend)
            self._console.print(
                f"[red]The {failed.spec.name} did not start:[/red] {escape(failed.last_line) or 'it said nothing'}\n"
                f"More in {failed.log_path}",
                highlight=False,
                soft_wrap=True,
            )
        return False

    def _report_waits(self) -> None:
        """Whom the brokers wait for, each time that it is somebody else."""
        for child in self._children:
            if child.waits and child.waits != self._told_waits.get(child.spec.name):
                self._told_waits[child.spec.name] = child.waits
                self._console.print(
                    f"{child.spec.name}: {child.waits}", highlight=False, markup=False, soft_wrap=True, style="yellow"
                )

    def _watch(self) -> None:
        next_probe_s = time.monotonic() + HEALTH_INTERVAL_S
        while not self._stop.wait(WATCH_INTERVAL_S):
            now_s = time.monotonic()
            probing = now_s >= next_probe_s
            if probing:
                next_probe_s = now_s + HEALTH_INTERVAL_S
            for child in self._children:
                self._watch_one(child, now_s, probing=probing)

    def _watch_one(self, child: Child, now_s: float, *, probing: bool) -> None:
        name = child.spec.name
        if child.running:
            if probing and not child.probe(now_s) and child.silent_s(now_s) > (limit_s := hung_after_s(child)):
                self._console.print(f"{name} has not answered for {limit_s:.0f} s and is restarted")
                child.stop(HUNG_STOP_S)
        elif child.next_start_at_s == 0.0 or child.next_start_at_s <= child.started_at_s:
            how = child.how_it_ended()
            pause_s = child.note_exit(now_s)
            self._console.print(
                f"{name} {how}; starting it again in {pause_s:.0f} s",
                highlight=False,
                markup=False,
            )
        elif now_s >= child.next_start_at_s:
            self._start_again(child, now_s)

    def _start_again(self, child: Child, now_s: float) -> None:
        try:
            child.start(now_s)
            child.release()
        except OSError as error:
            pause_s = child.note_exit(now_s)
            self._console.print(f"{child.spec.name} could not be started ({error}); trying again in {pause_s:.0f} s")

    def _stop_all(self) -> None:
        # One after the other they would leave every ISR, and so every partition, to the last.
        together = [child for child in self._children if child.spec.all_end_signal is not signal.SIGTERM]
        for child in reversed(self._children):
            if together and child is together[-1]:
                for broker in together:
                    broker.end_with_all()
            if child.process is not None:
                self._console.print(f"Stopping {child.spec.name} …")
                child.stop()
        self._console.print(f"Stopped. The data stays in {self._folder.root}", highlight=False)

    def _print_status(self) -> None:
        table = Table(title=f"ebbline · cluster {self._identity.cluster_name}", title_justify="left")
        for heading in ("process", "state", "where", "log"):
            table.add_column(heading, overflow="fold")
        for child in self._children:
            state = "running" if child.running else "restarting"
            table.add_row(
                child.spec.name, state, child.spec.address, str(child.log_path.relative_to(self._folder.root))
            )
        self._console.print(table)
        if self._settings.ui:
            provider = provider_signs_in(self._settings.app_url)
            link = self._settings.dashboard_url if provider else self._login_url()
            # One line, however narrow the terminal: it is there to be clicked or copied.
            self._console.print(f"Dashboard  {link}", style="bold", highlight=False, soft_wrap=True)
            hint = escape(PROVIDER_HINT) if provider else LOGIN_HINT
            self._console.print(f"           {hint}", highlight=False, soft_wrap=True)
        self._console.print(f"Kafka      {self._settings.bootstrap_servers}", highlight=False)
        if self._settings.api_listen is not None:
            self._console.print(f"API        https://{self._settings.api_listen}", highlight=False)
        self._console.print(f"Data       {self._folder.root}", highlight=False, soft_wrap=True)
        if self._settings.database_url is not None and not self._settings.database_url.startswith("sqlite"):
            self._console.print("Backups    of PostgreSQL are yours to make: docs/database.md", highlight=False)
        self._console.print("Ctrl-C stops everything in order.")

    def _login_url(self) -> str:
        """The dashboard's address, with a key where one can be written."""
        try:
            key = DashboardLogin(self._folder.run).new_key(time.time(), KEY_OF_START_S)
        except OSError as error:
            _log.warning("No login key could be written: %s", error)
            return self._settings.dashboard_url
        return login_url(self._settings.dashboard_url, key)


def run(settings: Settings, prestarted: PrestartedBackend | None = None) -> int:
    """The whole life of one `ebbline up`; the exit code: 0 stopped, 1 failed, 2 refused.

    `prestarted` is a backend that waits for its environment; the caller ends it when this has not.
    """
    console = Console()
    try:
        folder, identity = prepare(settings)
    except Refused as error:
        sys.stderr.write(f"ebbline: {printable(str(error))}\n")
        return EXIT_REFUSED
    closed = close_to_others(folder.root)
    for line in (*misspelt(os.environ), *([] if closed is None else [closed])):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    try:
        return Supervisor(settings, folder, identity, console, prestarted).run()
    except OSError as error:
        sys.stderr.write(f"ebbline: It cannot go on: {error}.\n")
        return EXIT_FAILED
