"""Checks of `/readyz`: the cluster answers, the database takes writes, the disks have room, and what the process
adds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from backend.control.control_database import Database, DatabaseAway
from backend.control.database_keeper import DatabaseKeeper
from backend.control.http.disk_room import DiskRoom
from backend.control.observer.cluster_observer import ClusterObserver
from backend.store.writes import cluster_rows

# The pipeline holds the lock for half a second at most; a database that is not free in this time is faulty.
PROBE_TIMEOUT_S: Final = 3.0
# A database that took no write before and is free again takes one in milliseconds; who asks is not to wait for a lock.
RETURNED_S: Final = 0.3
# Probes come every 100 ms while a start is watched: one question to the database a second is enough.
PROBE_EVERY_S: Final = 1.0


class ReadinessChecks:
    """Belongs to one event loop."""

    def __init__(
        self,
        observer: ClusterObserver,
        database: Database,
        more: Callable[[], Mapping[str, str | None]] | None = None,
        disk: DiskRoom | None = None,
        keeper: DatabaseKeeper | None = None,
    ) -> None:
        self._disk = disk
        self._keeper = keeper
        self._observer = observer
        self._database = database
        self._more = more
        self._probe: asyncio.Task[str | None] | None = None
        self._probed_s = float("-inf")
        self._last_result: str | None = None  # what the last probe found

    async def checks(self) -> dict[str, str | None]:
        """Each check by name: None when it passes, else one sentence."""
        result: dict[str, str | None] = {"cluster": self._cluster(), "database": await self._database_takes_writes()}
        if self._disk is not None:
            result["disk"] = await self._disk.check()
        if self._more is not None:
            result.update(self._more())
        return result

    @property
    def starting(self) -> bool:
        """True while the program itself still starts; False: it waits for others."""
        return self._keeper is not None and not self._keeper.tried

    @property
    def missing_rights(self) -> list[str]:
        """The rights on the cluster that are missing, as docs/attach.md names them."""
        return [str(right) for right in self._observer.missing_rights]

    @property
    def database_responded_ms(self) -> int | None:
        """When the database last took a read or a write; None: never in this process."""
        return self._database.responded_ms

    def _cluster(self) -> str | None:
        state = self._observer.state
        if state.cluster_answers:
            return None
        return state.away_reason or "The cluster was not asked yet; wait a moment."

    async def _database_takes_writes(self) -> str | None:
        """One probe at a time, so that a locked database does not use up the threads."""
        if (closed := self._database.check_file()) is not None:
            return closed
        if self._probe is None or (self._probe.done() and time.monotonic() - self._probed_s > PROBE_EVERY_S):
            self._probe = asyncio.create_task(self._ask_database(), name="readiness-database")
        problem = self._last_result or self._observer.recorder.away
        done, _ = await asyncio.wait({self._probe}, timeout=PROBE_TIMEOUT_S if problem is None else RETURNED_S)
        if not done:
            hangs = "it hangs, or another program holds it"
            return problem or f"The database did not take a write in {PROBE_TIMEOUT_S:.0f} s: {hangs}."
        self._last_result = self._probe.result()
        return self._last_result

    async def _ask_database(self) -> str | None:
        try:
            await self._database.write(cluster_rows.touch)
        except DatabaseAway as error:
            return str(error)
        finally:
            self._probed_s = time.monotonic()
        return None
