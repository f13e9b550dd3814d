"""The leader of a partition, for answers that refuse a request made to another broker (KIP-951)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from backend.engine.apis.api_declaration import RequestContext
from backend.engine.controller.image.metadata_image import NO_LEADER
from backend.engine.controller.metadata.metadata_cache import MetadataCache


class LeaderHint(NamedTuple):
    """Leader and epoch as this broker knows them; host and port of the listener that was asked, when known."""

    leader_id: int
    leader_epoch: int
    host: str | None
    port: int
    rack: str | None


class LeaderHintServices(Protocol):
    """The parts of the node that these functions use."""

    metadata: MetadataCache


def leader_hint(services: LeaderHintServices, context: RequestContext, topic: str, index: int) -> LeaderHint:
    """The leader in this broker's metadata; -1 and -1 when it has no such partition."""
    image = services.metadata.image
    registration = image.partition(topic, index)
    if registration is None:
        return LeaderHint(NO_LEADER, -1, None, -1, None)
    broker = image.broker(registration.leader)
    endpoint = None if broker is None else broker.endpoint(context.listener_name)
    if broker is None or endpoint is None:
        return LeaderHint(registration.leader, registration.leader_epoch, None, -1, None)
    return LeaderHint(registration.leader, registration.leader_epoch, endpoint.host, endpoint.port, broker.rack)
