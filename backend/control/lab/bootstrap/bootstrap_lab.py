"""The bootstrap race of KIP-1023 as a service: one run at a time, its progress, its result, and cleaning up after it.

A run builds a topic on the embedded cluster, adds an empty replica with the flag off, removes it, and adds one on the
same broker with the flag on. In every case the topic is deleted and the broker's own value of the flag is restored at
the end; a note in the run folder lets the next process do so for one that was killed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from backend.control.control_database import Database, DatabaseAway
from backend.control.formatting import in_bytes
from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import Gateway, describe_failure
from backend.control.gateway.requests.log_dir_requests import describe_log_dirs
from backend.control.gateway.requests.metadata_requests import fetch_cluster
from backend.control.lab.bootstrap.race_plan import BootstrapPlan, refusal
from backend.control.lab.bootstrap.race_run import BootstrapRun, PhaseSeen, RaceStage, Racing, RunState
from backend.control.lab.bootstrap.race_steps import build, own_flag, race, remove_replica, set_flag
from backend.control.lab.lab_topic import LabFailed, LabTopic, until
from backend.control.operations.operation_errors import ClusterAway, Conflict, InvalidInput
from backend.control.wall_clock import now_ms
from backend.protocol.errors import KafkaError
from backend.store.queries.partition_detail import phases_since
from backend.tiering.follower_phase import FollowerPhase

TOPIC: Final = "ebbline.lab.bootstrap"
NOTE_NAME: Final = "lab-bootstrap.json"
# Events come through a topic and the database: usually within a second.
PHASES_WAIT_S: Final = 5.0
# Two requests and a metadata round; a stopping process has 8 s for all of the control plane.
CLEAN_UP_S: Final = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Note:
    """The state to restore: the broker's own value of the flag (None: it had none)."""

    broker: int
    flag: str | None


