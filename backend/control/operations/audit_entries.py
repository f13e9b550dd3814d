"""Audit entries: one row per attempt, refusals included, never changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection

from backend.control.wall_clock import now_ms
from backend.store.writes.operation_rows import add_audit


class ActorRole(StrEnum):
    """Role of an actor: a viewer reads and makes dry runs, an operator changes."""

    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Actor:
    """The caller: a person named by the dashboard's login, or the name of a token."""

    name: str
    role: ActorRole


class AuditResult(StrEnum):
    """End of an attempt."""

    ACCEPTED = "accepted"
    VERIFIED = "verified"
    STOPPED = "stopped"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One attempt; `at_ms` is when it was made, which may be before it can be stored."""

    actor: Actor
    action: str
    object: str
    result: AuditResult
    detail: str | None = None
    reason: str | None = None
    operation_id: int | None = None
    diff: Any = None
    cli: Any = None
    at_ms: int = field(default_factory=now_ms)


def append_entry(connection: Connection, cluster_id: str, entry: AuditEntry) -> None:
    """Appends the entry, in the caller's transaction: what happened and that it happened are stored together."""
    add_audit(
        connection,
        {
            "cluster_id": cluster_id,
            "at_ms": entry.at_ms,
            "actor": entry.actor.name,
            "role": entry.actor.role.value,
            "action": entry.action,
            "object": entry.object,
            "diff": entry.diff,
            "reason": entry.reason,
            "operation_id": entry.operation_id,
            "cli": entry.cli,
            "result": entry.result.value,
            "detail": entry.detail,
        },
    )
