"""`ebbline quorum describe` and `upgrade`: the quorum and the feature levels as brokers tell them, and the audit."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from backend.cli.local.audited import account
from backend.cli.main import app
from backend.data_folder.data_folder import FORMAT_VERSION, ClusterIdentity
from backend.protocol import messages as m
from tests.control.site import CLUSTER_NAME, ControlSite
from tests.engine_cluster import CLUSTER_ID
from tests.wire import ask

LEVEL = "eligible.leader.replicas.version"
SAFE_DOWNGRADE = 2


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlSite]:
    with ControlSite(tmp_path_factory.mktemp("quorum"), voters=3) as made:
        ports = made.cluster.layout.ports
        assert [ports[node] - ports[1] for node in (1, 2, 3)] == [0, 1, 2]
        identity = ClusterIdentity(FORMAT_VERSION, CLUSTER_ID, CLUSTER_NAME, 3, ports[1], 2, 3)
        fields = {name: getattr(identity, name) for name in identity.__slots__}
        Path(made.folder, "cluster.json").write_text(json.dumps(fields))
        yield made


def quorum(site: ControlSite, *words: str) -> str:
    ended = CliRunner().invoke(app, ["quorum", *words, "--data", str(site.folder)])
    assert ended.exit_code == 0, ended.output
    return str(ended.output)


def as_of_an_earlier_version(site: ControlSite) -> None:
    update = m.UpdateFeaturesRequest.FeatureUpdates(feature=LEVEL, max_version_level=0, upgrade_type=SAFE_DOWNGRADE)
    request = m.UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update])
    answer = ask(site.cluster.layout.ports[1], request, 1, m.UpdateFeaturesResponse)
    assert answer.error_code == 0, answer.error_message


def levels(site: ControlSite) -> tuple[int, str]:
    """Of eligible leader replicas: in JSON, and the words of the table's line."""
    described = json.loads(quorum(site, "describe", "--json"))
    (line,) = (line for line in quorum(site, "describe").splitlines() if LEVEL in line)
    return described["features"][LEVEL]["level"], " ".join(line.split())


def test_the_level_of_eligible_leader_replicas_is_shown_raised_once_and_audited(site: ControlSite) -> None:
    assert levels(site) == (1, f"{LEVEL} 1 1")
    as_of_an_earlier_version(site)
    assert levels(site) == (0, f"{LEVEL} 0 1")
    site.wait_until("elr-off opens", lambda: site.get("/v1/findings?slug=elr-off")["items"])
    before = len(site.get("/v1/audit?limit=100")["items"])
    assert quorum(site, "upgrade") == f"{LEVEL} is at level 1 now.\n"
    assert levels(site)[0] == 1
    site.wait_until("elr-off closes", lambda: not site.get("/v1/findings?slug=elr-off")["items"])
    assert quorum(site, "upgrade") == f"{LEVEL} is at level 1 already.\n"
    row, *earlier = site.get("/v1/audit?limit=100")["items"]
    assert len(earlier) == before
    assert (row["action"], row["object"], row["detail"]) == ("upgrade feature", LEVEL, "to level 1")
    assert row["actor"] == f"{account()} on the command line"


def test_leader_voters_and_directories_are_told(site: ControlSite) -> None:
    result = json.loads(quorum(site, "describe", "--json"))
    assert result["leader_id"] in (1, 2, 3)
    assert {
        replica["node_id"]: (replica["role"], replica["counted"]) for replica in result["replicas"]
    } == dict.fromkeys((1, 2, 3), ("voter", True))
    assert len({replica["directory_id"] for replica in result["replicas"]}) == 3
    assert f"Leader {result['leader_id']} in epoch" in quorum(site, "describe")
    ended = CliRunner().invoke(app, ["quorum", "describe", "--data", os.devnull])
    assert ended.exit_code == 2
