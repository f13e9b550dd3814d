"""A data folder that has lost its cluster.json says how it is made again, from what its brokers wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.data_folder.data_folder import ClusterIdentity, DataFolder, DataFolderError, IdentityLost
from backend.data_folder.lost_identity import identity_of_brokers, way_out
from backend.settings.settings import Settings
from backend.supervisor.checks.preparation import Refused, prepare

CLUSTER_ID = "AQIDBAUGBwgJCgsMDQ4PEA"


def broker(root: Path, number: int, *, cluster_id: str = CLUSTER_ID, voters: tuple[int, ...] = (1,)) -> Path:
    log = root / "brokers" / str(number) / "log"
    (log / "__cluster_metadata-0").mkdir(parents=True)
    (log / "meta.properties").write_text(f"version=1\nnode.id={number}\ncluster.id={cluster_id}\n")
    state = {"currentVoters": [{"voterId": voter} for voter in voters], "data_version": 0}
    (log / "__cluster_metadata-0" / "quorum-state").write_text(json.dumps(state))
    return log


@pytest.mark.parametrize("voters", [(1,), (1, 2, 3)])
def test_the_line_that_is_told_gives_the_folder_its_identity_back(tmp_path: Path, voters: tuple[int, ...]) -> None:
    for number in (1, 2, 3):
        broker(tmp_path, number, voters=voters)
    (tmp_path / "remote").mkdir()
    with pytest.raises(Refused) as refusal:
        prepare(Settings(data_dir=tmp_path))
    said = str(refusal.value)
    line = said[said.index("{") : said.index("}") + 1]
    (tmp_path / "cluster.json").write_text(line)
    identity = DataFolder(tmp_path).read_identity()
    assert identity == ClusterIdentity(1, CLUSTER_ID, "demo", 3, 19092, 19192, len(voters))


def test_disks_that_were_mounted_for_brokers_before_the_first_start_are_no_lost_identity(tmp_path: Path) -> None:
    (tmp_path / "brokers" / "1").mkdir(parents=True)
    (tmp_path / "brokers" / "3" / "lost+found").mkdir(parents=True)
    (tmp_path / "logs").mkdir()
    assert DataFolder(tmp_path).read_identity() is None
    (tmp_path / "brokers" / "3" / "log").mkdir()
    (tmp_path / "brokers" / "3" / "log" / "meta.properties").touch()
    with pytest.raises(IdentityLost, match=r"has brokers, but no cluster\.json"):
        DataFolder(tmp_path).read_identity()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1}', "\x00\xff"])
def test_a_damaged_one_is_told_the_same(tmp_path: Path, content: str) -> None:
    broker(tmp_path, 1)
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(Refused, match=r"cluster\.json cannot be read .*make it again with this line"):
        prepare(Settings(data_dir=tmp_path))


def test_brokers_that_do_not_agree_tell_nothing(tmp_path: Path) -> None:
    broker(tmp_path, 1)
    second = broker(tmp_path, 2, cluster_id="BQIDBAUGBwgJCgsMDQ4PEA")
    assert identity_of_brokers(tmp_path) is None
    broker_of_ours = second / "meta.properties"
    broker_of_ours.write_text(f"cluster.id={CLUSTER_ID}\n")
    assert identity_of_brokers(tmp_path) is not None
    (second / "__cluster_metadata-0" / "quorum-state").write_text(json.dumps({"currentVoters": [{"voterId": 2}]}))
    identity = identity_of_brokers(tmp_path)
    assert identity is not None
    assert identity.controllers == 1
    (second / "meta.properties").unlink()
    assert identity_of_brokers(tmp_path) is None
    assert way_out(tmp_path) == "restore it from a copy, or choose another folder with --data."


def test_a_missing_broker_s_folder_tells_nothing(tmp_path: Path) -> None:
    broker(tmp_path, 1)
    broker(tmp_path, 3)
    assert identity_of_brokers(tmp_path) is None


def test_a_folder_of_something_else_is_no_lost_cluster(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(DataFolderError) as refusal:
        DataFolder(tmp_path).read_identity()
    assert not isinstance(refusal.value, IdentityLost)
