"""Handlers of findings: read them, and store what a person did about one, with the audit in the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import Connection

from backend.control.clock import now_ms
from backend.control.findings.catalogue import runbook
from backend.control.http.call import Call
from backend.control.http.problems import Problem
from backend.control.http.schemas import (
    AcknowledgeBody,
    FindingAnswer,
    FindingPath,
    FindingsAnswer,
    FindingsQuery,
    MuteBody,
)
from backend.control.operations.audit import AuditEntry, AuditResult, record
from backend.store.queries import findings as queries
from backend.store.queries.findings import Finding
from backend.store.writes import data_changed
from backend.store.writes_findings import set_finding

MINUTE_MS: Final = 60_000


async def list_findings(call: Call) -> FindingsAnswer:
    """Findings, the one opened last first."""
    query: FindingsQuery = call.query
    cluster_id, at_ms = call.control.settings.cluster_id, now_ms()
    rows = await call.control.database.read(
        lambda c: queries.findings(
            c,
            cluster_id,
            state=query.state,
            severity=query.severity,
            slug=query.slug,
            topic=query.topic,
            not_muted_at_ms=None if query.muted else at_ms,
            before_id=query.before_id,
            limit=query.limit + 1,  # one more tells whether there is a next page
        )
    )
    items = rows[: query.limit]
    return FindingsAnswer(items=items, next_before_id=items[-1].id if len(rows) > query.limit else None)


async def get(call: Call) -> FindingAnswer:
    """One finding as it is now."""
    path: FindingPath = call.path
    cluster_id = call.control.settings.cluster_id
    return _answer(path, await call.control.database.read(lambda c: queries.finding(c, cluster_id, path.finding_id)))


async def acknowledge(call: Call) -> FindingAnswer:
    """Notes who looks after an open finding; a second one does not take the first one's place."""
    body: AcknowledgeBody = call.body

    def values(found: Finding) -> Mapping[str, Any] | str:
        if found.closed_ms is not None:
            return f"Finding {found.id} is closed already: there is nothing to look after."
        if found.acknowledged_ms is not None:
            return f"Finding {found.id} was acknowledged by {found.acknowledged_by} already."
        return {"acknowledged_ms": now_ms(), "acknowledged_by": call.actor.name}

    return await _set(call, "acknowledge finding", values, body.reason)


async def mute(call: Call) -> FindingAnswer:
    """Keeps a finding, and the next ones of the same slug and object, out of sight; 0 minutes end that."""
    body: MuteBody = call.body
    until_ms = now_ms() + body.minutes * MINUTE_MS if body.minutes else None
    action = "mute finding" if body.minutes else "unmute finding"
    return await _set(call, action, lambda _: {"muted_until_ms": until_ms}, body.reason)


async def _set(
    call: Call, action: str, values: Callable[[Finding], Mapping[str, Any] | str], reason: str | None
) -> FindingAnswer:
    """Stores what `values` gives for the finding, or refuses with the sentence that it gives; both are audited."""
    path: FindingPath = call.path
    cluster_id = call.control.settings.cluster_id

    def change(connection: Connection) -> tuple[Finding | None, str | None]:
        found = queries.finding(connection, cluster_id, path.finding_id)
        if found is None:
            return None, None
        wanted = values(found)
        refusal = wanted if isinstance(wanted, str) else None
        if not isinstance(wanted, str):
            set_finding(connection, cluster_id, found.id, wanted)
            data_changed(connection, cluster_id, "backend")
        entry = AuditEntry(
            call.actor,
            action,
            f"{found.slug} {found.object}",
            AuditResult.REFUSED if refusal else AuditResult.VERIFIED,
            detail=refusal,
            reason=reason,
            diff=None if isinstance(wanted, str) else {"finding_id": found.id, **wanted},
        )
        record(connection, cluster_id, entry)
        return queries.finding(connection, cluster_id, found.id), refusal

    found, refusal = await call.control.database.write(change)
    if refusal is not None:
        raise Problem(409, "conflict", refusal)
    return _answer(path, found)


def _answer(path: FindingPath, found: Finding | None) -> FindingAnswer:
    if found is None:
        raise Problem(404, "not-found", f"There is no finding {path.finding_id} of this cluster.")
    return FindingAnswer(finding=found, runbook=runbook(found.slug))
