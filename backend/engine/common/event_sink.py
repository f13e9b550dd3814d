"""The port by which a broker's parts report state changes; ``net`` publishes them to ``__ebbline_events``."""

from __future__ import annotations

from typing import Any, Protocol


class EventSink(Protocol):
    """Takes events without ever blocking; drops the oldest when it is not drained."""

    def emit(self, type: str, *, topic: str, topic_id: bytes, partition: int, **detail: Any) -> None:
        """Reports one state change; the sink adds broker id and time (see backend/protocol/events.py)."""
        ...


class NullEventSink:
    """For a broker without an events topic."""

    def emit(self, type: str, *, topic: str, topic_id: bytes, partition: int, **detail: Any) -> None:
        return None
