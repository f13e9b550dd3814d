"""Segments and files that the suites copy around."""

from __future__ import annotations

from typing import Any, Final

from backend.engine.ports.disk import OsDisk
from backend.engine.remote.storage.remote_storage_manager import LogSegmentData
from backend.protocol.remote_log.metadata_serde import SegmentMetadata, SegmentUpdate
from backend.tiering.ids import TopicIdPartition
from backend.tiering.segment_state import SegmentState

PARTITION: Final = TopicIdPartition("orders", bytes(range(1, 17)), 0)
LOG: Final = bytes(range(256)) * 20
EPOCHS: Final = b"0\n1\n0 0\n"


def segment(number: int = 1, start: int = 0, partition: TopicIdPartition = PARTITION) -> SegmentMetadata:
    """A segment of ten records whose copy begins."""
    return SegmentMetadata(
        partition, bytes([number]) * 16, start, start + 9, 1, 0, 0, ((0, start),), len(LOG), None,
        SegmentState.COPY_SEGMENT_STARTED,
    )  # fmt: skip


def update(
    number: int, state: SegmentState, partition: TopicIdPartition = PARTITION, custom: bytes | None = None
) -> SegmentUpdate:
    """A later state of `segment(number)`."""
    return SegmentUpdate(partition, bytes([number]) * 16, 1, 1, custom, state)


def data(folder: Any, *, log: bytes = LOG, txn: bytes | None = None, epochs: bytes = EPOCHS) -> LogSegmentData:
    """The local files of a segment, written into a folder."""
    files = {"log": log, "index": b"offsets", "timeindex": b"times", "snapshot": b"producers", "txnindex": txn}
    disk = OsDisk()
    for name, content in files.items():
        if content is not None:
            disk.write_atomic(f"{folder}/{name}", content, sync=False)
    return LogSegmentData(
        log_path=f"{folder}/log",
        offset_index_path=f"{folder}/index",
        time_index_path=f"{folder}/timeindex",
        txn_index_path=None if txn is None else f"{folder}/txnindex",
        producer_snapshot_path=f"{folder}/snapshot",
        leader_epochs=epochs,
    )
