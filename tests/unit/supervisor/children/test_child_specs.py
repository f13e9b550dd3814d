"""Settings that the backend reads reach its environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backend.control.control_settings import ControlSettings
from backend.data_folder.data_folder import FORMAT_VERSION, ClusterIdentity, DataFolder
from backend.settings.settings import Settings
from backend.supervisor.children.child_specs import child_specs

IDENTITY = ClusterIdentity(FORMAT_VERSION, "VrFvX4nlQBmaZTxv4bcMUw", "demo", 3, 19092, 19192)


def backend_settings(monkeypatch: pytest.MonkeyPatch, folder: Path, **given: Any) -> ControlSettings:
    """The control plane's settings as the backend's process reads them."""
    settings = Settings(data_dir=folder, ui=False, pipeline=False, **given)
    (spec,) = child_specs(settings, DataFolder(folder), IDENTITY)
    for name, value in spec.environment.items():
        monkeypatch.setenv(name, value)
    return ControlSettings()  # type: ignore[call-arg]  # the rest is in the environment


def test_alerts_heartbeat_and_public_address_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    passed = backend_settings(
        monkeypatch,
        tmp_path,
        alerts_file=Path("rules.toml"),
        heartbeat_url="https://beat.example.org/x",
        heartbeat_interval_s=30,
        public_url="https://ebbline.example.org",
    )
    assert passed.alerts_file == tmp_path / "rules.toml"
    assert (passed.heartbeat_url, passed.heartbeat_interval_s) == ("https://beat.example.org/x", 30)
    assert passed.public_url == "https://ebbline.example.org"


def test_none_of_them_is_set_unless_somebody_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBBLINE_PUBLIC_URL", "none")
    passed = backend_settings(monkeypatch, tmp_path)
    assert (passed.alerts_file, passed.heartbeat_url, passed.public_url) == (None, None, None)
    assert passed.heartbeat_interval_s == 60
