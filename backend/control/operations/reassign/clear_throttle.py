"""Kind `clear_throttle`: removes replication limits that a move has left behind (KIP-73)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.requests.config_requests import CLUSTER_DEFAULT
from backend.control.gateway.requests.metadata_requests import fetch_cluster
from backend.control.gateway.requests.reassignment_requests import list_reassignments
from backend.control.operations.lifecycle.plan_draft import (
    Change,
    CheckOutcome,
    DialogTexts,
    Draft,
    JsonObject,
    PlanCheck,
    PlanVerification,
)
from backend.control.operations.lifecycle.plan_states import OPEN
from backend.control.operations.operation_errors import InvalidInput
from backend.control.operations.operation_kind import OperationContext, SingleRequestKind
from backend.control.operations.reassign import replication_throttles
from backend.control.operations.reassign.reassignment_inputs import BrokerIdInput, TopicNameInput
from backend.control.operations.reassign.replication_throttles import REPLICA_LISTS, Throttles, ThrottleValues
from backend.store.writes.operation_rows import open_operation


class ClearInputs(BaseModel):
    """Without any of them: every limit that is set. `cluster_default`: those that are set for all brokers at once."""

    model_config = ConfigDict(extra="forbid", strict=True)

    topics: Annotated[list[TopicNameInput], Field(max_length=10_000)] = []
    brokers: Annotated[list[BrokerIdInput], Field(max_length=1_000)] = []
    cluster_default: bool = False

    @property
    def broker_names(self) -> list[str]:
        return [*map(str, self.brokers), *([CLUSTER_DEFAULT] if self.cluster_default else [])]


class ClearThrottle(SingleRequestKind[ClearInputs]):
    """See `OperationKind`."""

    name = "clear_throttle"
    inputs = ClearInputs

    async def resolve_inputs(self, context: OperationContext, inputs: ClearInputs) -> ClearInputs:
        """Names the places where limits are set."""
        if inputs.topics or inputs.broker_names:
            return inputs
        view = await fetch_cluster(context.gateway, lane=Lane.ACT)
        everywhere = [*map(str, context.gateway.brokers), CLUSTER_DEFAULT]
        throttles = await replication_throttles.read_throttles(
            context.gateway, {t.topic for t in view.topics}, everywhere
        )
        topics = [topic for topic, values in throttles.topics.items() if any(values.values())]
        brokers = {broker for broker, values in throttles.brokers.items() if any(values.values())}
        if not topics and not brokers:
            raise InvalidInput("No replication limit is set: there is nothing to clear.")
        return ClearInputs(
            topics=topics,
            brokers=sorted(int(broker) for broker in brokers - {CLUSTER_DEFAULT}),
            cluster_default=CLUSTER_DEFAULT in brokers,
        )

    async def snapshot(self, context: OperationContext, inputs: ClearInputs) -> JsonObject:
        await fetch_cluster(context.gateway, lane=Lane.ACT)
        throttles = await replication_throttles.read_throttles(context.gateway, inputs.topics, inputs.broker_names)
        missing = set(inputs.topics) - set(throttles.topics)
        if missing:
            raise InvalidInput(f"There is no topic {min(missing)}: look at the list of partitions.")
        moves = await list_reassignments(context.gateway, lane=Lane.ACT)
        return throttles.json() | {"seen": {"moving": sorted({tp.topic for tp in moves})}}

    async def draft(self, context: OperationContext, inputs: ClearInputs, snapshot: JsonObject) -> Draft:
        states = {state.value for state in OPEN}
        running = await context.database.read(lambda c: open_operation(c, context.cluster_id, "reassign", states))
        result = Throttles(snapshot["topics"], snapshot["brokers"])
        changes = [
            Change(where, name, value, None)
            for where, values in _places(result).items()
            for name, value in values.items()
            if value
        ]
        places = ", ".join(dict.fromkeys(change.object for change in changes)) or "nothing"
        return Draft(
            object=places[:200],
            changes=tuple(changes),
            checks=tuple(_checks(changes, snapshot["seen"]["moving"], running)),
            cli=tuple(_cli(result)),
            words=DialogTexts(
                title=f"Clear {len(changes)} replication limit{'' if len(changes) == 1 else 's'}",
                intro=f"Cluster {context.cluster_name}.",
                effect=f"Removes the limits of {places}; replication goes as fast as it can again.",
                does_not_change="Moves and replicas.",
                keep="Keep",
                act="Clear throttle",
            ),
            extra={"lines": [f"− {c.object} {c.name} = {c.before}" for c in changes[:12]]},
        )

    async def apply(self, context: OperationContext, inputs: ClearInputs, snapshot: JsonObject) -> None:
        await replication_throttles.apply_throttles(context.gateway, _none(inputs), force_removal=True)

    async def verify(self, context: OperationContext, inputs: ClearInputs, snapshot: JsonObject) -> PlanVerification:
        throttles = await replication_throttles.read_throttles(context.gateway, inputs.topics, inputs.broker_names)
        left = [where for where, values in _places(throttles).items() if any(values.values())]
        if left:
            return PlanVerification(False, f"Limits are still set on {', '.join(left[:5])}.")
        return PlanVerification(True, "No limit is set there any more.")

    def revert_inputs(self, inputs: ClearInputs, snapshot: JsonObject) -> None:
        """Kafka does not give the rates, so they could not be put back."""


def _places(throttles: Throttles) -> dict[str, ThrottleValues]:
    brokers = {
        "all brokers" if broker == CLUSTER_DEFAULT else f"broker {broker}": values
        for broker, values in throttles.brokers.items()
    }
    return brokers | {f"topic {topic}": values for topic, values in throttles.topics.items()}


def _none(inputs: ClearInputs) -> Throttles:
    return Throttles(
        {topic: dict.fromkeys(replication_throttles.REPLICA_LISTS) for topic in inputs.topics},
        {broker: dict.fromkeys(replication_throttles.RATES) for broker in inputs.broker_names},
    )


def _checks(changes: list[Change], moving: list[str], running: int | None) -> list[PlanCheck]:
    checks = []
    if not changes:
        checks.append(PlanCheck("change", CheckOutcome.REFUSED, "No limit is set there: there is nothing to clear."))
    if running is not None:
        text = f"Plan {running} moves replicas and removes its limits itself: wait for its end, or stop it."
        checks.append(PlanCheck("in-use", CheckOutcome.REFUSED, text))
    elif moving:
        text = f"Replicas of {', '.join(moving[:5])} move now: without a limit they take what they can."
        checks.append(PlanCheck("in-use", CheckOutcome.WARNING, text))
    return checks or [PlanCheck("in-use", CheckOutcome.OK, "No move uses them.")]


def _cli(throttles: Throttles) -> list[str]:
    tool = "kafka-configs.sh --bootstrap-server $BOOTSTRAP --alter"
    brokers = [
        f"{tool} --entity-type brokers {'--entity-default' if broker == CLUSTER_DEFAULT else f'--entity-name {broker}'}"
        f" --delete-config {','.join(replication_throttles.RATES)}"
        for broker, values in throttles.brokers.items()
        if any(values.values())
    ]
    return brokers + [
        f"{tool} --entity-type topics --entity-name {topic} --delete-config {','.join(REPLICA_LISTS)}"
        for topic, values in throttles.topics.items()
        if any(values.values())
    ]
