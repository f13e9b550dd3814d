"""A file that a page made for the browser is there while a slow browser asks for it, and not for ever."""

from __future__ import annotations

import pytest
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.media_file_storage import MediaFileKind, MediaFileStorageError

from app import media_files
from app.media_files import KEEP_BUTTON_S, KEEP_S, KeptButtons, KeptDownloads


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def made(storage: KeptDownloads, data: bytes, kind: MediaFileKind = MediaFileKind.DOWNLOADABLE) -> str:
    return storage.load_and_get_id(data, "text/csv", kind, "rows.csv")


def is_there(storage: KeptDownloads, file_id: str) -> bool:
    try:
        return storage.get_file(file_id).content_size > 0
    except MediaFileStorageError:
        return False


def test_a_file_that_nobody_uses_any_more_is_there_for_a_while() -> None:
    clock = Clock()
    storage = KeptDownloads("/media", clock)
    manager = MediaFileManager(storage)
    button = manager.add_deferred(lambda: b"a,b", "text/csv", "1.0", "rows.csv")
    address = manager.execute_deferred(button)
    file_id = address.rpartition("/")[2].partition(".")[0]
    for _ in range(5):  # runs of pages
        manager.remove_orphaned_files()
    assert is_there(storage, file_id)
    clock.now_s += KEEP_S
    other = made(storage, b"c,d")
    assert not is_there(storage, file_id)
    assert is_there(storage, other)


def test_a_file_that_is_made_again_meanwhile_is_in_use_again() -> None:
    clock = Clock()
    storage = KeptDownloads("/media", clock)
    file_id = made(storage, b"a,b")
    storage.delete_file(file_id)
    clock.now_s += KEEP_S / 2
    assert made(storage, b"a,b") == file_id
    clock.now_s += KEEP_S
    storage.delete_file("no such file")
    assert is_there(storage, file_id)


def test_what_waits_has_a_limit_and_the_first_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media_files, "KEEP_BYTES_MAX", 20)
    storage = KeptDownloads("/media", Clock())
    files = [made(storage, bytes([65 + number]) * 8) for number in range(4)]
    for file_id in files:
        storage.delete_file(file_id)
    assert [is_there(storage, file_id) for file_id in files] == [False, False, True, True]


def test_what_is_only_shown_goes_at_once() -> None:
    storage = KeptDownloads("/media", Clock())
    file_id = made(storage, b"picture", MediaFileKind.MEDIA)
    storage.delete_file(file_id)
    assert not is_there(storage, file_id)


def test_a_button_that_is_still_on_the_screen_can_be_pressed_after_it_was_drawn_again() -> None:
    clock = Clock()
    manager = KeptButtons(KeptDownloads("/media", clock), clock)
    first = manager.add_deferred(lambda: b"a,b", "text/csv", "1.0", "rows.csv")
    manager.add_deferred(lambda: b"a,b,c", "text/csv", "1.0", "rows.csv")
    manager.remove_orphaned_files()
    assert manager.execute_deferred(first)
    clock.now_s += KEEP_BUTTON_S
    last = manager.add_deferred(lambda: b"a,b,c,d", "text/csv", "1.0", "rows.csv")
    manager.remove_orphaned_files()
    with pytest.raises(MediaFileStorageError, match="not found"):
        manager.execute_deferred(first)
    assert manager.execute_deferred(last)
