"""Makes plans, executes them once, proves the effect, takes them back. Every step is stored before the next one begins.

The role is checked here, on every call, whatever the page or the route in front of it did.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from sqlalchemy import Connection

from backend.control.clock import now_ms
from backend.control.database import DatabaseAway
from backend.control.gateway.client import sentence
from backend.control.gateway.errors import GatewayError
from backend.control.operations.audit import Actor, AuditEntry, AuditResult, Role, record
from backend.control.operations.errors import (
    ClusterAway,
    Conflict,
    InvalidInput,
    NotAllowed,
    NotConfirmed,
    NotFound,
    OperationError,
    PlanChanged,
    ReadOnly,
    StalePlan,
)
from backend.control.operations.execution import Execution
from backend.control.operations.kinds import Kind, Site
from backend.control.operations.lasting import lasting_kind
from backend.control.operations.plan import Draft, Json, differences, first_refusal, holding
from backend.control.operations.registry import KINDS
from backend.control.operations.states import OPEN, REVERTIBLE, PlanState, sources
from backend.control.words import in_bytes
from backend.protocol.errors import KafkaError
from backend.store.queries import audit as queries
from backend.store.queries.audit import OperationRow
from backend.store.writes_operations import (
    KeyInUse,
    add_operation,
    advance_operation,
    lock_cluster,
    open_operation,
    operation_of_key,
)

REASON_CHARS_MAX: Final = 500
KEY_CHARS_MAX: Final = 128
T = TypeVar("T")
_log = logging.getLogger(__name__)


class Wish(Enum):
    """What a person may ask of a plan that is being carried out."""

    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a person gives to execute a plan."""

    idempotency_key: str
    cluster_name: str
    reason: str
    if_match: str | None = None
    """Version of the plan that the person has seen; None: whichever it is."""


def version_of(row: OperationRow) -> str:
    """Changes whenever the plan does; the ETag of the API."""
    return hashlib.sha256(to_json(row)).hexdigest()[:20]


