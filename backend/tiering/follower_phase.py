"""Phases of a follower replica on its way into the ISR, as engine, observer and dashboard name them.

Kafka's fetcher knows only TRUNCATING and FETCHING; KIP-405 names the building of auxiliary state too, and people need
to see the waits and the end. A member's value is its name: that is what `__ebbline_events` and the database store.
"""

from enum import StrEnum
from typing import Final


class FollowerPhase(StrEnum):
    """The present work of one follower replica."""

    TRUNCATING = "TRUNCATING"
    """Cuts its log back to where it agrees with the leader."""
    WAITING_FOR_METADATA = "WAITING_FOR_METADATA"
    """Was sent to the remote tier, but its remote log metadata has not been read up to the end yet."""
    BUILDING_REMOTE_AUX = "BUILDING_REMOTE_AUX"
    """Rebuilds leader epochs and producer state from the remote tier (KIP-405: BuildingRemoteLogAux)."""
    FETCHING = "FETCHING"
    """Copies records from the leader; not in the ISR yet."""
    DELAYED = "DELAYED"
    """An attempt failed; the next one starts after the back-off."""
    FAILED = "FAILED"
    """Waits for new metadata: the last error cannot be retried."""
    IN_SYNC = "IN_SYNC"
    """In the ISR."""


# `rule` in the evidence of a FAILED follower that would have had to truncate its log below its high watermark.
KEEPS_ACKNOWLEDGED: Final = "keeps-acknowledged-records"
