"""A folder of objects is the same whether obstore reads and writes it or we do; what failed leaves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from obstore.store import LocalStore

from backend.engine.ports.object_store import FolderObjectStore, ObjectStore, ObstoreObjectStore, open_object_store

KEYS = ["a/b/00000000000000000000-x_-Y.log", "plain", "a b/é#1%.log", "a/...x/.y", "a/b.c/d..e"]


def both(folder: Path) -> tuple[ObjectStore, ObjectStore]:
    return open_object_store(str(folder)), ObstoreObjectStore(LocalStore(str(folder), mkdir=True))


@pytest.mark.parametrize("key", KEYS)
def test_each_reads_what_the_other_wrote(tmp_path: Path, key: str) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"0123456789")
    ours, obstores = both(tmp_path / "remote")
    assert isinstance(ours, FolderObjectStore)
    for writer in (ours, obstores):
        writer.put_file(key, str(local))
        for reader in (ours, obstores):
            assert reader.get(key) == b"0123456789"
            assert [reader.get_range(key, 3, 4), reader.get_range(key, 8, 9)] == [b"3456", b"89"]
            assert (reader.size(key), reader.list("")) == (10, [(key, 10)])
        writer.put(key, memoryview(b"abc"))
        assert [reader.get(key) for reader in (ours, obstores)] == [b"abc", b"abc"]
        writer.delete(key)
        assert ours.list("") == []
        with pytest.raises(FileNotFoundError):
            ours.get(key)
        with pytest.raises(FileNotFoundError):
            ours.get_range(key, 0, 1)


def test_a_range_past_the_end_is_empty(tmp_path: Path) -> None:
    store = open_object_store(str(tmp_path))
    store.put("key", b"abc")
    assert [store.get_range("key", *extent) for extent in ((3, 5), (9, 1), (1, 0))] == [b"", b"", b""]


@pytest.mark.parametrize("key", ["../out", "a/../../out", "/out", "a//b", "a/."])
def test_no_key_leads_out_of_the_folder(tmp_path: Path, key: str) -> None:
    store = open_object_store(str(tmp_path / "remote"))
    try:
        store.put(key, b"x")
    except Exception:  # whatever obstore says to it
        assert store.list("") == []
    assert os.listdir(tmp_path) == ["remote"]


def test_a_copy_that_fails_leaves_neither_object_nor_pieces(tmp_path: Path) -> None:
    store = open_object_store(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        store.put_file("a/key", str(tmp_path / "missing"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    # An unfinished copy after a crash is no object.
    (tmp_path / "a" / "key#1").write_bytes(b"half")
    assert store.list("") == []
