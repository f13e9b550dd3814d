"""What every remote storage must do (KIP-405, `RemoteStorageManager`). A plug-in adds itself to `STORAGES`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from backend.engine.remote.rsm import IndexType, LogSegmentData, RemoteResourceNotFound, RemoteStorageManager
from backend.engine.remote.rsm_object_store import open_storage
from backend.protocol.remote_log_metadata import SegmentMetadata
from backend.tiering.ids import TopicIdPartition
from backend.tiering.segment_state import SegmentState

PARTITION = TopicIdPartition("orders", bytes(range(1, 17)), 0)
LOG = bytes(range(256)) * 20

STORAGES: dict[str, Callable[[Path], RemoteStorageManager]] = {
    "folder": lambda path: open_storage({"dir": str(path / "remote")}, broker_id=1),
    "folder by URL": lambda path: open_storage({"url": (path / "remote").as_uri()}, broker_id=1),
    "memory": lambda path: open_storage({"url": "memory://"}, broker_id=1),
}


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> RemoteStorageManager:
    (tmp_path / "remote").mkdir()
    return STORAGES[request.param](tmp_path)


def segment(number: int = 1, start: int = 0) -> SegmentMetadata:
    return SegmentMetadata(
        PARTITION, bytes([number]) * 16, start, start + 9, 1, 0, 0, ((0, start),), len(LOG), None,
        SegmentState.COPY_SEGMENT_STARTED,
    )  # fmt: skip


def data(folder: Path, *, log: bytes = LOG, txn: bytes | None = None, epochs: bytes = b"0\n1\n0 0\n") -> LogSegmentData:
    files = {"log": log, "index": b"offsets", "timeindex": b"times", "snapshot": b"producers", "txnindex": txn}
    for name, content in files.items():
        if content is not None:
            (folder / name).write_bytes(content)
    return LogSegmentData(
        log_path=str(folder / "log"),
        offset_index_path=str(folder / "index"),
        time_index_path=str(folder / "timeindex"),
        txn_index_path=None if txn is None else str(folder / "txnindex"),
        producer_snapshot_path=str(folder / "snapshot"),
        leader_epochs=epochs,
    )


def test_what_was_copied_is_read_back(storage: RemoteStorageManager, tmp_path: Path) -> None:
    storage.copy_log_segment_data(segment(), data(tmp_path, txn=b"aborted"))
    assert storage.fetch_log_segment(segment(), 0) == LOG
    found = {kind: storage.fetch_index(segment(), kind) for kind in IndexType}
    assert found == {
        IndexType.OFFSET: b"offsets",
        IndexType.TIMESTAMP: b"times",
        IndexType.PRODUCER_SNAPSHOT: b"producers",
        IndexType.TRANSACTION: b"aborted",
        IndexType.LEADER_EPOCH: b"0\n1\n0 0\n",
    }


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 0, LOG[:1]),
        (100, 199, LOG[100:200]),
        (100, None, LOG[100:]),
        (len(LOG) - 1, 10 * len(LOG), LOG[-1:]),
        (len(LOG), None, b""),
        (len(LOG) + 5, len(LOG) + 9, b""),
    ],
)
def test_a_range_is_inclusive_and_ends_with_the_file(
    storage: RemoteStorageManager, tmp_path: Path, start: int, end: int | None, expected: bytes
) -> None:
    storage.copy_log_segment_data(segment(), data(tmp_path))
    assert storage.fetch_log_segment(segment(), start, end) == expected


@pytest.mark.parametrize(("start", "end"), [(-1, None), (5, 4)])
def test_an_impossible_range_is_a_mistake_of_the_caller(
    storage: RemoteStorageManager, tmp_path: Path, start: int, end: int | None
) -> None:
    storage.copy_log_segment_data(segment(), data(tmp_path))
    with pytest.raises(ValueError):
        storage.fetch_log_segment(segment(), start, end)


def test_a_missing_segment_or_index_is_not_found(storage: RemoteStorageManager, tmp_path: Path) -> None:
    for start in (0, len(LOG)):
        with pytest.raises(RemoteResourceNotFound):
            storage.fetch_log_segment(segment(), start)
    for kind in IndexType:
        with pytest.raises(RemoteResourceNotFound):
            storage.fetch_index(segment(), kind)
    storage.copy_log_segment_data(segment(), data(tmp_path))
    with pytest.raises(RemoteResourceNotFound):
        storage.fetch_index(segment(), IndexType.TRANSACTION)


def test_copying_again_overwrites(storage: RemoteStorageManager, tmp_path: Path) -> None:
    storage.copy_log_segment_data(segment(), data(tmp_path, log=LOG[::-1]))
    storage.copy_log_segment_data(segment(), data(tmp_path))
    assert storage.fetch_log_segment(segment(), 0) == LOG


def test_deleting_takes_one_segment_and_can_be_repeated(storage: RemoteStorageManager, tmp_path: Path) -> None:
    storage.copy_log_segment_data(segment(1), data(tmp_path))
    storage.copy_log_segment_data(segment(2), data(tmp_path))
    for _ in range(2):
        storage.delete_log_segment_data(segment(1))
    with pytest.raises(RemoteResourceNotFound):
        storage.fetch_log_segment(segment(1), 0)
    assert storage.fetch_log_segment(segment(2), 0) == LOG


def test_a_failed_copy_leaves_nothing(storage: RemoteStorageManager, tmp_path: Path) -> None:
    wanted = data(tmp_path)
    (tmp_path / "snapshot").unlink()
    with pytest.raises(Exception, match="local file is gone"):
        storage.copy_log_segment_data(segment(), wanted)
    with pytest.raises(RemoteResourceNotFound):
        storage.fetch_log_segment(segment(), 0)
    with pytest.raises(RemoteResourceNotFound):
        storage.fetch_index(segment(), IndexType.OFFSET)


def test_a_log_of_many_megabytes_arrives_whole(storage: RemoteStorageManager, tmp_path: Path) -> None:
    # More than one part of a multipart upload.
    log = bytes(range(251)) * 50_000
    storage.copy_log_segment_data(segment()._replace(segment_size_bytes=len(log)), data(tmp_path, log=log))
    assert storage.fetch_log_segment(segment()._replace(segment_size_bytes=len(log)), 0) == log
