"""A copy of the database that can be put back, made while others write."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL

from backend.store.connection.database import StoreError, describe, parse_url

PAGES_AT_ONCE: Final = 4_096  # 16 MB; other writers get their turn in between


def backup(url: str, target: Path) -> int:
    """Write the whole database to the file ``target``; returns its bytes.

    SQLite: a database file, the state of one moment. PostgreSQL: what ``pg_dump --format=custom`` writes, for
    ``pg_restore``. Raises StoreError, and leaves no half file, when it cannot be done or the file exists.
    """
    if target.exists():
        raise StoreError(f"The file {target} exists: give another name for the backup.")
    if not target.absolute().parent.is_dir():
        raise StoreError(f"The folder of {target} does not exist: create it first.")
    half = target.with_name(f".{target.name}.part")
    parsed = parse_url(url)
    try:
        if parsed.get_backend_name() == "sqlite":
            _copy_sqlite(url, Path(str(parsed.database)), half)
        else:
            _dump_postgresql(parsed, half)
        with open(half, "rb+") as file:
            os.fsync(file.fileno())
        half.rename(target)
    except OSError as error:
        raise StoreError(f"The backup {target} cannot be written: {error.strerror or error}.") from error
    finally:
        half.unlink(missing_ok=True)
    return target.stat().st_size


def _copy_sqlite(url: str, source: Path, target: Path) -> None:
    if not source.is_file():
        raise StoreError(f"The database {describe(url)} does not exist: nothing to back up.")
    try:
        with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as old:
            # One read transaction, or a writer between two steps would make it start over.
            old.isolation_level = None
            old.execute("BEGIN")
            with closing(sqlite3.connect(target)) as new:
                old.backup(new, pages=PAGES_AT_ONCE)
    except sqlite3.Error as error:
        raise StoreError(
            f"The database {describe(url)} cannot be copied: {error}. Check the file and the disk."
        ) from error


def _dump_postgresql(url: URL, target: Path) -> None:
    from psycopg.conninfo import make_conninfo

    program = shutil.which("pg_dump")
    if program is None:
        raise StoreError("The program pg_dump is not on the PATH: install PostgreSQL's client tools, then try again.")
    _, options = url.get_dialect()().create_connect_args(url)
    options.pop("password", None)
    # The password by environment: arguments are there for every user of the machine to see.
    environment = {**os.environ, **({"PGPASSWORD": str(url.password)} if url.password else {})}
    done = subprocess.run(
        [program, "--format=custom", f"--file={target}", "--dbname", make_conninfo(**options)],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        cause = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise StoreError(
            f"pg_dump could not copy {describe(url.render_as_string())}: {cause}. Check the server and the rights."
        )
