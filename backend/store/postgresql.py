"""How this product connects to PostgreSQL: with an end to every wait, and only to a server that it can work with.

Sessions are set up by what stays within a transaction, so a pooler between (pgbouncer in transaction mode) does no
harm: no statements are prepared in the server, no setting outlives its transaction, locks are those of transactions.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.errors import _WaitTimeout
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Engine, event

from backend.store import limits as t

# The oldest that was played with this release.
VERSION_MIN: Final = 130_000
RV = TypeVar("RV")


class Unsuitable(psycopg.NotSupportedError):
    """The database answers and is not one that this product can use."""


class PatientConnection(psycopg.Connection[Any]):
    """Gives up an answer that does not come: the server is frozen, or the network loses what is sent.

    `answer_s`: for one answer within a transaction; None: no limit.
    """

    answer_s: float | None = None

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        if timeout is None:
            # The first answer of a transaction comes at once.
            idle = self.pgconn.transaction_status == TransactionStatus.IDLE
            timeout = t.FIRST_ANSWER_S if idle else self.answer_s
        try:
            return super().wait(gen, interval, timeout)
        except _WaitTimeout:
            self.close()
            raise psycopg.OperationalError(f"no answer within {timeout:.0f} s") from None


def connect_arguments(name: str) -> dict[str, Any]:
    """What libpq and the driver are told. `name` is what the server shows for the session."""
    return {
        "application_name": f"ebbline {name}",
        "connect_timeout": t.CONNECT_TIMEOUT_S,
        "keepalives_idle": t.KEEPALIVES_IDLE_S,
        "keepalives_interval": t.KEEPALIVES_INTERVAL_S,
        "keepalives_count": t.KEEPALIVES_COUNT,
        "tcp_user_timeout": t.TCP_USER_TIMEOUT_MS,
        # A pooler gives each transaction another session: one that was prepared elsewhere is not there.
        "prepare_threshold": None,
    }


def listen(engine: Engine, limits: t.Limits) -> None:
    """Lets `engine` make such connections and limit its transactions."""

    @event.listens_for(engine, "do_connect")
    def _on_connect(_dialect: Any, _record: Any, arguments: Any, options: Any) -> PatientConnection:
        connection = PatientConnection.connect(*arguments, **options)
        try:
            check_server(connection)
        except Unsuitable:
            connection.close()
            raise
        return connection

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        wait = limits.writing if connection.get_execution_options().get("ebbline_writes", False) else limits.reading
        driver: Any = connection.connection.driver_connection
        driver.answer_s = wait.answer_s
        connection.exec_driver_sql(
            f"SELECT set_config('lock_timeout', '{wait.lock_ms}', true),"
            f" set_config('statement_timeout', '{wait.statement_ms}', true)"
        )


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
