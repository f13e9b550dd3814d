"""Injects faults into the embedded cluster, one at a time, and clears them: by a button, by itself, or in time.

The lab knows the cluster by the Kafka protocol and by the :class:`FaultTarget` of the process that runs the brokers;
where there is none (attached, or a process for each broker) it refuses. Every start is undone when the process stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import Gateway, describe_failure
from backend.control.lab.faults import fault_scripts as scripts
from backend.control.lab.faults.fault_target import FaultTarget, InjectedStoreFault
from backend.control.lab.faults.scenarios import BY_SLUG, ENDED, FaultRun, FaultState, FaultStep, Scenario
from backend.control.lab.lab_topic import LabFailed, LabTopic
from backend.control.operations.operation_errors import Conflict, InvalidInput
from backend.control.wall_clock import now_ms
from backend.protocol.errors import KafkaError

# Steps of a scenario that are kept for the page; a script has fewer than ten.
TOLD_MAX: Final = 40
NO_FAULT_TARGET: Final = (
    "The lab breaks brokers of the backend's process only: start `ebbline up` without --process-per-broker."
)
_log = logging.getLogger(__name__)


class FaultLab:
    """Belongs to one event loop."""

    def __init__(self, gateway: Gateway, fault_target: FaultTarget | None, *, busy: Callable[[], bool]) -> None:
        """`busy`: whether the bootstrap race runs, which this would disturb."""
        self._gateway = gateway
        self._fault_target = fault_target
        self._busy = busy
        self._task: asyncio.Task[None] | None = None
        self._clear_requested = asyncio.Event()
        self.run: FaultRun | None = None
        """What is broken now, else the last one of this process."""

    @property
    def refusal(self) -> str | None:
        """Why nothing can be broken here at all, a sentence."""
        return NO_FAULT_TARGET if self._fault_target is None else None

    @property
    def killable(self) -> list[int]:
        return [] if self._fault_target is None else sorted(self._fault_target.brokers - self._fault_target.needed)

    def inject(self, slug: str, broker: int | None, by: str) -> FaultRun:
        """Begins a scenario and returns at once. Raises OperationError with one sentence; nothing was done then."""
        scenario = BY_SLUG.get(slug)
        if scenario is None:
            raise InvalidInput(f"There is no scenario {slug!r:.40}; there are {', '.join(BY_SLUG)}.")
        fault_target = self._fault_target
        if fault_target is None:
            raise Conflict(NO_FAULT_TARGET)
        if self._task is not None and self.run is not None:
            raise Conflict(f"{BY_SLUG[self.run.slug].name} is not over yet: heal it first.")
        if self._busy():
            raise Conflict("A bootstrap race is running: wait for its end, or cancel it.")
        target = self._target(fault_target, scenario, broker)
        started_ms = now_ms()
        self.run = FaultRun(
            slug, FaultState.BREAKING, target, by, started_ms, started_ms + scenario.heals_after_s * 1000
        )
        self._clear_requested = asyncio.Event()
        self._task = asyncio.create_task(self._carry_out(fault_target, scenario, target), name=f"lab-{slug}")
        return self.run

    def _target(self, fault_target: FaultTarget, scenario: Scenario, broker: int | None) -> int | None:
        need = scripts.BROKERS_NEEDED.get(scenario.slug, 0)
        if len(fault_target.running) < len(fault_target.brokers):
            away = ", ".join(str(node) for node in sorted(fault_target.brokers - fault_target.running))
            raise Conflict(f"Broker {away} is not running: wait until every broker is back.")
        if len(self.killable) < need or (need and len(fault_target.brokers) < 2):
            raise Conflict(f"{scenario.name} needs brokers to spare: start `ebbline up` with --brokers 3.")
        if scenario.slug not in scripts.TAKES_BROKER:
            if broker is not None:
                raise InvalidInput(f"{scenario.name} takes no broker.")
            return None
        target = self.killable[-1] if broker is None else broker
        if target not in self.killable:
            raise InvalidInput(f"Broker {target} cannot be killed: choose one of {self.killable}.")
        return target

    def clear(self) -> FaultRun:
        """Begins to mend what is broken; returns at once. Raises Conflict when nothing is."""
        if self._task is None or self.run is None:
            raise Conflict("Nothing is broken by the lab: there is nothing to heal.")
        self._clear_requested.set()
        return self.run

    async def close(self) -> None:
        """Clears the faults of the store, and the scenario; killed brokers stay down, as the process stops."""
        if self._fault_target is not None:
            self._store("none")
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # --- one run

    async def _carry_out(self, fault_target: FaultTarget, scenario: Scenario, broker: int | None) -> None:
        context = scripts.ScriptContext(self._gateway, fault_target, self._report)
        limit_s = scenario.heals_after_s
        try:
            async with asyncio.timeout(limit_s) as limit:
                await self._unless_healed(scripts.INJECT[scenario.slug](context, broker))
                if not self._clear_requested.is_set() and scenario.slug not in scripts.ENDS_BY_ITSELF:
                    self._log_state(FaultState.BROKEN)
                    await self._clear_requested.wait()
        except TimeoutError:
            self._report(
                f"Not healed within {limit_s} s: the lab mends it now." if limit.expired() else "Took too long."
            )
        except (LabFailed, GatewayError, KafkaError, OSError) as error:
            text = str(error) if isinstance(error, LabFailed) else describe_failure(error)
            await self._mended(fault_target, FaultState.FAILED, text)
            return
        except asyncio.CancelledError:
            self._task = None
            raise
        except Exception as error:
            # A fault of this program: the machine is mended all the same, and the run ends as failed.
            _log.exception("Scenario %s of the lab failed", scenario.slug)
            await self._mended(fault_target, FaultState.FAILED, f"It broke off: {error}")
            return
        await self._mended(fault_target, FaultState.HEALED, None)

    async def _unless_healed(self, script: scripts.Script) -> None:
        """Runs the script; Heal ends it early. Raises what it raises."""
        work = asyncio.ensure_future(script)
        healed = asyncio.ensure_future(self._clear_requested.wait())
        try:
            await asyncio.wait({work, healed}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            for task in (work, healed):
                task.cancel()
            await asyncio.gather(work, healed, return_exceptions=True)

    async def _mended(self, fault_target: FaultTarget, state: FaultState, message: str | None) -> None:
        """After any scenario store, brokers and topics are as before."""
        self._log_state(FaultState.HEALING)
        self._store("none")
        left = []
        for node_id in sorted(fault_target.brokers - fault_target.running):
            try:
                await fault_target.start(node_id)
                self._report(f"Broker {node_id} runs again.")
            except Exception as error:
                # The other brokers are started; the run's end names this one.
                _log.exception("Broker %d could not be started by the lab", node_id)
                left.append(f"Broker {node_id} could not be started: {error}")
        for topic in scripts.TOPICS:
            try:
                await LabTopic(self._gateway, topic).delete()
            except (GatewayError, KafkaError) as error:
                left.append(f"{topic} could not be deleted: {describe_failure(error)}")
        if left:
            state, message = FaultState.FAILED, " ".join([*filter(None, [message]), *left])
        self._task = None
        if self.run is not None:
            self.run = replace(self.run, state=state, message=message, ended_ms=now_ms())
            reason = "" if message is None else f": {message}"
            _log.warning("Scenario %s of the lab is %s%s", self.run.slug, state, reason)

    def _store(self, fault: InjectedStoreFault) -> None:
        if self._fault_target is not None:
            for node_id in self._fault_target.brokers:
                self._fault_target.inject_store_fault(node_id, fault)

    def _log_state(self, state: FaultState) -> None:
        if self.run is not None and self.run.state not in ENDED:
            self.run = replace(self.run, state=state)

    def _report(self, text: str) -> None:
        if self.run is not None:
            _log.warning("Scenario %s of the lab: %s", self.run.slug, text)
            self.run = replace(self.run, told=(*self.run.told, FaultStep(now_ms(), text))[-TOLD_MAX:])
