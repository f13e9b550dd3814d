"""Duties of every remote storage (KIP-405, `RemoteStorageManager`). Subclass it as a test class."""

from __future__ import annotations

from functools import partial
from typing import Any

from backend.engine.ports.disk import OsDisk
from backend.engine.ports.workers import in_threads
from backend.engine.remote.conformance.samples import EPOCHS, LOG, data, segment
from backend.engine.remote.storage.remote_storage_manager import (
    IndexType,
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteStorageManager,
)
from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.tiering.ids import TopicIdPartition
from backend.tiering.segment_state import SegmentState

READERS = 8


class RemoteStorageConformance:
    """Each test opens a new storage. `tmp_path` is pytest's folder for the test."""

    def open_storage(self, folder: str) -> RemoteStorageManager:
        """An empty storage; what it needs of files may go below `folder`."""
        raise NotImplementedError("say how your storage is opened")

    def _copied(self, storage: RemoteStorageManager, metadata: SegmentMetadata, *given: Any, **more: Any) -> Any:
        """The segment as it is asked for later: with the custom metadata that the copy returned."""
        custom = storage.copy_log_segment_data(metadata, data(*given, **more))
        assert custom is None or isinstance(custom, bytes), "copy_log_segment_data returns bytes or None"
        return metadata._replace(custom_metadata=custom, state=SegmentState.COPY_SEGMENT_FINISHED)

    def test_what_was_copied_is_read_back(self, tmp_path: Any) -> None:
        storage = self.open_storage(str(tmp_path))
        copied = self._copied(storage, segment(), tmp_path, txn=b"aborted")
        assert storage.fetch_log_segment(copied, 0) == LOG
        assert {kind: storage.fetch_index(copied, kind) for kind in IndexType} == {
            IndexType.OFFSET: b"offsets",
            IndexType.TIMESTAMP: b"times",
            IndexType.PRODUCER_SNAPSHOT: b"producers",
            IndexType.TRANSACTION: b"aborted",
            IndexType.LEADER_EPOCH: EPOCHS,
        }
        storage.close()

    def test_a_range_is_inclusive_and_ends_with_the_file(self, tmp_path: Any) -> None:
        storage = self.open_storage(str(tmp_path))
        copied = self._copied(storage, segment(), tmp_path)
        assert storage.fetch_log_segment(copied, 0, 0) == LOG[:1]
        assert storage.fetch_log_segment(copied, 100, 199) == LOG[100:200]
        assert storage.fetch_log_segment(copied, 100) == LOG[100:]
        assert storage.fetch_log_segment(copied, len(LOG) - 1, 10 * len(LOG)) == LOG[-1:]
        assert storage.fetch_log_segment(copied, len(LOG)) == b""
        assert storage.fetch_log_segment(copied, len(LOG) + 5, len(LOG) + 9) == b""
        storage.close()

    def test_an_impossible_range_is_a_mistake_of_the_caller(self, tmp_path: Any) -> None:
        storage = self.open_storage(str(tmp_path))
        copied = self._copied(storage, segment(), tmp_path)
        for start, end in ((-1, None), (5, 4)):
            try:
                storage.fetch_log_segment(copied, start, end)
            except ValueError:
                continue
            raise AssertionError(f"positions {start} to {end} must be refused with ValueError")
        storage.close()

    def test_a_missing_segment_or_index_is_not_found(self, tmp_path: Any) -> None:
        storage = self.open_storage(str(tmp_path))
        for start in (0, len(LOG)):
            assert_not_found(lambda start=start: storage.fetch_log_segment(segment(), start))
        for kind in IndexType:
            assert_not_found(lambda kind=kind: storage.fetch_index(segment(), kind))
        storage.close()

    def test_a_segment_without_transaction_index_differs_from_an_empty_one(self, tmp_path: Any) -> None:
        storage = self.open_storage(str(tmp_path))
        copied = self._copied(storage, segment(), tmp_path)
        assert_not_found(lambda: storage.fetch_index(copied, IndexType.TRANSACTION))
        storage.close()

    def test_a_topic_with_a_long_name_has_its_segments(self, tmp_path: Any) -> None:
        """Kafka allows names of 249 characters; two such topics may differ in their ends alone."""
        storage = self.open_storage(str(tmp_path))
        for length in (230, 231, 249):
            names = ["t" * (length - 1) + last for last in "xy"]
            partitions = [
                TopicIdPartition(name, bytes([length, last]) * 8, number)
                for last, name in enumerate(names)
                for number in (0, 123_456)
            ]
            logs = {partition: bytes([at]) * len(LOG) for at, partition in enumerate(partitions)}
            copied = {
                partition: self._copied(storage, segment(partition=partition), tmp_path, log=log)
                for partition, log in logs.items()
            }
            assert {p: storage.fetch_log_segment(metadata, 0) for p, metadata in copied.items()} == logs
            gone = copied[partitions[0]]
            storage.delete_log_segment_data(gone)
            storage.delete_log_segment_data(gone)
            assert_not_found(partial(storage.fetch_log_segment, gone, 0))
            assert_not_found(partial(storage.fetch_index, gone, IndexType.OFFSET))
            assert storage.fetch_log_segment(copied[partitions[1]], 0) == logs[partitions[1]]
        storage.close()

    def test_copying_again_overwrites(self, tmp_path: Any) -> None:
        storage = self.open_storage(str(tmp_path))
        self._copied(storage, segment(), tmp_path, log=LOG[::-1])
        copied = self._copied(storage, segment(), tmp_path)
        assert storage.fetch_log_segment(copied, 0) == LOG
        storage.close()

    def test_two_attempts_at_the_same_offsets_stay_apart(self, tmp_path: Any) -> None:
        storage = self.open_storage(str(tmp_path))
        first = self._copied(storage, segment(1), tmp_path, log=LOG[::-1])
        second = self._copied(storage, segment(2), tmp_path)
        assert storage.fetch_log_segment(first, 0) == LOG[::-1]
        assert storage.fetch_log_segment(second, 0) == LOG
        storage.close()

    def test_deleting_takes_one_segment_and_can_be_repeated(self, tmp_path: Any) -> None:
        storage = self.open_storage(str(tmp_path))
        first, second = (self._copied(storage, segment(number), tmp_path, txn=b"aborted") for number in (1, 2))
        for _ in range(2):
            storage.delete_log_segment_data(first)
        assert_not_found(lambda: storage.fetch_log_segment(first, 0))
        for kind in IndexType:
            assert_not_found(lambda kind=kind: storage.fetch_index(first, kind))
        assert storage.fetch_log_segment(second, 0) == LOG
        storage.close()

    def test_what_was_never_copied_can_be_deleted(self, tmp_path: Any) -> None:
        storage = self.open_storage(str(tmp_path))
        storage.delete_log_segment_data(segment())
        storage.close()

    def test_a_failed_copy_is_reported_and_leaves_nothing(self, tmp_path: Any) -> None:
        storage = self.open_storage(str(tmp_path))
        files = data(tmp_path)
        OsDisk().remove(f"{tmp_path}/snapshot")
        try:
            storage.copy_log_segment_data(segment(), files)
        except RemoteStorageError:
            pass
        else:
            raise AssertionError("a copy whose local file is gone must raise RemoteStorageError")
        assert_not_found(lambda: storage.fetch_log_segment(segment(), 0))
        assert_not_found(lambda: storage.fetch_index(segment(), IndexType.OFFSET))
        storage.close()

    def test_a_log_of_many_megabytes_arrives_whole(self, tmp_path: Any) -> None:
        # More than one part of a multipart upload, and no multiple of one.
        log = bytes(range(251)) * 50_000
        storage = self.open_storage(str(tmp_path))
        copied = self._copied(storage, segment()._replace(segment_size_bytes=len(log)), tmp_path, log=log)
        assert storage.fetch_log_segment(copied, 0) == log
        assert storage.fetch_log_segment(copied, len(log) - 7, len(log) - 1) == log[-7:]
        storage.close()

    def test_threads_may_call_it_at_once(self, tmp_path: Any) -> None:
        storage = self.open_storage(str(tmp_path))
        copied = [self._copied(storage, segment(number), tmp_path) for number in range(1, READERS + 1)]
        fetched = in_threads([partial(storage.fetch_log_segment, metadata, 0) for metadata in copied])
        assert fetched == [LOG] * READERS
        storage.close()


def assert_not_found(call: Any) -> None:
    """The call must raise RemoteResourceNotFound and nothing else."""
    try:
        result = call()
    except RemoteResourceNotFound:
        return
    raise AssertionError(f"what is missing must raise RemoteResourceNotFound, not return {result!r:.80}")
