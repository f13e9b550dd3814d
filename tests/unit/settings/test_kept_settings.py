"""A data folder keeps where its `ebbline up` runs: the next start and the commands there need no variables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from backend.cli.local.local_settings import local_settings, settings_beside_up
from backend.cli.shared.api_session import find_place
from backend.data_folder.data_folder import ClusterIdentity, DataFolder
from backend.settings.kept_settings import FILE, values_to_keep
from backend.settings.settings import Settings

MOVED = {"EBBLINE_API_PORT": "9090", "EBBLINE_BROKER_PORT": "20092", "EBBLINE_REMOTE_LOCATION": "s3://bucket/tier"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataFolder:
    for name in (*MOVED, "EBBLINE_DATABASE_URL", "EBBLINE_ATTACH", "EBBLINE_TOKEN_FILE", "EBBLINE_API_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "run").mkdir()
    return DataFolder(tmp_path)


def keep(folder: DataFolder, **given: object) -> None:
    Settings(data_dir=folder.root, **given).keep()  # type: ignore[arg-type]


def test_what_the_environment_said_holds_in_a_shell_without_it(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in MOVED.items():
        monkeypatch.setenv(name, value)
    keep(folder)
    for name in MOVED:
        monkeypatch.delenv(name)
    for settings in (Settings(data_dir=folder.root), settings_beside_up(data_dir=folder.root)):
        assert (settings.api_port, settings.broker_port) == (9090, 20092)
        assert settings.remote_location == "s3://bucket/tier"
    (folder.run / "operator.token").write_text("token")
    assert find_place(None, None, folder.root).url == "http://127.0.0.1:9090"


def test_the_file_of_the_user_wins_at_the_next_start_and_what_runs_wins_in_commands(folder: DataFolder) -> None:
    (folder.root / "ebbline.toml").write_text("api_port = 9000\napp_port = 9001\n")
    keep(folder, api_port=8090)
    assert "app_port" not in (folder.root / FILE).read_text()
    assert Settings(data_dir=folder.root).api_port == 9000
    assert settings_beside_up(data_dir=folder.root).api_port == 8090


def test_a_flag_and_a_variable_win_over_what_is_kept(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(folder, api_port=9090)
    monkeypatch.setenv("EBBLINE_API_PORT", "9191")
    assert settings_beside_up(data_dir=folder.root).api_port == 9191
    assert Settings(data_dir=folder.root).api_port == 9191
    assert Settings(data_dir=folder.root, api_port=9292).api_port == 9292


def test_commands_ask_the_cluster_that_a_folder_is_attached_to_and_a_start_asks_for_it(folder: DataFolder) -> None:
    properties = folder.root / "client.properties"
    keep(folder, attach="kafka-1:9092", client_properties=properties)
    found = settings_beside_up(data_dir=folder.root)
    assert (found.bootstrap_servers, found.client_properties) == ("kafka-1:9092", properties)
    assert Settings(data_dir=folder.root).attach is None


def test_a_folder_of_an_earlier_version_has_the_ports_that_it_was_made_with(folder: DataFolder) -> None:
    folder.write_identity(ClusterIdentity(1, "AAAAAAAAAAAAAAAAAAAAAQ", "demo", 1, 20092, 20192))
    assert settings_beside_up(data_dir=folder.root).bootstrap_servers == "127.0.0.1:20092"


def test_no_key_of_a_location_is_kept_and_a_folder_is_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert values_to_keep({"remote_location": "s3://key:secret@bucket/x"}, {}) == {}
    assert values_to_keep({"remote_location": "tier"}, {}) == {"remote_location": str(Path("tier").absolute())}
    assert (
        values_to_keep({"webhook_url": "https://hooks.example/key", "database_url": "postgresql://u:p@h/d"}, {}) == {}
    )


def test_names_with_quotes_are_read_back(folder: DataFolder) -> None:
    place = folder.root / 'a "b" \\ é\x7f'
    keep(folder, remote_location=str(place))
    assert Settings(data_dir=folder.root).remote_location == str(place)


def test_a_file_that_cannot_be_read_refuses(folder: DataFolder, capsys: pytest.CaptureFixture[str]) -> None:
    (folder.root / FILE).write_text("api_port = ")
    with pytest.raises(typer.Exit):
        local_settings(data_dir=folder.root)
    assert "run/settings.toml in the data folder cannot be read" in capsys.readouterr().err
    (folder.root / FILE).write_text(f"of_a_later_version = {json.dumps('x')}\n")
    assert local_settings(data_dir=folder.root).api_port == 8090
