"""Connections that somebody closes between us and a broker that is well: the broker is not away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from backend.control.gateway.kafka_client import Gateway
from backend.control.observer.watches import liveness_watch
from backend.control.observer.watches.liveness_watch import BrokerLiveness, LivenessWatch
from tests.control.test_gateway import answer, request_of, serving, versions
from tests.control.test_oauth import on_a_loop

PROBES = 12


async def closing_each_connection(reader: Any, writer: Any) -> None:
    """A proxy that lets two requests through a connection, the negotiation and one more."""
    for _ in range(2):
        header, _request = await request_of(reader)
        writer.write(answer(header, versions((18, 0, 4))))
    await request_of(reader)
    writer.close()


@on_a_loop
async def test_a_closed_connection_is_opened_again_before_its_broker_counts_as_away() -> None:
    seen: list[BrokerLiveness] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(liveness_watch, "PROBE_INTERVAL_S", 0.02)
        async with serving(closing_each_connection) as address:
            gateway = Gateway([address])
            await gateway.learn_brokers({1: address})
            watch = LivenessWatch(gateway, lambda _: None, lambda: 0)
            watch.set_brokers(frozenset({1}))
            async with asyncio.timeout(20):
                while len(seen) < PROBES:
                    await asyncio.sleep(0.02)
                    seen += watch.now().brokers.values()
            watch.set_brokers(frozenset())
            await gateway.close()
    assert {broker.error for broker in seen} == {None}
