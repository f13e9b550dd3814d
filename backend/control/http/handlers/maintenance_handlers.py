"""Handlers of maintenance windows; each change and its audit are stored in one transaction."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from backend.control.control_database import Database
from backend.control.http.alert_models import (
    MaintenanceAnswer,
    MaintenanceBody,
    MaintenanceListAnswer,
    MaintenancePath,
)
from backend.control.http.call import Call, HandlerResult
from backend.control.http.problems import Problem
from backend.control.operations.audit_entries import AuditEntry, AuditResult, append_entry
from backend.control.wall_clock import now_ms
from backend.store.maintenance_window import MaintenanceWindow
from backend.store.queries import maintenance as queries
from backend.store.queries.maintenance import ENDED_SHOWN_MS, WINDOWS_MAX
from backend.store.writes.cluster_rows import data_changed
from backend.store.writes.maintenance_rows import add_window, end_window

MINUTE_MS: Final = 60_000


class MaintenanceHandlers:
    """Windows of one cluster, in the database; the observer reads them with each round."""

    def __init__(self, database: Database, cluster_id: str) -> None:
        self._database = database
        self._cluster_id = cluster_id

    async def list_windows(self, call: Call) -> MaintenanceListAnswer:
        """Windows that hold, are planned, or have ended lately."""
        del call
        cluster_id, at_ms = self._cluster_id, now_ms()
        rows = await self._database.read(lambda c: queries.windows(c, cluster_id, at_ms - ENDED_SHOWN_MS))
        return MaintenanceListAnswer(now_ms=at_ms, items=rows)

    async def add(self, call: Call) -> HandlerResult:
        """A window: what it covers is stored and shown, and sends nothing until it ends."""
        body: MaintenanceBody = call.body
        cluster_id, at_ms = self._cluster_id, now_ms()
        begins_ms = at_ms if body.begins_ms is None else body.begins_ms
        ends_ms = begins_ms + body.minutes * MINUTE_MS
        if ends_ms <= at_ms:
            raise Problem(422, "invalid-input", "The window would have ended already: give a later begins_ms.")
        row = {
            "cluster_id": cluster_id,
            "begins_ms": begins_ms,
            "ends_ms": ends_ms,
            "slug": body.slug,
            "topic": body.topic,
            "broker_id": body.broker_id,
            "reason": body.reason,
            "created_ms": at_ms,
            "created_by": call.actor.name,
        }

        def job(connection: Connection) -> MaintenanceWindow | None:
            if queries.unended(connection, cluster_id, at_ms) >= WINDOWS_MAX:
                return None
            window = queries.window(connection, cluster_id, add_window(connection, row))
            assert window is not None  # it was stored in this transaction
            self._note(connection, call, "add maintenance", window)
            return window

        window = await self._database.write(job)
        if window is None:
            raise Problem(409, "conflict", f"There are {WINDOWS_MAX} windows already: end some of them first.")
        return HandlerResult(
            MaintenanceAnswer(window=window), 201, headers={"Location": f"/v1/maintenance/{window.id}"}
        )

    async def end(self, call: Call) -> MaintenanceAnswer:
        """Ends a window now; what it covers and is still open is sent then."""
        path: MaintenancePath = call.path
        cluster_id, at_ms = self._cluster_id, now_ms()

        def job(connection: Connection) -> tuple[MaintenanceWindow | None, bool]:
            before = queries.window(connection, cluster_id, path.window_id)
            if before is None or before.ends_ms <= at_ms:
                return before, False
            end_window(connection, cluster_id, before.id, at_ms)
            after = queries.window(connection, cluster_id, before.id)
            self._note(connection, call, "end maintenance", before)
            return after, True

        window, ended = await self._database.write(job)
        if window is None:
            raise Problem(404, "not-found", f"There is no maintenance window {path.window_id} of this cluster.")
        if not ended:
            raise Problem(409, "conflict", f"The maintenance window {path.window_id} has ended already.")
        return MaintenanceAnswer(window=window)

    def _note(self, connection: Connection, call: Call, action: str, window: MaintenanceWindow) -> None:
        entry = AuditEntry(
            call.actor,
            action,
            covered(window),
            AuditResult.VERIFIED,
            reason=window.reason if action == "add maintenance" else None,
            diff={"window_id": window.id, "begins_ms": window.begins_ms, "ends_ms": window.ends_ms},
        )
        append_entry(connection, self._cluster_id, entry)
        data_changed(connection, self._cluster_id, "backend")


def covered(window: MaintenanceWindow) -> str:
    """`copy-slow, topics logs-*, broker 2`; a window that limits nothing covers `everything`."""
    parts = [window.slug or ""]
    parts += [] if window.topic is None else [f"topics {window.topic}"]
    parts += [] if window.broker_id is None else [f"broker {window.broker_id}"]
    return ", ".join(part for part in parts if part) or "everything"
