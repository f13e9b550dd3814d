"""The topics that a consumer group's members subscribe to: their offsets are in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from backend.engine.coordinator.group.classic.classic_group import Group
from backend.protocol import codec
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError

CONSUMER_PROTOCOL: Final = "consumer"
# The int16 before the subscription; every version begins like version 0.
_VERSION_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Topics, or None when they cannot be known."""

    topics: frozenset[str] | None
    when_unknown: bool

    def has(self, topic: str) -> bool:
        return self.when_unknown if self.topics is None else topic in self.topics


def subscribed_topics(group: Group) -> Subscriptions:
    """The topics in the members' metadata. All topics count as subscribed when a consumer group's cannot be read."""
    consumers = group.protocol_type == CONSUMER_PROTOCOL
    if not consumers or (group.members and group.protocol_name is None):
        return Subscriptions(None, consumers)
    topics: set[str] = set()
    try:
        for member in group.members.values():
            metadata = member.metadata(group.protocol_name)
            topics.update(codec.decode(m.ConsumerProtocolSubscription, 0, metadata, _VERSION_BYTES)[0].topics)
    except DecodeError:
        return Subscriptions(None, consumers)
    return Subscriptions(frozenset(topics), consumers)
