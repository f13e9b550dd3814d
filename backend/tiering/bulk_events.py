"""Values of `__remote_log_metadata` in bulk: those of a canonical shape as columns, the others left to the codec.

Values of one record kind, one length and one length of topic name have every field at the same place, so numpy reads
thousands at once. All others (more than one leader epoch, custom metadata, partition deletes, anything wrong) are
left to `backend.protocol.remote_log.metadata_serde.decode`, which decides alone what is an event and what is not.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from backend.protocol.ids import UUID_BYTES
from backend.protocol.remote_log.canonical_layout import (
    NO_TAGS,
    PARTITION_FIELDS,
    SEGMENT_FIELDS,
    TXN_INDEX_EMPTY_TAG,
    UPDATE_FIELDS,
    ends_with,
    is_canonical_segment,
    tail_field,
)
from backend.protocol.remote_log.segment_states import SegmentState

GROUP_MIN: Final = 16  # below it numpy's cost per call is more than the codec's per record
_SEGMENT, _UPDATE = b"\x01\x00\x00", b"\x01\x01\x00"  # frame version, record key, record version
_NAME_MIN, _NAME_MAX = 2, 127  # of the length byte, one more than the name's
_LAST_STATE: Final = int(max(SegmentState))
_ID_TEXT_BYTES: Final = 22
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")

EventRows = npt.NDArray[np.void]


class CanonicalEvents(NamedTuple):
    """Events of one shape. ``rows`` : the topic's name and the fields of `protocol.remote_log.canonical_layout`."""

    is_segment: bool
    txn_index_empty: bool
    positions: npt.NDArray[np.int64]  # in what was given to `split`
    rows: EventRows


def split(values: Sequence[bytes | None]) -> tuple[list[CanonicalEvents], list[int]]:
    """Returns the canonical events in groups, and the positions of all other values. Together each position once."""
    by_shape: dict[tuple[bytes, int], list[int]] = {}
    rest: list[int] = []
    for position, value in enumerate(values):
        if value:
            by_shape.setdefault((value[:4], len(value)), []).append(position)
        else:
            rest.append(position)
    groups: list[CanonicalEvents] = []
    for (head, size), positions in by_shape.items():
        layout = _layout(head, size) if len(positions) >= GROUP_MIN else None
        if layout is None:
            rest += positions
            continue
        rows: EventRows = np.frombuffer(b"".join([values[at] or b"" for at in positions]), layout[0])
        canonical = _are_canonical(rows, layout[1])
        where = np.asarray(positions, np.int64)
        rest += where[~canonical].tolist()
        if canonical.any():
            groups.append(
                CanonicalEvents(
                    head[:3] == _SEGMENT, layout[1] == TXN_INDEX_EMPTY_TAG, where[canonical], rows[canonical]
                )
            )
    return groups, rest


def id_texts(ids: npt.NDArray[Any]) -> bytes:
    """Kafka's text (22 characters) of each of n ids of 16 bytes, one after the other."""
    padded = np.zeros((len(ids), UUID_BYTES + 2), np.uint8)
    padded[:, :UUID_BYTES] = np.frombuffer(ids.tobytes(), np.uint8).reshape(-1, UUID_BYTES)
    text = binascii.b2a_base64(padded.tobytes(), newline=False).translate(_URL_SAFE)
    return np.frombuffer(text, np.uint8).reshape(len(ids), 24)[:, :_ID_TEXT_BYTES].tobytes()


@lru_cache(maxsize=2 * (_NAME_MAX - _NAME_MIN + 1) * 2)
def _layout(head: bytes, size: int) -> tuple[np.dtype[np.void], bytes] | None:
    """The places of the fields in a value of this head and size, and its end; None when the shape is not canonical."""
    if len(head) < 4 or not _NAME_MIN <= head[3] <= _NAME_MAX or head[:3] not in (_SEGMENT, _UPDATE):
        return None
    is_segment = head[:3] == _SEGMENT
    own = SEGMENT_FIELDS if is_segment else UPDATE_FIELDS
    fields = [("head", "V4"), ("name", ("u1", (head[3] - 1,))), *PARTITION_FIELDS, *own]
    tails = (NO_TAGS, TXN_INDEX_EMPTY_TAG) if is_segment else (NO_TAGS,)
    for tail in tails:
        layout = np.dtype([*fields, tail_field(tail)])
        if layout.itemsize == size:
            return layout, tail
    return None


def _are_canonical(rows: EventRows, tail: bytes) -> npt.NDArray[np.bool_]:
    """The rows that `decode` reads by hand, with a plain ASCII name."""
    name = rows["name"]
    good: npt.NDArray[np.bool_] = (
        ((rows["partition_tags"] | rows["tags"] | rows["custom"]) == 0)
        & (rows["state"] >= 0)
        & (rows["state"] <= _LAST_STATE)
        & ends_with(rows, tail)
        & ((name > 0) & (name < 128)).all(axis=1)
    )
    if "epochs" in (rows.dtype.names or ()):
        good &= is_canonical_segment(rows)
    return good