class Operations:
    """The operations of one cluster. Belongs to one event loop."""

    def __init__(
        self, site: Site, *, kinds: Mapping[str, Kind] = KINDS, after_change: Callable[[], None] = lambda: None
    ) -> None:
        self._site = site
        self._kinds = kinds
        self._execution = Execution(site, kinds, after_change)

    async def plan(self, actor: Actor, kind: str, inputs: Mapping[str, object], *, reason: str | None = None) -> int:
        """Stores a plan, checked or refused by its checks; its number. Changes nothing in the cluster.

        Raises OperationError.
        """
        await self._require_operator(actor, f"plan {kind}", kind)
        return await self._plan(actor, kind, inputs, reason, reverts_id=None)

    async def dry_run(self, actor: Actor, kind: str, inputs: Mapping[str, object]) -> tuple[Json, Draft]:
        """Snapshot and draft that a plan would have; stores nothing, so a viewer may. Raises OperationError."""
        del actor  # any role
        found = self._kind(kind)
        parsed = _parse(found, inputs)
        _, snapshot, draft = await self._look(found, parsed)
        return snapshot, draft

    async def execute(self, actor: Actor, plan_id: int, confirmation: Confirmation, *, wait_s: float) -> OperationRow:
        """Executes a checked plan once; waits up to `wait_s` for its end and gives it as it is then.

        The same key again gives the same plan and does nothing. Raises OperationError: nothing was changed.
        """
        row = await self.get(plan_id)
        action = f"execute {row.kind}"
        await self._require_operator(actor, action, _object(row), row)
        if row.idempotency_key is not None and row.idempotency_key == confirmation.idempotency_key:
            await self._execution.wait(plan_id, wait_s)
            return await self.get(plan_id)
        try:
            self._check_allowed()
            self._check_confirmation(confirmation)
            await self._check_key(confirmation.idempotency_key, plan_id)
            self._check_executable(row, confirmation)
            kind = self._kind(row.kind)
            if kind.exclusive:
                await self._check_alone(row)
            _, snapshot_now, draft_now = await self._look(kind, _parse(kind, row.inputs))
        except OperationError as error:
            await self._audit_refusal(actor, action, row, str(error), confirmation.reason)
            raise
        changed = differences(holding(row.snapshot), holding(snapshot_now))
        if changed:
            text = f"The cluster has changed since plan {row.id} was made ({'; '.join(changed[:3])}): make a new plan."
            await self._refuse_stale(actor, action, row, text, changed, confirmation)
        refusal = first_refusal(draft_now.checks)
        if refusal is not None:
            text = f"What plan {row.id} was checked for does not hold any more: {refusal}"
            await self._refuse_stale(actor, action, row, text, [refusal], confirmation)
        if not await self._request(actor, row, confirmation, exclusive=kind.exclusive):
            return await self._lost_race(actor, action, row, confirmation, wait_s)
        self._execution.start(replace(row, reason=confirmation.reason.strip()), actor)
        await self._execution.wait(plan_id, wait_s)
        return await self.get(plan_id)

    async def revert(self, actor: Actor, plan_id: int, *, reason: str | None = None) -> int:
        """A new plan that puts back what `plan_id` found; its number. It is executed like any other."""
        row = await self.get(plan_id)
        action = f"revert {row.kind}"
        await self._require_operator(actor, action, _object(row), row)
        kind = self._kind(row.kind)
        inputs = None
        problem = f"Plan {plan_id} is {row.state}; only a plan that has changed something can be reverted."
        if PlanState(row.state) in REVERTIBLE:
            inputs = kind.revert_inputs(_parse(kind, row.inputs), row.snapshot)
            problem = f"What plan {plan_id} did cannot be taken back."
        if inputs is None:
            await self._audit_refusal(actor, action, row, problem, reason)
            raise Conflict(problem)
        return await self._plan(actor, row.kind, inputs, reason, reverts_id=plan_id)

    async def steer(
        self, actor: Actor, plan_id: int, wish: Wish, *, throttle_bytes_per_s: int | None = None
    ) -> OperationRow:
        """Pauses, resumes or stops a plan that is being carried out, or gives it another limit; the plan then.

        Raises OperationError: nothing was changed.
        """
        row = await self.get(plan_id)
        action = f"{wish.value} {row.kind}"
        await self._require_operator(actor, action, _object(row), row)
        problem = self._steer_problem(row, wish)
        if problem is not None:
            await self._audit_refusal(actor, action, row, problem, None)
            raise Conflict(problem)
        values: Json = {"updated_ms": now_ms()}
        from_states = {PlanState(row.state)}
        if wish is Wish.PAUSE:
            values["state"] = PlanState.PAUSED.value
        elif wish is Wish.RESUME:
            values["state"] = PlanState.RUNNING.value
        elif wish is Wish.STOP:
            values["intent"] = "stop"
        else:
            values["throttle_bytes_per_s"] = throttle_bytes_per_s
        detail = None if throttle_bytes_per_s is None else f"{in_bytes(throttle_bytes_per_s)}/s"

        def store(connection: Connection) -> bool:
            cluster_id = self._site.cluster_id
            taken = advance_operation(connection, cluster_id, row.id, {s.value for s in from_states}, values)
            if taken:
                record(connection, cluster_id, _entry(actor, action, row, AuditResult.ACCEPTED, detail, row.reason))
            return taken

        if not await self._write(store):
            raise Conflict(f"Plan {plan_id} has just changed; look at it again.")
        return await self.get(plan_id)

    def _steer_problem(self, row: OperationRow, wish: Wish) -> str | None:
        if lasting_kind(self._kind(row.kind)) is None:
            return f"Plan {row.id} is one request to Kafka: there is nothing to {wish.value}."
        allowed = {
            Wish.PAUSE: {PlanState.RUNNING},
            Wish.RESUME: {PlanState.PAUSED},
            Wish.STOP: {PlanState.ACCEPTED, PlanState.RUNNING, PlanState.PAUSED},
            Wish.LIMIT: {PlanState.ACCEPTED, PlanState.RUNNING, PlanState.PAUSED},
        }[wish]
        if row.state not in allowed:
            return f"Plan {row.id} is {row.state}; that is no state to {wish.value} it in."
        if row.intent == "stop":
            return f"Plan {row.id} is being stopped already."
        return None

    async def get(self, plan_id: int) -> OperationRow:
        """A plan as it is now. Raises NotFound, ClusterAway when the database is away."""
        row = await self._read(lambda c: queries.operation(c, self._site.cluster_id, plan_id))
        if row is None:
            raise NotFound(f"There is no plan {plan_id} of this cluster.")
        return row

    async def recent(
        self, limit: int, kinds: list[str] | None, states: list[str] | None, before_id: int | None = None
    ) -> list[OperationRow]:
        """Plans, newest first; `before_id` continues below the last one of the page before."""
        cluster_id = self._site.cluster_id
        return await self._read(
            lambda c: queries.operations(c, cluster_id, kinds=kinds, states=states, limit=limit, before_id=before_id)
        )

    async def recover(self, before_ms: int) -> int:
        """Looks after plans that a process before left in the middle: verified, or failed with what is known.

        Raises DatabaseAway.
        """
        return await self._execution.recover(before_ms)

    async def refused(self, actor: Actor, action: str, object_: str, detail: str) -> None:
        """Audits a call that was turned away before it reached an operation."""
        entry = AuditEntry(actor, action, object_, AuditResult.REFUSED, detail=detail)
        await self._write(lambda c: record(c, self._site.cluster_id, entry))

    async def close(self) -> None:
        """Waits a moment for running executions; they are stored step by step, so the next start goes on from there."""
        await self._execution.close()

    # --- planning ---

    def _kind(self, name: str) -> Kind:
        found = self._kinds.get(name)
        if found is None:
            raise InvalidInput(f"There is no kind of change {name!r:.60}; there are {', '.join(sorted(self._kinds))}.")
        return found

    async def _look(self, kind: Kind, inputs: BaseModel) -> tuple[BaseModel, Json, Draft]:
        """Exact inputs, the state now, and the draft for both."""
        try:
            exact = await kind.settle(self._site, inputs)
            snapshot = await kind.snapshot(self._site, exact)
            return exact, snapshot, await kind.draft(self._site, exact, snapshot)
        except (GatewayError, KafkaError) as error:
            raise ClusterAway(f"The cluster cannot be asked now, nothing was changed. {sentence(error)}") from error
        except DatabaseAway as error:
            raise ClusterAway(str(error)) from error

    async def _plan(
        self, actor: Actor, kind: str, inputs: Mapping[str, object], reason: str | None, reverts_id: int | None
    ) -> int:
        found = self._kind(kind)
        exact, snapshot, draft = await self._look(found, _parse(found, inputs))
        at_ms = now_ms()
        row = {
            "cluster_id": self._site.cluster_id,
            "kind": kind,
            "state": (PlanState.REFUSED if draft.refused else PlanState.CHECKED).value,
            "author": actor.name,
            "role": actor.role.value,
            "reason": reason,
            "inputs": exact.model_dump(mode="json"),
            "snapshot": snapshot,
            "diff": draft.diff(),
            "checks": draft.checks_json(),
            "cli": list(draft.cli),
            "estimate": draft.estimate,
            "reverts_id": reverts_id,
            "created_ms": at_ms,
            "updated_ms": at_ms,
            "finished_ms": at_ms if draft.refused else None,
        }

        def store(connection: Connection) -> int:
            plan_id = add_operation(connection, row)
            if draft.refused:
                entry = AuditEntry(
                    actor,
                    f"plan {kind}",
                    draft.object,
                    AuditResult.REFUSED,
                    detail=first_refusal(draft.checks),
                    reason=reason,
                    operation_id=plan_id,
                    diff=row["diff"],
                    cli=row["cli"],
                )
                record(connection, self._site.cluster_id, entry)
            return plan_id

        return await self._write(store)

    # --- executing ---

    def _check_confirmation(self, confirmation: Confirmation) -> None:
        if confirmation.cluster_name != self._site.cluster_name:
            raise NotConfirmed(f"Type the cluster's name, {self._site.cluster_name}, to confirm.")
        if not confirmation.reason.strip():
            raise NotConfirmed("Give a reason: it stands in the audit.")
        if len(confirmation.reason) > REASON_CHARS_MAX:
            raise NotConfirmed(f"The reason may have {REASON_CHARS_MAX} characters.")
        if not 0 < len(confirmation.idempotency_key) <= KEY_CHARS_MAX:
            raise InvalidInput(f"Give an Idempotency-Key of 1 to {KEY_CHARS_MAX} characters.")

    async def _check_key(self, key: str, plan_id: int) -> None:
        other = await self._read(lambda c: operation_of_key(c, self._site.cluster_id, key))
        if other is not None and other != plan_id:
            raise Conflict(f"This Idempotency-Key was used for plan {other}; give each execution a key of its own.")

    def _check_allowed(self) -> None:
        if not self._site.changes_allowed:
            raise ReadOnly("This ebbline only looks at the cluster: start it with --allow-changes to change something.")

    def _check_executable(self, row: OperationRow, confirmation: Confirmation) -> None:
        if confirmation.if_match is not None and confirmation.if_match.strip('"') != version_of(row):
            raise PlanChanged(f"Plan {row.id} is not what you have seen any more: look at it again.")
        if row.state != PlanState.CHECKED:
            raise Conflict(f"Plan {row.id} is {row.state} already; make a new plan to change something again.")

    async def _refuse_stale(
        self,
        actor: Actor,
        action: str,
        row: OperationRow,
        text: str,
        changed: list[str],
        confirmation: Confirmation,
    ) -> None:
        values = _moved(PlanState.REFUSED) | {"result": {"refused": text, "changed": changed[:50]}}

        def store(connection: Connection) -> None:
            cluster_id = self._site.cluster_id
            if advance_operation(connection, cluster_id, row.id, {PlanState.CHECKED.value}, values):
                record(
                    connection, cluster_id, _entry(actor, action, row, AuditResult.REFUSED, text, confirmation.reason)
                )

        await self._write(store)
        raise StalePlan(text)

    async def _request(self, actor: Actor, row: OperationRow, confirmation: Confirmation, *, exclusive: bool) -> bool:
        """Takes the plan for this execution, durably, before anything is sent; False when another was faster."""
        values = {
            "state": PlanState.REQUESTED.value,
            "updated_ms": now_ms(),
            "requested_ms": now_ms(),
            "idempotency_key": confirmation.idempotency_key,
            "reason": confirmation.reason.strip(),
            "result": {"executed_by": actor.name},
        }
        states = {state.value for state in sources(PlanState.REQUESTED)}
        cluster_id = self._site.cluster_id

        def take(connection: Connection) -> bool | int:
            if exclusive:
                lock_cluster(connection, cluster_id)
                other = open_operation(connection, cluster_id, row.kind, {state.value for state in OPEN})
                if other is not None and other != row.id:
                    return other
            return advance_operation(connection, cluster_id, row.id, states, values)

        try:
            taken = await self._write(take)
        except KeyInUse as error:
            text = "This Idempotency-Key was used for another plan; give each execution a key of its own."
            await self._audit_refusal(actor, f"execute {row.kind}", row, text, confirmation.reason)
            raise Conflict(text) from error
        if taken is True or taken is False:
            return taken
        text = _busy(taken)
        await self._audit_refusal(actor, f"execute {row.kind}", row, text, confirmation.reason)
        raise Conflict(text)

    async def _check_alone(self, row: OperationRow) -> None:
        """Asked before the cluster is: what another plan of the kind changes there would make this one stale."""
        states = {state.value for state in OPEN}
        other = await self._read(lambda c: open_operation(c, self._site.cluster_id, row.kind, states))
        if other is not None and other != row.id:
            raise Conflict(_busy(other))

    async def _lost_race(
        self, actor: Actor, action: str, row: OperationRow, confirmation: Confirmation, wait_s: float
    ) -> OperationRow:
        now = await self.get(row.id)
        if now.idempotency_key == confirmation.idempotency_key:
            await self._execution.wait(row.id, wait_s)
            return await self.get(row.id)
        text = f"Plan {row.id} is being executed by another request; look at its result."
        await self._audit_refusal(actor, action, row, text, confirmation.reason)
        raise Conflict(text)

    # --- roles, audit, database ---

    async def _require_operator(self, actor: Actor, action: str, object_: str, row: OperationRow | None = None) -> None:
        if actor.role is Role.OPERATOR:
            return
        text = "Read-only: ask for the operator role."
        entry = AuditEntry(
            actor,
            action,
            object_,
            AuditResult.REFUSED,
            detail=text,
            operation_id=None if row is None else row.id,
        )
        await self._write(lambda c: record(c, self._site.cluster_id, entry))
        raise NotAllowed(text)

    async def _audit_refusal(
        self, actor: Actor, action: str, row: OperationRow, detail: str, reason: str | None
    ) -> None:
        entry = _entry(actor, action, row, AuditResult.REFUSED, detail, reason)
        await self._write(lambda c: record(c, self._site.cluster_id, entry))

    async def _read(self, query: Callable[[Connection], T]) -> T:
        try:
            return await self._site.database.read(query)
        except DatabaseAway as error:
            raise ClusterAway(str(error)) from error

    async def _write(self, change: Callable[[Connection], T]) -> T:
        try:
            return await self._site.database.write(change)
        except DatabaseAway as error:
            raise ClusterAway(str(error)) from error


def _parse(kind: Kind, inputs: Mapping[str, object]) -> BaseModel:
    try:
        parsed: BaseModel = kind.inputs.model_validate(inputs)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(
            f"The inputs do not fit {kind.name}: {where + ': ' if where else ''}{first['msg']}."
        ) from error
    return parsed


def _busy(plan_id: int) -> str:
    return f"Plan {plan_id} of the same kind is being carried out: wait for its end, or stop it."


def _object(row: OperationRow) -> str:
    return str((row.diff or {}).get("object", row.kind))


def _entry(
    actor: Actor, action: str, row: OperationRow, result: AuditResult, detail: str | None, reason: str | None
) -> AuditEntry:
    return AuditEntry(actor, action, _object(row), result, detail, reason or None, row.id, row.diff, row.cli)


def _moved(state: PlanState) -> Json:
    at_ms = now_ms()
    return {"state": state.value, "updated_ms": at_ms, "finished_ms": at_ms}
