"""Commands that change something without the control API stand in the audit of the data folder."""

from __future__ import annotations

from pathlib import Path

from backend.cli.local import audited
from backend.settings.settings import Settings
from backend.store.connection.database import reading
from backend.store.migrate import upgrade
from backend.store.queries import audit
from tests.databases import opened_engine


def test_a_command_is_stored_with_the_account_that_ran_it(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    upgrade(settings.database)
    row = audited.entry("upgrade feature", "eligible.leader.replicas.version", detail="to level 1", reason="a disk")
    assert audited.store(settings, "C", row) is None
    with opened_engine(settings.database) as engine, reading(engine) as connection:
        [stored] = audit.entries(connection, "C", limit=5)
    assert (stored.action, stored.object, stored.detail) == (row.action, row.object, "to level 1")
    assert stored.actor == f"{audited.account()} on the command line"


def test_a_folder_without_a_database_says_so(tmp_path: Path) -> None:
    row = audited.entry("upgrade feature", "eligible.leader.replicas.version")
    assert audited.store(Settings(data_dir=tmp_path), "C", row) == "there is no database"
    assert list(tmp_path.iterdir()) == []