class BootstrapLab:
    """Belongs to one event loop. `embedded` is False on a cluster that is only watched: then nothing can be run."""

    def __init__(self, gateway: Gateway, database: Database, cluster_id: str, folder: Path, *, embedded: bool) -> None:
        self._gateway = gateway
        self._database = database
        self._cluster_id = cluster_id
        self._note_path = folder / NOTE_NAME
        self._embedded = embedded
        self._topic = LabTopic(gateway, TOPIC)
        self._task: asyncio.Task[None] | None = None
        self._starting = False
        self.run: BootstrapRun | None = None
        """The run that is going on, else the last one of this process."""

    @property
    def running(self) -> bool:
        return self._starting or self._task is not None

    async def start(self, size_bytes: int, tiered_percent: int) -> BootstrapRun:
        """Begins a run and returns at once. Raises OperationError with one sentence; nothing was changed then."""
        if not self._embedded:
            raise Conflict("The lab makes and deletes topics, so it runs on the embedded cluster only: `ebbline up`.")
        if (cause := refusal(size_bytes, tiered_percent)) is not None:
            raise InvalidInput(cause)
        if self._starting or self._task is not None:
            raise Conflict("A bootstrap race is running already: wait for its end, or cancel it.")
        self._starting = True
        try:
            plan = BootstrapPlan(size_bytes, tiered_percent)
            leader, broker = await self._brokers(plan)
            note = _Note(broker, await own_flag(self._gateway, broker))
            await asyncio.to_thread(self._write_note, note)
        except OSError as error:
            raise ClusterAway(f"{self._note_path} cannot be written: {error.strerror or error}.") from error
        except (GatewayError, KafkaError) as error:
            raise ClusterAway(
                f"The cluster cannot be asked now, nothing was begun. {describe_failure(error)}"
            ) from error
        finally:
            self._starting = False
        self.run = BootstrapRun(
            RunState.RUNNING, RaceStage.CREATE, now_ms(), None, size_bytes, tiered_percent, TOPIC, leader, broker, 0,
            plan.total_bytes,
        ).at(RaceStage.CREATE, now_ms())  # fmt: skip
        self._task = asyncio.create_task(self._run(plan, leader, note), name="lab-bootstrap")
        return self.run

    def cancel(self) -> BootstrapRun:
        """Ends the run that is going on; it cleans up after itself. Raises Conflict when there is none."""
        if self._task is None or self.run is None:
            raise Conflict("No bootstrap race is running: there is nothing to cancel.")
        self._task.cancel()
        return self.run

    async def recover(self) -> None:
        """Cleans up after a run whose process was killed, if there was one."""
        note = await asyncio.to_thread(self._read_note)
        if note is not None and self._task is None and not self._starting:
            _log.warning("A bootstrap race was cut off: topic %s and the flag of broker %d are cleaned up",
                         TOPIC, note.broker)  # fmt: skip
            await self._clean_up(note)

    async def close(self) -> None:
        """Ends a run, cleaning up while the cluster is still there."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # --- the run

    async def _brokers(self, plan: BootstrapPlan) -> tuple[int, int]:
        """Leader and new replica: the first and the last broker. Raises Conflict when the cluster is too small."""
        brokers = sorted(broker.broker_id for broker in (await fetch_cluster(self._gateway)).brokers)
        if len(brokers) < 2:
            raise Conflict("A race needs a second broker for the new replica: start `ebbline up` with --brokers 3.")
        leader, broker = brokers[0], brokers[-1]
        for node in (leader, broker):
            free = [d.usable_bytes for d in (await describe_log_dirs(self._gateway, node)).log_dirs]
            usable_bytes = [usable for usable in free if usable is not None]
            if usable_bytes and max(usable_bytes) < plan.disk_bytes:
                raise Conflict(
                    f"Broker {node} has {in_bytes(max(usable_bytes))} free, and a race of this size needs up to"
                    f" {in_bytes(plan.disk_bytes)}: free some space, or give a smaller size."
                )
        return leader, broker

    async def _run(self, plan: BootstrapPlan, leader: int, note: _Note) -> None:
        state, message = RunState.DONE, None
        try:
            await self._steps(plan, leader, note.broker)
        except asyncio.CancelledError:
            state, message = RunState.CANCELLED, f"It was about to {self._at}."
        except (LabFailed, GatewayError, KafkaError) as error:
            cause = str(error) if isinstance(error, LabFailed) else describe_failure(error)
            state, message = RunState.FAILED, f"It could not {self._at}. {cause}"
        except Exception as error:
            # A fault of this program: what the race made is removed all the same, and the run ends as failed.
            _log.exception("The bootstrap race failed")
            state, message = RunState.FAILED, f"It could not {self._at}, by a fault of this program: {error!r}."
        self._begin(RaceStage.CLEAN_UP)
        left = await self._clean_up(note)
        if left is not None:
            message = " ".join(filter(None, (message, left)))
        self._update_run(state=state, message=message, ended_ms=now_ms(), racing=None)
        _log.info("The bootstrap race is %s%s", state.value, f": {message}" if message else "")
        self._task = None

    async def _steps(self, plan: BootstrapPlan, leader: int, broker: int) -> None:
        topic = self._topic
        await topic.delete()
        produced_bytes = dict.fromkeys((RaceStage.HEAD, RaceStage.TIERED, RaceStage.REST), 0)

        def report_stage(step: RaceStage, done_bytes: int) -> None:
            if step in produced_bytes:
                produced_bytes[step] = max(produced_bytes[step], done_bytes)
            # A producer's last word may come late, when the run is further on.
            if done_bytes == 0:
                self._begin(step)
            self._update_run(produced_bytes=min(sum(produced_bytes.values()), plan.total_bytes))

        self._update_run(leader_log=await build(topic, plan, leader, report_stage))
        self._begin(RaceStage.FLAG_OFF)
        await self._race(leader, broker, flag=False)
        self._begin(RaceStage.REMOVE)
        await remove_replica(topic, leader, broker)
        self._begin(RaceStage.FLAG_ON)
        await self._race(leader, broker, flag=True)

    async def _race(self, leader: int, broker: int, *, flag: bool) -> None:
        async def phases(since_ms: int) -> tuple[PhaseSeen, ...]:
            return await self._phases(broker, since_ms)

        def watch(seen: Racing) -> None:
            self._update_run(racing=seen)

        ended = await race(self._topic, self._gateway, leader, broker, flag=flag, phases=phases, watch=watch)
        if self.run is not None:
            self._update_run(races=(*self.run.races, ended), racing=None)

    async def _phases(self, broker: int, since_ms: int) -> tuple[PhaseSeen, ...]:
        """The new replica's phases up to IN_SYNC; what came in time when the last one does not."""
        seen: tuple[PhaseSeen, ...] = ()

        async def complete() -> bool | None:
            nonlocal seen
            rows = await self._database.read(lambda c: phases_since(c, self._cluster_id, TOPIC, 0, broker, since_ms))
            seen = tuple(
                PhaseSeen(at_ms, body["phase"], body.get("target_offset"), (body.get("evidence") or {}).get("reason"))
                for at_ms, body in rows
            )
            return any(phase.phase == FollowerPhase.IN_SYNC for phase in seen) or None

        try:
            await until(f"the events of {TOPIC}", complete, PHASES_WAIT_S)
        except (LabFailed, DatabaseAway) as error:
            _log.warning("Phases of the bootstrap race are incomplete: %s", error)
        return seen

    async def _clean_up(self, note: _Note) -> str | None:
        """Puts everything back; one sentence about what could not be, which the next start does."""
        try:
            async with asyncio.timeout(CLEAN_UP_S):
                await self._topic.delete()
                await set_flag(self._gateway, note.broker, note.flag)
        except (LabFailed, GatewayError, KafkaError, TimeoutError) as error:
            cause = "there was no answer in time" if isinstance(error, TimeoutError) else str(error)
            text = f"Topic {TOPIC} and the flag of broker {note.broker} are cleaned up at the next start: {cause}."
            _log.warning("%s", text)
            return text
        await asyncio.to_thread(self._note_path.unlink, missing_ok=True)
        return None

    @property
    def _at(self) -> str:
        """The current stage."""
        return "begin" if self.run is None else self.run.step.value

    def _begin(self, step: RaceStage) -> None:
        if self.run is not None:
            self.run = self.run.at(step, now_ms())

    def _update_run(self, **changes: Any) -> None:
        if self.run is not None:
            self.run = replace(self.run, **changes)

    # --- the note

    def _write_note(self, note: _Note) -> None:
        temporary = self._note_path.with_suffix(".tmp")
        temporary.write_text(json.dumps({"broker": note.broker, "flag": note.flag}))
        temporary.replace(self._note_path)

    def _read_note(self) -> _Note | None:
        try:
            document = json.loads(self._note_path.read_text())
            flag = document["flag"]
            return _Note(int(document["broker"]), None if flag is None else str(flag))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("%s cannot be read (%s): topic %s may be left over, delete it by hand.",
                         self._note_path, error, TOPIC)  # fmt: skip
            return None
