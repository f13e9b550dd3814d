"""The processes that the supervisor runs, and their arguments."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from backend.data_folder.data_folder import FORMAT_VERSION, ClusterIdentity, DataFolder
from backend.settings.settings import Settings
from backend.startup.backend_process import cluster_layout
from backend.startup.child_environment import ChildSettings
from backend.supervisor.checks.preflight import PreflightError, check_ports, check_remote_location
from backend.supervisor.checks.preparation import Refused, prepare
from backend.supervisor.children.child_specs import PIPELINE_SIGN_S, child_specs, pipeline_lives
from spark.liveness import LivingStop
from spark.settings import PipelineSettings
from tests.ports import free_ports


class _LivesButWaits(BaseHTTPRequestHandler):
    """A backend whose database takes no writes."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def api_port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), _LivesButWaits) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_brokers_are_not_restarted_because_the_database_is_away(tmp_path: Path, api_port: int) -> None:
    settings = Settings(data_dir=tmp_path, api_port=api_port)
    identity = ClusterIdentity(FORMAT_VERSION, "AAAAAAAAAAAAAAAAAAAAAQ", "demo", 3, 19092, 19192)
    backend = child_specs(settings, DataFolder(tmp_path), identity)[0]
    assert backend.healthy is not None
    assert backend.ready is not None
    assert backend.healthy()
    assert not backend.ready()


@pytest.mark.parametrize(("allowed", "environment_value"), [(False, "false"), (True, "true")])
def test_an_attached_cluster_has_no_brokers_of_ours_and_is_read_only_unless_told(
    tmp_path: Path, allowed: bool, environment_value: str
) -> None:
    file = tmp_path / "client.properties"
    settings = Settings(
        data_dir=tmp_path,
        attach="kafka:9092",
        client_properties=file,
        allow_changes=allowed,
        process_per_broker=True,
    )
    identity = ClusterIdentity(FORMAT_VERSION, "AAAAAAAAAAAAAAAAAAAAAQ", "apache", 0, 19092, 19192)
    specs = child_specs(settings, DataFolder(tmp_path), identity)
    assert [spec.name for spec in specs] == ["backend", "pipeline", "app"]
    for spec in specs:
        assert spec.environment["EBBLINE_BOOTSTRAP_SERVERS"] == "kafka:9092"
        assert spec.environment["EBBLINE_CLUSTER_KIND"] == "attached"
        assert spec.environment["EBBLINE_ALLOW_CHANGES"] == environment_value
        assert spec.environment["EBBLINE_CLIENT_PROPERTIES"] == str(file)


def test_children_do_not_read_the_word_none_of_their_parents_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EBBLINE_REMOTE_LOCATION", "none")
    monkeypatch.setenv("EBBLINE_PUBLIC_URL", "none")
    identity = ClusterIdentity(FORMAT_VERSION, "AAAAAAAAAAAAAAAAAAAAAQ", "demo", 3, 19092, 19192)
    specs = {spec.name: spec for spec in child_specs(Settings(data_dir=tmp_path), DataFolder(tmp_path), identity)}
    backend = ChildSettings.from_environment({**os.environ, **specs["backend"].environment})
    assert not backend.remote_location
    assert specs["app"].environment["EBBLINE_PUBLIC_URL"] == ""


def test_two_parts_on_one_port_are_named() -> None:
    first = free_ports(12)[0]
    with pytest.raises(PreflightError, match="set for broker 2 and for the controller"):
        check_ports(Settings(broker_port=first, controller_port=first + 1, metrics_port=first + 4, api_port=first + 8))


def test_a_remote_location_that_no_store_knows_is_named(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="The remote location foo://bar cannot be used"):
        check_remote_location(Settings(remote_location="foo://bar"))
    check_remote_location(Settings(remote_location=str(tmp_path)))
    check_remote_location(Settings())


def test_a_pipeline_without_a_sign_of_life_is_not_healthy_unless_it_may_still_be_starting(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.run.mkdir()
    now_s = time.time()
    (folder.run / "pipeline.pid").touch()
    assert pipeline_lives(folder, now_s + PIPELINE_SIGN_S / 2)
    assert not pipeline_lives(folder, now_s + 2 * PIPELINE_SIGN_S)
    settings = PipelineSettings(tmp_path, "AAAAAAAAAAAAAAAAAAAAAQ", "127.0.0.1:1", "sqlite:///x")
    LivingStop(settings.life_file).wait(0)
    os.utime(folder.run / "pipeline.pid", (0, 0))
    assert pipeline_lives(folder, now_s)
    assert not pipeline_lives(folder, now_s + 2 * PIPELINE_SIGN_S)


def test_a_sign_of_life_in_a_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    stop = LivingStop(tmp_path / "gone" / "pipeline.life")
    assert not stop.wait(0)
    stop.set()
    assert stop.wait(0)


def test_voters_are_fixed_with_the_folder_and_every_child_is_told(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.lock()
    made = ClusterIdentity(FORMAT_VERSION, "AAAAAAAAAAAAAAAAAAAAAQ", "demo", 3, 19092, 19192, 3)
    folder.write_identity(made)
    assert folder.read_identity() == made
    [backend, *_] = child_specs(Settings(data_dir=tmp_path), folder, made)
    assert backend.environment["EBBLINE_CONTROLLERS"] == "3"
    layout = cluster_layout(Settings(data_dir=tmp_path, controllers=3), {"EBBLINE_CLUSTER_ID": made.cluster_id})
    assert layout.controller_ports == {1: 19192, 2: 19193, 3: 19194}
    voters = "1@127.0.0.1:19192,2@127.0.0.1:19193,3@127.0.0.1:19194"
    assert layout.properties(3)["controller.quorum.voters"] == voters
    assert layout.properties(3)["process.roles"] == "broker,controller"
    with pytest.raises(Refused, match="holds a cluster of 3 controllers, not 1"):
        prepare(Settings(data_dir=tmp_path, controllers=1))


@pytest.mark.parametrize(("brokers", "voters"), [(1, 1), (2, 1), (3, 3), (4, 3)])
def test_a_new_folder_has_three_voters_where_there_are_as_many_brokers(
    tmp_path: Path, brokers: int, voters: int
) -> None:
    first = free_ports(13)[0]
    given: dict[str, Any] = {
        "data_dir": tmp_path,
        "brokers": brokers,
        "broker_port": first,
        "controller_port": first + 4,
        "metrics_port": first + 8,
        "api_port": first + 12,
        "ui": False,
        "pipeline": False,
    }
    folder, identity = prepare(Settings(**given))
    assert identity.controllers == voters
    # The folder says it from here on: nobody has to repeat it, and another number is refused.
    [backend] = child_specs(Settings(**given), folder, identity)
    assert backend.environment["EBBLINE_CONTROLLERS"] == str(voters)
    with pytest.raises(Refused, match=f"holds a cluster of {voters} controllers, not {4 - voters}"):
        prepare(Settings(**given, controllers=4 - voters))


def test_a_folder_of_before_there_were_several_voters_has_one(tmp_path: Path) -> None:
    old = {"format": 1, "cluster_id": "c", "cluster_name": "demo", "brokers": 3, "broker_port": 1, "controller_port": 2}
    (tmp_path / "cluster.json").write_text(json.dumps(old))
    identity = DataFolder(tmp_path).read_identity()
    assert identity is not None
    assert identity.controllers == 1


def test_two_voters_and_more_voters_than_brokers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="use 1 or 3"):
        Settings(controllers=2)
    with pytest.raises(Refused, match="3 controllers need as many brokers"):
        prepare(Settings(data_dir=tmp_path / "new", brokers=1, controllers=3))
