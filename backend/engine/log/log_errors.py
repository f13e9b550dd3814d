"""Failures of the log layer that carry more than a Kafka error code."""

from __future__ import annotations

import errno
from typing import Final

from backend.protocol.errors import ErrorCode, KafkaError

# No space, no quota, or the process may not write files of that size.
FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class OffsetOutOfRange(KafkaError):
    """No local segment holds the offset asked for; on a tiered log the remote part may."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)


class CorruptLog(KafkaError):
    """Bytes on disk that cannot be right. The partition goes offline; the message says where and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class DamagedIndex(KafkaError):
    """An index of a sealed segment makes no sense. The log stays in use: the index is made again from the records, and
    who asks meanwhile may ask again.
    """

    def __init__(self, base_offset: int, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)
        self.base_offset = base_offset


class NoSpace(KafkaError):
    """The disk is full. Nothing of the append was kept, the log stays as it was, and a retry may succeed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class InvalidBatch(KafkaError):
    """A client's batch that contradicts itself; `meter` is the one of `BrokerTopicMetrics` that counts it."""

    def __init__(self, code: ErrorCode, message: str, meter: str) -> None:
        super().__init__(code, message)
        self.meter = meter


class RecordsRejected(KafkaError):
    """Records that failed validation; `record_errors` are (index in the batch, sentence) pairs for the response."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[tuple[int, str | None], ...]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class UnexpectedAppendOffset(KafkaError):
    """A follower was given records that start below its log end."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)


class LogDirError(Exception):
    """A log directory that must not be used: foreign, newer, locked or unreadable. One sentence for the operator."""


class LogDirUnusable(LogDirError):
    """The operating system does not let the directory be read or written: a disk that failed or is not mounted."""
