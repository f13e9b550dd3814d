"""Makes a plan: exact inputs, a snapshot of what is now, the draft with its checks; stored before anybody sees it."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ValidationError
from sqlalchemy import Connection

from backend.control.control_database import DatabaseAway
from backend.control.formatting import describe_invalid
from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import describe_failure
from backend.control.operations.audit_entries import Actor, AuditEntry, AuditResult, append_entry
from backend.control.operations.lifecycle.plan_draft import Draft, JsonObject, first_refusal
from backend.control.operations.lifecycle.plan_states import PlanState
from backend.control.operations.lifecycle.plan_store import PlanStore
from backend.control.operations.operation_errors import ClusterAway, InvalidInput
from backend.control.operations.operation_kind import AnyKind, OperationContext
from backend.control.wall_clock import now_ms
from backend.protocol.errors import KafkaError
from backend.store.writes.operation_rows import add_operation


def parse(kind: AnyKind, inputs: Mapping[str, object]) -> BaseModel:
    """The inputs of a kind. Raises InvalidInput."""
    try:
        parsed: BaseModel = kind.inputs.model_validate(inputs)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(
            f"The inputs do not fit {kind.name}: {where + ': ' if where else ''}{describe_invalid(first['msg'])}."
        ) from error
    return parsed


class Planner:
    """Plans for one cluster. Asks it, and changes nothing in it."""

    def __init__(self, context: OperationContext, kinds: Mapping[str, AnyKind], records: PlanStore) -> None:
        self._context = context
        self._kinds = kinds
        self._records = records

    def kind(self, name: str) -> AnyKind:
        """The kind of this name. Raises InvalidInput."""
        result = self._kinds.get(name)
        if result is None:
            raise InvalidInput(f"There is no kind of change {name!r:.60}; there are {', '.join(sorted(self._kinds))}.")
        return result

    async def inspect(self, kind: AnyKind, inputs: BaseModel) -> tuple[BaseModel, JsonObject, Draft]:
        """Exact inputs, the state now, and the draft for both. Raises ClusterAway."""
        try:
            exact = await kind.resolve_inputs(self._context, inputs)
            snapshot = await kind.snapshot(self._context, exact)
            return exact, snapshot, await kind.draft(self._context, exact, snapshot)
        except (GatewayError, KafkaError) as error:
            raise ClusterAway(
                f"The cluster cannot be asked now, nothing was changed. {describe_failure(error)}"
            ) from error
        except DatabaseAway as error:
            raise ClusterAway(str(error)) from error

    async def plan(
        self, actor: Actor, kind: str, inputs: Mapping[str, object], reason: str | None, reverts_id: int | None
    ) -> int:
        """Stores the plan, checked or refused by its checks; its number. Raises OperationError."""
        plan_kind = self.kind(kind)
        exact, snapshot, draft = await self.inspect(plan_kind, parse(plan_kind, inputs))
        at_ms = now_ms()
        row = {
            "cluster_id": self._context.cluster_id,
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
                append_entry(connection, self._context.cluster_id, entry)
            return plan_id

        return await self._records.write(store)
