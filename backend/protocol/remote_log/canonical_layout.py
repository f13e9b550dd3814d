"""Byte positions of the fields in the canonical form of a value of `__remote_log_metadata`: one leader epoch, no custom
metadata, no tags but the one for an empty transaction index.

Such values have every field at a fixed place behind the topic's name, so numpy reads and writes many at once:
`column_batch` from fetched batches, `backend.tiering.bulk_events` from single values, and the engine's local
files (`metadata_file_entries`). Every other form is for `metadata_serde`, which alone decides what is an event.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Fields = tuple[tuple[str, str], ...]

# Behind the length of the name and the name.
PARTITION_FIELDS: Final[tuple[tuple[str, Any], ...]] = (
    ("topic_id", ("u1", (16,))), ("partition", ">i4"), ("partition_tags", "u1"),
)  # fmt: skip
# The same without its second field, the tags of the id, is a RemoteLogSegmentMetadataSnapshotRecord.
SEGMENT_FIELDS: Final[Fields] = (
    ("id", "V16"), ("tags", "u1"), ("start", ">i8"), ("end", ">i8"), ("broker", ">i4"), ("max_ms", ">i8"),
    ("event_ms", ">i8"), ("epochs", "u1"), ("epoch", ">i4"), ("epoch_start", ">i8"), ("epoch_tags", "u1"),
    ("size", ">i4"), ("custom", "u1"), ("state", "i1"),
)  # fmt: skip
SNAPSHOT_FIELDS: Final[Fields] = (SEGMENT_FIELDS[0], *SEGMENT_FIELDS[2:])
UPDATE_FIELDS: Final[Fields] = (
    ("id", "V16"), ("tags", "u1"), ("broker", ">i4"), ("event_ms", ">i8"), ("custom", "u1"), ("state", "i1"),
)  # fmt: skip
# How a value ends: no tags; tag 0 with one byte, true: there is no transaction index.
NO_TAGS: Final = b"\x00"
TXN_INDEX_EMPTY_TAG: Final = b"\x01\x00\x01\x01"

_ONE_EPOCH: Final = 2  # the array's length and one


def tail_field(tail: bytes) -> tuple[str, str, tuple[int, ...]]:
    """The last field of a value that ends so."""
    return ("tail", "u1", (len(tail),))


def ends_with(rows: NDArray[Any], tail: bytes) -> NDArray[np.bool_]:
    """A mask of the rows that have this tail in a field that is as long or longer."""
    mask: NDArray[np.bool_] = (rows["tail"][:, : len(tail)] == np.frombuffer(tail, np.uint8)).all(axis=1)
    return mask


def is_canonical_segment(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """A mask of the rows of segments with one leader epoch, no custom metadata, no tags and possible offsets."""
    start = rows["start"]
    ok: NDArray[np.bool_] = (rows["epochs"] == _ONE_EPOCH) & ((rows["epoch_tags"] | rows["custom"]) == 0)
    return ok & (start >= 0) & (rows["end"] >= start)


def set_canonical(rows: NDArray[Any]) -> None:
    """Says of rows to be written, all else of which is zero, that there is one leader epoch."""
    rows["epochs"] = _ONE_EPOCH
