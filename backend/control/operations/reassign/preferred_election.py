"""Kind `elect`: makes the first replica of each list the leader (preferred election, KIP-183)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.requests.election_requests import elect_preferred
from backend.control.gateway.requests.metadata_requests import PartitionMetadata, fetch_cluster
from backend.control.operations.lifecycle.plan_draft import (
    Change,
    CheckOutcome,
    DialogTexts,
    Draft,
    JsonObject,
    PlanCheck,
    PlanVerification,
)
from backend.control.operations.operation_errors import InvalidInput
from backend.control.operations.operation_kind import OperationContext, SingleRequestKind
from backend.control.operations.reassign.reassignment_checks import THIN_SHARE
from backend.control.operations.reassign.reassignment_inputs import PARTITIONS_MAX, PartitionName, TopicNameInput
from backend.store.queries import operations
from backend.tiering.ids import TopicPartition, uuid_text


class ElectInputs(BaseModel):
    """The selected partitions; without any, all whose leader is not the first of its list."""

    model_config = ConfigDict(extra="forbid", strict=True)

    topics: Annotated[list[TopicNameInput], Field(max_length=1_000)] = []
    partitions: Annotated[list[PartitionName], Field(max_length=PARTITIONS_MAX)] = []

    @model_validator(mode="after")
    def _once(self) -> ElectInputs:
        if len({name.key for name in self.partitions}) != len(self.partitions):
            raise ValueError("a partition is named twice")
        return self


class Elect(SingleRequestKind[ElectInputs]):
    """See `OperationKind`."""

    name = "elect"
    inputs = ElectInputs

    async def resolve_inputs(self, context: OperationContext, inputs: ElectInputs) -> ElectInputs:
        """The partitions by name."""
        if inputs.partitions:
            return inputs
        view = await fetch_cluster(context.gateway, lane=Lane.ACT)
        missing = set(inputs.topics) - {topic.topic for topic in view.topics}
        if missing:
            raise InvalidInput(f"There is no topic {min(missing)}: look at the list of partitions.")
        elsewhere = [p for p in view.partitions if (not inputs.topics or p.topic in inputs.topics) and _elsewhere(p)]
        if not elsewhere:
            raise InvalidInput("Every leader is the first of its list already: there is nothing to do.")
        names = [PartitionName(topic=p.topic, partition=p.partition) for p in elsewhere]
        return inputs.model_copy(update={"partitions": names[:PARTITIONS_MAX], "topics": []})

    async def snapshot(self, context: OperationContext, inputs: ElectInputs) -> JsonObject:
        result = await _views(context, inputs)
        return {
            "partitions": {
                f"{tp.topic}-{tp.partition}": {
                    "topic_id": uuid_text(p.topic_id),
                    "leader": p.leader,
                    "preferred": p.replicas[0],
                }
                for tp, p in result.items()
            },
            "seen": {f"{tp.topic}-{tp.partition}": {"isr": list(p.isr)} for tp, p in result.items()},
        }

    async def draft(self, context: OperationContext, inputs: ElectInputs, snapshot: JsonObject) -> Draft:
        parts = snapshot["partitions"]
        changing = {key: part for key, part in parts.items() if part["leader"] != part["preferred"]}
        topics = sorted({name.topic for name in inputs.partitions})
        local = await context.database.read(lambda c: operations.replicas_of(c, context.cluster_id, topics))
        thin = [name for name in inputs.partitions if _is_thin(local, name, parts[f"{name.topic}-{name.partition}"])]
        behind = [key for key, part in changing.items() if part["preferred"] not in snapshot["seen"][key]["isr"]]
        count = f"{len(changing)} leader{'' if len(changing) == 1 else 's'}"
        return Draft(
            object=topics[0] if len(topics) == 1 else f"{len(topics)} topics",
            changes=tuple(
                Change(key, "leader", str(part["leader"]), str(part["preferred"])) for key, part in changing.items()
            ),
            checks=tuple(_checks(changing, behind, thin)),
            cli=tuple(cli(inputs)),
            words=DialogTexts(
                title=f"Move {count} to the first replica",
                intro=f"Cluster {context.cluster_name}.",
                effect=f"{count} change; clients ask the new leader after one refused request.",
                risk="A leader with little local data sends consumers that are behind to the remote tier.",
                does_not_change="Where replicas are.",
                keep="Keep",
                act="Move leadership",
            ),
            extra={"lines": [f"{k}: {p['leader']} → {p['preferred']}" for k, p in list(changing.items())[:12]]},
        )

    async def apply(self, context: OperationContext, inputs: ElectInputs, snapshot: JsonObject) -> None:
        """Raises the first refusal when Kafka refuses every partition."""
        errors = await elect_preferred(context.gateway, [name.key for name in inputs.partitions])
        if errors and len(errors) == len(inputs.partitions):
            raise next(iter(errors.values()))

    async def verify(self, context: OperationContext, inputs: ElectInputs, snapshot: JsonObject) -> PlanVerification:
        result = await _views(context, inputs)
        wrong = [p for p in result.values() if _elsewhere(p)]
        if wrong:
            return PlanVerification(False, not_moved(wrong, len(result)))
        if len(result) == 1:
            return PlanVerification(True, "The partition is led by the first of its list.")
        return PlanVerification(True, f"All {len(result)} partitions are led by the first of their lists.")

    def revert_inputs(self, inputs: ElectInputs, snapshot: JsonObject) -> None:
        """Kafka knows no election of another than the first one: reorder the replicas to go back."""


def not_moved(wrong: Sequence[PartitionMetadata], total: int) -> str:
    """Sentence about leaders that stayed: why the first of them did, and what to do."""
    p = wrong[0]
    behind = p.replicas[0] not in p.isr
    why = f"broker {p.replicas[0]} is not in sync. Wait for it" if behind else "Kafka left it. See its controller's log"
    return f"{len(wrong)} of {total} leaders were not moved, first {p.topic}-{p.partition}: {why}, then elect again."


def _elsewhere(p: PartitionMetadata) -> bool:
    return bool(p.replicas) and p.leader != p.replicas[0]


async def _views(context: OperationContext, inputs: ElectInputs) -> dict[TopicPartition, PartitionMetadata]:
    view = await fetch_cluster(context.gateway, lane=Lane.ACT)
    partitions = {p.topic_partition: p for p in view.partitions}
    missing = [name for name in inputs.partitions if name.key not in partitions]
    if missing:
        raise InvalidInput(f"There is no partition {missing[0].topic}-{missing[0].partition}.")
    return {name.key: partitions[name.key] for name in inputs.partitions}


def _is_thin(
    local: Mapping[tuple[str, int, int], tuple[int | None, str | None]], name: PartitionName, part: JsonObject
) -> bool:
    own, _ = local.get((name.topic, name.partition, part["preferred"]), (None, None))
    now, _ = local.get((name.topic, name.partition, part["leader"]), (None, None))
    return own is not None and now is not None and own < now * THIN_SHARE


def _checks(changing: JsonObject, behind: list[str], thin: list[PartitionName]) -> list[PlanCheck]:
    checks = []
    if not changing:
        text = "Every leader is the first of its list already: there is nothing to do."
        checks.append(PlanCheck("change", CheckOutcome.REFUSED, text))
    if behind and len(behind) == len(changing):
        text = f"{', '.join(behind[:5])}: the first replica is not in sync and cannot lead. Wait for it."
        checks.append(PlanCheck("in-sync", CheckOutcome.REFUSED, text))
    elif behind:
        text = f"{', '.join(behind[:5])}: the first replica is not in sync; these stay where they are."
        checks.append(PlanCheck("in-sync", CheckOutcome.WARNING, text))
    if thin:
        names = ", ".join(f"{name.topic}-{name.partition}" for name in thin[:5])
        text = f"{names}: the next leader holds little local data, so consumers behind it read from remote."
        checks.append(PlanCheck("thin-leader", CheckOutcome.WARNING, text))
    return checks or [PlanCheck("change", CheckOutcome.OK, f"{len(changing)} leaders change.")]


def cli(inputs: ElectInputs) -> list[str]:
    """The same with Kafka's own tool."""
    tool = "kafka-leader-election.sh --bootstrap-server $BOOTSTRAP --election-type preferred"
    if len(inputs.partitions) == 1:
        name = inputs.partitions[0]
        return [f"{tool} --topic {name.topic} --partition {name.partition}"]
    listed = [{"topic": name.topic, "partition": name.partition} for name in inputs.partitions]
    document = json.dumps({"partitions": listed}, separators=(",", ":"))
    return [f"echo '{document}' > elect.json", f"{tool} --path-to-json-file elect.json"]
