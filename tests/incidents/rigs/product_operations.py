"""Operations on the processes of the product and on its database."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import httpx

from tests.incidents.rigs.processes import KeptDown, is_alive, signal_all
from tests.incidents.rigs.product import Product
from tests.incidents.rigs.small_disks import CannotPlay
from tests.migrations.postgresql import NoPostgreSQL, Server, frozen, new_database, running_server
from tests.waiting import wait_until

# The longest pause of the supervisor between two starts (30 s), a start of the JVM of Spark on a busy machine (30 s).
RETURN_S: Final = 90.0
# Each process as its command line has it.
COMMANDS: Final = {"backend": "backend.startup.backend_entry", "pipeline": "spark.job", "app": "app.run"}


class ProductOperations:
    """`product` is made by the rig."""

    product: Product

    def __init__(self) -> None:
        super().__init__()
        self._down: dict[str, KeptDown] = {}
        self._frozen: set[str] = set()
        self._lock: sqlite3.Connection | None = None
        self._server: Server | None = None
        self._of_database = ExitStack()
        self._server_stack = ExitStack()

    def freeze(self, *, process: str) -> None:
        self._frozen.add(process)
        signal_all(self.product.up.pid(process), signal.SIGSTOP)

    def thaw(self, *, process: str) -> None:
        self._frozen.discard(process)
        signal_all(self.product.up.pid(process), signal.SIGCONT)

    def kill_process(self, *, process: str) -> None:
        self._down[process] = KeptDown(lambda: self.product.up.pid(process), COMMANDS[process])

    def start_process(self, *, process: str) -> None:
        self._down.pop(process).release()

        def back() -> bool:
            try:
                return is_alive(self.product.up.pid(process)) and (process != "backend" or self.ready())
            except (OSError, ValueError):
                return False

        wait_until(f"{process} is back", back, RETURN_S)

    def ready(self) -> bool:
        try:
            return httpx.get(f"{self.product.up.api_url}/readyz", timeout=3.0, verify=False).status_code == 200
        except httpx.HTTPError:
            return False

    def stop_product(self) -> None:
        self.product.stop()

    def start_product(self) -> None:
        self.product.start()

    def restart_product(self) -> None:
        self.stop_product()
        self.start_product()

    def tidy_product(self) -> None:
        """Lets go of all that is frozen, kept down or held."""
        for process in sorted(self._frozen):
            self.thaw(process=process)
        for process in sorted(self._down):
            self.start_process(process=process)
        self.unlock_database()
        self._of_database.close()

    # --- the database
    def database_environment(self, folder: Path, *, postgresql: bool) -> dict[str, str]:
        """Environment of an `ebbline up` with the database that the incident needs; starts its server."""
        if not postgresql:
            return {}
        try:
            self._server = self._server_stack.enter_context(running_server())
        except NoPostgreSQL as reason:
            raise CannotPlay(str(reason)) from reason
        return {"EBBLINE_DATABASE_URL": new_database(self._server.url, "incidents")}

    def _postgresql(self) -> Server:
        assert self._server is not None, "an incident that stops the database says so in its form"
        return self._server

    def stop_database(self) -> None:
        server = self._postgresql()
        server.stop()
        self._of_database.callback(server.start)

    def start_database(self) -> None:
        self._of_database.close()

    def freeze_database(self) -> None:
        self._of_database.enter_context(frozen(self._postgresql()))

    def thaw_database(self) -> None:
        self._of_database.close()

    def refuse_database_writes(self) -> None:
        self._of_database.enter_context(_read_only(self._postgresql()))

    def take_database_writes(self) -> None:
        self._of_database.close()

    def remove_database(self) -> None:
        for path in self.product.up.data.glob("ebbline.db*"):
            if path.is_file():
                path.unlink()

    def lock_database(self) -> None:
        """By another program that has begun to write and does not go on."""
        self._lock = sqlite3.connect(self.product.up.data / "ebbline.db", isolation_level=None)
        self._lock.execute("PRAGMA busy_timeout = 30000")
        self._lock.execute("BEGIN IMMEDIATE")

    def unlock_database(self) -> None:
        if self._lock is not None:
            self._lock.rollback()
            self._lock.close()
            self._lock = None

    def close_product(self) -> None:
        self.tidy_product()
        self.product.close()
        self._server_stack.close()


@contextmanager
def _read_only(server: Server) -> Iterator[None]:
    """The whole server, as a standby is: it answers and refuses each write."""
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'incidents'")
        try:
            yield
        finally:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
            connection.execute("SELECT pg_reload_conf()")
