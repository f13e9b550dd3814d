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
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from backend.data_folder.dashboard_login import KEY_OF_START_S, PROVIDER_HINT, DashboardLogin, login_url
from backend.data_folder.data_folder import (
    FORMAT_VERSION,
    ClusterIdentity,
    DataFolder,
    DataFolderError,
    IdentityLost,
    new_cluster_id,
)
from backend.data_folder.lost_identity import way_out
from backend.runtime.private_files import close_to_others
from backend.runtime.redact import printable
from backend.settings.settings import LOOPBACK, Settings, misspelt
from backend.supervisor.checks.preflight import (
    PreflightError,
    check_api_listen,
    check_data_path,
    check_database,
    check_open_files,
    check_pipeline,
    check_ports,
    check_remote_location,
)
from backend.supervisor.children.child import Child, ChildSpec, wait_until_healthy
from backend.supervisor.children.prestart import WarmBackend
from backend.supervisor.children.process_health import (
    any_broker_answers,
    http_answers,
    http_serves,
    provider_signs_in,
    readyz,
    serves,
    waits_for,
)
from spark import java
from spark.settings import WAIT_FOR_START

WATCH_INTERVAL_S: Final = 0.5
HEALTH_INTERVAL_S: Final = 2.0
# A process that answers no health check for this long is restarted.
HUNG_AFTER_S: Final = 60.0
# One that has not answered at all since it began may still be recovering logs, which takes a minute for some 50 GB.
BEGINS_WITHIN_S: Final = 600.0
# A process that does not answer will hardly stop in order: so long it may try, then it is killed. In all a hung process
# is replaced 71 s after its last answer.
HUNG_STOP_S: Final = 10.0
# The pipeline gives a sign every 0.2 s while it streams and at least every 10 s while it waits for something, but none
# while its JVM starts, which takes 10 s on an idle machine and two minutes on a very busy one.
PIPELINE_SIGN_S: Final = 150.0
# Settings that only the backend reads, and that may be absent.
OF_BACKEND: Final = ("broker_metrics", "webhook_url", "api_listen", "api_tls_certificate", "api_tls_key")
EXIT_OK, EXIT_REFUSED, EXIT_FAILED = 0, 2, 1
LOGIN_HINT: Final = "The link signs one browser in, once; `ebbline login` prints another."
_log = logging.getLogger(__name__)


class Refused(Exception):
    """The start was refused before anything ran."""


def prepare(settings: Settings) -> tuple[DataFolder, ClusterIdentity]:
    """Checks everything, locks the folder, writes the identity last. Raises Refused."""
    folder = DataFolder(settings.data_dir)
    try:
        identity = folder.read_identity()
        check_data_path(settings, folder.root)
        folder.check_writable()
        cluster_id = None if settings.attach is None else _attached_cluster_id(settings)
        if identity is not None:
            _check_identity(settings, identity, folder, cluster_id)
            _check_broker_folders(folder, identity)
            settings = _as_made(settings, identity)
        elif cluster_id is None and settings.voters > settings.brokers:
            raise Refused(
                f"{settings.voters} controllers need as many brokers, not {settings.brokers}: use --controllers 1,"
                " or more --brokers."
            )
        check_open_files(settings)
        check_ports(settings)
        check_api_listen(settings)
        check_database(settings, first=identity is None, attached=cluster_id)
        warning = check_remote_location(settings, first=identity is None)
        if settings.pipeline:
            check_pipeline(settings, os.environ)
            # Last of the checks: it may write a launcher script below the data folder.
            java.find_java(folder.root / "spark" / "java", os.environ)
        if warning is not None:
            sys.stderr.write(f"ebbline: {printable(warning)}\n")
        folder.lock()
        folder.note_database(database_to_note(settings))
        settings.keep()
        if identity is None:
            identity = ClusterIdentity(
                format=FORMAT_VERSION,
                cluster_id=cluster_id or new_cluster_id(),
                cluster_name=settings.cluster_name,
                brokers=settings.brokers if cluster_id is None else 0,
                broker_port=settings.broker_port,
                controller_port=settings.controller_port,
                controllers=settings.voters if cluster_id is None else 1,
            )
            folder.write_identity(identity)
    except IdentityLost as error:
        raise Refused(f"{error}: {way_out(folder.root)}") from error
    except (DataFolderError, PreflightError, java.NoUsableJava) as error:
        raise Refused(str(error)) from error
    except OSError as error:
        raise Refused(f"The folder {folder.root} cannot be written: {error.strerror or error}.") from error
    return folder, identity


def database_to_note(settings: Settings) -> str | None:
    """The database's URL without any password; None for the folder's own file."""
    if settings.database_url is None:
        return None
    from backend.store.connection.database import without_password  # only here: it takes half a second to import

    return without_password(settings.database_url)


