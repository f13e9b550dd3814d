"""The two halves of the bootstrap race: build a topic as the plan says, and add an empty replica and watch it.

Knows only the Kafka protocol, so the same code measures any cluster whose brokers tier (the benchmark does).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from backend.control.gateway.kafka_client import Gateway
from backend.control.gateway.requests.config_requests import (
    BROKER,
    ConfigChange,
    ConfigResource,
    alter_configs,
    describe_broker,
)
from backend.control.lab.bootstrap.race_plan import BootstrapPlan
from backend.control.lab.bootstrap.race_run import LeaderLog, PhaseSeen, Position, Race, RaceStage, Racing
from backend.control.lab.lab_topic import LabFailed, LabTopic, until
from backend.control.wall_clock import now_ms
from backend.protocol import offset_timestamps
from backend.protocol.config_enums import AlterConfigOp, ConfigSource
from backend.tiering.follower_phase import FollowerPhase

FLAG: Final = "follower.fetch.last.tiered.offset.enable"
# Copying 10 GB at 30 MB/s takes 6 minutes; nothing here takes longer unless it hangs.
WAIT_S: Final = 900.0
SETTLE_S: Final = 60.0
# A replica with the flag on joins in a few tenths of a second. 4 requests a poll: 80 a second.
POLL_INTERVAL_S: Final = 0.05
# 25 s of polls; then every second position is forgotten. 50 bytes each in an answer of the API: 25 kB a race.
POSITIONS_MAX: Final = 500
# Of a segment: with less than this not tiered, only the active segment is.
TAIL_PERCENT: Final = 90

ReportStage = Callable[[RaceStage, int], None]
"""(what it is about, bytes produced in this step so far)."""
Phases = Callable[[int], Awaitable[tuple[PhaseSeen, ...]]]
"""The new replica's phases since a time in ms; asked once it is in sync."""
Watch = Callable[[Racing], None]
"""Told whenever the new replica was seen to have moved."""


async def build(topic: LabTopic, plan: BootstrapPlan, leader: int, report_stage: ReportStage) -> LeaderLog:
    """Makes the topic and fills it until the leader's log is as planned. Raises LabFailed, KafkaError, GatewayError."""
    report_stage(RaceStage.CREATE, 0)
    await topic.create(
        leader,
        {
            "remote.storage.enable": "true",
            "segment.bytes": str(plan.segment_bytes),
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "min.insync.replicas": "1",
            # The files of a removed replica soon make room for the next one's.
            "file.delete.delay.ms": "1000",
        },
    )
    await _fill(topic, plan, plan.head_bytes, RaceStage.HEAD, report_stage)
    report_stage(RaceStage.COPY_HEAD, 0)
    copied = await _copied(topic, plan, leader)
    report_stage(RaceStage.TRIM, 0)
    await topic.configure(local_retention_bytes="1")

    async def trimmed() -> bool | None:
        return (await topic.offset(leader, offset_timestamps.EARLIEST_LOCAL)) == copied or None

    await until(f"the local log of {topic.name} begins at {copied}", trimmed, WAIT_S)
    await topic.configure(local_retention_bytes=None)
    await _fill(topic, plan, plan.tiered_bytes, RaceStage.TIERED, report_stage)
    report_stage(RaceStage.COPY_TIERED, 0)
    copied = await _copied(topic, plan, leader)
    await topic.configure(remote_log_copy_disable="true")
    await _fill(topic, plan, plan.rest_bytes, RaceStage.REST, report_stage)
    return await leader_log(topic, leader, copied)


async def _fill(
    topic: LabTopic, plan: BootstrapPlan, size_bytes: int, step: RaceStage, report_stage: ReportStage
) -> None:
    loop = asyncio.get_running_loop()

    def produced(done_bytes: int) -> None:
        loop.call_soon_threadsafe(report_stage, step, done_bytes)

    report_stage(step, 0)
    await topic.fill(size_bytes, plan.batch_bytes, produced)


async def _copied(topic: LabTopic, plan: BootstrapPlan, leader: int) -> int:
    """Waits until every closed segment is in the remote tier; the first offset that is not."""

    async def first_pending() -> int | None:
        pending = await topic.offset(leader, offset_timestamps.EARLIEST_PENDING_UPLOAD)
        end = await topic.offset(leader, offset_timestamps.LATEST)
        start = await topic.offset(leader, offset_timestamps.EARLIEST_LOCAL)
        size_bytes = await topic.size_bytes(leader)
        if pending is None or end is None or start is None or size_bytes is None or not start < pending < end:
            return None
        tail_bytes = size_bytes * (end - pending) // (end - start)
        return pending if tail_bytes * 100 < plan.segment_bytes * TAIL_PERCENT else None

    return await until(f"the closed segments of {topic.name} are copied to the remote tier", first_pending, WAIT_S)


