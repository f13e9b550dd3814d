"""An empty replica joins a topic whose beginning is remote only, with KIP-1023's flag off and on.

The lab's own code builds the topic and adds the replica on either system: it knows only the Kafka protocol. Both are
timed by the same looks from outside, 50 ms apart.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass

from backend.control.gateway.client import Gateway, parse_bootstrap
from backend.control.gateway.metadata import fetch_cluster
from backend.control.lab.bootstrap_plan import BootstrapPlan
from backend.control.lab.bootstrap_race import build, race, remove_replica, set_flag
from backend.control.lab.bootstrap_run import PhaseSeen, Race, Step
from backend.control.lab.lab_topic import LabTopic
from tests.benchmarks.peers import Peer

SIZE_BYTES, SIZE_BYTES_QUICK = 731_000_000, 42_000_000
TIERED_PERCENT = 85
RACES, RACES_QUICK = 5, 1


@dataclass(frozen=True)
class Bootstrap:
    """Medians of the races with one setting of the flag."""

    seconds: float
    copied_mb: float


_measured: dict[str, dict[bool, Bootstrap]] = {}


def bootstrap_seconds(flag: bool) -> Callable[[Peer, str, bool], float]:
    """Time until the new replica is in the ISR."""
    return lambda peer, topic, quick: _bootstrap(peer, topic, quick=quick)[flag].seconds


def bootstrap_copied_mb(flag: bool) -> Callable[[Peer, str, bool], float]:
    """What the leader sent."""
    return lambda peer, topic, quick: _bootstrap(peer, topic, quick=quick)[flag].copied_mb


def _bootstrap(peer: Peer, topic: str, *, quick: bool) -> dict[bool, Bootstrap]:
    """All races of a peer are run once, on one topic."""
    if peer.name not in _measured:
        races = asyncio.run(_races(peer, topic, quick=quick))
        _measured[peer.name] = {
            flag: Bootstrap(
                statistics.median(one.seconds for one in races if one.flag is flag),
                statistics.median(one.copied_bytes for one in races if one.flag is flag) / 1e6,
            )
            for flag in (False, True)
        }
    return _measured[peer.name]


async def _races(peer: Peer, name: str, *, quick: bool) -> list[Race]:
    gateway = Gateway(parse_bootstrap(peer.bootstrap))
    plan = BootstrapPlan(SIZE_BYTES_QUICK if quick else SIZE_BYTES, TIERED_PERCENT)
    try:
        brokers = sorted(broker.broker_id for broker in (await fetch_cluster(gateway)).brokers)
        leader, broker = brokers[0], brokers[-1]
        topic = LabTopic(gateway, name)
        await build(topic, plan, leader, _tell(peer))
        races = []
        for flag in (False, True) * (RACES_QUICK if quick else RACES):
            one = await race(topic, gateway, leader, broker, flag=flag, phases=_no_phases)
            print(f"  {peer.name}: {one.copied_bytes / 1e6:.1f} MB, {one.seconds:.2f} s", file=sys.stderr, flush=True)
            races.append(one)
            await remove_replica(topic, leader, broker)
        await set_flag(gateway, broker, None)
        return races
    finally:
        await gateway.close()


async def _no_phases(_: int) -> tuple[PhaseSeen, ...]:
    return ()


def _tell(peer: Peer) -> Callable[[Step, int], None]:
    def tell(step: Step, done_bytes: int) -> None:
        if done_bytes == 0:
            print(f"  {peer.name}: {step} …", file=sys.stderr, flush=True)

    return tell
