"""The timestamps of ListOffsets that name an offset instead of a time (KIP-79, 734, 405, 1005, 1023).

Kafka: `ListOffsetsRequest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
# The first request version that has each name.
FIRST_VERSION: Final[Mapping[int, int]] = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
