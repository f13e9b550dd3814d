"""Audit rows of commands that act without the control API: on a data folder, or through a broker."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backend.control.operations.audit_entries import AuditEntry
    from backend.settings.settings import Settings


def account() -> str:
    """The name of this process's account, whatever the environment says; its number where it has none."""
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"


def entry(action: str, object_: str, *, detail: str | None = None, reason: str | None = None) -> AuditEntry:
    """An accepted change by the account that runs the command."""
    from backend.control.operations.audit_entries import Actor, ActorRole, AuditEntry, AuditResult

    actor = Actor(f"{account()} on the command line", ActorRole.OPERATOR)
    return AuditEntry(actor, action, object_, AuditResult.ACCEPTED, detail=detail, reason=reason)


def store(settings: Settings, cluster_id: str, row: AuditEntry) -> str | None:
    """Writes it into the database of a data folder; why not, where it cannot be written."""
    from sqlalchemy.exc import DBAPIError

    from backend.control.operations.audit_entries import append_entry
    from backend.store.connection.database import StoreError, store_error, writing
    from backend.store.connection.limits import PAGES
    from backend.store.migrate import open_current

    if settings.database_url is None and not settings.database_file.exists():
        return "there is no database"
    try:
        engine = open_current(settings.database, PAGES, name="command")
        try:
            with writing(engine) as connection:
                append_entry(connection, cluster_id, row)
        finally:
            engine.dispose()
    except (StoreError, ValueError, OSError) as error:
        return str(error)
    except DBAPIError as error:
        return str(store_error(settings.database, error) or error)
    return None
