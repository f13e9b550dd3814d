"""Faults on the way to the object store: the effect on each call, and that everything is as before afterwards."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from backend.engine.ports.object_store import ObjectStore
from backend.engine.ports.object_store_faults import ObjectStoreFaults
from tests.waiting import wait_until


def opened(folder: Path) -> tuple[ObjectStoreFaults, ObjectStore]:
    switch = ObjectStoreFaults()
    return switch, switch.opener()(str(folder))


def test_an_unreachable_store_refuses_every_call_until_it_is_back(tmp_path: Path) -> None:
    switch, store = opened(tmp_path)
    store.put("a/b", b"12345")
    switch.set("unreachable")
    source = tmp_path / "source"
    source.write_bytes(b"x")
    calls = (
        lambda: store.put("c", b"1"),
        lambda: store.put_file("c", str(source)),
        lambda: store.get("a/b"),
        lambda: store.get_range("a/b", 1, 2),
        lambda: store.size("a/b"),
        lambda: store.delete("a/b"),
        lambda: store.list("a"),
    )
    for call in calls:
        with pytest.raises(OSError, match="unreachable"):
            call()
    switch.set("none")
    assert (store.get("a/b"), store.get_range("a/b", 1, 2), store.size("a/b")) == (b"12345", b"23", 5)
    assert store.list("a") == [("a/b", 5)]


def test_a_held_upload_waits_while_reads_are_served_and_then_goes_on(tmp_path: Path) -> None:
    switch, store = opened(tmp_path)
    store.put("old", b"1")
    switch.set("held")
    upload = threading.Thread(target=store.put, args=("new", b"22"))
    upload.start()
    wait_until("the upload is held", lambda: switch.waiting_uploads == 1, 10)
    assert store.get("old") == b"1"
    with pytest.raises(FileNotFoundError):
        store.get("new")
    switch.set("none")
    upload.join(10)
    assert (store.get("new"), switch.waiting_uploads) == (b"22", 0)


def test_an_upload_that_is_broken_off_fails_and_the_next_one_does_not(tmp_path: Path) -> None:
    switch, store = opened(tmp_path)
    switch.set("held")
    failures: list[str] = []

    def upload() -> None:
        try:
            store.put("new", b"22")
        except OSError as error:
            failures.append(str(error))

    thread = threading.Thread(target=upload)
    thread.start()
    wait_until("the upload is held", lambda: switch.waiting_uploads == 1, 10)
    switch.break_off()
    thread.join(10)
    assert failures == ["The lab broke off this upload, as a crash of the broker does."]
    store.put("new", b"333")
    assert store.get("new") == b"333"
