"""Commands find the database of the `ebbline up` that runs in a folder, without its password."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.cli.local.local_settings import local_settings, settings_beside_up
from backend.data_folder.data_folder import DataFolder
from backend.settings.settings import Settings
from backend.supervisor.checks.preparation import database_to_note


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataFolder:
    monkeypatch.delenv("EBBLINE_DATABASE_URL", raising=False)
    (tmp_path / "run").mkdir()
    return DataFolder(tmp_path)


def test_the_url_is_noted_without_a_password_and_found(folder: DataFolder) -> None:
    url = "postgresql://ebb:s3cret@h:5432/db?sslmode=require&sslpassword=s3cret"
    folder.note_database(database_to_note(Settings(data_dir=folder.root, database_url=url)))
    database = settings_beside_up(data_dir=folder.root).database
    assert database == "postgresql://ebb@h:5432/db?sslmode=require"
    assert settings_beside_up(data_dir=folder.root, database_url="sqlite:///x").database == "sqlite:///x"
    assert local_settings(data_dir=folder.root).database_url is None


def test_the_folders_own_file_is_found_again(folder: DataFolder) -> None:
    folder.note_database("postgresql://ebb@h/db")
    folder.note_database(database_to_note(Settings(data_dir=folder.root)))
    assert settings_beside_up(data_dir=folder.root).database == f"sqlite:///{folder.root}/ebbline.db"
