"""`ebbline db …`: the database's schema, and copies of it. `ebbline up` upgrades by itself at its start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from backend.cli.local.local_settings import DatabaseOptions, refuse
from backend.cli.shared.options import with_options

database_app = typer.Typer(help="The database: schema and backups.", no_args_is_help=True)
ATTENTION = 1


@database_app.command("check")
@with_options
def check(options: DatabaseOptions) -> None:
    """Is this the schema this program needs? Changes nothing. Ends with 1 when there is something to do."""
    from backend.store import migrate
    from backend.store.connection.database import StoreError, describe

    url = options.settings().database
    try:
        report = migrate.check(url)
    except StoreError as error:
        refuse(error)
    print(f"{describe(url)}: schema {report.revision or 'none yet'}, this program needs {report.head}.")
    for step in report.missing:
        print(f"  missing: {step.revision} ({step.phase}) {step.title}")
    for difference in report.differences:
        print(f"  differs: {difference}")
    if report.missing:
        print("Run `ebbline db upgrade`, or start `ebbline up`, which does it.")
    elif report.differences:
        print("Restore a backup, or compare with the schema of an empty database; somebody changed it by hand.")
    else:
        print("Nothing to do.")
    if report.missing or report.differences:
        raise typer.Exit(ATTENTION)


@database_app.command("upgrade")
@with_options
def upgrade(
    options: DatabaseOptions,
    *,
    pre: Annotated[
        bool, typer.Option("--pre", help="Only what programs of the release before can work with, too.")
    ] = False,
) -> None:
    """Bring the database to this program's schema, in one transaction."""
    from backend.store import migrate
    from backend.store.connection.database import StoreError

    url = options.settings().database
    try:
        before = migrate.current(url)
        target = migrate.last_pre(before) if pre else migrate.head()
        if target != migrate.last_pre(before):
            _refuse_while_running(url, "removes what they use")
        reached = migrate.upgrade(url, target)
    except StoreError as error:
        refuse(error)
    left = migrate.steps_after(reached)
    if left:
        print(
            f"The database has schema {reached}. Left out: {left[0].revision}, which takes away what older programs"
            " use; `ebbline db upgrade` without --pre, once they have stopped."
        )
    else:
        print(f"The database has schema {reached}." + (" Nothing was missing." if reached == before else ""))


@database_app.command("downgrade")
@with_options
def downgrade(
    options: DatabaseOptions,
    revision: Annotated[str, typer.Argument(help="The schema to go back to, e.g. 0003; `base` drops every table.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Go back to an older schema, for an older program. What only the newer one holds is lost."""
    from backend.store import migrate
    from backend.store.connection.database import StoreError, describe

    url = options.settings().database
    try:
        revision_now = migrate.current(url)
        undone = migrate.undone_by(revision_now, revision)
        _refuse_while_running(url, "takes tables away from them")
        if not undone:
            print(f"The database has schema {revision_now} already.")
            return
        steps = ", ".join(step.revision for step in undone)
        if not yes:
            typer.confirm(f"Undo {steps} in {describe(url)}? What only they hold is lost. Have a backup?", abort=True)
        migrate.downgrade(url, revision)
    except StoreError as error:
        refuse(error)
    print(f"Undone: {steps}. The next start of this release upgrades again; start the older one.")


@database_app.command("backup")
@with_options
def backup(
    options: DatabaseOptions, file: Annotated[Path, typer.Argument(help="The file to write; it must not exist.")]
) -> None:
    """Copy the whole database to a file, while others write: SQLite as a database, PostgreSQL by pg_dump."""
    from backend.store.backups import backup as copies
    from backend.store.connection.database import StoreError

    url = options.settings().database
    try:
        size = copies.backup(url, file)
    except StoreError as error:
        refuse(error)
    print(f"{file}: {size} bytes.")


def _refuse_while_running(url: str, why: str) -> None:
    """Raises StoreError while a program of ours gives signs of life in the database."""
    from backend.store import migrate

    running = migrate.running(url)
    if running:
        raise migrate.MigrationError(
            f"{', '.join(running)} of this database still run{'s' if len(running) == 1 else ''}, and this {why}: "
            "stop `ebbline up` first."
        )