async def leader_log(topic: LabTopic, leader: int, pending_upload: int) -> LeaderLog:
    """The leader's log as it is now."""
    offsets = [
        await topic.offset(leader, at)
        for at in (offset_timestamps.EARLIEST, offset_timestamps.EARLIEST_LOCAL, offset_timestamps.LATEST)
    ]
    size_bytes = await topic.size_bytes(leader)
    log_start, local_start, log_end = offsets
    if log_start is None or local_start is None or log_end is None or size_bytes is None:
        raise LabFailed(f"Broker {leader} no longer has the log of {topic.name}.")
    return LeaderLog(log_start, local_start, pending_upload, log_end, size_bytes)


async def race(
    topic: LabTopic,
    gateway: Gateway,
    leader: int,
    broker: int,
    *,
    flag: bool,
    phases: Phases,
    watch: Watch = lambda _: None,
) -> Race:
    """Adds an empty replica on `broker` with the flag so, and watches it until it is in the ISR.

    Raises LabFailed, KafkaError, GatewayError.
    """
    await set_flag(gateway, broker, "true" if flag else "false")
    positions: list[Position] = []

    async def joined() -> bool | None:
        in_sync = broker in (await topic.view()).isr
        if await _record_position(topic, broker, positions):
            watch(Racing(flag, began_ms, tuple(positions)))
        return in_sync or None

    began_ms, began_s = now_ms(), time.monotonic()
    watch(Racing(flag, began_ms))
    await topic.move([leader, broker])
    await until(f"broker {broker} is in the ISR of {topic.name}", joined, WAIT_S, POLL_INTERVAL_S)
    seconds, joined_ms = time.monotonic() - began_s, now_ms()
    size_bytes = await topic.size_bytes(broker)
    if not positions or size_bytes is None:
        raise LabFailed(f"Broker {broker} does not tell what its replica of {topic.name} holds.")
    seen = await phases(began_ms)
    in_sync_ms = next((phase.at_ms for phase in seen if phase.phase == FollowerPhase.IN_SYNC), None)
    if in_sync_ms is not None:
        # The broker reported it to the millisecond; the polls are 50 ms apart.
        seconds, joined_ms = max(0, in_sync_ms - began_ms) / 1000, in_sync_ms
    last = positions[-1]
    return Race(
        flag=flag,
        began_ms=began_ms,
        joined_ms=joined_ms,
        seconds=round(seconds, 3),
        start_offset=last.local_start,
        log_end=last.log_end,
        copied_bytes=size_bytes,
        positions=tuple(positions),
        phases=seen,
    )


async def _record_position(topic: LabTopic, broker: int, positions: list[Position]) -> bool:
    """Adds where the replica stands; False when that is not known, or it has not moved."""
    log_start, local_start, log_end = [
        await topic.offset(broker, at)
        for at in (offset_timestamps.EARLIEST, offset_timestamps.EARLIEST_LOCAL, offset_timestamps.LATEST)
    ]
    if log_start is None or local_start is None or log_end is None:
        return False
    last = positions[-1] if positions else None
    if last is not None and (last.log_start, last.local_start, last.log_end) == (log_start, local_start, log_end):
        return False
    if len(positions) >= POSITIONS_MAX:
        del positions[1::2]
    positions.append(Position(now_ms(), log_start, local_start, log_end))
    return True


async def remove_replica(topic: LabTopic, leader: int, broker: int) -> None:
    """Leaves only the leader's replica, and waits until the other is gone. Raises as `race`."""
    await topic.move([leader])

    async def replica_removed() -> bool | None:
        left = (await topic.view()).replicas == (leader,) and await topic.size_bytes(broker) is None
        return left or None

    await until(f"broker {broker} has removed its replica of {topic.name}", replica_removed, SETTLE_S)


async def own_flag(gateway: Gateway, broker: int) -> str | None:
    """The broker's own value of the flag, None when it has none. Raises KafkaError, GatewayError."""
    entry = (await describe_broker(gateway, broker, names=[FLAG])).get(FLAG)
    return None if entry is None else entry.at(ConfigSource.DYNAMIC_BROKER_CONFIG)


async def set_flag(gateway: Gateway, broker: int, value: str | None) -> None:
    """Gives the broker its own value (None: takes it away); in effect when this returns. Raises as `own_flag`."""
    change = ConfigChange(FLAG, AlterConfigOp.DELETE if value is None else AlterConfigOp.SET, value)
    await alter_configs(gateway, ConfigResource(BROKER, str(broker)), [change])

    async def effective() -> bool | None:
        return await own_flag(gateway, broker) == value or None

    await until(f"{FLAG} of broker {broker} is {value or 'unset'}", effective, SETTLE_S)