def _attached_cluster_id(settings: Settings) -> str:
    from backend.supervisor.checks.attach import attached_cluster_id  # only here: it imports the control plane's client

    return attached_cluster_id(settings)


def _check_identity(settings: Settings, identity: ClusterIdentity, folder: DataFolder, attached_id: str | None) -> None:
    if attached_id is not None and identity.cluster_id != attached_id:
        raise Refused(
            f"The folder {folder.root} belongs to another cluster ({identity.cluster_id}, not {attached_id}): "
            "choose another folder with --data."
        )
    if attached_id is None and identity.brokers == 0:
        raise Refused(
            f"The folder {folder.root} belongs to an attached cluster: give --attach, or choose another with --data."
        )
    if attached_id is None and identity.brokers != settings.brokers:
        raise Refused(
            f"The folder {folder.root} holds a cluster of {identity.brokers} brokers, not {settings.brokers}: "
            f"use --brokers {identity.brokers}, or another folder with --data."
        )
    if settings.controllers is not None and identity.controllers != settings.controllers:
        raise Refused(
            f"The folder {folder.root} holds a cluster of {identity.controllers} controllers, not"
            f" {settings.controllers}, which cannot be changed: leave --controllers out, or use another folder with"
            " --data."
        )
    if "cluster_name" in settings.model_fields_set and identity.cluster_name != settings.cluster_name:
        raise Refused(
            f"The folder {folder.root} belongs to cluster {identity.cluster_name!r}, not {settings.cluster_name!r}: "
            "leave --cluster-name out, or choose another folder with --data."
        )


def _check_broker_folders(folder: DataFolder, identity: ClusterIdentity) -> None:
    from backend.supervisor.recovery import broker_folders

    try:
        found = broker_folders.read_broker_folders(folder, identity)
    except OSError as error:
        raise Refused(f"The folder {folder.root} cannot be read ({error}): fix its permissions.") from error
    refusal = (
        broker_folders.misplaced(found)
        or broker_folders.recovery_interrupted(folder)
        or broker_folders.quorum_lost(found, identity.controllers)
    )
    if refusal is not None:
        raise Refused(refusal)


def _as_made(settings: Settings, identity: ClusterIdentity) -> Settings:
    """With the voters that the folder was made with: they stand in every voter's log."""
    return settings.model_copy(update={"controllers": identity.controllers})


def environment(settings: Settings, folder: DataFolder, identity: ClusterIdentity) -> dict[str, str]:
    """Variables that every child reads, and nothing else (see ``backend/ARCHITECTURE.md``)."""
    return {
        "EBBLINE_DATA_DIR": str(folder.root),
        "EBBLINE_CLUSTER_ID": identity.cluster_id,
        "EBBLINE_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "EBBLINE_DATABASE_URL": settings.database,
        "EBBLINE_API_URL": settings.api_url,
        "EBBLINE_API_TOKEN_FILE": str(folder.run / "app.token"),
        "EBBLINE_CLUSTER_NAME": identity.cluster_name,
        "PYTHONUNBUFFERED": "1",
        **_attached(settings),
    }


def _attached(settings: Settings) -> dict[str, str]:
    if settings.attach is None:
        # An embedded cluster may be changed unless somebody has said that it may not.
        may = settings.allow_changes or "allow_changes" not in settings.model_fields_set
        return {"EBBLINE_CLUSTER_KIND": "embedded", "EBBLINE_ALLOW_CHANGES": str(may).lower()}
    found = {"EBBLINE_CLUSTER_KIND": "attached", "EBBLINE_ALLOW_CHANGES": str(settings.allow_changes).lower()}
    if settings.client_properties is not None:
        found["EBBLINE_CLIENT_PROPERTIES"] = str(settings.client_properties.absolute())
    return found


def pipeline_lives(folder: DataFolder, now_s: float) -> bool:
    """Whether the pipeline was started, or gave a sign of life, not too long ago."""
    last_s = 0.0
    for name in ("pipeline.pid", "pipeline.life"):
        with suppress(OSError):
            last_s = max(last_s, (folder.run / name).stat().st_mtime)
    return now_s - last_s < PIPELINE_SIGN_S


