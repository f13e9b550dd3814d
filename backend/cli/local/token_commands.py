"""`ebbline token add|ls|withdraw`: who may call the control API; works on the database, so it needs no token itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from backend.cli.local import audited
from backend.cli.local.local_settings import DatabaseOptions, DatabaseReportOptions, identity_of, refuse
from backend.cli.shared.options import console, show_json, with_options
from backend.cli.shared.tables import table
from backend.cli.shared.value_text import moment, plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

T = TypeVar("T")
DAY_MS = 86_400_000
token_app = typer.Typer(help="Tokens of the control API.", no_args_is_help=True)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Whose it is; stands in the audit.")]


def _on_database(options: DatabaseOptions, change: Callable[[Connection, str], T], *, writes: bool = True) -> T:
    """The result of `change` with the connection and the id of the folder's cluster."""
    from sqlalchemy.exc import DBAPIError

    from backend.data_folder.data_folder import DataFolderError
    from backend.store.connection.database import StoreError, reading, store_error, writing
    from backend.store.connection.limits import PAGES
    from backend.store.migrate import open_current

    settings = options.settings()
    try:
        cluster_id = identity_of(settings).cluster_id
        engine = open_current(settings.database, PAGES, name="command")
        try:
            with writing(engine) if writes else reading(engine) as connection:
                return change(connection, cluster_id)
        finally:
            engine.dispose()
    except (DataFolderError, StoreError, ValueError) as error:
        refuse(error)
    except DBAPIError as error:
        refuse(store_error(settings.database, error) or error)


def _audit(connection: Connection, cluster_id: str, action: str, name: str, detail: str | None) -> None:
    """In the change's own transaction."""
    from backend.control.operations.audit_entries import append_entry

    append_entry(connection, cluster_id, audited.entry(action, name, detail=detail))


@token_app.command("add")
@with_options
def add(
    options: DatabaseOptions,
    name: NameArgument,
    role: Annotated[Literal["viewer", "operator"], typer.Option(help="What it may do.")] = "viewer",
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long it is taken.")] = 90,
) -> None:
    """Make a token and print it, once: only its hash is kept."""
    from backend.control.http.api_tokens import KnownToken, TokenRole, add_token

    if not 0 < len(name) <= 100 or not name.isprintable():
        refuse("A token's name has 1 to 100 printable characters.")
    token = KnownToken(name, TokenRole(role), time.time_ns() // 1_000_000 + days * DAY_MS)

    def change(connection: Connection, cluster_id: str) -> str:
        text = add_token(connection, cluster_id, token)
        _audit(connection, cluster_id, "add token", name, f"{role}, for {plural(days, 'day')}")
        return text

    print(_on_database(options, change))


@token_app.command("ls")
@with_options
def list_tokens(options: DatabaseReportOptions) -> None:
    """The tokens there are, with their roles and ends."""
    from backend.control.http.api_tokens import tokens_by_hash

    tokens = _on_database(options, tokens_by_hash, writes=False).values()
    if options.json_:
        show_json([{"name": token.name, "role": token.role.value, "expires_ms": token.expires_ms} for token in tokens])
        return
    rows = [
        (token.name, token.role.value, "never" if token.expires_ms is None else moment(token.expires_ms))
        for token in tokens
    ]
    console().print(table(["NAME", "ROLE", "EXPIRES"], rows))


@token_app.command("withdraw")
@with_options
def withdraw(options: DatabaseOptions, name: NameArgument) -> None:
    """Take a token back; the API refuses it within seconds."""
    from backend.control.http.api_tokens import FIRST_START, withdraw_token

    if name in {token.name for token in FIRST_START}:
        refuse(f"{name} is a token of the first start: delete run/{name}.token and start again, which makes a new one.")

    def change(connection: Connection, cluster_id: str) -> bool:
        withdrawn = withdraw_token(connection, cluster_id, name)
        if withdrawn:
            _audit(connection, cluster_id, "withdraw token", name, None)
        return withdrawn

    if not _on_database(options, change):
        refuse(f"There is no token {name}: see `ebbline token ls`.")
    print(f"The token {name} is withdrawn.")
