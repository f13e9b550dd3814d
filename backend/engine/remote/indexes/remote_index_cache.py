"""Index files of remote segments on local disk (KIP-405; `RemoteIndexCache`).

A read of the remote tier needs a segment's indexes before it can ask for the right bytes. They are fetched once, kept
as files below ``<first log dir>/remote-log-index-cache`` named ``<start offset>_<segment
id>.index|.timeindex|.txnindex``, and found again after a restart. Least recently used ones leave when the files
exceed their limit or nobody asked for them in a while; who reads with one at that moment keeps it in memory.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from backend.engine.ports import Ports, Workers, tasks
from backend.engine.remote.bounded_pool import to_its_end
from backend.engine.remote.indexes.remote_indexes import CorruptIndex, RemoteIndexes
from backend.engine.remote.storage.remote_storage_manager import (
    IndexType,
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteStorageManager,
)
from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.tiering.ids import uuid_bytes, uuid_text

FOLDER: Final = "remote-log-index-cache"
SUFFIXES: Final = (".index", ".timeindex", ".txnindex")
_SUFFIX_TYPES: Final = {
    ".index": IndexType.OFFSET,
    ".timeindex": IndexType.TIMESTAMP,
    ".txnindex": IndexType.TRANSACTION,
}
_LEFTOVERS: Final = (".tmp", ".deleted")
# Files are small and many; what was looked at last stays in memory: indexes of 12 segments of 1 GiB.
MEMORY_BYTES_MAX: Final = 64 << 20

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Entry:
    start_offset: int
    size_bytes: int
    used_ms: float
    # Bytes of the files, or None when only the files have them.
    loaded: RemoteIndexes | None


class RemoteIndexCache:
    """Indexes by segment. Calls are made on the event loop; disk and storage are touched on workers."""

    def __init__(
        self,
        storage: RemoteStorageManager,
        ports: Ports,
        log_dir: str,
        *,
        bytes_max: int,
        ttl_ms: int = 900_000,
        workers: Workers | None = None,
    ) -> None:
        """`bytes_max` limits the files; `ttl_ms` is how long an unused one stays, -1 for ever. `workers` are those for
        calls to the storage, which may take seconds; by default the port's.
        """
        self._storage = storage
        self._ports = ports
        self._workers = workers or ports.workers
        self._folder = f"{log_dir}/{FOLDER}"
        self._bytes_max = bytes_max
        self._ttl_ms = ttl_ms
        # Least recently used first.
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._fetching: dict[bytes, tasks.Task[RemoteIndexes]] = {}
        # Removals of files that are under way.
        self._removing: dict[bytes, tasks.Task[None]] = {}
        self._loaded_bytes = 0
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of all files of the cache."""
        return self._size_bytes

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, segment_id: bytes) -> bool:
        return segment_id in self._entries

    async def load(self) -> None:
        """Finds what an earlier run left: complete sets are taken over, the rest is removed."""
        cached = await self._workers.run(self._scan)
        for segment_id, (start_offset, size_bytes) in cached.items():
            self._entries[segment_id] = _Entry(start_offset, size_bytes, self._now_ms(), None)
            self._size_bytes += size_bytes
        self._expire()
        await tasks.gather_settled(list(self._removing.values()))

    def _scan(self) -> dict[bytes, tuple[int, int]]:
        disk = self._ports.disk
        disk.make_dirs(self._folder)
        files: dict[str, dict[str, int]] = {}
        for name in disk.list_dir(self._folder):
            path = f"{self._folder}/{name}"
            stem, dot, suffix = name.partition(".")
            if name.endswith(_LEFTOVERS) or _parse_stem(stem) is None or f".{suffix}" not in SUFFIXES or not dot:
                disk.remove(path)
            else:
                files.setdefault(stem, {})[f".{suffix}"] = disk.size(path)
        cached: dict[bytes, tuple[int, int]] = {}
        for stem, sizes in files.items():
            parsed = _parse_stem(stem)
            if parsed is not None and len(sizes) == len(SUFFIXES):
                cached[parsed[1]] = (parsed[0], sum(sizes.values()))
            else:
                for suffix in sizes:
                    disk.remove(f"{self._folder}/{stem}{suffix}")
        return cached

    async def get(self, metadata: SegmentMetadata) -> RemoteIndexes:
        """A segment's indexes, from memory, disk or the remote storage.

        Raises RemoteResourceNotFound when the storage misses an index (an absent transaction index is an empty one),
        RemoteStorageError otherwise.
        """
        segment_id = metadata.segment_id
        entry = self._entries.get(segment_id)
        if entry is not None:
            entry.used_ms = self._now_ms()
            self._entries.move_to_end(segment_id)
            self._expire()
            if entry.loaded is not None:
                return entry.loaded
        running = self._fetching.get(segment_id)
        if running is None:
            # Several readers of one segment share the work, and it goes on when one of them gives up.
            running = tasks.start(self._fetch(metadata), name=f"indexes of {uuid_text(segment_id)}")
            self._fetching[segment_id] = running
            running.add_done_callback(lambda _: self._fetching.pop(segment_id))
        return await to_its_end(running)

    async def _fetch(self, metadata: SegmentMetadata) -> RemoteIndexes:
        removing = self._removing.get(metadata.segment_id)
        if removing is not None:
            await tasks.first([removing])
        indexes = await self._workers.run(lambda: self._read(metadata))
        self._admit(metadata.segment_id, indexes)
        self._expire()
        return indexes

    def _read(self, metadata: SegmentMetadata) -> RemoteIndexes:
        """On a worker: the files if they are there and sound, else a fresh copy of the remote ones."""
        stem = _stem(metadata.start_offset, metadata.segment_id)
        try:
            return self._indexes(metadata, lambda suffix: self._ports.disk.read(f"{self._folder}/{stem}{suffix}"))
        except FileNotFoundError:
            pass
        except (OSError, CorruptIndex) as error:
            _log.warning("Index files %s of %s are fetched again: %s", stem, metadata.topic_id_partition, error)
        try:
            indexes = self._indexes(metadata, lambda suffix: self._remote(metadata, suffix))
        except CorruptIndex as error:
            raise RemoteStorageError(
                f"Remote indexes of {metadata.topic_id_partition} {stem} are corrupt: {error}"
            ) from error
        for suffix, data in zip(SUFFIXES, (indexes.offset_index, indexes.time_index, indexes.txn_index), strict=True):
            # Not synced: after a power failure a damaged file is noticed and fetched again.
            self._ports.disk.write_atomic(f"{self._folder}/{stem}{suffix}", data, sync=False)
        return indexes

    @staticmethod
    def _indexes(metadata: SegmentMetadata, read: Callable[[str], bytes]) -> RemoteIndexes:
        indexes = RemoteIndexes(metadata.start_offset, read(".index"), read(".timeindex"), read(".txnindex"))
        indexes.check()
        return indexes

    def _remote(self, metadata: SegmentMetadata, suffix: str) -> bytes:
        index_type = _SUFFIX_TYPES[suffix]
        if index_type is IndexType.TRANSACTION and metadata.txn_index_empty:
            return b""
        try:
            return self._storage.fetch_index(metadata, index_type)
        except RemoteResourceNotFound:
            if index_type is IndexType.TRANSACTION:
                return b""
            raise

    def _admit(self, segment_id: bytes, indexes: RemoteIndexes) -> None:
        old = self._entries.pop(segment_id, None)
        if old is not None:
            self._size_bytes -= old.size_bytes
            self._loaded_bytes -= old.size_bytes if old.loaded is not None else 0
        self._entries[segment_id] = _Entry(indexes.base_offset, indexes.size_bytes, self._now_ms(), indexes)
        self._size_bytes += indexes.size_bytes
        self._loaded_bytes += indexes.size_bytes
        for entry in self._entries.values():
            if self._loaded_bytes <= MEMORY_BYTES_MAX:
                break
            if entry.loaded is not None and entry.loaded is not indexes:
                self._loaded_bytes -= entry.size_bytes
                entry.loaded = None

    def _expire(self) -> None:
        """Removes what exceeds the limit or was not used for the time to live; the newest entry stays."""
        pending_delete: list[tuple[bytes, int]] = []
        now_ms = self._now_ms()
        while len(self._entries) > 1:
            segment_id, entry = next(iter(self._entries.items()))
            idle = 0 <= self._ttl_ms < now_ms - entry.used_ms
            if self._size_bytes <= self._bytes_max and not idle:
                break
            pending_delete.append((segment_id, self._drop(segment_id)))
        self._remove_soon(pending_delete)

    def _drop(self, segment_id: bytes) -> int:
        entry = self._entries.pop(segment_id)
        self._size_bytes -= entry.size_bytes
        self._loaded_bytes -= entry.size_bytes if entry.loaded is not None else 0
        return entry.start_offset

    def _remove_soon(self, pending_delete: list[tuple[bytes, int]]) -> tasks.Task[None] | None:
        if not pending_delete:
            return None
        running = tasks.spawn(self._remove_files(pending_delete), name=f"removal of {len(pending_delete)} index files")
        for segment_id, _ in pending_delete:
            self._removing[segment_id] = running
        return running

    async def _remove_files(self, pending_delete: list[tuple[bytes, int]]) -> None:
        def remove() -> None:
            for segment_id, start_offset in pending_delete:
                for suffix in SUFFIXES:
                    self._ports.disk.remove(f"{self._folder}/{_stem(start_offset, segment_id)}{suffix}")

        try:
            await self._workers.run(remove)
        finally:
            for segment_id, _ in pending_delete:
                self._removing.pop(segment_id, None)

    async def remove(self, segment_ids: list[bytes]) -> None:
        """Forgets segments that are being deleted, or whose files have turned out to be damaged."""
        pending_delete = [
            (segment_id, self._drop(segment_id)) for segment_id in segment_ids if segment_id in self._entries
        ]
        running = self._remove_soon(pending_delete)
        if running is not None:
            await tasks.first([running])

    async def resize(self, bytes_max: int) -> None:
        """New limit (``remote.log.index.file.cache.total.size.bytes`` is dynamic)."""
        if bytes_max != self._bytes_max:
            self._bytes_max = bytes_max
            self._expire()
            await tasks.gather_settled(list(self._removing.values()))

    def _now_ms(self) -> float:
        return self._ports.clock.monotonic_ms()


def _stem(start_offset: int, segment_id: bytes) -> str:
    return f"{start_offset}_{uuid_text(segment_id)}"


def _parse_stem(stem: str) -> tuple[int, bytes] | None:
    offset, underscore, text = stem.partition("_")
    if not underscore or not offset.isdigit():
        return None
    try:
        return int(offset), uuid_bytes(text)
    except ValueError:
        return None
