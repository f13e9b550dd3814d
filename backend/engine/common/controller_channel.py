"""What a broker's parts need of the way to the controller; ``net`` implements it over the peer client.

Between nodes of one cluster both ends run the same code, so versions are given, never negotiated.
"""

from __future__ import annotations

from typing import Protocol

from backend.protocol.messages import Message


class ControllerChannel(Protocol):
    """Requests to the active controller's listener."""

    async def send(self, request: Message, version: int, *, timeout_ms: float) -> Message:
        """The controller's answer.

        Raises KafkaError: NETWORK_EXCEPTION when it could not be reached or the connection broke (the request may
        have been carried out), REQUEST_TIMED_OUT when no answer came in time. Error codes inside the answer are the
        caller's.
        """
        ...
