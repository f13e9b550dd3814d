"""What a follower needs of the way to a leader; ``net``'s peer client is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from backend.protocol.messages import Message


class LeaderEndpoint(Protocol):
    """Requests to one broker's inter-broker listener, answered in order. Both ends run the same software."""

    async def send(self, request: Message, version: int, *, timeout_ms: float) -> Message:
        """The answer. Raises KafkaError (NETWORK_EXCEPTION, REQUEST_TIMED_OUT) or DecodeError for an unreadable one."""
        ...

    def close(self) -> None:
        """Requests in flight fail with NETWORK_EXCEPTION."""
        ...


# (host, port) → the way to the broker there; connects when first used.
ConnectToLeader = Callable[[str, int], LeaderEndpoint]
