"""Questions to other brokers, gathered: while one request to a broker is under way the next ones wait and go together.

Without it a coordinator with many transactions would send each broker a request for each of them, and a broker answers
the requests of a connection one after the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from backend.engine.ports import tasks
from backend.protocol.errors import ErrorCode, KafkaError

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

# Questions in one request: with 100 partitions of long names each it stays under a request's 16 MiB.
GATHERED_MAX: Final = 500


class RequestBatches(Generic[RequestT, ResponseT]):
    """`send(broker_id, requests)` returns one answer for each question, in their order, or raises KafkaError."""

    def __init__(self, send: Callable[[int, Sequence[RequestT]], Awaitable[Sequence[ResponseT]]], *, name: str) -> None:
        self._send = send
        self._name = name
        self._waiting: dict[int, list[tuple[RequestT, tasks.Future[ResponseT]]]] = {}

    async def ask(self, broker_id: int, request: RequestT) -> ResponseT:
        """The broker's answer. Raises KafkaError, DecodeError as `send` does."""
        response: tasks.Future[ResponseT] = tasks.future()
        queue = self._waiting.get(broker_id)
        if queue is None:
            self._waiting[broker_id] = [(request, response)]
            tasks.spawn(self._work_off(broker_id), name=f"{self._name} to broker {broker_id}")
        else:
            queue.append((request, response))
        return await response

    async def _work_off(self, broker_id: int) -> None:
        queue = self._waiting[broker_id]
        try:
            while queue:
                gathered = queue[:GATHERED_MAX]
                del queue[:GATHERED_MAX]
                await self._send_together(broker_id, gathered)
        finally:
            del self._waiting[broker_id]

    async def _send_together(self, broker_id: int, gathered: list[tuple[RequestT, tasks.Future[ResponseT]]]) -> None:
        try:
            responses = await self._send(broker_id, [request for request, _ in gathered])
            if len(responses) != len(gathered):
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"broker {broker_id} gave {len(responses)} answers to {len(gathered)} questions",
                )
        except Exception as error:
            # Each that asked raises it; our own mistakes, too, must not leave a caller waiting.
            for _, waiting in gathered:
                if not waiting.done():
                    waiting.set_exception(error)
            return
        for (_, waiting), response in zip(gathered, responses, strict=True):
            if not waiting.done():
                waiting.set_result(response)
