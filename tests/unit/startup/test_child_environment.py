"""The settings that the supervisor gives to the backend's process are read as they were written."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.data_folder.data_folder import FORMAT_VERSION, ClusterIdentity, DataFolder
from backend.settings.settings import Settings
from backend.startup.backend_process import cluster_layout
from backend.startup.child_environment import ChildSettings, ChildSettingsError
from backend.supervisor.children.child_specs import child_specs


def backend_environment(settings: Settings, folder: Path) -> dict[str, str]:
    identity = ClusterIdentity(FORMAT_VERSION, "AAAAAAAAAAAAAAAAAAAAAQ", "demo", settings.brokers, 19092, 19192, 3)
    data = DataFolder(folder)
    data.run.mkdir(parents=True, exist_ok=True)
    backend = next(spec for spec in child_specs(settings, data, identity) if spec.name == "backend")
    return dict(backend.environment)


@pytest.mark.parametrize(
    "given",
    [
        {"brokers": 4, "demo": False, "metrics_port": 20000, "remote_location": "s3://bucket/prefix"},
        {"process_per_broker": True, "broker_port": 20000},
        {"attach": "kafka:9092", "api_port": 20000},
    ],
)
def test_the_backend_runs_by_the_settings_that_were_checked(tmp_path: Path, given: dict[str, object]) -> None:
    settings = Settings(data_dir=tmp_path, controllers=3, **given)  # type: ignore[arg-type]  # of several types
    environment = backend_environment(settings, tmp_path)
    child = ChildSettings.from_environment(environment)
    for name in ChildSettings.__slots__:
        assert getattr(child, name) == getattr(settings, name)
    assert cluster_layout(child, environment) == cluster_layout(settings, environment)


def test_what_no_supervisor_tells_is_refused_with_its_name(tmp_path: Path) -> None:
    environment = backend_environment(Settings(data_dir=tmp_path), tmp_path)
    with pytest.raises(ChildSettingsError, match="EBBLINE_BROKERS is 'three', which is no number"):
        ChildSettings.from_environment(environment | {"EBBLINE_BROKERS": "three"})
    with pytest.raises(ChildSettingsError, match="EBBLINE_DEMO is 'maybe'"):
        ChildSettings.from_environment(environment | {"EBBLINE_DEMO": "maybe"})
    del environment["EBBLINE_API_URL"]
    with pytest.raises(ChildSettingsError, match="EBBLINE_API_URL is not set"):
        ChildSettings.from_environment(environment)
