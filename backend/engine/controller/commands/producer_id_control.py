"""AllocateProducerIds: blocks of producer ids for brokers (KIP-730) → ProducerIdsRecord."""

from __future__ import annotations

from typing import Final

from backend.engine.controller.commands.command import ControllerResult, check_broker_epoch, checked_result
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

BLOCK_IDS: Final = 1000
PRODUCER_ID_MAX: Final = 2**63 - 1


def allocate_producer_ids(
    image: MetadataImage, request: m.AllocateProducerIdsRequest
) -> ControllerResult[m.AllocateProducerIdsResponse]:
    """The next block, which no other broker will ever get."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    start = image.next_producer_id
    if start > PRODUCER_ID_MAX - BLOCK_IDS:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Exhausted all producerIds as the next block's end producerId exceeds {start}",
        )
    record = m.ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=start + BLOCK_IDS
    )
    return checked_result([record], m.AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_IDS))
