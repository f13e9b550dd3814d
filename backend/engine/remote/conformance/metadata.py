"""Duties of every remote log metadata manager (KIP-405, `RemoteLogMetadataManager`). Subclass it as a test class."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from backend.engine.ports import tasks
from backend.engine.remote.conformance.samples import PARTITION, segment, update
from backend.engine.remote.metadata.remote_log_metadata_manager import RemoteLogMetadataManager
from backend.engine.remote.storage.remote_storage_manager import RemoteResourceNotFound, RemoteStorageError
from backend.protocol.remote_log.metadata_serde import PartitionDelete, SegmentMetadata
from backend.tiering.ids import TopicIdPartition
from backend.tiering.segment_state import PartitionDeleteState, SegmentState

STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = SegmentState
OTHER: Final = TopicIdPartition("orders", bytes(range(1, 17)), 1)
# Ready and visible within this time: a manager on a busy machine, not a figure to reach.
WAIT_MS: Final = 30_000

Scene = Callable[[RemoteLogMetadataManager], Awaitable[None]]


class RemoteLogMetadataConformance:
    """Each test opens a new manager that hosts `PARTITION`."""

    async def open_manager(self) -> RemoteLogMetadataManager:
        """A manager that knows no segment and hosts nothing yet. Runs on the loop of the test; the suite calls
        ``start`` and ``close``.
        """
        raise NotImplementedError("say how your manager is opened")

    def play(self, scene: Scene) -> None:
        """Runs a scene with a manager that is ready."""

        async def run() -> None:
            manager = await self.open_manager()
            try:
                manager.start()
                manager.on_partition_leadership_changes([PARTITION], [])
                assert await manager.wait_ready(PARTITION, WAIT_MS), "a hosted partition becomes ready"
                await scene(manager)
            finally:
                await manager.close()

        tasks.run(run())

    def test_a_segment_is_listed_from_its_start_and_readable_once_finished(self) -> None:
        async def scene(manager: RemoteLogMetadataManager) -> None:
            await manager.add_segment(segment(1))
            assert observed_state(manager, 5) == (None, [1], None)
            await manager.update_segment(update(1, FINISHED))
            assert observed_state(manager, 5) == (1, [1], 9)
            await manager.update_segment(update(1, DELETE_STARTED))
            assert observed_state(manager, 5) == (None, [1], 9)
            await manager.update_segment(update(1, DELETE_FINISHED))
            assert observed_state(manager, 5) == (None, [], 9), "the highest offset survives the segment"
            assert list(manager.segments(PARTITION)) == []

        self.play(scene)

    def test_who_publishes_sees_every_field_of_its_own_writes(self) -> None:
        async def scene(manager: RemoteLogMetadataManager) -> None:
            first = segment(1, 3)._replace(
                segment_leader_epochs=((1, 3), (2, 5)), custom_metadata=b"first", txn_index_empty=True
            )
            await manager.add_segment(first)
            assert list(manager.segments(PARTITION)) == [first]
            await manager.update_segment(update(1, FINISHED, custom=b"second"))
            expected = first.updated(update(1, FINISHED, custom=b"second"))
            assert manager.lookup(PARTITION, 2, 7) == expected
            assert manager.lookup(PARTITION, 1, 4) == expected

        self.play(scene)

    def test_an_update_replaces_custom_metadata_also_by_none(self) -> None:
        async def scene(manager: RemoteLogMetadataManager) -> None:
            await manager.add_segment(segment(1))
            await manager.update_segment(update(1, FINISHED, custom=b"x" * 128))
            await manager.update_segment(update(1, DELETE_STARTED))
            assert [listed.custom_metadata for listed in manager.segments(PARTITION)] == [None]

        self.play(scene)

    def test_offsets_belong_to_leader_epochs(self) -> None:
        async def scene(manager: RemoteLogMetadataManager) -> None:
            await finished(manager, segment(1, 0)._replace(segment_leader_epochs=((0, 0), (1, 4))), 1)
            await finished(manager, segment(2, 10)._replace(segment_leader_epochs=((1, 10),)), 2)
            places = [(0, 0), (0, 3), (0, 4), (1, 3), (1, 4), (1, 9), (1, 10), (1, 19), (1, 20), (2, 0)]
            looked_up = [manager.lookup(PARTITION, epoch, offset) for epoch, offset in places]
            assert [number(metadata) for metadata in looked_up] == [1, 1, None, None, 1, 1, 2, 2, None, None]
            assert [manager.highest_offset(PARTITION, epoch) for epoch in (0, 1, 2)] == [3, 19, None]
            assert [number(metadata) for metadata in manager.segments_of(PARTITION, 1)] == [1, 2]
            assert [manager.size_bytes(PARTITION, epoch) for epoch in (0, 1, 2)] == [
                segment().segment_size_bytes,
                2 * segment().segment_size_bytes,
                0,
            ]

        self.play(scene)

    def test_a_later_superset_takes_over_and_the_older_one_stays_listed(self) -> None:
        async def scene(manager: RemoteLogMetadataManager) -> None:
            await finished(manager, segment(1, 10), 1)
            await finished(manager, segment(2, 5)._replace(end_offset=150), 2)
            assert number(manager.lookup(PARTITION, 0, 11)) == 2
            assert [number(metadata) for metadata in manager.segments_of(PARTITION, 0)] == [2, 1]

        self.play(scene)

    def test_next_segment_with_a_transaction_index(self) -> None:
        async def scene(manager: RemoteLogMetadataManager) -> None:
            for index, empty in ((1, True), (2, False), (3, True)):
                await finished(manager, segment(index, 10 * index)._replace(txn_index_empty=empty), index)
            assert number(manager.next_with_txn_index(PARTITION, 0, 12)) == 2
            assert number(manager.next_with_txn_index(PARTITION, 0, 25)) == 2
            assert manager.next_with_txn_index(PARTITION, 0, 32) is None

        self.play(scene)

    def test_repeated_events_change_nothing_and_illegal_ones_are_dropped(self) -> None:
        async def scene(manager: RemoteLogMetadataManager) -> None:
            for _ in range(2):
                await manager.add_segment(segment(1))
            for _ in range(2):
                await manager.update_segment(update(1, FINISHED))
            await manager.update_segment(update(1, DELETE_FINISHED))
            assert observed_state(manager, 5) == (1, [1], 9)

        self.play(scene)

    def test_states_that_a_call_cannot_publish_are_mistakes_of_the_caller(self) -> None:
        async def scene(manager: RemoteLogMetadataManager) -> None:
            for call in (
                manager.add_segment(segment(1)._replace(state=FINISHED)),
                manager.update_segment(update(1, STARTED)),
            ):
                try:
                    await call
                except ValueError:
                    continue
                raise AssertionError("the call must be refused with ValueError")

        self.play(scene)

    def test_a_partition_that_is_not_hosted_has_no_metadata_here(self) -> None:
        async def scene(manager: RemoteLogMetadataManager) -> None:
            assert not manager.is_ready(OTHER)
            assert not await manager.wait_ready(OTHER, 1)
            calls: dict[str, Callable[[], object]] = {
                "lookup": lambda: manager.lookup(OTHER, 0, 0),
                "highest_offset": lambda: manager.highest_offset(OTHER, 0),
                "segments": lambda: list(manager.segments(OTHER)),
                "segments_of": lambda: manager.segments_of(OTHER, 0),
                "size_bytes": lambda: manager.size_bytes(OTHER, 0),
                "next_with_txn_index": lambda: manager.next_with_txn_index(OTHER, 0, 0),
            }
            for name, call in calls.items():
                try:
                    result = call()
                except RemoteResourceNotFound:
                    continue
                raise AssertionError(
                    f"{name} of a partition that is not hosted must raise RemoteResourceNotFound, not return {result!r}"
                )

        self.play(scene)

    def test_a_partition_that_returns_is_known_again(self) -> None:
        async def scene(manager: RemoteLogMetadataManager) -> None:
            await finished(manager, segment(1), 1)
            manager.on_stop_partitions([PARTITION])
            try:
                await manager.update_segment(update(1, DELETE_STARTED))
            except RemoteStorageError:
                pass
            else:
                raise AssertionError("nothing is recorded for a partition that is not hosted")
            manager.on_partition_leadership_changes([], [PARTITION])
            assert await manager.wait_ready(PARTITION, WAIT_MS)
            assert observed_state(manager, 5) == (1, [1], 9)

        self.play(scene)

    def test_a_finished_partition_delete_forgets_its_segments(self) -> None:
        async def scene(manager: RemoteLogMetadataManager) -> None:
            await finished(manager, segment(1), 1)
            for state in PartitionDeleteState:
                assert [number(metadata) for metadata in manager.segments(PARTITION)] == [1]
                await manager.put_partition_delete(PartitionDelete(PARTITION, 1, 0, state))
            assert list(manager.segments(PARTITION)) == []

        self.play(scene)


async def finished(manager: RemoteLogMetadataManager, metadata: SegmentMetadata, index: int) -> None:
    """Records a whole copy."""
    await manager.add_segment(metadata)
    await manager.update_segment(update(index, FINISHED))


def number(metadata: SegmentMetadata | None) -> int | None:
    """The number of a sample segment."""
    return None if metadata is None else metadata.segment_id[0]


def observed_state(manager: RemoteLogMetadataManager, offset: int) -> tuple[int | None, list[int | None], int | None]:
    """Returns the segment at an offset of epoch 0, the listed segments and the highest offset."""
    listed = [number(metadata) for metadata in manager.segments_of(PARTITION, 0)]
    return number(manager.lookup(PARTITION, 0, offset)), listed, manager.highest_offset(PARTITION, 0)