def child_specs(settings: Settings, folder: DataFolder, identity: ClusterIdentity) -> list[ChildSpec]:
    """The children in start order."""
    settings = _as_made(settings, identity)
    shared = environment(settings, folder, identity)
    backend_env = shared | {
        "EBBLINE_BROKERS": str(settings.brokers),
        "EBBLINE_BROKER_PORT": str(settings.broker_port),
        "EBBLINE_CONTROLLER_PORT": str(settings.controller_port),
        "EBBLINE_CONTROLLERS": str(settings.voters),
        "EBBLINE_METRICS_PORT": str(settings.metrics_port),
        "EBBLINE_API_PORT": str(settings.api_port),
        "EBBLINE_API_HOST": LOOPBACK,
        "EBBLINE_LOG_LEVEL": settings.log_level,
        "EBBLINE_DEMO": str(settings.demo).lower(),
        "EBBLINE_SAMPLE_INTERVAL_MS": str(settings.sample_interval_ms),
        "EBBLINE_SAMPLE_DAYS": str(settings.sample_days),
    }
    for name in OF_BACKEND:
        value = getattr(settings, name)
        if value is not None:
            backend_env[f"EBBLINE_{name.upper()}"] = str(value.absolute() if isinstance(value, Path) else value)
    if settings.attach is not None:
        backend_env["EBBLINE_ATTACH"] = settings.attach
    if settings.remote_location:
        backend_env["EBBLINE_REMOTE_LOCATION"] = settings.remote_location
    python = sys.executable
    specs: list[ChildSpec] = []
    where = [*settings.bootstrap_servers.split(","), f"API {settings.api_url}"]
    # Those whose brokers run in the backend: it lives as long as one of them answers, whatever becomes of the API.
    brokers = range(settings.broker_port, settings.broker_port + settings.brokers)
    if settings.process_per_broker or settings.attach is not None:
        brokers = range(0)
    if settings.process_per_broker and settings.attach is None:
        # Only here, as it takes half a second to import the engine.
        from backend.supervisor.children.broker_processes import broker_specs

        specs += broker_specs(settings, folder, shared)
        backend_env["EBBLINE_PROCESS_PER_BROKER"] = "true"
        where = where[-1:]
    specs.append(
        ChildSpec(
            name="backend",
            command=[python, "-m", "backend.startup.backend_entry"],
            environment=backend_env,
            where="\n".join(where),
            stop_timeout_s=30.0,
            healthy=lambda: any_broker_answers(brokers) or http_answers(f"{settings.api_url}/healthz"),
            ready=lambda: serves(readyz(settings.api_url)),
            tells_liveness=bool(brokers),
        )
    )
    if settings.pipeline:
        specs.append(
            ChildSpec(
                name="pipeline",
                command=[python, "-m", "spark.job", WAIT_FOR_START],
                environment=shared,
                where="__remote_log_metadata →\n" + where_database(settings, folder),
                stop_timeout_s=20.0,
                waits_for_start=True,
                healthy=lambda: pipeline_lives(folder, time.time()),
            )
        )
    if settings.ui:
        specs.append(
            ChildSpec(
                name="app",
                command=[python, "-m", "app.run", "--port", str(settings.app_port)],
                environment=shared | ({"EBBLINE_PUBLIC_URL": settings.public_url} if settings.public_url else {}),
                where=settings.app_url,
                stop_timeout_s=10.0,
                healthy=lambda: http_serves(f"{settings.app_url}/_stcore/health"),
            )
        )
    return specs


def where_database(settings: Settings, folder: DataFolder) -> str:
    """The database for people: without its password, and short when it lies in the data folder."""
    if settings.database_url is None:
        return f"SQLite, {settings.database_file.name}"
    from backend.store.connection.database import describe  # only here: it takes half a second to import

    return describe(settings.database).replace(f"sqlite:///{folder.root}/", "SQLite, ")


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
        warm: WarmBackend | None = None,
    ) -> None:
        """`warm` becomes the backend's first process."""
        self._settings = settings
        self._folder = folder
        self._identity = identity
        self._console = console
        self._children = [Child(spec, folder.logs) for spec in child_specs(settings, folder, identity)]
        for child in self._children:
            if child.spec.name == "backend" and warm is not None:
                child.waiting = warm.begin
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
                wait_until_healthy(child, stopping=self._stop.is_set, meanwhile=self._tell_waits)
        return not self._stop.is_set()

    def _backend_serves(self, backend: Child) -> bool:
        """Waits for it, and for what was started before it; says who did not start."""

        def ended() -> list[Child]:
            begun = (child for child in self._children if child.process is not None and not child.spec.waits_for_start)
            return [child for child in begun if not child.running]

        def stopping() -> bool:
            return self._stop.is_set() or bool(ended())

        if wait_until_healthy(backend, stopping=stopping, meanwhile=self._tell_waits):
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

    def _tell_waits(self) -> None:
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
            table.add_row(child.spec.name, state, child.spec.where, str(child.log_path.relative_to(self._folder.root)))
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


def run(settings: Settings, warm: WarmBackend | None = None) -> int:
    """The whole life of one `ebbline up`; the exit code: 0 stopped, 1 failed, 2 refused.

    `warm` is a backend that waits for its environment; the caller ends it when this has not.
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
        return Supervisor(settings, folder, identity, console, warm).run()
    except OSError as error:
        sys.stderr.write(f"ebbline: It cannot go on: {error}.\n")
        return EXIT_FAILED
