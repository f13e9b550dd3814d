"""Heartbeat sessions: which brokers the controller has heard of lately, and how far each has applied the metadata.

Kept by the active controller in memory only (Kafka's BrokerHeartbeatManager). Time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass

from backend.engine.controller.commands.brokers import ShutdownProgress
from backend.engine.controller.image.metadata_image import MetadataImage


@dataclass(slots=True)
class BrokerSession:
    """One life of a broker as its heartbeats show it."""

    broker_epoch: int
    last_contact_ms: float
    # A controller that has just started gives every broker a full session, but has not heard of any of them.
    has_contact: bool = False
    metadata_offset: int = -1
    controlled_shutdown_offset: int = -1


class BrokerSessions:
    """Sessions of all registered brokers; one entry per broker id."""

    def __init__(self, session_timeout_ms: float) -> None:
        self._timeout_ms = session_timeout_ms
        self._sessions: dict[int, BrokerSession] = {}

    def update(self, image: MetadataImage, now_ms: float) -> None:
        """Follows an image: a broker's new registration begins a session, an unregistered broker loses its own."""
        for broker in image.brokers.values():
            session = self._sessions.get(broker.id)
            if session is None or session.broker_epoch != broker.epoch:
                self._sessions[broker.id] = BrokerSession(broker.epoch, now_ms)
            elif broker.fenced:
                session.controlled_shutdown_offset = -1
        for broker_id in self._sessions.keys() - set(image.brokers):
            del self._sessions[broker_id]

    def touch(self, broker_id: int, broker_epoch: int, now_ms: float) -> None:
        """A heartbeat has arrived; called before it waits for its turn, so that a busy controller fences no broker."""
        session = self._sessions.get(broker_id)
        if session is not None and session.broker_epoch == broker_epoch:
            session.last_contact_ms = now_ms
            session.has_contact = True

    def extend(self, by_ms: float, now_ms: float) -> None:
        """No broker could be heard for so long, so that time does not count as their silence."""
        for session in self._sessions.values():
            session.last_contact_ms = min(session.last_contact_ms + by_ms, now_ms)

    def caught_up_to(self, broker_id: int, metadata_offset: int) -> None:
        """The broker has applied the metadata up to this offset."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.metadata_offset = max(session.metadata_offset, metadata_offset)

    def applied_offset(self, broker_id: int) -> int:
        """The metadata offset that the broker is known to have applied; -1 when none is."""
        session = self._sessions.get(broker_id)
        return -1 if session is None else session.metadata_offset

    def shutting_down_at(self, broker_id: int, offset: int) -> None:
        """The last offset that concerned the broker's controlled shutdown."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.controlled_shutdown_offset = max(session.controlled_shutdown_offset, offset)

    def alive(self, broker_id: int, now_ms: float) -> bool:
        """Whether the broker itself has been heard of within its session."""
        session = self._sessions.get(broker_id)
        return session is not None and session.has_contact and not self._expired(session, now_ms)

    def expired(self, image: MetadataImage, now_ms: float) -> list[int]:
        """Unfenced brokers whose session is over, the longest silent first."""
        over = [
            (session.last_contact_ms, broker_id)
            for broker_id, session in self._sessions.items()
            if self._expired(session, now_ms) and (broker := image.brokers.get(broker_id)) and not broker.fenced
        ]
        return [broker_id for _, broker_id in sorted(over)]

    def progress(self, image: MetadataImage, broker_id: int) -> ShutdownProgress:
        """The offsets that decide whether a broker in controlled shutdown may stop."""
        active = [session.metadata_offset for other, session in self._sessions.items() if image.is_active(other)]
        session = self._sessions.get(broker_id)
        return ShutdownProgress(
            controlled_shutdown_offset=session.controlled_shutdown_offset if session else -1,
            lowest_active_offset=min(active) if active else None,
        )

    def _expired(self, session: BrokerSession, now_ms: float) -> bool:
        return now_ms - session.last_contact_ms >= self._timeout_ms
