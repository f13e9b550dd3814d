"""The list of set-aside replica folders: order, words, and what is not known."""

from __future__ import annotations

from app.components.config import set_aside_replicas
from app.components.config.set_aside_replicas import Folder, Listing
from tests.ui.conftest import plain
from tests.unit.app.overview_rows import NOW_MS, broker

HOUR_MS = 3_600_000


def kept(name: str, hours: int, reason: str = "nobody knows it") -> dict[str, object]:
    return {"name": name, "size_bytes": 1_000_000, "since_ms": NOW_MS - hours * HOUR_MS, "reason": reason}


def directory(*folders: dict[str, object], count: int | None = None) -> dict[str, object]:
    set_aside_count = len(folders) if count is None else count
    set_aside = {
        "set_aside_count": set_aside_count,
        "set_aside_bytes": set_aside_count * 1_000_000,
        "set_aside": list(folders),
    }
    return {"path": "/data", "error": None, **set_aside}


OLD, NEW = f"orders-0.{'ab' * 16}-stray", f"a-b-11.{'cd' * 16}-stray"


def test_folders_are_listed_by_broker_the_oldest_first_with_their_partition() -> None:
    listing = set_aside_replicas.of(
        [broker(1, log_dirs=[directory(kept(NEW, 1), kept(OLD, 5))]), broker(2, log_dirs=[])]
    )
    assert [(folder.broker_id, folder.partition) for folder in listing.folders] == [(1, "orders-0"), (1, "a-b-11")]
    assert set_aside_replicas.clause(listing) == "2 folders, 2.0 MB · kept until a plan removes them"
    shown = plain(set_aside_replicas.html(listing, NOW_MS, embedded=True))
    assert f"orders-0 1 /data/{OLD} nobody knows it 1.0 MB 5 h" in shown
    assert list(set_aside_replicas.rows(listing.folders, NOW_MS)["folder"]) == [OLD, NEW]


def test_what_is_not_listed_is_counted() -> None:
    listing = set_aside_replicas.of([broker(1, log_dirs=[directory(kept(OLD, 5), count=41)])])
    assert set_aside_replicas.clause(listing).startswith("41 folders, 41.0 MB")
    assert "40 more: ebbline set-aside lists all." in plain(set_aside_replicas.html(listing, NOW_MS, embedded=True))


def test_nothing_and_not_known_are_told_apart() -> None:
    none = plain(
        set_aside_replicas.html(set_aside_replicas.of([broker(1, log_dirs=[directory()])]), NOW_MS, embedded=True)
    )
    assert none == "No broker keeps a replica folder that nobody uses."
    silent = plain(set_aside_replicas.html(set_aside_replicas.of([broker(3, log_dirs=None)]), NOW_MS, embedded=True))
    assert "? Broker 3 has not told what it keeps." in silent
    assert "do not tell" in plain(set_aside_replicas.html(Listing((), 0, 0, ()), NOW_MS, embedded=False))


def test_two_folders_of_one_partition_are_told_apart_and_markup_is_text() -> None:
    folder, other = (
        Folder(2, "/data", f"orders-0.{unique * 16}-stray", 1_000_000, NOW_MS, "<b>x") for unique in ("ab", "cd")
    )
    assert folder.label == "broker 2 · orders-0 · abababab · 1.0 MB" != other.label
    assert "<b>x" not in set_aside_replicas.html(Listing((folder,), 1, 1, ()), NOW_MS, embedded=True)
    settings = {"ebbline.remove.set.aside": folder.name}
    assert set_aside_replicas.inputs(folder) == {"scope": "broker", "broker_id": 2, "settings": settings}
