"""Plans and audit as the operations read and write them: one place for roles, refusals and a database that is away."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeVar

from pydantic_core import to_json
from sqlalchemy import Connection

from backend.control.control_database import DatabaseAway
from backend.control.operations.audit_entries import Actor, ActorRole, AuditEntry, AuditResult, append_entry
from backend.control.operations.operation_errors import ClusterAway, NotAllowed, NotFound
from backend.control.operations.operation_kind import OperationContext
from backend.store.queries import audit as queries
from backend.store.queries.audit import OperationRow

T = TypeVar("T")


def version_of(row: OperationRow) -> str:
    """Changes whenever the plan does; the ETag of the API."""
    return hashlib.sha256(to_json(row)).hexdigest()[:20]


def object_of(row: OperationRow) -> str:
    """The object of the plan, as text."""
    return str((row.diff or {}).get("object", row.kind))


def entry_of(
    actor: Actor, action: str, row: OperationRow, result: AuditResult, detail: str | None, reason: str | None
) -> AuditEntry:
    """The audit's line about an attempt on a stored plan."""
    return AuditEntry(actor, action, object_of(row), result, detail, reason or None, row.id, row.diff, row.cli)


class PlanStore:
    """The stored plans of one cluster."""

    def __init__(self, context: OperationContext) -> None:
        self._context = context

    async def get(self, plan_id: int) -> OperationRow:
        """A plan as it is now. Raises NotFound, ClusterAway when the database is away."""
        row = await self.read(lambda c: queries.operation(c, self._context.cluster_id, plan_id))
        if row is None:
            raise NotFound(f"There is no plan {plan_id} of this cluster.")
        return row

    async def require_operator(self, actor: Actor, action: str, object_: str, row: OperationRow | None = None) -> None:
        """Raises NotAllowed for anyone else, after it stands in the audit."""
        if actor.role is ActorRole.OPERATOR:
            return
        text = "Read-only: ask for the operator role."
        entry = AuditEntry(
            actor,
            action,
            object_,
            AuditResult.REFUSED,
            detail=text,
            operation_id=None if row is None else row.id,
        )
        await self.write(lambda c: append_entry(c, self._context.cluster_id, entry))
        raise NotAllowed(text)

    async def audit_refusal(
        self, actor: Actor, action: str, row: OperationRow, detail: str, reason: str | None
    ) -> None:
        """Notes that the attempt was turned away, and why."""
        entry = entry_of(actor, action, row, AuditResult.REFUSED, detail, reason)
        await self.write(lambda c: append_entry(c, self._context.cluster_id, entry))

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Raises ClusterAway when the database is away."""
        try:
            return await self._context.database.read(query)
        except DatabaseAway as error:
            raise ClusterAway(str(error)) from error

    async def write(self, change: Callable[[Connection], T]) -> T:
        """In one transaction. Raises ClusterAway when the database is away."""
        try:
            return await self._context.database.write(change)
        except DatabaseAway as error:
            raise ClusterAway(str(error)) from error
