"""Values of a fetch on the serving side: the request for one partition, and the result of one read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from backend.protocol.buffers import Chunk
from backend.protocol.errors import ErrorCode

CONSUMER: Final = -1
DEBUG: Final = -2
# A request before version 18 does not say which high watermark the follower knows.
UNKNOWN_HIGH_WATERMARK: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The end of a leader epoch: `end_offset` is the first offset after it. -1 and -1: undefined."""

    epoch: int
    end_offset: int


class AbortedTransaction(Protocol):
    """One aborted transaction among the records of a read."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


class Isolation(Enum):
    """The end of the records that a reader may see. Kafka: `FetchIsolation`."""

    LOG_END = "log end"
    HIGH_WATERMARK = "high watermark"
    COMMITTED = "last stable offset"

    @staticmethod
    def of(replica_id: int, isolation_level: int) -> Isolation:
        """Followers and debug readers see everything, whatever the isolation level."""
        if replica_id != CONSUMER:
            return Isolation.LOG_END
        return Isolation.COMMITTED if isolation_level == 1 else Isolation.HIGH_WATERMARK


class FetchParams(NamedTuple):
    """The values of a Fetch request for all its partitions. `wants_leader`: a follower must not answer."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: Isolation
    wants_leader: bool
    # Of a consumer that may be sent to a nearer replica (KIP-392), and the listener that it reaches brokers by.
    client_rack: str = ""
    listener_name: str = ""

    @property
    def from_follower(self) -> bool:
        return self.replica_id >= 0


@dataclass(slots=True)
class FetchSpec:
    """The values of a Fetch request for one partition; sessions keep and update these."""

    fetch_offset: int
    max_bytes: int
    log_start_offset: int = -1
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    known_high_watermark: int = UNKNOWN_HIGH_WATERMARK


@dataclass(slots=True)
class FetchData:
    """The answer of one partition. `remote_bytes_max` above 0: that much is to be read from the remote tier first."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Chunk = b""
    # None unless the reader asked for committed records only.
    aborted: Sequence[AbortedTransaction] | None = None
    diverging: EpochEnd | None = None
    # The replica that the consumer should ask instead, -1 for none.
    preferred_replica: int = -1
    remote_bytes_max: int = 0
    remote_min_one_message: bool = False

    @property
    def is_empty(self) -> bool:
        """Neither records nor anything else that the reader has to act on."""
        return not self.records and self.error is ErrorCode.NONE and self.diverging is None


def failed(error: ErrorCode) -> FetchData:
    """No offsets and no records."""
    return FetchData(error)
