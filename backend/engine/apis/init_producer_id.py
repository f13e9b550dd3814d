"""InitProducerId (22), versions 0-5: a producer id for an idempotent producer, or the sole use of a transactional id
(KIP-98, KIP-360).

Kafka: `KafkaApis.handleInitProducerIdRequest`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.controller.registration.producer_id_manager import ProducerIdManager
from backend.engine.coordinator.transaction.transaction import NO_EPOCH, NO_PRODUCER_ID
from backend.engine.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from backend.engine.coordinator.transaction.transaction_state import Producer
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

API_KEY: Final = 22
MIN_VERSION: Final = 0
# 6 (two-phase commit, KIP-939) exists in the tables but Kafka 4.3 does not advertise it.
MAX_VERSION: Final = 5
FIRST_FENCED: Final = 4


class InitProducerIdServices(Protocol):
    """The parts of the node that these functions use."""

    transaction_coordinator: TransactionCoordinator
    producer_ids: ProducerIdManager


async def init_producer_id(
    services: InitProducerIdServices, context: RequestContext, request: m.InitProducerIdRequest
) -> m.InitProducerIdResponse:
    """A fresh id with epoch 0 (an idempotent producer that asks again gets another one), or a transactional id's."""
    # An epoch without an id, or the other way round, is a client's mistake (KIP-360).
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        producer = await _producer(services, request)
    except KafkaError as error:
        fenced = error.code is ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_FENCED
        return _refused(ErrorCode.INVALID_PRODUCER_EPOCH if fenced else error.code)
    return m.InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


async def _producer(services: InitProducerIdServices, request: m.InitProducerIdRequest) -> Producer:
    if request.transactional_id is None:
        return Producer(await services.producer_ids.next_id(), 0)
    claimed = Producer(request.producer_id, request.producer_epoch)
    return await services.transaction_coordinator.init_producer(
        request.transactional_id,
        request.transaction_timeout_ms,
        None if claimed.producer_id == NO_PRODUCER_ID else claimed,
    )


def _refused(code: ErrorCode) -> m.InitProducerIdResponse:
    return m.InitProducerIdResponse(error_code=code, producer_epoch=NO_EPOCH)


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, init_producer_id),)
