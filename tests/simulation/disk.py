"""A file system in memory that a power cut treats as a real one: what was not flushed may be there, in part or not.

Of what was appended and not synced survives as much as some earlier write had made, or up to a block's end. Bytes
written in place come back or not, write by write. Changes of folders (create, rename, remove) are a journal as ext4's:
any sync writes it out; of what came after, a power cut keeps a random beginning. A file that was renamed over another
one has its content; one that is new may be empty. A crash of the process alone loses nothing.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from backend.protocol.buffers import Buffer

TOTAL_BYTES: Final = 1 << 40
# The size that a device writes whole. Small, as everything here is: a segment has some 300 bytes.
BLOCK_BYTES: Final = 64


@dataclass(slots=True, eq=False)
class Inode:
    """A file's content, and how much of it the device has."""

    data: bytearray = field(default_factory=bytearray)
    synced: int = 0
    # Where each append since the last sync ended.
    ends: list[int] = field(default_factory=list)
    # (position, bytes before) of writes in place since the last sync, below `synced`.
    overwritten: list[tuple[int, bytes]] = field(default_factory=list)
    modified_ms: int = 0

    def sync(self) -> None:
        self.synced = len(self.data)
        self.ends.clear()
        self.overwritten.clear()

    def lose_power(self, random: Random) -> None:
        for position, before in reversed(self.overwritten):
            if random.random() < 0.5:
                self.data[position : position + len(before)] = before
        size = len(self.data)
        if size > self.synced:
            blocks = range((self.synced // BLOCK_BYTES + 1) * BLOCK_BYTES, size, BLOCK_BYTES)
            del self.data[random.choice((self.synced, *self.ends, *blocks)) :]
        self.sync()


@dataclass(slots=True)
class Disk:
    """One machine's files; outlives its processes."""

    random: Random
    now_ms: Callable[[], int]
    files: dict[str, Inode] = field(default_factory=dict)
    # Every folder, with its entries in order of creation.
    folders: dict[str, dict[str, None]] = field(default_factory=lambda: {"": {}})
    # How to undo each change of folders that the device may not have yet, oldest first.
    journal: list[Callable[[], None]] = field(default_factory=list)
    full: bool = False
    # Below this folder nothing can be read or written: the device that it is on has failed.
    broken: str | None = None

    def check_device(self, path: str) -> None:
        if self.broken is not None and path.startswith(self.broken):
            raise OSError(errno.EIO, "Input/output error", path)

    def lose_power(self) -> None:
        """Leaves what the device has."""
        lost = self.random.randint(0, len(self.journal))
        for undo in reversed(self.journal[len(self.journal) - lost :]):
            undo()
        self.journal.clear()
        for inode in self.files.values():
            inode.lose_power(self.random)

    def replace(self, below: str | None = None) -> None:
        """Another device, empty, in the place of this one, or of the one that is mounted at a folder."""
        self.journal.clear()
        if below is None:
            self.files.clear()
            self.folders.clear()
            self.folders[""] = {}
            return
        for path in [path for path in self.files if path.startswith(below + "/")]:
            del self.files[path]
        for folder in [folder for folder in self.folders if folder.startswith(below + "/")]:
            del self.folders[folder]
        if below in self.folders:
            self.folders[below].clear()

    # Entries

    def add_entry(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        entries = self.folders.get(folder)
        if entries is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        entries[name] = None

    def drop_entry(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self.folders.get(folder, {}).pop(name, None)

    def link(self, path: str, inode: Inode) -> None:
        self.add_entry(path)
        self.files[path] = inode

    def unlink(self, path: str) -> Inode | None:
        inode = self.files.pop(path, None)
        if inode is not None:
            self.drop_entry(path)
        return inode

    def create(self, path: str) -> Inode:
        self.check_room()
        inode = Inode(modified_ms=self.now_ms())
        self.link(path, inode)
        self.journal.append(lambda: self._unlink_same(path, inode))
        return inode

    def _unlink_same(self, path: str, inode: Inode) -> None:
        if self.files.get(path) is inode:
            self.unlink(path)

    def _relink(self, path: str, inode: Inode) -> None:
        if path.rpartition("/")[0] in self.folders:
            self.link(path, inode)

    def check_room(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def remove(self, path: str) -> None:
        inode = self.unlink(path)
        if inode is not None:
            kept = inode
            self.journal.append(lambda: self._relink(path, kept))

    def rename(self, source: str, target: str) -> None:
        if source in self.files:
            replaced = self.files.get(target)
            inode = self.files.pop(source)
            self.drop_entry(source)
            self.link(target, inode)

            def undo() -> None:
                self._unlink_same(target, inode)
                self._relink(source, inode)
                if replaced is not None:
                    self._relink(target, replaced)

            self.journal.append(undo)
        elif source in self.folders:
            self._move_folder(source, target)
            self.journal.append(lambda: self._move_folder(target, source))
        else:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", source)

    def _move_folder(self, source: str, target: str) -> None:
        if source not in self.folders or self.folders.get(target):
            return
        self.drop_entry(source)
        self.add_entry(target)
        for folder in [folder for folder in self.folders if folder == source or folder.startswith(source + "/")]:
            self.folders[target + folder[len(source) :]] = self.folders.pop(folder)
        for path in [path for path in self.files if path.startswith(source + "/")]:
            self.files[target + path[len(source) :]] = self.files.pop(path)


class VirtualFile:
    """An open file of one process."""

    __slots__ = ("_disk", "_inode", "_owner", "_path")

    def __init__(self, owner: VirtualDisk, inode: Inode, path: str) -> None:
        self._owner = owner
        self._path = path
        self._disk = owner.disk
        self._inode = inode

    def append(self, chunks: Sequence[Buffer]) -> int:
        self._owner.check_alive(self._path)
        data, inode = b"".join(chunks), self._inode
        if self._disk.full:
            inode.data += data[: self._disk.random.randint(0, len(data))]
            inode.ends.append(len(inode.data))
            self._disk.check_room()
        inode.data += data
        inode.ends.append(len(inode.data))
        inode.modified_ms = self._disk.now_ms()
        return len(data)

    def pread(self, size: int, position: int) -> bytes:
        self._disk.check_device(self._path)
        return bytes(self._inode.data[position : position + size])

    def range(self, size: int, position: int, unreadable: Callable[[OSError], None]) -> bytes:
        return self.pread(size, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        self._owner.check_alive(self._path)
        inode, size = self._inode, len(data)
        below = max(0, min(size, inode.synced - position))
        if below:
            inode.overwritten.append((position, bytes(inode.data[position : position + below])))
        inode.data[position : position + size] = data
        inode.modified_ms = self._disk.now_ms()

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._owner.check_alive(self._path)
        inode = self._inode
        if size < len(inode.data):
            del inode.data[size:]
        else:
            inode.data += bytes(size - len(inode.data))
        inode.synced = min(inode.synced, size)
        inode.ends = [end for end in inode.ends if end <= size]

    def sync(self) -> None:
        self._owner.check_alive(self._path)
        self._inode.sync()
        self._disk.journal.clear()

    def close(self) -> None:
        """Nothing is written by it."""


class VirtualDisk:
    """One process's disk port."""

    def __init__(self, disk: Disk, alive: Callable[[], bool]) -> None:
        self.disk = disk
        self._alive = alive
        self._locked: set[str] = set()
        # So many more changes, and the process is killed in the midst of its work.
        self.changes_left: int | None = None
        self.on_last_change: Callable[[], None] | None = None

    def check_alive(self, path: str = "") -> None:
        """Before each change."""
        if self.changes_left is not None and self._alive():
            self.changes_left -= 1
            if self.changes_left < 0 and self.on_last_change is not None:
                self.on_last_change()
        if not self._alive():
            raise OSError(errno.EIO, "the process is dead")
        self.disk.check_device(path)

    def open(self, path: str, *, create: bool = False) -> VirtualFile:
        self.disk.check_device(path)
        inode = self.disk.files.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            self.check_alive(path)
            inode = self.disk.create(path)
        return VirtualFile(self, inode, path)

    def exists(self, path: str) -> bool:
        return path in self.disk.files or path.rstrip("/") in self.disk.folders

    def is_dir(self, path: str) -> bool:
        return path.rstrip("/") in self.disk.folders

    def _inode(self, path: str) -> Inode:
        self.disk.check_device(path)
        inode = self.disk.files.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return inode

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def modified_ms(self, path: str) -> int:
        return self._inode(path).modified_ms

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        self._inode(path).modified_ms = time_ms

    def list_dir(self, path: str) -> list[str]:
        self.disk.check_device(path)
        entries = self.disk.folders.get(path.rstrip("/"))
        if entries is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return sorted(entries)

    def make_dirs(self, path: str) -> None:
        self.check_alive(path)
        disk, path = self.disk, path.rstrip("/")
        if path in disk.folders:
            return
        self.make_dirs(path.rpartition("/")[0])
        disk.add_entry(path)
        disk.folders[path] = {}

        def undo() -> None:
            if not disk.folders.get(path, {"": None}):
                del disk.folders[path]
                disk.drop_entry(path)

        disk.journal.append(undo)

    def read(self, path: str) -> bytes:
        return bytes(self._inode(path).data)

    def write_atomic(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        self.check_alive(path)
        temporary = path + ".tmp"
        self.disk.unlink(temporary)
        inode = self.disk.create(temporary)
        inode.data += data
        inode.ends.append(len(data))
        self.check_alive(path)
        # As ext4 and btrfs do: a rename over another file is not written before the new content is.
        if sync or path in self.disk.files:
            inode.sync()
        self.disk.rename(temporary, path)
        if sync:
            self.disk.journal.clear()

    def rename(self, source: str, target: str) -> None:
        self.check_alive(source)
        self.disk.rename(source.rstrip("/"), target.rstrip("/"))

    def remove(self, path: str) -> None:
        self.check_alive(path)
        self.disk.remove(path)

    def remove_tree(self, path: str) -> None:
        self.check_alive(path)
        disk, path = self.disk, path.rstrip("/")
        for file in [file for file in disk.files if file.startswith(path + "/")]:
            self.check_alive(path)
            disk.remove(file)
        for folder in sorted(
            (folder for folder in disk.folders if folder == path or folder.startswith(path + "/")), reverse=True
        ):
            del disk.folders[folder]
            disk.drop_entry(folder)
            disk.journal.append(lambda folder=folder: self._make_again(folder))  # type: ignore[misc]  # bound now

    def _make_again(self, folder: str) -> None:
        if folder.rpartition("/")[0] in self.disk.folders:
            self.disk.folders.setdefault(folder, {})
            self.disk.add_entry(folder)

    def sync_dir(self, path: str) -> None:
        self.check_alive(path)
        self.disk.journal.clear()

    def free_bytes(self, path: str) -> int:
        return 0 if self.disk.full else TOTAL_BYTES

    def total_bytes(self, path: str) -> int:
        return TOTAL_BYTES

    def lock(self, path: str) -> VirtualFile:
        # Locks are the kernel's: they end with the process.
        if path in self._locked:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        self._locked.add(path)
        return self.open(path, create=True)
