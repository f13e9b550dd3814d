"""One record of the metadata topic, as its readers pass it on."""

from __future__ import annotations

from typing import NamedTuple


class MetadataRecord(NamedTuple):
    """One record of the topic; ``value`` is None for a record without one. A tuple: millions are made at a start."""

    offset: int
    timestamp_ms: int
    value: bytes | None
