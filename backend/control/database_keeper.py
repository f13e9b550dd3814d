"""Opens the database, as often as it takes, looks whether it is still the same one, and keeps copies of it.

Brokers, lab and Kafka clients run without it. Parts that need it get the reason for the wait (`Database.closed`), and
continue once the database answers and has this program's schema. A SQLite file that is lost is put back
(`backend.store.backups.restoring`), not before its owner had the time to do it.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from sqlalchemy import Connection

from backend.control.control_database import Database
from backend.control.deferred_audit import DeferredAudit
from backend.control.wall_clock import now_ms
from backend.store import migrate
from backend.store.backups import automatic_backups as backups
from backend.store.backups import restoring
from backend.store.connection.database import StoreError
from backend.store.connection.sqlite import Identity, file_identity, log_of

RETRY_FIRST_S: Final = 1.0
RETRY_MAX_S: Final = 5.0
CHECK_INTERVAL_S: Final = 1.0
# A file that an operator moves by hand is back by then.
PUT_BACK_S: Final = 10.0
# A new database is copied so soon: its first plans and tokens are in it.
FIRST_BACKUP_S: Final = 60.0
NOTE_EVERY_S: Final = 5.0
BACKUP_LOOK_S: Final = 60.0
_log = logging.getLogger(__name__)


class DatabaseKeeper:
    """Belongs to one event loop; `run` alone opens and closes the database."""

    def __init__(self, database: Database, prepare: Callable[[Connection], None], deferred: DeferredAudit) -> None:
        """`prepare` is stored each time that it opens, before anyone else may write; `deferred` once it is open."""
        self._database = database
        self._prepare = prepare
        self._deferred = deferred
        self._logged_reason = ""
        self._deleted_file_reader: sqlite3.Connection | None = None  # still reads a file that was deleted
        self._identity: Identity | None = None
        self._log: Identity | None = None
        self._lost_s: float | None = None
        self._noted: backups.IrreplaceableRows | None = None
        self.tried = False
        """Whether it was tried to open it: what it waits for now is not the program's own."""

    async def run(self) -> None:
        """Until it is cancelled."""
        next_note_s = next_backup_s = 0.0
        try:
            while True:
                if self._database.closed is not None:
                    await self._open()
                    next_backup_s = time.monotonic() + FIRST_BACKUP_S
                await self._deferred.store()
                file = self._database.file
                if file is not None:
                    self._log = file_identity(log_of(file))
                    if time.monotonic() >= next_note_s:
                        await asyncio.to_thread(self._note, file)
                        next_note_s = time.monotonic() + NOTE_EVERY_S
                    if time.monotonic() >= next_backup_s:
                        await asyncio.to_thread(self._back_up, file)
                        next_backup_s = time.monotonic() + BACKUP_LOOK_S
                await asyncio.sleep(CHECK_INTERVAL_S)
                if (closed := self._database.check_file()) is not None:
                    self._log_reason(closed)
                    self._lost_s = time.monotonic()
        finally:
            self._release()

    async def _open(self) -> None:
        pause_s = RETRY_FIRST_S
        while True:
            try:
                await asyncio.to_thread(self._make_ready)
                await self._database.before_admission(self._prepare)
                await asyncio.to_thread(self._hold)
                self._database.admit()
            except StoreError as error:
                self._database.refuse(str(error))
                self._log_reason(f"{error} Brokers serve without it.")
            else:
                if self._logged_reason:
                    _log.info("The database answers: what waited for it goes on")
                self._logged_reason, self._lost_s = "", None
                return
            finally:
                self.tried = True
            await asyncio.sleep(pause_s)
            pause_s = min(RETRY_MAX_S, pause_s * 2)

    def _make_ready(self) -> None:
        """On a thread. Raises StoreError for what may pass."""
        file = self._database.file
        if file is not None and (done := self._bring_back(file)) is not None:
            self._database.restored.append(done)
            missing = f" Missing: {done.missing}." if done.missing else " Nothing is missing."
            _log.warning("%s.%s", done.sentence, missing)
        migrate.upgrade(self._database.url)

    def _bring_back(self, file: Path) -> restoring.Restored | None:
        identity = file_identity(file)
        if identity is None and self._lost_s is not None:
            left_s = self._lost_s + PUT_BACK_S - time.monotonic()
            if left_s > 0 or not file.parent.is_dir():
                when = (
                    f"it is restored after {PUT_BACK_S:.0f} s unless it is put back"
                    if left_s > 0
                    else "so was its folder"
                )
                raise StoreError(f"The database file {file} was moved or deleted while it was in use: {when}.")
        if identity is None and self._deleted_file_reader is not None:
            with suppress(StoreError):
                return restoring.rescue(self._deleted_file_reader, file, now_ms())
        if None not in (identity, self._identity) and identity != self._identity:
            return self._replaced(file)
        return restoring.restore(file, now_ms(), thorough=self._database.suspect)

    def _replaced(self, file: Path) -> restoring.Restored | None:
        """Another file has the name: its owner's, and used from now on, without the log of the former."""
        damage = restoring.damage_of(file)
        if damage is not None:
            raise StoreError(f"The file that took the place of the database {file} is damaged: {damage}.")
        log = log_of(file)
        if self._log is not None and file_identity(log) == self._log:
            restoring.set_aside(file, now_ms(), logs_only=True)
        sentence = f"The database {file} was replaced by another file while it was in use, which is used from now on"
        return restoring.Restored(now_ms(), sentence, "what the other file does not have")

    def _hold(self) -> None:
        file = self._database.file
        if file is None:
            return
        self._release()
        try:
            uri = f"{file.absolute().as_uri()}?mode=ro"
            self._deleted_file_reader = sqlite3.connect(uri, uri=True, check_same_thread=False)
            self._deleted_file_reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            raise StoreError(f"The database {file} cannot be opened: {error}.") from error
        self._identity, self._log = file_identity(file), file_identity(log_of(file))

    def _release(self) -> None:
        if self._deleted_file_reader is not None:
            self._deleted_file_reader.close()
            self._deleted_file_reader = None

    def _note(self, file: Path) -> None:
        if self._deleted_file_reader is None:
            return
        with suppress(sqlite3.Error):
            irreplaceable = backups.irreplaceable_rows(self._deleted_file_reader, now_ms())
            before = self._noted
            if before is None or (before.plan, before.audit, before.tokens) != (
                irreplaceable.plan,
                irreplaceable.audit,
                irreplaceable.tokens,
            ):
                backups.note_irreplaceable(file, irreplaceable)
                self._noted = irreplaceable

    def _back_up(self, file: Path) -> None:
        if not backups.due(file, now_ms()):
            return
        try:
            made = backups.back_up(file, backups.DAILY, now_ms())
            _log.info("The database was backed up to %s", made)
        except StoreError as error:
            self._log_reason(str(error))

    def _log_reason(self, reason: str) -> None:
        """Once for each reason."""
        if reason != self._logged_reason:
            _log.warning("The database: %s", reason)
        self._logged_reason = reason
