"""The index files of remote segments on local disk (7.4 of Kafka's behaviour; `RemoteIndexCacheTest`)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from backend.engine.ports import Ports, tasks
from backend.engine.remote.indexes.remote_index_cache import FOLDER, RemoteIndexCache
from backend.engine.remote.manager.copy_task import CopyTask
from backend.engine.remote.storage.object_store_manager import EventType
from backend.engine.remote.storage.remote_storage_manager import RemoteResourceNotFound, RemoteStorageError
from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.tiering.ids import uuid_text
from tests.unit.engine.log.logs import TIP
from tests.unit.engine.remote.faulty_store import FaultyStore, with_faults
from tests.unit.engine.remote.tiers import Broker, View, golden_tiered_log, tier_broker

INDEX_TYPES = (EventType.FETCH_OFFSET_INDEX, EventType.FETCH_TIME_INDEX, EventType.FETCH_TRANSACTION_INDEX)


class HandClock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now_ms = 1000.0

    def time_ms(self) -> int:
        return int(self.now_ms)

    def monotonic_ms(self) -> float:
        return self.now_ms


@dataclass
class Bench:
    """Two remote segments, 0-2 and 3-5, and a cache of them."""

    broker: Broker
    ports: Ports
    clock: HandClock
    folder: Path
    segments: dict[int, SegmentMetadata]
    store: FaultyStore

    def cache(self, *, bytes_max: int = 1 << 20, ttl_ms: int = 900_000) -> RemoteIndexCache:
        return RemoteIndexCache(
            self.broker.storage, self.ports, str(self.folder.parent), bytes_max=bytes_max, ttl_ms=ttl_ms
        )

    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder))

    def stem(self, start: int) -> str:
        return f"{start}_{uuid_text(self.segments[start].segment_id)}"

    def fetched(self) -> int:
        return len(self.broker.history(*INDEX_TYPES))

    def remote_file(self, start: int, suffix: str) -> Path:
        root = self.folder.parent.parent / "remote"
        [path] = root.rglob(f"{start:020d}-{uuid_text(self.segments[start].segment_id)}.{suffix}")
        return path


def play(folder: Path, scene: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        log = golden_tiered_log(folder)
        async with tier_broker(folder) as broker:
            await CopyTask(View(log), broker.tier).run()
            clock = HandClock()
            segments = {segment.start_offset: segment for segment in broker.metadata.segments(TIP)}
            cache_dir = folder / "cached"
            cache_dir.mkdir()
            ports = replace(broker.tier.ports, clock=clock)
            bench = Bench(broker, ports, clock, cache_dir / FOLDER, segments, with_faults(broker.storage))
            broker.storage.history.clear()
            await scene(bench)

    asyncio.run(run())


def test_files_are_named_by_start_offset_and_id_and_serve_the_next_run_without_the_storage(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        first = bench.cache()
        await first.load()
        for start in (0, 3):
            await first.get(bench.segments[start])
        suffixes = (".index", ".timeindex", ".txnindex")
        assert bench.names() == sorted(bench.stem(start) + suffix for start in (0, 3) for suffix in suffixes)
        # Leftovers of a crash: half a download, half a removal, a lone index, somebody else's file.
        for name in (f"{bench.stem(3)}.index.tmp", "7_x.index.deleted", "note.txt"):
            (bench.folder / name).write_bytes(b"left")
        (bench.folder / f"{bench.stem(0)}.timeindex").unlink()
        fetched = bench.fetched()
        second = bench.cache()
        await second.load()
        assert (len(second), second.size_bytes) == (1, (await first.get(bench.segments[3])).size_bytes)
        assert bench.names() == sorted(bench.stem(3) + suffix for suffix in suffixes)
        assert await second.get(bench.segments[3]) == await first.get(bench.segments[3])
        assert bench.fetched() == fetched
        await second.get(bench.segments[0])
        assert bench.fetched() == fetched + 2, "an empty transaction index needs no call"

    play(tmp_path, scene)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_a_damaged_file_is_fetched_again(tmp_path: Path, suffix: str) -> None:
    async def scene(bench: Bench) -> None:
        cache = bench.cache()
        await cache.load()
        sound = await cache.get(bench.segments[3])
        file = bench.folder / (bench.stem(3) + suffix)
        before = file.read_bytes()
        file.write_bytes(before + b"\xff")
        again = bench.cache()
        await again.load()
        assert await again.get(bench.segments[3]) == sound
        assert file.read_bytes() == before

    play(tmp_path, scene)


def test_a_corrupt_remote_index_is_an_error_that_names_the_segment_and_ends_with_the_damage(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        cache = bench.cache()
        await cache.load()
        bench.store.damage = lambda key, data: data[:-1] if key.endswith(".index") else data
        with pytest.raises(RemoteStorageError, match=bench.stem(3)):
            await cache.get(bench.segments[3])
        assert bench.names() == []
        bench.store.heal()
        assert (await cache.get(bench.segments[3])).entry_of(4) == (4, 72)

    play(tmp_path, scene)


def test_an_absent_transaction_index_is_an_empty_one_and_any_other_an_error(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        cache = bench.cache()
        await cache.load()
        promised = bench.segments[0]._replace(txn_index_empty=False)
        assert (await cache.get(promised)).aborted() == []
        assert bench.broker.history(EventType.FETCH_TRANSACTION_INDEX) == [
            (EventType.FETCH_TRANSACTION_INDEX, 0, False)
        ]
        bench.remote_file(3, "timeindex").unlink()
        with pytest.raises(RemoteResourceNotFound):
            await cache.get(bench.segments[3])

    play(tmp_path, scene)


def test_a_limit_of_one_byte_keeps_only_what_was_used_last(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        cache = bench.cache(bytes_max=1)
        await cache.load()
        first = await cache.get(bench.segments[0])
        await cache.get(bench.segments[3])
        assert len(cache) == 1
        # A reader that holds the index goes on with it, evicted or not.
        assert first.entry_of(1) == (1, 72)
        assert await cache.get(bench.segments[0]) == first
        await cache.resize(2)
        assert {name.split("_")[0] for name in bench.names()} == {"0"}

    play(tmp_path, scene)


@pytest.mark.parametrize(("ttl_ms", "left"), [(900_000, ["3"]), (-1, ["0", "3"])])
def test_what_nobody_used_for_the_time_to_live_goes_at_the_next_use_of_another(
    tmp_path: Path, ttl_ms: int, left: list[str]
) -> None:
    async def scene(bench: Bench) -> None:
        cache = bench.cache(ttl_ms=ttl_ms)
        await cache.load()
        for start in (0, 3):
            await cache.get(bench.segments[start])
        bench.clock.now_ms += 600_000
        await cache.get(bench.segments[3])
        bench.clock.now_ms += 300_001
        await cache.get(bench.segments[3])
        await cache.remove([])
        assert len(cache) == len(left)
        await cache.resize(1 << 21)
        assert sorted({name.split("_")[0] for name in bench.names()}) == left

    play(tmp_path, scene)


def test_readers_of_one_segment_share_the_fetch_also_when_the_first_gives_up(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        cache = bench.cache()
        await cache.load()
        bench.store.block()
        readers = [tasks.start(cache.get(bench.segments[0]), name="reader") for _ in range(3)]
        while not bench.store.blocked:
            await asyncio.sleep(0.001)
        readers[0].cancel()
        bench.store.unblock()
        results = await tasks.gather_settled(readers)
        assert isinstance(results[0], tasks.Cancelled)
        assert results[1] == results[2]
        assert bench.fetched() == 2
        await tasks.gather(cache.get(bench.segments[0]) for _ in range(3))
        assert bench.fetched() == 2

    play(tmp_path, scene)


def test_a_file_that_is_being_removed_is_not_read_nor_lost(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        cache = bench.cache(bytes_max=1)
        await cache.load()
        for start in (0, 3) * 10:
            await cache.get(bench.segments[start])
        await cache.resize(2)
        assert {name.split("_")[0] for name in bench.names()} == {"3"}
        assert len(bench.names()) == 3

    play(tmp_path, scene)


def test_deleted_segments_leave_nothing(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        cache = bench.cache()
        await cache.load()
        await cache.get(bench.segments[0])
        await cache.remove([bench.segments[0].segment_id, bench.segments[3].segment_id])
        assert (len(cache), cache.size_bytes, bench.names()) == (0, 0, [])

    play(tmp_path, scene)
