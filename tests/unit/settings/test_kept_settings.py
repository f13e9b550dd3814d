"""A data folder keeps where its `ebbline up` runs: the next start and the commands there need no variables."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import typer

from backend.cli.local.local_settings import local_settings, remote_location, settings_beside_up
from backend.cli.local.pipeline_commands import pipeline_settings
from backend.cli.shared.api_session import ApiError, find_api_access
from backend.data_folder.data_folder import ClusterIdentity, DataFolder
from backend.settings.kept_settings import FILE, HEAD, values_to_keep
from backend.settings.settings import Settings
from backend.supervisor.checks.preflight import PreflightError, check_remote_location

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
    assert find_api_access(None, None, folder.root).url == "http://127.0.0.1:9090"


def test_the_file_of_the_user_wins_at_the_next_start_and_what_runs_wins_in_commands(folder: DataFolder) -> None:
    (folder.root / "ebbline.toml").write_text("api_port = 9000\napp_port = 9001\n")
    keep(folder, api_port=8090)
    assert "app_port" not in (folder.root / FILE).read_text().partition("[runs]")[0]
    assert Settings(data_dir=folder.root).api_port == 9000
    assert settings_beside_up(data_dir=folder.root).api_port == 8090


@pytest.mark.parametrize(
    ("line", "name", "default"),
    [
        ('public_url = "https://a.example/"', "public_url", None),
        ('api_port = "9090"', "api_port", 8090),
        ('remote_location = "none"', "remote_location", None),
    ],
)
def test_a_value_of_the_users_file_ends_with_its_line(
    folder: DataFolder, line: str, name: str, default: object
) -> None:
    (folder.root / "ebbline.toml").write_text(f"{line}\n")
    in_force = getattr(Settings(data_dir=folder.root), name)
    keep(folder)
    assert getattr(settings_beside_up(data_dir=folder.root), name) == in_force
    (folder.root / "ebbline.toml").unlink()
    assert getattr(Settings(data_dir=folder.root), name) == default


def test_a_flag_is_kept_where_the_users_file_has_a_value_that_is_not_usable(folder: DataFolder) -> None:
    (folder.root / "ebbline.toml").write_text("api_port = 70000\n")
    keep(folder, api_port=9090)
    (folder.root / "ebbline.toml").unlink()
    assert Settings(data_dir=folder.root).api_port == 9090


def test_a_flag_and_a_variable_win_over_what_is_kept(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(folder, api_port=9090)
    monkeypatch.setenv("EBBLINE_API_PORT", "9191")
    assert settings_beside_up(data_dir=folder.root).api_port == 9191
    assert Settings(data_dir=folder.root).api_port == 9191
    assert Settings(data_dir=folder.root, api_port=9292).api_port == 9292


def test_commands_ask_the_cluster_that_a_folder_is_attached_to_and_a_start_asks_for_it(folder: DataFolder) -> None:
    properties = folder.root / "client.properties"
    keep(folder, attach="kafka-1:9092", client_properties=properties)
    settings = settings_beside_up(data_dir=folder.root)
    assert (settings.bootstrap_servers, settings.client_properties) == ("kafka-1:9092", properties)
    assert Settings(data_dir=folder.root).attach is None


def test_a_folder_of_an_earlier_version_has_the_ports_that_it_was_made_with(folder: DataFolder) -> None:
    folder.write_identity(ClusterIdentity(1, "AAAAAAAAAAAAAAAAAAAAAQ", "demo", 1, 20092, 20192))
    assert settings_beside_up(data_dir=folder.root).bootstrap_servers == "127.0.0.1:20092"


def test_no_key_of_a_location_is_kept_and_a_folder_is_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert values_to_keep({"remote_location": "s3://key:secret@bucket/x"}, {}) == {
        "remote_location_left_out": "s3://…@bucket/x"
    }
    assert values_to_keep({"remote_location": "tier"}, {}) == {"remote_location": str(Path("tier").absolute())}
    assert (
        values_to_keep({"webhook_url": "https://hooks.example/key", "database_url": "postgresql://u:p@h/d"}, {}) == {}
    )


@pytest.mark.parametrize("name", ['a "b" \\\\ é\x7f', "tier 🚀", "a\nb\t\x01\x1f", "\x80\x9f\u2028\ufeff", "'''"])
def test_a_place_of_any_name_is_read_back(folder: DataFolder, name: str) -> None:
    place = str(folder.root / name)
    keep(folder, remote_location=place)
    assert Settings(data_dir=folder.root).remote_location == place
    assert settings_beside_up(data_dir=folder.root).remote_location == place


@pytest.mark.parametrize("name", ["tier@nas", "c#/tier", "what?", "a,b@c"])
def test_a_folder_whose_name_looks_like_a_key_is_kept(name: str) -> None:
    assert values_to_keep({"remote_location": f"/mnt/{name}"}, {}) == {"remote_location": f"/mnt/{name}"}


def test_a_path_that_is_no_text_is_left_out(folder: DataFolder) -> None:
    keep(folder, attach="kafka-1:9092", client_properties=folder.root / "\udcff.properties")
    settings = settings_beside_up(data_dir=folder.root)
    assert (settings.attach, settings.client_properties) == ("kafka-1:9092", None)


def test_a_start_without_the_location_that_was_left_out_is_refused(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(folder, remote_location="memory://key:secret@bucket/x")
    with pytest.raises(PreflightError, match=r"at memory://…@bucket/x.*: set EBBLINE_REMOTE_LOCATION"):
        check_remote_location(Settings(data_dir=folder.root))
    with pytest.raises(typer.Exit):
        remote_location(settings_beside_up(data_dir=folder.root))
    assert "memory://…@bucket/x" in capsys.readouterr().err
    monkeypatch.setenv("EBBLINE_REMOTE_LOCATION", "none")
    assert check_remote_location(Settings(data_dir=folder.root)) is None
    assert remote_location(settings_beside_up(data_dir=folder.root)) is None
    monkeypatch.setenv("EBBLINE_REMOTE_LOCATION", "memory://key:secret@bucket/x")
    assert remote_location(settings_beside_up(data_dir=folder.root)) == "memory://key:secret@bucket/x"


def test_commands_do_not_take_another_place_of_the_users_file_for_one_that_was_left_out(folder: DataFolder) -> None:
    keep(folder, remote_location="memory://key:secret@bucket/x")
    (folder.root / "ebbline.toml").write_text('remote_location = "s3://other/x"\n')
    with pytest.raises(typer.Exit):
        remote_location(settings_beside_up(data_dir=folder.root))
    (folder.root / "ebbline.toml").write_text('remote_location = "memory://key:new@bucket/x"\n')
    assert remote_location(settings_beside_up(data_dir=folder.root)) == "memory://key:new@bucket/x"


def test_defaults_that_run_win_over_what_the_users_file_has_come_to_say(folder: DataFolder) -> None:
    keep(folder)
    (folder.root / "ebbline.toml").write_text(
        'api_port = 9000\nremote_location = "/elsewhere"\nattach = "kafka-1:9092"\n'
    )
    settings = settings_beside_up(data_dir=folder.root)
    assert (settings.api_port, settings.remote_location, settings.attach) == (8090, None, None)
    settings = Settings(data_dir=folder.root)
    assert (settings.api_port, settings.remote_location) == (9000, "/elsewhere")


def test_commands_go_on_when_the_users_file_names_another_kind_of_cluster_since_the_start(folder: DataFolder) -> None:
    keep(folder)
    (folder.root / "ebbline.toml").write_text(
        'attach = "kafka-1:9092"\nbroker_metrics = "http://{host}:9404/metrics"\nclient_properties = "/client"\n'
    )
    settings = settings_beside_up(data_dir=folder.root)
    assert (settings.attach, settings.broker_metrics, settings.client_properties) == (None, None, None)


def test_commands_go_on_when_the_users_file_names_no_other_cluster_any_more(folder: DataFolder) -> None:
    file = folder.root / "ebbline.toml"
    file.write_text('attach = "kafka-1:9092"\nbroker_metrics = "http://{host}:9404/metrics"\n')
    keep(folder)
    file.write_text('broker_metrics = "http://{host}:9404/metrics"\n')
    settings = settings_beside_up(data_dir=folder.root)
    assert (settings.attach, settings.broker_metrics) == ("kafka-1:9092", "http://{host}:9404/metrics")


def test_an_attached_cluster_of_the_environment_has_the_metrics_of_the_users_file(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(folder)
    (folder.root / "ebbline.toml").write_text('broker_metrics = "http://{host}:9404/metrics"\n')
    monkeypatch.setenv("EBBLINE_ATTACH", "kafka-1:9092")
    assert settings_beside_up(data_dir=folder.root).broker_metrics == "http://{host}:9404/metrics"


def test_commands_hear_the_variables_that_up_hears(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(folder, api_port=9191, remote_location="memory://key:secret@bucket/x")
    monkeypatch.setenv("ebbline_api_port", "9292")
    monkeypatch.setenv("ebbline_remote_location", "memory://key:secret@bucket/y")
    monkeypatch.setenv("ebbline_data_dir", str(folder.root))
    for settings in (Settings(), settings_beside_up()):
        assert (settings.data_dir, settings.api_port) == (folder.root, 9292)
        assert remote_location(settings) == "memory://key:secret@bucket/y"


def test_what_the_users_file_said_at_the_start_wins_in_commands_and_not_at_the_next_start(folder: DataFolder) -> None:
    (folder.root / "ebbline.toml").write_text("api_port = 9000\n")
    keep(folder)
    (folder.root / "ebbline.toml").write_text("")
    assert settings_beside_up(data_dir=folder.root).api_port == 9000
    assert Settings(data_dir=folder.root).api_port == 8090


@pytest.mark.parametrize("content", ["", "\n", HEAD, f"{HEAD}api_port = 9090\n", f"{HEAD}\n[runs]\n"])
def test_a_file_that_was_cut_refuses_a_start_and_commands(
    folder: DataFolder, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    keep(folder, api_port=9090, remote_location="s3://bucket/tier")
    (folder.root / FILE).write_text(content)
    for read in (local_settings, settings_beside_up):
        with pytest.raises(typer.Exit):
            read(data_dir=folder.root)
        message = capsys.readouterr().err
        assert "run/settings.toml in the data folder has nothing in table [runs]: it is not whole" in message
        # A start without the place of the remote tier finds no record of it.
        assert (
            "delete it only together with a start that is given the ports and the remote location of before" in message
        )
        assert message.count("\n") == 1
    (folder.run / "operator.token").write_text("token")
    with pytest.raises(ApiError, match=r"give it with --api\. run/settings\.toml .* is not whole"):
        find_api_access(None, None, folder.root)


def test_the_file_is_on_the_device_before_it_takes_the_place_of_the_last_one(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(folder, api_port=9090)
    before = (folder.root / FILE).read_text()
    synced: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        synced.append(name)
        # Its name is in the folder, which follows.
        assert ((folder.root / FILE).read_text() == before) is (name != "run")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    keep(folder, api_port=9191)
    file, parent = synced
    assert file.startswith("settings.toml.")
    assert file.endswith(".tmp")
    assert parent == "run"
    assert Settings(data_dir=folder.root).api_port == 9191


def test_none_goes_back_to_no_place(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(folder, remote_location="/tier", public_url="https://ebbline.example.org")
    monkeypatch.setenv("EBBLINE_PUBLIC_URL", "none")
    monkeypatch.setenv("EBBLINE_REMOTE_LOCATION", "none")
    keep(folder)
    monkeypatch.delenv("EBBLINE_PUBLIC_URL")
    monkeypatch.delenv("EBBLINE_REMOTE_LOCATION")
    settings = Settings(data_dir=folder.root)
    assert (settings.public_url, settings.remote_location) == (None, None)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "api_port = 70000\n[runs]\napp_port = 8501",
            "api_port in run/settings.toml of the data folder is not usable: it takes a number from 1 to",
        ),
        ("[runs]\nattach = 5", "attach in run/settings.toml of the data folder is not usable: "),
        ("runs = 5", "run/settings.toml in the data folder has runs, which is no table"),
    ],
)
def test_a_kept_value_that_is_not_usable_is_named_with_its_file(
    folder: DataFolder, capsys: pytest.CaptureFixture[str], text: str, sentence: str
) -> None:
    (folder.root / FILE).write_text(f"{text}\n")
    for read in (local_settings, settings_beside_up):
        with pytest.raises(typer.Exit):
            read(data_dir=folder.root)
        message = capsys.readouterr().err
        assert sentence in message
        assert "EBBLINE_" not in message
        assert "delete" in message
    (folder.run / "operator.token").write_text("token")
    with pytest.raises(ApiError, match=r"settings of .* cannot be used"):
        find_api_access(None, None, folder.root)


def test_client_properties_are_for_the_cluster_that_they_were_kept_with(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = folder.root / "client.properties"
    properties.write_text("sasl.password=secret\n")
    keep(folder, attach="kafka-1:9092", client_properties=properties)
    folder.write_identity(ClusterIdentity(1, "AAAAAAAAAAAAAAAAAAAAAQ", "prod", 0, 19092, 19192))
    monkeypatch.setenv("EBBLINE_BOOTSTRAP_SERVERS", "")
    result = pipeline_settings(settings_beside_up(data_dir=folder.root))
    assert (result.bootstrap_servers, result.client_properties) == ("kafka-1:9092", {"sasl.password": "secret"})
    monkeypatch.setenv("EBBLINE_BOOTSTRAP_SERVERS", "elsewhere:9092")
    result = pipeline_settings(settings_beside_up(data_dir=folder.root))
    assert (result.bootstrap_servers, result.client_properties) == ("elsewhere:9092", {})
    monkeypatch.setenv("EBBLINE_ATTACH", "elsewhere:9092")
    settings = settings_beside_up(data_dir=folder.root)
    assert (settings.attach, settings.client_properties) == ("elsewhere:9092", None)


def test_a_file_that_cannot_be_read_refuses(folder: DataFolder, capsys: pytest.CaptureFixture[str]) -> None:
    (folder.root / FILE).write_text("api_port = ")
    with pytest.raises(typer.Exit):
        local_settings(data_dir=folder.root)
    assert "run/settings.toml in the data folder cannot be read" in capsys.readouterr().err
    (folder.root / FILE).write_text(f"of_a_later_version = {json.dumps('x')}\n[runs]\napp_port = 8501\n")
    assert local_settings(data_dir=folder.root).api_port == 8090
