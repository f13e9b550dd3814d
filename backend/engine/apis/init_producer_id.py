"""InitProducerId (22), versions 0-5: a producer id for an idempotent producer (KIP-98, KIP-360).

Gap: a transactional id needs the transaction coordinator, which this broker does not run yet; such a request is
answered COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import Final

from backend.engine.apis.context import Api, RequestContext
from backend.engine.apis.services import Services
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

API_KEY: Final = 22
MIN_VERSION: Final = 0
# 6 (two-phase commit, KIP-939) exists in the tables but Kafka 4.3 does not advertise it.
MAX_VERSION: Final = 5
NO_EPOCH: Final = -1


async def init_producer_id(
    services: Services, context: RequestContext, request: m.InitProducerIdRequest
) -> m.InitProducerIdResponse:
    """A fresh id with epoch 0; an idempotent producer that asks again gets another one."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if transactional_id else ErrorCode.INVALID_REQUEST
        return m.InitProducerIdResponse(error_code=code, producer_epoch=NO_EPOCH)
    # An epoch without an id, or the other way round, is a client's mistake (KIP-360).
    if (request.producer_id == -1) != (request.producer_epoch == NO_EPOCH):
        return m.InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=NO_EPOCH)
    try:
        producer_id = await services.producer_ids.next_id()
    except KafkaError as error:
        return m.InitProducerIdResponse(error_code=error.code, producer_epoch=NO_EPOCH)
    return m.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, init_producer_id),)
