"""Handlers of findings: read them, and store what a person did about one, with the audit in the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection

from backend.control.control_database import Database
from backend.control.findings.catalogue import runbook
from backend.control.http.api_models import (
    AcknowledgeBody,
    FindingAnswer,
    FindingPath,
    FindingsAnswer,
    FindingsQuery,
    MuteBody,
)
from backend.control.http.call import Call
from backend.control.http.problems import Problem
from backend.control.operations.audit_entries import AuditEntry, AuditResult, append_entry
from backend.control.wall_clock import now_ms
from backend.store.maintenance_window import MaintenanceWindow, maintenance_until
from backend.store.queries import findings as queries
from backend.store.queries.findings import Finding
from backend.store.queries.maintenance import windows_at
from backend.store.writes.cluster_rows import data_changed
from backend.store.writes.finding_rows import acknowledge_finding, mute_findings

MINUTE_MS: Final = 60_000


class FindingHandlers:
    """Findings of one cluster, in the database."""

    def __init__(self, database: Database, cluster_id: str, unstored: Callable[[], Sequence[Finding]]) -> None:
        """`unstored` gives the open findings that a database which takes no writes does not have."""
        self._database = database
        self._unstored = unstored
        self._cluster_id = cluster_id

    async def list_findings(self, call: Call) -> FindingsAnswer:
        """Findings, the one opened last first."""
        query: FindingsQuery = call.query
        cluster_id, at_ms = self._cluster_id, now_ms()
        rows, windows = await self._database.read(
            lambda c: (
                queries.findings(
                    c,
                    cluster_id,
                    state=query.state,
                    severity=query.severity,
                    slug=query.slug,
                    topic=query.topic,
                    cause=_cause(query),
                    not_muted_at_ms=None if query.muted else at_ms,
                    before_id=query.before_id,
                    limit=query.limit + 1,  # one more shows whether there is a next page
                ),
                windows_at(c, cluster_id, at_ms),
            )
        )
        items = [_in_maintenance(finding, windows, at_ms) for finding in rows[: query.limit]]
        next_before_id = items[-1].id if len(rows) > query.limit else None
        if query.before_id is None and query.state != "closed":
            items = [*(finding for finding in self._unstored() if _fits(finding, query)), *items]
        return FindingsAnswer(items=items, next_before_id=next_before_id)

    async def get(self, call: Call) -> FindingAnswer:
        """One finding as it is now."""
        path: FindingPath = call.path
        cluster_id, at_ms = self._cluster_id, now_ms()
        finding, windows = await self._database.read(
            lambda c: (queries.finding(c, cluster_id, path.finding_id), windows_at(c, cluster_id, at_ms))
        )
        return _response(path, None if finding is None else _in_maintenance(finding, windows, at_ms))

    async def acknowledge(self, call: Call) -> FindingAnswer:
        """Notes who looks after an open finding; a second one does not take the first one's place."""
        body: AcknowledgeBody = call.body
        cluster_id, by, at_ms = self._cluster_id, call.actor.name, now_ms()

        def change(connection: Connection, finding: Finding) -> str | None:
            if finding.closed_ms is not None:
                return f"Finding {finding.id} is closed already: there is nothing to look after."
            if finding.acknowledged_ms is not None:
                return f"Finding {finding.id} was acknowledged by {finding.acknowledged_by} already."
            acknowledge_finding(connection, cluster_id, finding.id, at_ms, by)
            return None

        return await self._change(call, "acknowledge finding", change, body.reason)

    async def mute(self, call: Call) -> FindingAnswer:
        """Keeps a finding, and the next ones of the same slug and object, out of sight; 0 minutes end that."""
        body: MuteBody = call.body
        cluster_id = self._cluster_id
        until_ms = now_ms() + body.minutes * MINUTE_MS if body.minutes else None

        def change(connection: Connection, finding: Finding) -> None:
            mute_findings(connection, cluster_id, finding.slug, finding.object, until_ms)

        return await self._change(call, "mute finding" if body.minutes else "unmute finding", change, body.reason)

    async def _change(
        self, call: Call, action: str, change: Callable[[Connection, Finding], str | None], reason: str | None
    ) -> FindingAnswer:
        """Does the change, or not and with the sentence that it gives; both are audited in the same transaction."""
        path: FindingPath = call.path
        cluster_id, at_ms = self._cluster_id, now_ms()

        def job(connection: Connection) -> tuple[Finding | None, str | None]:
            before = queries.finding(connection, cluster_id, path.finding_id)
            if before is None:
                return None, None
            refusal = change(connection, before)
            after = queries.finding(connection, cluster_id, path.finding_id)
            windows = windows_at(connection, cluster_id, at_ms)
            entry = AuditEntry(
                call.actor,
                action,
                f"{before.slug} {before.object}",
                AuditResult.REFUSED if refusal else AuditResult.VERIFIED,
                detail=refusal,
                reason=reason,
                diff=None if refusal or after is None else _diff(before, after),
            )
            append_entry(connection, cluster_id, entry)
            data_changed(connection, cluster_id, "backend")
            return None if after is None else _in_maintenance(after, windows, at_ms), refusal

        finding, refusal = await self._database.write(job)
        if refusal is not None:
            raise Problem(409, "conflict", refusal)
        return _response(path, finding)


def _cause(query: FindingsQuery) -> tuple[str, str] | None:
    """(slug, object) of the finding whose consequences are to be listed."""
    if query.cause is None:
        return None
    slug, _, object_ = query.cause.partition(":")
    return slug, object_


def _fits(finding: Finding, query: FindingsQuery) -> bool:
    values = (
        (query.severity, finding.severity),
        (query.slug, finding.slug),
        (query.topic, finding.topic),
        (_cause(query), finding.cause),
    )
    return all(requested is None or requested == value for requested, value in values)


def _in_maintenance(finding: Finding, windows: Sequence[MaintenanceWindow], at_ms: int) -> Finding:
    """An open finding with the end of its maintenance."""
    if not windows or finding.closed_ms is not None:
        return finding
    until_ms = maintenance_until(windows, finding.slug, finding.topic, finding.broker_id, at_ms)
    return replace(finding, maintenance_until_ms=until_ms)


def _diff(before: Finding, after: Finding) -> dict[str, Any]:
    """As the audit has it of every change: texts before and after."""

    def text(value: object) -> str | None:
        return None if value is None else str(value)

    changes = [
        {"object": before.object, "name": name, "before": text(old), "after": text(getattr(after, name))}
        for name in ("acknowledged_by", "muted_until_ms")
        if (old := getattr(before, name)) != getattr(after, name)
    ]
    return {"finding_id": before.id, "changes": changes}


def _response(path: FindingPath, finding: Finding | None) -> FindingAnswer:
    if finding is None:
        raise Problem(404, "not-found", f"There is no finding {path.finding_id} of this cluster.")
    return FindingAnswer(finding=finding, runbook=runbook(finding.slug))
