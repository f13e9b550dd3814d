"""An empty replica joins a topic whose beginning is remote only, with KIP-1023's flag off and on.

The lab's own code builds the topic and adds the replica on either system: it knows only the Kafka protocol. Both are
timed by the same looks from outside, 50 ms apart.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass

from backend.control.gateway.kafka_client import Gateway, parse_bootstrap
from backend.control.gateway.requests.metadata_requests import fetch_cluster
from backend.control.lab.bootstrap.race_plan import BootstrapPlan
from backend.control.lab.bootstrap.race_run import LeaderLog, PhaseSeen, Race, RaceStage
from backend.control.lab.bootstrap.race_steps import build, race, remove_replica, set_flag
from backend.control.lab.lab_topic import LabTopic
from tests.benchmarks.peers import Peer

SIZE_BYTES, SIZE_BYTES_QUICK = 731_000_000, 42_000_000
TIERED_PERCENT = 85
RACES, RACES_QUICK = 5, 1
SHARE_OF_TIME_MAX = 0.25


@dataclass(frozen=True)
class Bootstrap:
    """Medians of the races with one setting of the flag."""

    seconds: float
    copied_mb: float


@dataclass(frozen=True)
class Bootstraps:
    """All races on one system; `untiered_mb` of the leader's local log is not in the remote tier."""

    flag_off: Bootstrap
    flag_on: Bootstrap
    untiered_mb: float
    segment_mb: float


@dataclass(frozen=True)
class Verdict:
    """A promise, the figure that it is about, and whether it is kept."""

    promise: str
    figure: float
    limit: float

    @property
    def holds(self) -> bool:
        return self.figure <= self.limit

    def __str__(self) -> str:
        return f"{self.promise}: {self.figure:.2f}, at most {self.limit:.2f}: {'holds' if self.holds else 'MISSED'}"


_measured: dict[str, Bootstraps] = {}


def bootstrap_verdicts() -> list[Verdict]:
    """The verdicts on the promises about new replicas, from the measurements; empty before them."""
    ours, theirs = _measured.get("ebbline"), _measured.get("Apache Kafka")
    return [] if ours is None else verdicts(ours, theirs)


def verdicts(ours: Bootstraps, theirs: Bootstraps | None) -> list[Verdict]:
    """KIP-1023's promise for ours, and ours beside Apache Kafka in the same run."""
    on, off = ours.flag_on, ours.flag_off
    comparisons = [
        Verdict(
            "flag on copies the untiered share and a segment, MB", on.copied_mb, ours.untiered_mb + ours.segment_mb
        ),
        Verdict("flag on over flag off, time", on.seconds / off.seconds, SHARE_OF_TIME_MAX),
    ]
    if theirs is not None:
        comparisons += [
            Verdict("flag off over Apache Kafka, time", off.seconds / theirs.flag_off.seconds, 1.0),
            Verdict("flag on over Apache Kafka, time", on.seconds / theirs.flag_on.seconds, 1.0),
        ]
    return comparisons


def bootstrap_seconds(flag: bool) -> Callable[[Peer, str, bool], float]:
    """Time until the new replica is in the ISR."""
    return lambda peer, topic, quick: _bootstrap(peer, topic, flag, quick=quick).seconds


def bootstrap_copied_mb(flag: bool) -> Callable[[Peer, str, bool], float]:
    """The bytes that the leader sent."""
    return lambda peer, topic, quick: _bootstrap(peer, topic, flag, quick=quick).copied_mb


def _bootstrap(peer: Peer, topic: str, flag: bool, *, quick: bool) -> Bootstrap:
    """All races of a peer are run once, on one topic."""
    if peer.name not in _measured:
        log, segment_bytes, races = asyncio.run(_races(peer, topic, quick=quick))
        untiered = (log.log_end - log.pending_upload) / (log.log_end - log.local_start)
        _measured[peer.name] = Bootstraps(
            _median(races, flag=False), _median(races, flag=True), untiered * log.local_bytes / 1e6, segment_bytes / 1e6
        )
    measured = _measured[peer.name]
    return measured.flag_on if flag else measured.flag_off


def _median(races: list[Race], *, flag: bool) -> Bootstrap:
    return Bootstrap(
        statistics.median(measured_race.seconds for measured_race in races if measured_race.flag is flag),
        statistics.median(measured_race.copied_bytes for measured_race in races if measured_race.flag is flag) / 1e6,
    )


async def _races(peer: Peer, name: str, *, quick: bool) -> tuple[LeaderLog, int, list[Race]]:
    """The leader's log before the races, its segments' size in bytes, and the races."""
    gateway = Gateway(parse_bootstrap(peer.bootstrap))
    plan = BootstrapPlan(SIZE_BYTES_QUICK if quick else SIZE_BYTES, TIERED_PERCENT)
    try:
        brokers = sorted(broker.broker_id for broker in (await fetch_cluster(gateway)).brokers)
        leader, broker = brokers[0], brokers[-1]
        topic = LabTopic(gateway, name)
        log = await build(topic, plan, leader, report_to(peer))
        races = []
        for flag in (False, True) * (RACES_QUICK if quick else RACES):
            # As between works: no race waits for the disk to take what the one before it has left in memory.
            await asyncio.to_thread(os.sync)
            measured_race = await race(topic, gateway, leader, broker, flag=flag, phases=_no_phases)
            print(
                f"  {peer.name}: {measured_race.copied_bytes / 1e6:.1f} MB, {measured_race.seconds:.2f} s",
                file=sys.stderr,
                flush=True,
            )
            races.append(measured_race)
            await remove_replica(topic, leader, broker)
        await set_flag(gateway, broker, None)
        return log, plan.segment_bytes, races
    finally:
        await gateway.close()


async def _no_phases(_: int) -> tuple[PhaseSeen, ...]:
    return ()


def report_to(peer: Peer) -> Callable[[RaceStage, int], None]:
    def report(step: RaceStage, done_bytes: int) -> None:
        if done_bytes == 0:
            print(f"  {peer.name}: {step} …", file=sys.stderr, flush=True)

    return report
