"""The controller mutation quota at the broker that is asked (KIP-599): partitions made or deleted by one client.

Each broker counts what it is asked for, where Kafka counts at the controller: a request that is sent on does not carry
its client along. A client that goes to several brokers may so do more in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from backend.engine.apis.api_declaration import RequestContext
from backend.engine.apis.quotas.client_quota_manager import ClientQuotaManager
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.ports import Ports

K = TypeVar("K")

# Kafka sends the error without a text (ApiError.fromThrowable).
EXCEEDED: Final = None


class ControllerMutationQuotaServices(Protocol):
    """The parts of the node that these functions use."""

    ports: Ports
    metadata: MetadataCache
    client_quotas: ClientQuotaManager


@dataclass(slots=True)
class Admission(Generic[K]):
    """The part of a request that may go on, and the time in ms that its client must wait afterwards."""

    services: ControllerMutationQuotaServices
    context: RequestContext
    partitions: dict[K, int]
    refused: set[K]
    throttle_ms: int = 0

    def refund(self, failed: Set[K]) -> None:
        """Returns the permits of what the controller refused, as it has changed nothing."""
        for key in failed - self.refused:
            if partitions := self.partitions.get(key, 0):
                _record(self.services, self.context, -partitions, strict=False)


def admit(
    services: ControllerMutationQuotaServices,
    context: RequestContext,
    partition_counts: Iterable[tuple[K, int]],
    *,
    strict_since: int,
) -> Admission[K]:
    """One topic after the other, by key with its number of partitions.

    From version `strict_since` on what is too much is refused; clients of older versions do not know that error, so
    theirs goes on and they wait.
    """
    admission: Admission[K] = Admission(services, context, dict(partition_counts), set())
    if not services.metadata.image.client_quotas:
        return admission
    strict = context.api_version >= strict_since
    for key, partitions in admission.partitions.items():
        if not partitions:
            continue
        wait_ms = _record(services, context, partitions, strict=strict)
        if wait_ms and strict:
            admission.refused.add(key)
        admission.throttle_ms = max(admission.throttle_ms, wait_ms)
    return admission


def _record(
    services: ControllerMutationQuotaServices, context: RequestContext, partitions: int, *, strict: bool
) -> int:
    now_ms = services.ports.clock.monotonic_ms()
    image = services.metadata.image
    return services.client_quotas.record_mutations(
        image, context.user, context.client_id, partitions, now_ms, strict=strict
    )
