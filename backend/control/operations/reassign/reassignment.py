"""Kind `reassign`: add, remove and move replicas, change the replication factor, drain brokers, spread or swap leaders.

Carried out in steps (`lasting`): limits first, then a batch of partitions at a time; each step looks at the cluster and
asks for what is still missing, so that it may be repeated after a crash at any point.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import describe_failure
from backend.control.gateway.requests.election_requests import elect_preferred
from backend.control.gateway.requests.metadata_requests import ClusterMetadata, fetch_brokers, fetch_cluster
from backend.control.gateway.requests.reassignment_requests import (
    PartitionReassignment,
    alter_reassignments,
    list_reassignments,
)
from backend.control.operations.lifecycle.plan_draft import Change, Draft, JsonObject, PlanVerification
from backend.control.operations.operation_errors import InvalidInput
from backend.control.operations.operation_kind import ExecutionControl, LongRunningKind, OperationContext, StepResult
from backend.control.operations.reassign import reassignment_texts, replica_placement, replication_throttles
from backend.control.operations.reassign.partition_moves import (
    CurrentReplicas,
    MoveState,
    PlannedMove,
    move_states,
    next_batch,
    rollback_request,
)
from backend.control.operations.reassign.reassignment_inputs import PARTITIONS_MAX, ReassignInputs, ReplicaAssignment
from backend.control.operations.reassign.reassignment_progress import measure_progress
from backend.control.operations.reassign.reassignment_review import review
from backend.control.operations.reassign.replication_throttles import Throttles
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition, uuid_text

# The whole command is shown up to here (70 bytes a partition); beyond, `ebbline export` writes the file.
SHOWN_MAX: Final = 200


class Reassign(LongRunningKind[ReassignInputs]):
    """See `LongRunningKind`."""

    name = "reassign"
    inputs = ReassignInputs
    exclusive: ClassVar[bool] = True

    async def resolve_inputs(self, context: OperationContext, inputs: ReassignInputs) -> ReassignInputs:
        """The replica list of every partition concerned."""
        if inputs.assignments:
            return inputs
        view = await fetch_cluster(context.gateway, lane=Lane.ACT)
        replicas = {p.topic_partition: p.replicas for p in view.partitions}
        chosen = _chosen(inputs, replicas)
        places = [replica_placement.BrokerRack(b.broker_id, b.rack) for b in view.brokers]
        layout = replica_placement.ReplicaLayout.of(replicas, places)
        try:
            targets = _targets(inputs, layout, chosen)
        except replica_placement.PlacementImpossible as error:
            raise InvalidInput(str(error)) from error
        kept = {tp: target for tp, target in targets.items() if target != replicas[tp]} or targets
        if not kept:
            raise InvalidInput("Nothing of what was selected is concerned: select other topics or brokers.")
        if len(kept) > PARTITIONS_MAX:
            raise InvalidInput(f"{len(kept)} partitions would move, a plan may have {PARTITIONS_MAX}: select topics.")
        assignments = [
            ReplicaAssignment(topic=tp.topic, partition=tp.partition, replicas=list(target))
            for tp, target in kept.items()
        ]
        return inputs.model_copy(update={"assignments": assignments})

    async def snapshot(self, context: OperationContext, inputs: ReassignInputs) -> JsonObject:
        """Replica lists, moves and throttles now; under "seen" leaders, ISRs and brokers."""
        now = await _now(context)
        missing = [tp for tp in inputs.targets if tp not in now]
        if missing:
            tp = missing[0]
            raise InvalidInput(f"There is no partition {tp.topic}-{tp.partition}: look at the topic's partitions.")
        concerned = {tp: now[tp] for tp in inputs.targets}
        brokers = {b for tp, current in concerned.items() for b in (*current.replicas, *inputs.targets[tp])}
        registered = await fetch_brokers(context.gateway)
        broker_ids = {b.broker_id for b in registered}
        set_now = await replication_throttles.read_throttles(
            context.gateway, {tp.topic for tp in concerned}, map(str, brokers & broker_ids)
        )
        return {
            "partitions": {
                f"{tp.topic}-{tp.partition}": {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "topic_id": current.topic_id,
                    "replicas": list(current.replicas),
                    "adding": list(current.adding),
                    "removing": list(current.removing),
                }
                for tp, current in concerned.items()
            },
            "throttles": set_now.json(),
            "seen": {
                "brokers": [
                    {"broker_id": b.broker_id, "rack": b.rack, "alive": b.broker_id in context.gateway.brokers}
                    for b in registered
                ],
                "partitions": {
                    f"{tp.topic}-{tp.partition}": {"leader": current.leader, "isr": list(current.isr)}
                    for tp, current in concerned.items()
                },
            },
        }

    async def draft(self, context: OperationContext, inputs: ReassignInputs, snapshot: JsonObject) -> Draft:
        moves = _planned_moves(inputs, snapshot)
        reviewed = await review(context, inputs, snapshot, moves)
        texts = reassignment_texts.dialog_texts(
            context.cluster_name, inputs, moves, reviewed.estimate, reviewed.leaders_change
        )
        return Draft(
            object=reassignment_texts.object_of(inputs, moves),
            changes=tuple(
                Change(f"{tp.topic}-{tp.partition}", "replicas", _text(move.before), _text(move.target))
                for tp, move in moves.items()
                if move.before != move.target
            )[:PARTITIONS_MAX],
            checks=tuple(reviewed.checks),
            cli=tuple(cli(inputs, moves)),
            words=texts,
            estimate=reviewed.estimate,
            extra={
                "lines": reassignment_texts.lines(moves),
                "load": reviewed.load,
                "leaders_change": reviewed.leaders_change,
            },
        )

    async def step(
        self, context: OperationContext, inputs: ReassignInputs, snapshot: JsonObject, control: ExecutionControl
    ) -> StepResult:
        """One reading, and at most one request for partitions."""
        moves = _planned_moves(inputs, snapshot)
        now = await _now(context)
        refused: dict[str, str] = dict(control.progress.get("refused", {}))
        states = move_states(moves, now, {tp for tp in moves if f"{tp.topic}-{tp.partition}" in refused})
        ask = (
            rollback_request(moves, now, states)
            if control.stopping
            else next_batch(moves, states, at_once=inputs.at_once)
        )
        if control.paused and not control.stopping:
            ask = next_batch(moves, states, at_once=0)
        moving = MoveState.MOVING in states.values()
        limit = await self._limit(context, inputs, snapshot, moves, control, needed=moving or bool(ask.assign))
        if not ask.nothing:
            requested: dict[TopicPartition, tuple[int, ...] | None] = dict.fromkeys(ask.cancel)
            requested |= ask.assign
            errors = await alter_reassignments(context.gateway, requested)
            refused |= {
                f"{tp.topic}-{tp.partition}": describe_failure(error)
                for tp, error in errors.items()
                if error.code != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            }
            now = await _now(context)
            states = move_states(moves, now, {tp for tp in moves if f"{tp.topic}-{tp.partition}" in refused})
        progress = await measure_progress(context, moves, now, states, control.progress) | {"refused": refused}
        progress["limit"] = limit
        return await self._judge(context, inputs, moves, now, states, progress, control)

    async def _judge(
        self,
        context: OperationContext,
        inputs: ReassignInputs,
        moves: Mapping[TopicPartition, PlannedMove],
        now: Mapping[TopicPartition, CurrentReplicas],
        states: Mapping[TopicPartition, MoveState],
        progress: JsonObject,
        control: ExecutionControl,
    ) -> StepResult:
        moving = MoveState.MOVING in states.values()
        if control.stopping:
            back = rollback_request(moves, now, states)
            text = reassignment_texts.stopped(states)
            return StepResult(progress, finished=back.nothing and not moving, done=False, sentence=text)
        finished = not moving and MoveState.WAITING not in states.values()
        if finished and inputs.elect:
            refused = await _elect(context, moves, now, states)
            progress = progress | {"not_elected": refused}
        done = finished and all(state is MoveState.DONE for state in states.values())
        text = reassignment_texts.progress_text(states, progress)
        return StepResult(progress, finished=finished, done=done, sentence=text)

    async def _limit(
        self,
        context: OperationContext,
        inputs: ReassignInputs,
        snapshot: JsonObject,
        moves: Mapping[TopicPartition, PlannedMove],
        control: ExecutionControl,
        *,
        needed: bool,
    ) -> int | None:
        """Sets the limits before anything moves, puts them back while nothing does. The limit in force then."""
        bytes_per_s = control.throttle_bytes_per_s or inputs.throttle_bytes_per_s
        before = Throttles.of(snapshot["throttles"])
        if needed and bytes_per_s is not None and not control.stopping:
            # Kafka does not give the rates that are set, so they are set again only when they are to be others.
            already_set = control.progress.get("limit") == bytes_per_s
            required = replication_throttles.throttles_for(before, moves, bytes_per_s)
            await replication_throttles.apply_throttles(context.gateway, required, trust_hidden=already_set)
            return bytes_per_s
        if not needed and control.paused:
            await replication_throttles.apply_throttles(context.gateway, before)
            return None
        in_force: int | None = control.progress.get("limit")
        return in_force

    async def clean(self, context: OperationContext, inputs: ReassignInputs, snapshot: JsonObject) -> str:
        """All limits as they were before the plan; a broker that is away keeps its own. Kafka goes on with what moves
        when the plan could not.
        """
        await fetch_cluster(context.gateway, lane=Lane.ACT)
        moves, before = _planned_moves(inputs, snapshot), Throttles.of(snapshot["throttles"])
        await replication_throttles.apply_throttles(context.gateway, before, force_removal=True)
        limited = replication_throttles.throttles_for(before, moves, inputs.throttle_bytes_per_s or 0).brokers
        away = [broker for broker in limited if int(broker) not in context.gateway.brokers]
        try:
            states = move_states(moves, await _now(context))
        except (GatewayError, KafkaError):
            states = {}  # the limits are gone; what Kafka does not tell stands in the plan's own sentence
        return reassignment_texts.left_behind(states, [] if inputs.throttle_bytes_per_s is None else away)

    async def verify(self, context: OperationContext, inputs: ReassignInputs, snapshot: JsonObject) -> PlanVerification:
        moves = _planned_moves(inputs, snapshot)
        states = move_states(moves, await _now(context))
        done = all(state is MoveState.DONE for state in states.values())
        return PlanVerification(done, reassignment_texts.progress_text(states, {}))

    def revert_inputs(self, inputs: ReassignInputs, snapshot: JsonObject) -> Mapping[str, object]:
        """The lists of before, at the same limit; leaders too, when the plan had moved them."""
        assignments = [
            {"topic": part["topic"], "partition": part["partition"], "replicas": part["replicas"]}
            for part in snapshot["partitions"].values()
        ]
        return {
            "action": "assign",
            "assignments": assignments,
            "throttle_bytes_per_s": inputs.throttle_bytes_per_s,
            "unthrottled": inputs.unthrottled or inputs.throttle_bytes_per_s is None,
            "at_once": inputs.at_once,
            "elect": inputs.elect,
        }


def _chosen(inputs: ReassignInputs, replicas: Mapping[TopicPartition, tuple[int, ...]]) -> list[TopicPartition]:
    """The selected partitions. Raises InvalidInput for one that is not there."""
    if not inputs.topics and not inputs.partitions:
        concerned = set(inputs.brokers) if inputs.action == "drain" else None
        return [tp for tp, replica_list in replicas.items() if concerned is None or concerned & set(replica_list)]
    topics = {tp.topic for tp in replicas}
    unknown = [topic for topic in inputs.topics if topic not in topics]
    if unknown:
        raise InvalidInput(f"There is no topic {unknown[0]}: look at the list of partitions.")
    named = {name.key for name in inputs.partitions}
    missing = sorted(named - set(replicas), key=str)
    if missing:
        raise InvalidInput(f"There is no partition {missing[0].topic}-{missing[0].partition}.")
    return [tp for tp in replicas if tp.topic in inputs.topics or tp in named]


def _targets(
    inputs: ReassignInputs, layout: replica_placement.ReplicaLayout, chosen: list[TopicPartition]
) -> dict[TopicPartition, tuple[int, ...]]:
    brokers = inputs.brokers
    match inputs.action:
        case "add":
            return replica_placement.add(layout, chosen, brokers)
        case "remove":
            return replica_placement.remove(layout, chosen, brokers)
        case "move":
            return replica_placement.move(layout, chosen, brokers[0], brokers[1])
        case "replication_factor":
            return replica_placement.replication_factor(layout, chosen, inputs.factor or 1)
        case "drain":
            return replica_placement.drain(layout, chosen, brokers)
        case "spread_leaders":
            return replica_placement.spread_leaders(layout, chosen)
        case "swap_leaders":
            return replica_placement.swap_leaders(layout, chosen, brokers[0], brokers[1])
        case _:
            raise InvalidInput("Give assignments with the action assign.")


def _planned_moves(inputs: ReassignInputs, snapshot: JsonObject) -> dict[TopicPartition, PlannedMove]:
    targets = inputs.targets
    return {
        tp: PlannedMove(part["topic_id"], tuple(part["replicas"]), targets[tp])
        for part in snapshot["partitions"].values()
        for tp in (TopicPartition(part["topic"], part["partition"]),)
    }


async def _now(context: OperationContext) -> dict[TopicPartition, CurrentReplicas]:
    """Every partition of the cluster. Moves are asked for first: one that ends in between is then seen as moving."""
    moves = await list_reassignments(context.gateway, lane=Lane.ACT)
    view = await fetch_cluster(context.gateway, lane=Lane.ACT)
    return _joined(view, moves)


def _joined(
    view: ClusterMetadata, moves: Mapping[TopicPartition, PartitionReassignment]
) -> dict[TopicPartition, CurrentReplicas]:
    none = PartitionReassignment((), (), ())
    result = {}
    for p in view.partitions:
        move = moves.get(p.topic_partition, none)
        replicas = move.replicas or p.replicas
        result[p.topic_partition] = CurrentReplicas(
            uuid_text(p.topic_id), tuple(replicas), move.adding, move.removing, p.isr, p.leader
        )
    return result


async def _elect(
    context: OperationContext,
    moves: Mapping[TopicPartition, PlannedMove],
    now: Mapping[TopicPartition, CurrentReplicas],
    states: Mapping[TopicPartition, MoveState],
) -> dict[str, str]:
    """Makes the first replicas leaders; why not, by partition."""
    electable = [tp for tp, move in moves.items() if states[tp] is MoveState.DONE and now[tp].leader != move.target[0]]
    if not electable:
        return {}
    errors = await elect_preferred(context.gateway, electable)
    return {f"{tp.topic}-{tp.partition}": describe_failure(error) for tp, error in errors.items()}


def cli(inputs: ReassignInputs, moves: Mapping[TopicPartition, PlannedMove]) -> Iterable[str]:
    """The same with Kafka's own tools."""
    if len(moves) <= SHOWN_MAX:
        yield f"echo '{json.dumps(document(moves), separators=(',', ':'))}' > move.json"
    else:
        yield "ebbline export PLAN > move.json"
    tool = "kafka-reassign-partitions.sh --bootstrap-server $BOOTSTRAP --reassignment-json-file move.json"
    copies = any(move.adding for move in moves.values())
    limit = f" --throttle {inputs.throttle_bytes_per_s}" if inputs.throttle_bytes_per_s and copies else ""
    yield f"{tool} --execute{limit}"
    yield f"{tool} --verify"
    if inputs.elect:
        yield (
            "kafka-leader-election.sh --bootstrap-server $BOOTSTRAP --election-type preferred "
            "--path-to-json-file move.json"
        )


def document(moves: Mapping[TopicPartition, PlannedMove]) -> dict[str, Any]:
    """The file that `kafka-reassign-partitions.sh` reads."""
    return {
        "version": 1,
        "partitions": [
            {"topic": tp.topic, "partition": tp.partition, "replicas": list(move.target)} for tp, move in moves.items()
        ],
    }


def _text(replicas: tuple[int, ...]) -> str:
    return ", ".join(map(str, replicas))
