"""The bytes that the rows of one answer may have, counted while it is planned, before the memory is allocated.

Apache Kafka bounds the records of a Fetch (`fetch.max.bytes`) and nothing else. Where a few bytes of a request can each
bring kilobytes of what the cluster knows, a handler counts what it is about to answer; whatever else becomes too large
is found when it has been encoded (`net.server_connection`).
"""

from __future__ import annotations

from typing import Final

from backend.protocol.errors import ErrorCode, KafkaError

# receive.message.max.bytes of librdkafka, and nearly all that Java's clients take (100 MiB): nobody reads more.
RESPONSE_BYTES_MAX: Final = 100_000_000


class ResponseBudget:
    """The bytes that are left for the rows of one answer."""

    __slots__ = ("_left_bytes",)

    def __init__(self) -> None:
        self._left_bytes = RESPONSE_BYTES_MAX

    def reserve(self, size_bytes: int) -> None:
        """For so much more. Raises KafkaError; what is smaller may fit then."""
        if size_bytes > self._left_bytes:
            raise too_large()
        self._left_bytes -= size_bytes


def too_large() -> KafkaError:
    """Of a request whose answer nobody could read."""
    return KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"The answer would have more than {RESPONSE_BYTES_MAX} bytes, which clients do not read: "
        "ask for less at a time",
    )
