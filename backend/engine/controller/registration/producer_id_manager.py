"""Producer ids of one broker, in blocks from the controller (KIP-730; Kafka's RPCProducerIdManager)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.ports import tasks
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError, error_for

ALLOCATE_VERSION: Final = 0
REQUEST_TIMEOUT_MS: Final = 5000
# The next block is asked for when this share of the present one is used up.
PREFETCH_SHARE: Final = 0.9


class ProducerIdManager:
    """Ids that no producer of this cluster has had before."""

    def __init__(self, channel: ControllerChannel, *, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._channel = channel
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._next_id = 0
        self._end_id = 0
        self._prefetch_at = 0
        self._following: tuple[int, int] | None = None
        self._asking: tasks.Task[None] | None = None

    async def next_id(self) -> int:
        """A fresh id. COORDINATOR_LOAD_IN_PROGRESS (clients try again) when the controller gives no block."""
        if self._next_id >= self._end_id and self._following is not None:
            self._begin_block(self._following)
        while self._next_id >= self._end_id:
            await self._block_arrives()
        if self._next_id >= self._prefetch_at and self._following is None:
            self._ask()
        producer_id = self._next_id
        self._next_id += 1
        return producer_id

    def _ask(self) -> tasks.Task[None]:
        if self._asking is None or self._asking.done():
            self._asking = tasks.spawn(self._fetch_block(), name=f"producer ids of broker {self._node_id}")
        return self._asking

    async def _block_arrives(self) -> None:
        await tasks.shield(self._ask())
        if self._next_id < self._end_id:
            return
        if self._following is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The controller has given no producer ids yet")
        self._begin_block(self._following)

    def _begin_block(self, block: tuple[int, int]) -> None:
        self._next_id, self._end_id = block
        self._prefetch_at = self._next_id + int((self._end_id - self._next_id) * PREFETCH_SHARE)
        self._following = None

    async def _fetch_block(self) -> None:
        request = m.AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        try:
            response = await self._channel.send(request, ALLOCATE_VERSION, timeout_ms=REQUEST_TIMEOUT_MS)
            if not isinstance(response, m.AllocateProducerIdsResponse):
                raise TypeError(f"an AllocateProducerIds was answered by {type(response).__name__}")
            if response.error_code:
                raise error_for(response.error_code)
        except KafkaError:
            # Waiting producers have to try again; the next request asks the controller again.
            return
        self._following = (response.producer_id_start, response.producer_id_start + response.producer_id_len)
