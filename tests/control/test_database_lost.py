"""The product's own SQLite file is moved, deleted, replaced or damaged: writes stop, and it comes back."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backend.control import database_keeper
from backend.control.http.api_tokens import KnownToken, TokenRole, add_token
from backend.store.backups import automatic_backups as backups
from backend.store.connection.database import writing
from tests.control.site import ControlSite
from tests.databases import new_sqlite, opened_engine
from tests.engine_cluster import CLUSTER_ID


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlSite]:
    monkeypatch.setattr(database_keeper, "PUT_BACK_S", 3.0)
    monkeypatch.setattr(database_keeper, "FIRST_BACKUP_S", 0.0)
    monkeypatch.setattr(database_keeper, "NOTE_EVERY_S", 0.0)
    monkeypatch.setattr(database_keeper, "BACKUP_LOOK_S", 0.0)
    with ControlSite(tmp_path) as made:
        yield made


def file_of(site: ControlSite) -> Path:
    return site.folder / "ebbline.db"


def unready(site: ControlSite) -> str:
    return str(site.operator.get("/readyz").json()["checks"]["database"])


def lost(site: ControlSite) -> list[dict[str, Any]]:
    answer = site.operator.get("/v1/findings", params={"slug": "database-lost"})
    return list(answer.json()["items"]) if answer.status_code == 200 else []


def ready(site: ControlSite) -> None:
    site.wait_until("it is ready", lambda: site.operator.get("/readyz").status_code == 200)


def test_a_deleted_file_takes_no_writes_and_is_put_back_whole(own: ControlSite) -> None:
    plan = own.plan({"enable": True})
    own.wait_until("a copy is made", lambda: backups.backups(file_of(own)))
    rounds = own.cluster.ask(lambda: own.plane.parts.observer.state.rounds)
    file_of(own).unlink()
    assert "was moved or deleted while it was in use: nothing is written to it" in unready(own)
    answer = own.operator.post("/v1/plans", json={"kind": "toggle_bootstrap", "inputs": {"enable": True}})
    assert answer.status_code == 503
    assert "was moved or deleted" in answer.json()["detail"]
    assert not file_of(own).exists()
    own.create_topic("orders", partitions=1)
    ready(own)
    assert own.cluster.ask(lambda: own.plane.parts.observer.state.rounds) > rounds
    (finding,) = own.wait_until("it is past", lambda: [past for past in lost(own) if past["severity"] == "warning"])
    assert finding["evidence"]["sentence"].endswith("was put back from what was open. Nothing is missing.")
    assert own.get(f"/v1/plans/{plan['id']}")["plan"]["state"] == "checked"
    own.wait_until("samples are stored", lambda: bool(own.partitions("orders")))
    recorder = own.plane.parts.observer.recorder
    assert recorder.dropped_rounds == 0
    with closing(sqlite3.connect(file_of(own))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_file_that_is_put_back_in_time_is_used_as_if_nothing_was(own: ControlSite) -> None:
    moved = file_of(own).rename(own.folder / "elsewhere.db")
    assert "was moved or deleted" in unready(own)
    moved.rename(file_of(own))
    ready(own)
    own.wait_until("nothing is said of it any more", lambda: lost(own) == [])
    assert list(own.folder.glob("*aside*")) == []


def test_a_file_that_was_replaced_is_used_without_the_log_of_the_former(own: ControlSite) -> None:
    own.plan({"enable": True})
    other = own.folder / "other.db"
    new_sqlite(other)
    shutil.move(other, file_of(own))
    assert "was replaced by another file" in unready(own)
    ready(own)
    (finding,) = own.wait_until("a finding says so", lambda: lost(own))
    assert finding["severity"] == "critical"
    assert own.operator.get("/v1/plans/1").status_code == 404
    assert list(own.folder.glob("ebbline.db-wal.aside-*"))


@pytest.mark.parametrize("how", ["deleted", "damaged"])
def test_a_start_without_its_file_goes_on_from_the_newest_copy(own: ControlSite, how: str) -> None:
    with opened_engine(own.database_url) as engine, writing(engine) as connection:
        kept = add_token(connection, CLUSTER_ID, KnownToken("ci", TokenRole.VIEWER))
    plan = own.plan({"enable": True})
    own.wait_until("no copy is due", lambda: not backups.due(file_of(own), 0) or backups.backups(file_of(own)))
    for copy in backups.backups(file_of(own)):
        copy.path.unlink()
    own.wait_until("a copy is made", lambda: backups.backups(file_of(own)))
    later = own.plan({"enable": True})
    own.wait_until(
        "it is noted",
        lambda: (backups.read_irreplaceable(file_of(own)) or backups.IrreplaceableRows(0)).plan == later["id"],
    )
    own.stop_plane()
    if how == "deleted":
        file_of(own).unlink()
    else:
        file_of(own).write_bytes(b"x" * 10_000)
    own.start_plane()
    assert own.get(f"/v1/plans/{plan['id']}")["plan"]["state"] == "checked"
    assert own.client(kept).get("/v1/cluster").status_code == 200
    (finding,) = own.wait_until("a finding says so", lambda: lost(own))
    assert finding["severity"] == "critical"
    assert f"Missing: plan {later['id']}" in finding["evidence"]["sentence"]
    if how == "damaged":
        (aside,) = own.folder.glob("ebbline.db.aside-*")
        assert aside.read_bytes() == b"x" * 10_000
