"""Limits of every wait for the database, with the arithmetic.

A dashboard's page reads in up to seven parts, and a person reads within seconds what it waits for: the first part that
meets a lock ends after 2 s, the others end at once (`app.state.RETRY_MS`). The API's callers are answered as fast; its
writes wait as long as the pipeline may hold SQLite's lock, half a second, ten times over, and a statement of theirs has
15 s: a database that freezes within one is noticed after 20 s. A statement that removes what is old has a minute:
thinning an hour of samples of 10,000 partitions takes 5 s. PostgreSQL ends statements by itself; a server that is
frozen cannot, so each answer has a limit here, too: 5 s after the server's.

The first answer of a transaction comes at once from any server that lives: 3 s where somebody waits, 10 s for commands
and starts, which a machine under load may hold up as long. A connection is given up after 5 s of
trying each address, and after 10 s in which the other machine acknowledges nothing: `tcp_user_timeout`, and the
keep-alive for one that only waits, 10 s idle and 3 probes 3 s apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CONNECT_TIMEOUT_S: Final = 5
FIRST_ANSWER_S: Final = 3.0
FIRST_ANSWER_OF_COMMANDS_S: Final = 10.0
ANSWER_MARGIN_S: Final = 5.0
TCP_USER_TIMEOUT_MS: Final = 10_000
KEEPALIVES_IDLE_S, KEEPALIVES_INTERVAL_S, KEEPALIVES_COUNT = 10, 3, 3
# A process that finds all its connections in use says so after this.
POOL_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Wait:
    """Of one transaction: for a lock, and for one statement; 0: without a limit."""

    lock_ms: int
    statement_ms: int

    @property
    def answer_s(self) -> float | None:
        """After which the server is taken for frozen."""
        return self.statement_ms / 1000 + ANSWER_MARGIN_S if self.statement_ms else None


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one program's transactions: those that only read, write, or remove what is old."""

    reading: Wait
    writing: Wait
    busy_ms: int  # for SQLite's one lock
    first_answer_s: float = FIRST_ANSWER_S
    retention: Wait | None = None
    """Of transactions that remove what is old; None: as all that write."""


PAGES: Final = Limits(Wait(2_000, 8_000), Wait(2_000, 8_000), busy_ms=2_000)
SERVING: Final = Limits(Wait(2_000, 10_000), Wait(5_000, 15_000), busy_ms=10_000, retention=Wait(5_000, 60_000))
# The pipeline and its commands: a rebuild or a comparison of millions of rows is one statement of minutes.
PIPELINE: Final = Limits(Wait(5_000, 600_000), Wait(10_000, 600_000), busy_ms=30_000)
# An index of five million rows takes half a minute, and the room of one that is rebuilt as long again.
MIGRATION: Final = Limits(Wait(5_000, 60_000), Wait(10_000, 0), 30_000, FIRST_ANSWER_OF_COMMANDS_S)
