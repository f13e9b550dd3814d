"""Whether a disk takes writes, as `/readyz` says it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from backend.control.http import disk_room
from backend.control.http.disk_room import DiskRoom, problem


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    for name in ("run", "remote", "brokers/1/log"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def test_a_disk_with_room_is_fine_and_nothing_is_left_of_the_probe(data_dir: Path) -> None:
    assert problem(data_dir) is None
    assert list((data_dir / "run").iterdir()) == []


def test_a_full_disk_is_told(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_room, "free_bytes", lambda _: 5_000_000)
    said = problem(data_dir)
    assert said is not None
    assert said.startswith(f"The disk of {data_dir} is full: 5 MB are free")


def test_a_folder_that_takes_no_file_is_told(data_dir: Path) -> None:
    (data_dir / "run").rmdir()
    (data_dir / "run").write_text("no folder")
    assert problem(data_dir) == (
        f"The folder {data_dir / 'run'} takes no file: Not a directory. See to its disk; nothing has to be restarted."
    )


def test_a_disk_that_hangs_is_told_and_asked_once(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths: list[Path] = []
    answers = threading.Event()

    def hang(folder: Path) -> None:
        paths.append(folder)
        answers.wait(30)

    monkeypatch.setattr(disk_room, "problem", hang)
    monkeypatch.setattr(disk_room, "PROBE_TIMEOUT_S", 0.05)

    async def check_room() -> list[str | None]:
        room = DiskRoom(data_dir)
        try:
            return [await room.check() for _ in range(3)]
        finally:
            answers.set()

    assert asyncio.run(check_room()) == [f"The disk of {data_dir} did not take a file in 0 s."] * 3
    assert len(paths) == 1
