"""Copies SQLite's log into its file while the next transaction is under way.

SQLite does that at the end of the commit that finds 1,000 pages in the log, and it is a fifth of what storing a batch
takes. A passive checkpoint disturbs neither writers nor readers, so another thread does it between two commits.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

log = logging.getLogger(__name__)

# An event makes about 1.5 KB of log, in pages of 4 KiB: 3,000 are the 1,000 pages after which SQLite would begin.
RECORDS_BETWEEN: Final = 3_000
# The log starts over when a transaction begins while all of it is copied, which hardly happens under load: a commit has
# just added to it. So beyond 32 MiB nothing is stored until it is. That is noticed a copy later, after two or three
# transactions of 10 to 30 MB more: 600,000 events leave a file of 66 MB.
LOG_PAGES_MAX: Final = 8_192


class Checkpointer:
    """For one sink. `stored` after each commit; `LOG_PAGES_MAX` is for the connection that commits, too."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "pipeline checkpoint")
        self._copying: Future[int] | None = None
        self._records = 0

    def close(self) -> None:
        """Wait for a copy that is under way."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def stored(self, engine: Engine, records: int) -> None:
        """Begin to copy when there is enough. Waits for the copy before, and until all is copied of a log too long."""
        self._records += records
        if self._records < RECORDS_BETWEEN:
            return
        self._records = 0
        pages = 0 if self._copying is None else self._copying.result()
        self._copying = self._pool.submit(_checkpoint, engine)
        if pages > LOG_PAGES_MAX:
            self._copying.result()


def _checkpoint(engine: Engine) -> int:
    """How many pages the log had.

    An error is no more than a line in the log, as in SQLite's own: what cannot be copied stays in the log.
    """
    try:
        connection = engine.raw_connection()  # SQLAlchemy's own would begin a transaction, in which it cannot be
        try:
            _busy, pages, _copied = connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        finally:
            connection.close()
    except (SQLAlchemyError, engine.dialect.loaded_dbapi.Error) as error:
        log.warning("pipeline: SQLite's log could not be copied into its file, a later commit tries again: %s", error)
        return 0
    return int(pages)
