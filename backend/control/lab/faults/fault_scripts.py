"""The scenarios of the lab that break things. `fault_lab.FaultLab` undoes each of them, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from backend.control.gateway.kafka_client import Gateway
from backend.control.gateway.requests.election_requests import elect_preferred, elect_unclean
from backend.control.gateway.requests.metadata_requests import fetch_cluster
from backend.control.lab.bootstrap.race_plan import BootstrapPlan
from backend.control.lab.bootstrap.race_run import PhaseSeen
from backend.control.lab.bootstrap.race_steps import build, own_flag, race, set_flag
from backend.control.lab.faults.fault_target import FaultTarget
from backend.control.lab.lab_topic import RECORD_BYTES, LabFailed, LabTopic, until
from backend.protocol import offset_timestamps

Script = Coroutine[Any, Any, None]
UNCLEAN_TOPIC: Final = "ebbline.lab.unclean"
THIN_TOPIC: Final = "ebbline.lab.thin"
TOPICS: Final = (UNCLEAN_TOPIC, THIN_TOPIC)
TAKES_BROKER: Final = frozenset({"broker-kill", "dangling-copy"})
ENDS_BY_ITSELF: Final = frozenset({"dangling-copy"})
# Brokers that may be killed, or that are needed beside the first.
BROKERS_NEEDED: Final = {"broker-kill": 1, "dangling-copy": 1, "thin-leader": 1, "unclean-election": 2}
# The demo fills a segment in half a minute, and each broker leads a third of them.
UPLOAD_WAIT_S: Final = 240.0
# Session timeout (9 s by Kafka's default) and an election.
ELECTION_WAIT_S: Final = 60.0
# A person needs longer to decide, and the pages show meanwhile what there is to decide.
SHOWN_S: Final = 6.0
# 24 MB in all: 2 s of producing.
THIN_PLAN: Final = BootstrapPlan(21 << 20, 85)
KEPT_RECORDS, LOST_RECORDS, NEW_RECORDS = 2_000, 500, 100
BATCH_BYTES: Final = 16_384


@dataclass(frozen=True, slots=True)
class ScriptContext:
    """The parts that a script may use."""

    gateway: Gateway
    fault_target: FaultTarget
    report: Callable[[str], None]


async def _stuck(context: ScriptContext, _broker: int | None) -> None:
    for node_id in context.fault_target.brokers:
        context.fault_target.inject_store_fault(node_id, "held")
    context.report("Uploads of every broker are held back.")


async def _away(context: ScriptContext, _broker: int | None) -> None:
    for node_id in context.fault_target.brokers:
        context.fault_target.inject_store_fault(node_id, "unreachable")
    context.report("The object store refuses every call.")


async def _slow(context: ScriptContext, _broker: int | None) -> None:
    for node_id in context.fault_target.brokers:
        context.fault_target.inject_store_fault(node_id, "slow")
    context.report("Every call of the object store takes two seconds more.")


async def _kill(context: ScriptContext, broker: int | None) -> None:
    assert broker is not None
    await context.fault_target.kill(broker)
    context.report(f"Broker {broker} is killed.")


async def _dangling(context: ScriptContext, broker: int | None) -> None:
    """Kills the broker while an upload of its is held, so that its copy stays started for ever."""
    assert broker is not None
    fault_target = context.fault_target
    fault_target.inject_store_fault(broker, "held")
    context.report(f"Uploads of broker {broker} are held back; waiting for one.")

    async def upload_paused() -> bool | None:
        return fault_target.paused_uploads(broker) > 0 or None

    await until(f"broker {broker} begins to copy a segment; produce to a tiered topic", upload_paused, UPLOAD_WAIT_S)
    await fault_target.kill(broker)
    context.report(f"Broker {broker} is killed in the middle of an upload.")
    await _left(context, broker)
    await fault_target.start(broker)
    context.report(f"Broker {broker} runs again; the copy stays open in the ledger.")


async def _left(context: ScriptContext, broker: int) -> None:
    """Waits until the controller has fenced the broker, so that others lead its partitions."""

    async def failed_over() -> bool | None:
        view = await fetch_cluster(context.gateway)
        leads = any(partition.leader == broker for partition in view.partitions)
        return (not leads and broker not in {registered.broker_id for registered in view.brokers}) or None

    await until(f"broker {broker} is fenced and others lead its partitions", failed_over, ELECTION_WAIT_S)
    context.report(f"Others lead what broker {broker} led.")


async def _thin(context: ScriptContext, _broker: int | None) -> None:
    """The second half of the bootstrap race, and then the new replica leads."""
    fault_target, gateway = context.fault_target, context.gateway
    leader, broker = min(fault_target.brokers), max(fault_target.brokers)
    topic = LabTopic(gateway, THIN_TOPIC)
    await topic.delete()
    context.report(f"{THIN_TOPIC} is made on broker {leader}; its beginning is copied to the remote tier.")
    log = await build(topic, THIN_PLAN, leader, lambda _step, _bytes: None)
    before = await own_flag(gateway, broker)

    async def no_phases(_since_ms: int) -> tuple[PhaseSeen, ...]:
        return ()

    try:
        seen = await race(topic, gateway, leader, broker, flag=True, phases=no_phases)
    finally:
        await set_flag(gateway, broker, before)
    context.report(
        f"The new replica of broker {broker} begins at offset {seen.start_offset}, that of broker {leader} at "
        f"{log.local_start}."
    )
    await topic.move([broker, leader])

    async def leads() -> bool | None:
        await elect_preferred(gateway, [topic.partition])
        return (await topic.view()).leader == broker or None

    await until(f"broker {broker} leads {THIN_TOPIC}", leads, ELECTION_WAIT_S)
    context.report(f"Broker {broker} leads {THIN_TOPIC}: consumers of older records read from the remote tier.")


async def _unclean(context: ScriptContext, _broker: int | None) -> None:
    """A follower that missed records leads; the old leader returns and truncates."""
    fault_target, gateway = context.fault_target, context.gateway
    old, new = sorted(fault_target.brokers - fault_target.needed)[-2:]
    topic = LabTopic(gateway, UNCLEAN_TOPIC)
    await topic.delete()
    await topic.create(old, {"min.insync.replicas": "1", "unclean.leader.election.enable": "false"}, [new])
    await _fill(topic, KEPT_RECORDS)
    await fault_target.kill(new)
    context.report(f"Broker {new}, the follower of {UNCLEAN_TOPIC}, is killed; {KEPT_RECORDS} records are on both.")

    async def has_left_isr() -> bool | None:
        return (await topic.view()).isr == (old,) or None

    await until(f"broker {new} leaves the ISR", has_left_isr, ELECTION_WAIT_S)
    await _fill(topic, LOST_RECORDS)
    context.report(f"{LOST_RECORDS} records more are acknowledged by broker {old} alone.")
    await fault_target.kill(old)
    await fault_target.start(new)

    async def without_leader() -> bool | None:
        view = await fetch_cluster(gateway)
        alive = {broker.broker_id for broker in view.brokers}
        return (new in alive and old not in alive and (await topic.view()).leader < 0) or None

    await until(f"{UNCLEAN_TOPIC} is without a leader", without_leader, ELECTION_WAIT_S)
    context.report(f"Broker {old} is killed and {UNCLEAN_TOPIC} has no leader: broker {new} is not in sync.")
    await asyncio.sleep(SHOWN_S)
    refused = await elect_unclean(gateway, [topic.partition])
    if refused:
        raise LabFailed(f"The unclean election was refused: {next(iter(refused.values()))}.")
    await _fill(topic, NEW_RECORDS)
    end = await _log_end(topic, new)
    context.report(f"Broker {new} leads uncleanly; its log ends at {end}: the {LOST_RECORDS} records are lost.")
    await asyncio.sleep(SHOWN_S)
    await fault_target.start(old)

    async def both() -> bool | None:
        return set((await topic.view()).isr) == {old, new} or None

    await until(f"broker {old} is in the ISR again", both, ELECTION_WAIT_S)
    end = await _log_end(topic, old)
    context.report(f"Broker {old} is back, has truncated what it alone had, and follows to {end}.")


async def _log_end(topic: LabTopic, broker: int) -> int:
    """The end of its log; a broker that has just come back may need a second question."""
    return await until(
        f"broker {broker} reports its log end", lambda: topic.offset(broker, offset_timestamps.LATEST), ELECTION_WAIT_S
    )


async def _fill(topic: LabTopic, records: int) -> None:
    await topic.fill(records * RECORD_BYTES, BATCH_BYTES, lambda _bytes: None)


INJECT: Final[dict[str, Callable[[ScriptContext, int | None], Script]]] = {
    "stuck-copy": _stuck,
    "store-away": _away,
    "store-slow": _slow,
    "dangling-copy": _dangling,
    "broker-kill": _kill,
    "thin-leader": _thin,
    "unclean-election": _unclean,
}
