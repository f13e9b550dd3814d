"""Disks of stopped brokers that get lost: removed, emptied, of an earlier day, or put into another machine."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from enum import Enum
from pathlib import Path


class Loss(Enum):
    """The fate of one broker's disk while all were down."""

    NOTHING = "nothing is lost"
    FOLDER_REMOVED = "the broker's folder is removed"
    FOLDER_EMPTIED = "the broker's folders are emptied"
    LOG_DIR_REMOVED = "one of the broker's log dirs is removed"
    METADATA_REMOVED = "the broker's metadata folder is removed"
    RESTORED = "the broker's folder is the copy of a former round"
    SWAPPED = "the broker's folder is swapped with another's"


class Disks:
    """The brokers' folders `<folder>/<node>/{a,b,metadata}` and copies of some former round's."""

    def __init__(self, folder: Path, copies: Path, nodes: Iterable[int]) -> None:
        self._folder = folder
        self._copies = copies
        self._nodes = tuple(nodes)

    def of(self, node: int) -> Path:
        return self._folder / str(node)

    def log_dirs(self, node: int) -> str:
        return f"{self.of(node) / 'a'},{self.of(node) / 'b'}"

    def metadata_dir(self, node: int) -> str:
        return str(self.of(node) / "metadata")

    def copy(self) -> None:
        """Keeps how the disks are now, for `Loss.RESTORED` of a later round."""
        shutil.rmtree(self._copies, ignore_errors=True)
        shutil.copytree(self._folder, self._copies)

    @property
    def are_copied(self) -> bool:
        return self._copies.exists()

    def lose(self, node: int, loss: Loss, chance: random.Random) -> None:
        """Carries the loss out; `Loss.SWAPPED` twice is as before."""
        disk = self.of(node)
        match loss:
            case Loss.FOLDER_REMOVED:
                shutil.rmtree(disk)
            case Loss.FOLDER_EMPTIED:
                for part in disk.iterdir():
                    shutil.rmtree(part)
                    part.mkdir()
            case Loss.LOG_DIR_REMOVED:
                shutil.rmtree(disk / chance.choice("ab"))
            case Loss.METADATA_REMOVED:
                shutil.rmtree(disk / "metadata")
            case Loss.RESTORED:
                shutil.rmtree(disk)
                shutil.copytree(self._copies / str(node), disk)
            case Loss.SWAPPED:
                other = self.of(self.other(node))
                kept = disk.with_name("swapping")
                disk.rename(kept)
                other.rename(disk)
                kept.rename(other)
            case Loss.NOTHING:
                pass

    def other(self, node: int) -> int:
        """With whose disk a node's is swapped."""
        return self._nodes[(self._nodes.index(node) + 1) % len(self._nodes)]
