"""How this product connects to PostgreSQL: with an end to every wait, and only to a server that it can work with.

A pooler may stand between (pgbouncer in transaction mode), which gives each transaction another session: no setting
outlives its transaction, locks are those of transactions, and statements are prepared in the server only where the
session is the connection's own. Prepared, a round of samples is stored twice as fast.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import psycopg
from psycopg import generators
from psycopg.abc import PQGen
from psycopg.errors import _WaitTimeout
from psycopg.pq import ExecStatus, TransactionStatus
from sqlalchemy import Connection, Engine, event

from backend.store.connection import limits as t

# The oldest that was played with this release.
VERSION_MIN: Final = 130_000
# A statement that comes this often is prepared: the driver's own default.
PREPARE_THRESHOLD: Final = 5
RV = TypeVar("RV")


class Unsuitable(psycopg.NotSupportedError):
    """The database answers and is not one that this product can use."""


class PatientConnection(psycopg.Connection[Any]):
    """Gives up an answer that does not come: the server is frozen, or the network loses what is sent.

    `limit`: of the transaction; None: no limit. `first_answer_s`: for the first answer of each transaction.
    """

    limit: t.Wait | None = None
    first_answer_s: float = t.FIRST_ANSWER_S

    def begin(self) -> None:
        """A transaction with its limits, all in one message: they take no round trip."""
        if not self.autocommit:
            with self.lock:
                self.wait(self._begin())

    def _begin(self) -> PQGen[None]:
        self._check_connection_ok()
        self.pgconn.send_query(self._get_tx_start_command() + _set_local(self.limit))
        result = (yield from generators.execute(self.pgconn))[-1]
        if result.status != ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(result, encoding=self.pgconn._encoding)

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        if timeout is None:
            # The first answer of a transaction comes at once.
            idle = self.pgconn.transaction_status == TransactionStatus.IDLE
            timeout = self.first_answer_s if idle or self.limit is None else self.limit.answer_s
        try:
            return super().wait(gen, interval, timeout)
        except _WaitTimeout:
            self.close()
            raise psycopg.OperationalError(f"no answer within {timeout:.0f} s") from None


def _set_local(limit: t.Wait | None) -> bytes:
    if limit is None:
        return b""
    return f"; SET LOCAL lock_timeout = {limit.lock_ms}; SET LOCAL statement_timeout = {limit.statement_ms}".encode()


def connect_arguments(name: str) -> dict[str, Any]:
    """Arguments for libpq and the driver. The server shows `name` for the session."""
    return {
        "application_name": f"ebbline {name}",
        "connect_timeout": t.CONNECT_TIMEOUT_S,
        "keepalives_idle": t.KEEPALIVES_IDLE_S,
        "keepalives_interval": t.KEEPALIVES_INTERVAL_S,
        "keepalives_count": t.KEEPALIVES_COUNT,
        "tcp_user_timeout": t.TCP_USER_TIMEOUT_MS,
        "prepare_threshold": None,  # until the session is known to be its own
    }


def listen(engine: Engine, limits: t.Limits) -> None:
    """Lets `engine` make such connections and limit its transactions."""

    @event.listens_for(engine, "do_connect")
    def _on_connect(_dialect: Any, _record: Any, arguments: Any, options: Any) -> PatientConnection:
        connection = PatientConnection.connect(*arguments, **options)
        connection.first_answer_s = limits.first_answer_s
        try:
            check_server(connection)
            if own_session(connection, limits.writing):
                connection.prepare_threshold = PREPARE_THRESHOLD
        except BaseException:
            connection.close()
            raise
        return connection

    def begin(connection: Any) -> None:
        connection.driver_connection.begin()

    # SQLAlchemy leaves BEGIN to the driver, which sends it alone; no event lets another one send it.
    dialect: Any = engine.dialect
    dialect.do_begin = begin

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        options = connection.get_execution_options()
        driver.limit = limits.writing if options.get("ebbline_writes", False) else limits.reading
        if options.get("ebbline_retention", False):
            driver.limit = limits.retention or limits.writing


def own_session(connection: psycopg.Connection[Any], limit: t.Wait) -> bool:
    """Whether the session stays the connection's own, as without a pooler; if so, BEGIN has these limits as well.

    A pooler tells its own process id at the login, which is no session of the server.
    """
    connection.autocommit = True
    row = connection.execute(
        "SELECT set_config('statement_timeout', %s, false) WHERE pg_backend_pid() = %s",
        (str(limit.statement_ms), connection.info.backend_pid),
    ).fetchone()
    connection.autocommit = False
    return row is not None


def check_server(connection: psycopg.Connection[Any]) -> None:
    """Raises Unsuitable for a server that is too old, or a database that cannot hold every text."""
    version = connection.info.server_version
    if version < VERSION_MIN:
        raise Unsuitable(f"PostgreSQL {version // 10_000} is too old, ebbline needs {VERSION_MIN // 10_000} or later")
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise Unsuitable(
            f"its encoding is {encoding}, which cannot hold every text: it must be UTF8"
            " (CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0)"
        )
