"""Whether a broker speaks for its present life (KIP-841)."""

from __future__ import annotations

from backend.engine.controller.image import BrokerRegistration, MetadataImage
from backend.protocol.errors import ErrorCode, KafkaError


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    """The registration; STALE_BROKER_EPOCH when the epoch is another one."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
        )
    return broker
