"""Questions to a broker go together while an earlier request is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from backend.engine.coordinator.request_batches import GATHERED_MAX, RequestBatches
from backend.protocol.errors import ErrorCode, KafkaError
from tests.unit.engine.virtual_time import run_virtual


class Brokers:
    """Answers when it is let go; remembers what came together."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, list[int]]] = []
        self.may_answer = asyncio.Event()
        self.failure: Exception | None = None

    async def send(self, broker_id: int, questions: Sequence[int]) -> Sequence[int]:
        self.requests.append((broker_id, list(questions)))
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        return [-question for question in questions]


def test_what_comes_while_a_request_is_under_way_goes_with_the_next() -> None:
    async def play() -> None:
        brokers = Brokers()
        batches: RequestBatches[int, int] = RequestBatches(brokers.send, name="test")
        first = asyncio.ensure_future(batches.ask(1, 0))
        await asyncio.sleep(0.01)
        others = [asyncio.ensure_future(batches.ask(1, number)) for number in range(1, GATHERED_MAX + 3)]
        elsewhere = asyncio.ensure_future(batches.ask(2, 7))
        await asyncio.sleep(0.01)
        brokers.may_answer.set()
        assert await first == 0
        assert [await voter for voter in others] == [-number for number in range(1, GATHERED_MAX + 3)]
        assert await elsewhere == -7
        assert [(broker, len(questions)) for broker, questions in brokers.requests] == [
            (1, 1), (2, 1), (1, GATHERED_MAX), (1, 2)
        ]  # fmt: skip

    run_virtual(play())


@pytest.mark.parametrize("failure", [KafkaError(ErrorCode.NETWORK_EXCEPTION), ValueError("a mistake of ours")])
def test_a_failure_reaches_everybody_who_asked_and_the_next_request_is_made(failure: Exception) -> None:
    async def play() -> None:
        brokers = Brokers()
        brokers.failure = failure
        brokers.may_answer.set()
        batches: RequestBatches[int, int] = RequestBatches(brokers.send, name="test")
        results = await asyncio.gather(*(batches.ask(1, number) for number in range(3)), return_exceptions=True)
        assert results == [failure] * 3
        brokers.failure = None
        assert await batches.ask(1, 5) == -5

    run_virtual(play())


def test_too_few_answers_are_an_error() -> None:
    async def send(broker_id: int, questions: Sequence[int]) -> Sequence[int]:
        return []

    async def play() -> None:
        batches: RequestBatches[int, int] = RequestBatches(send, name="test")
        with pytest.raises(KafkaError, match="0 answers to 1"):
            await batches.ask(1, 5)

    run_virtual(play())
