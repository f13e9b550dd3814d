"""Restarts with local files: little is read again, every answer is that of a full replay, and doubt means a replay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from backend.engine.ports import tasks
from backend.engine.remote.metadata import metadata_consumer
from backend.engine.remote.metadata.metadata_files import COMMITTED_OFFSETS, COMMITTED_RECORDS, MetadataFiles, Resume
from backend.engine.remote.metadata.metadata_topic import FetchedPartition
from backend.engine.remote.metadata.remote_log_metadata_cache import Overlap
from backend.engine.remote.metadata.topic_based_metadata_manager import TopicBasedRemoteLogMetadataManager
from backend.protocol.remote_log.metadata_serde import SegmentMetadata, encode, metadata_partition
from backend.tiering.ids import TopicIdPartition, uuid_text
from tests.conformance.memory_topic import MemoryMetadataTopic, MemoryTopicLog
from tests.unit.engine.remote.metadata.test_topic_based_metadata_manager import (
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    SETTINGS,
    A,
    B,
    C,
    started,
    update,
)
from tests.unit.engine.remote.tiers import RecordingSink
from tests.unit.engine.virtual_time import ports_here, run_virtual

SEGMENTS = 40


class CountingTopic(MemoryMetadataTopic):
    """Counts the records that are read."""

    def __init__(self, log: MemoryTopicLog) -> None:
        super().__init__(log)
        self.records_read = 0

    async def fetch(self, positions: Mapping[int, int], *, max_wait_ms: int) -> Sequence[FetchedPartition]:
        fetched = await super().fetch(positions, max_wait_ms=max_wait_ms)
        self.records_read += sum(len(partition.records) for partition in fetched)
        return fetched


class Site:
    """One broker's life after life over one topic."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = MemoryTopicLog()
        self.ports = ports_here()
        self.fatal: list[str] = []
        self.read = 0

    async def open(
        self, *hosted: TopicIdPartition, files: bool = True, overlap: Overlap = Overlap.KIP, flush_ms: int = 1_000_000
    ) -> TopicBasedRemoteLogMetadataManager:
        topic = CountingTopic(self.log)
        settings = replace(
            SETTINGS, log_dir=str(self.folder) if files else None, overlap=overlap, files_flush_interval_ms=flush_ms
        )
        manager = TopicBasedRemoteLogMetadataManager(
            topic, settings, self.ports, RecordingSink(), on_fatal=self.fatal.append
        )
        manager.on_partition_leadership_changes(hosted, ())
        manager.start()
        for partition in hosted:
            assert await manager.wait_ready(partition, 5000)
        self.read = topic.records_read
        return manager

    async def answers(self, *hosted: TopicIdPartition, **more: object) -> list[list[SegmentMetadata]]:
        """Returns the metadata of a broker that starts now and closes again; `read`: how many records it read."""
        manager = await self.open(*hosted, **more)  # type: ignore[arg-type]  # passed on
        segments = [sorted(manager.segments(partition)) for partition in hosted]
        await manager.close()
        return segments

    async def fill(self, manager: TopicBasedRemoteLogMetadataManager, partition: TopicIdPartition) -> None:
        """Many segments of which most are deleted again: the history is longer than what is left of it."""
        for number in range(SEGMENTS):
            await manager.add_segment(started(number, partition, 10 * number))
            await manager.update_segment(update(number, FINISHED, partition))
            if number < SEGMENTS - 5:
                await manager.update_segment(update(number, DELETE_STARTED, partition))
                await manager.update_segment(update(number, DELETE_FINISHED, partition))

    def names(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


def play(folder: Path, scene: Callable[[Site], Awaitable[None]]) -> None:
    async def run() -> None:
        site = Site(folder)
        try:
            await tasks.wait_for(scene(site), 30_000)
        finally:
            site.ports.workers.close()
        assert site.fatal == []

    run_virtual(run())


async def filled(site: Site) -> list[list[SegmentMetadata]]:
    """Two partitions with a history, closed in order; what a full replay says of them."""
    manager = await site.open(A, B)
    await site.fill(manager, A)
    await site.fill(manager, B)
    highest = [manager.highest_offset(partition, 0) for partition in (A, B)]
    assert highest == [10 * SEGMENTS - 1] * 2
    await manager.close()
    expected = await site.answers(A, B, files=False)
    assert [len(segments) for segments in expected] == [5, 5]
    assert site.read == 2 * (4 * SEGMENTS - 10)
    return expected


def test_a_restart_reads_one_record_of_each_metadata_partition_however_long_the_history(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        expected = await filled(site)
        assert await site.answers(A, B) == expected
        assert site.read == len({metadata_partition(p.topic_id, p.partition, 2) for p in (A, B)})
        manager = await site.open(A, B)
        assert manager.highest_offset(A, 0) == 10 * SEGMENTS - 1
        assert [segment.start_offset for segment in manager.segments_of(A, 0)] == [
            10 * number for number in range(SEGMENTS - 5, SEGMENTS)
        ]
        await manager.close()

    play(tmp_path, scene)


def test_many_segments_are_written_in_several_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_consumer, "SEGMENTS_PER_SAVE", 1)

    async def scene(site: Site) -> None:
        expected = await filled(site)
        assert await site.answers(A, B) == expected
        assert site.read <= 2

    play(tmp_path, scene)


def test_what_came_while_the_broker_was_down_is_read_and_written_down(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        await filled(site)
        other = await site.open(A, files=False)
        await other.add_segment(started(99, A, 990))
        await other.update_segment(update(99, FINISHED, A))
        await other.close()
        expected = await site.answers(A, B, files=False)
        assert len(expected[0]) == 6
        for _ in range(2):
            assert await site.answers(A, B) == expected
        assert site.read <= 2

    play(tmp_path, scene)


def test_the_files_have_the_kips_format(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        manager = await site.open(A)
        await manager.add_segment(started(1, A))
        await manager.close()
        target = metadata_partition(A.topic_id, A.partition, 2)
        store = tmp_path / f"_rlmm_{uuid_text(A.topic_id)}-{A.partition}"
        assert site.names() == {COMMITTED_OFFSETS, COMMITTED_RECORDS, store.name}
        assert (tmp_path / COMMITTED_OFFSETS).read_text() == f"{target} 1\n"
        # magic 1, "orders", topic id, offset 0 as varlong; length, type 3, version 0, segment id of the first entry
        head = b"\x01\x07orders" + A.topic_id + b"\x00" + bytes([75, 3, 0]) + bytes([1]) * 16
        assert store.read_bytes()[: len(head)].hex() == head.hex()

    play(tmp_path, scene)


Damage = Callable[[Site], None]


def garble_store(site: Site) -> None:
    path = next(site.folder.glob(f"_rlmm_*-{A.partition}"))
    path.write_bytes(path.read_bytes()[:-20] + bytes(20))


def lose_store(site: Site) -> None:
    next(site.folder.glob(f"_rlmm_*-{A.partition}")).unlink()


def garble_committed(site: Site) -> None:
    (site.folder / COMMITTED_OFFSETS).write_text("not a number\n")


def one_committed_file_is_older(site: Site) -> None:
    text = (site.folder / COMMITTED_OFFSETS).read_text().splitlines()
    (site.folder / COMMITTED_OFFSETS).write_text("".join(f"{line.split()[0]} 3\n" for line in text))


def recreate_the_topic(site: Site) -> None:
    """Another topic of the same name with as many records."""
    for partition, values in enumerate(site.log.partitions):
        events = [encode(started(n % 250, A if partition == target_of(A) else B, n)) for n in range(len(values))]
        site.log.partitions[partition] = list(events)


def truncate_the_topic(site: Site) -> None:
    """Truncates the topic, as an unclean election may."""
    for values in site.log.partitions:
        del values[10:]


def expire_the_topic(site: Site) -> None:
    """Retention passed the place where reading stopped."""
    for partition in range(len(site.log.partitions)):
        site.log.delete_before(partition, site.log.range(partition).end)
        for number in range(3):
            site.log.append(partition, encode(started(200 + number, A if partition == target_of(A) else B, 7)))


def target_of(partition: TopicIdPartition) -> int:
    return metadata_partition(partition.topic_id, partition.partition, 2)


@pytest.mark.parametrize(
    "damage",
    [
        garble_store,
        lose_store,
        garble_committed,
        one_committed_file_is_older,
        recreate_the_topic,
        truncate_the_topic,
        expire_the_topic,
    ],
)
def test_files_that_do_not_match_are_not_believed_and_are_made_anew(tmp_path: Path, damage: Damage) -> None:
    async def scene(site: Site) -> None:
        await filled(site)
        damage(site)
        expected = await site.answers(A, B, files=False)
        assert await site.answers(A, B) == expected
        assert site.read > 2
        assert await site.answers(A, B) == expected
        assert site.read <= 2

    play(tmp_path, scene)


def test_files_of_another_overlap_mode_are_not_used(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        expected = await filled(site)
        assert await site.answers(A, B, overlap=Overlap.KAFKA) == expected
        assert site.read > 2

    play(tmp_path, scene)


def test_a_crash_between_stores_and_committed_offsets_leaves_nothing_that_is_believed(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        await filled(site)
        committed = {name: (tmp_path / name).read_text() for name in (COMMITTED_OFFSETS, COMMITTED_RECORDS)}
        manager = await site.open(A, B)
        await manager.add_segment(started(77, A, 770))
        await manager.close()
        for name, text in committed.items():
            (tmp_path / name).write_text(text)
        expected = await site.answers(A, B, files=False)
        assert await site.answers(A, B) == expected

    play(tmp_path, scene)


def test_a_partition_that_left_has_no_file_and_is_read_from_the_start_when_it_returns(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        expected = await filled(site)
        manager = await site.open(A, B)
        manager.on_stop_partitions([B])
        await manager.close()
        assert not [name for name in site.names() if name.endswith(f"-{B.partition}")]
        assert await site.answers(A, B) == expected
        assert await site.answers(A, B) == expected

    play(tmp_path, scene)


def test_a_partition_that_comes_later_than_the_others_still_uses_its_file(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        expected = await filled(site)
        manager = await site.open(A)
        manager.on_partition_leadership_changes([], [B, C])
        for partition in (B, C):
            assert await manager.wait_ready(partition, 5000)
        assert [sorted(manager.segments(partition)) for partition in (A, B, C)] == [*expected, []]
        await manager.close()

    play(tmp_path, scene)


def test_files_are_written_while_the_broker_runs_too(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        manager = await site.open(A, flush_ms=5)
        await site.fill(manager, A)
        end = site.log.range(target_of(A)).end
        files = MetadataFiles(site.ports.disk, str(tmp_path), Overlap.KIP)
        while (files.committed().get(target_of(A)) or Resume(0, 0, 0)).next_offset < end:
            await tasks.sleep_ms(2)
        # The broker is killed: nothing is written at its end.
        assert await site.answers(A, flush_ms=1_000_000) == await site.answers(A, files=False)
        await manager.close()

    play(tmp_path, scene)


def test_a_folder_that_cannot_be_written_costs_a_longer_restart_and_nothing_else(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        site.folder = tmp_path / "gone"
        manager = await site.open(A)
        await manager.add_segment(started(1, A))
        await manager.close()
        assert [len(segments) for segments in await site.answers(A)] == [1]

    play(tmp_path, scene)
