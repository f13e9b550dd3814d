"""Kind `reassign`: add, remove and move replicas, change the replication factor, drain brokers, spread or swap leaders.

Carried out in steps (`lasting`): limits first, then a batch of partitions at a time; each step looks at the cluster and
asks for what is still missing, so that it may be repeated after a crash at any point.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from pydantic import BaseModel

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import sentence
from backend.control.gateway.requests.election_requests import elect_preferred
from backend.control.gateway.requests.metadata_requests import ClusterView, fetch_brokers, fetch_cluster
from backend.control.gateway.requests.reassignment_requests import Move, alter_reassignments, list_reassignments
from backend.control.operations.lifecycle.plan_draft import Change, Draft, Json, Verification
from backend.control.operations.operation_errors import InvalidInput
from backend.control.operations.operation_kind import Course, Site, Step
from backend.control.operations.reassign import reassignment_texts, replica_placement, replication_throttles
from backend.control.operations.reassign.partition_moves import Aim, Now, Standing, next_batch, standings, way_back
from backend.control.operations.reassign.reassignment_inputs import PARTITIONS_MAX, Assignment, ReassignInputs
from backend.control.operations.reassign.reassignment_progress import progress_of
from backend.control.operations.reassign.reassignment_review import gather
from backend.control.operations.reassign.replication_throttles import Throttles
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition, uuid_text

# The whole command is shown up to here (70 bytes a partition); beyond, `ebbline export` writes the file.
SHOWN_MAX: Final = 200


class Reassign:
    """See `kinds.LastingKind`."""

    name = "reassign"
    inputs: type[BaseModel] = ReassignInputs
    exclusive: ClassVar[bool] = True

    async def settle(self, site: Site, inputs: ReassignInputs) -> ReassignInputs:
        """The replica list of every partition concerned."""
        if inputs.assignments:
            return inputs
        view = await fetch_cluster(site.gateway, lane=Lane.ACT)
        replicas = {p.topic_partition: p.replicas for p in view.partitions}
        chosen = _chosen(inputs, replicas)
        places = [replica_placement.BrokerPlace(b.broker_id, b.rack) for b in view.brokers]
        layout = replica_placement.Layout.of(replicas, places)
        try:
            targets = _targets(inputs, layout, chosen)
        except replica_placement.Impossible as error:
            raise InvalidInput(str(error)) from error
        kept = {tp: target for tp, target in targets.items() if target != replicas[tp]} or targets
        if not kept:
            raise InvalidInput("Nothing of what was selected is concerned: select other topics or brokers.")
        if len(kept) > PARTITIONS_MAX:
            raise InvalidInput(f"{len(kept)} partitions would move, a plan may have {PARTITIONS_MAX}: select topics.")
        assignments = [
            Assignment(topic=tp.topic, partition=tp.partition, replicas=list(target)) for tp, target in kept.items()
        ]
        return inputs.model_copy(update={"assignments": assignments})

    async def snapshot(self, site: Site, inputs: ReassignInputs) -> Json:
        """Replica lists, moves and throttles now; under "seen" leaders, ISRs and brokers."""
        now = await _now(site)
        missing = [tp for tp in inputs.targets if tp not in now]
        if missing:
            tp = missing[0]
            raise InvalidInput(f"There is no partition {tp.topic}-{tp.partition}: look at the topic's partitions.")
        concerned = {tp: now[tp] for tp in inputs.targets}
        brokers = {b for tp, found in concerned.items() for b in (*found.replicas, *inputs.targets[tp])}
        registered = await fetch_brokers(site.gateway)
        known = {b.broker_id for b in registered}
        set_now = await replication_throttles.read(
            site.gateway, {tp.topic for tp in concerned}, map(str, brokers & known)
        )
        return {
            "partitions": {
                f"{tp.topic}-{tp.partition}": {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "topic_id": found.topic_id,
                    "replicas": list(found.replicas),
                    "adding": list(found.adding),
                    "removing": list(found.removing),
                }
                for tp, found in concerned.items()
            },
            "throttles": set_now.json(),
            "seen": {
                "brokers": [
                    {"broker_id": b.broker_id, "rack": b.rack, "alive": b.broker_id in site.gateway.brokers}
                    for b in registered
                ],
                "partitions": {
                    f"{tp.topic}-{tp.partition}": {"leader": found.leader, "isr": list(found.isr)}
                    for tp, found in concerned.items()
                },
            },
        }

    async def draft(self, site: Site, inputs: ReassignInputs, snapshot: Json) -> Draft:
        found = _aims(inputs, snapshot)
        judged = await gather(site, inputs, snapshot, found)
        words = reassignment_texts.words(site.cluster_name, inputs, found, judged.estimate, judged.leaders_change)
        return Draft(
            object=reassignment_texts.object_of(inputs, found),
            changes=tuple(
                Change(f"{tp.topic}-{tp.partition}", "replicas", _text(aim.before), _text(aim.target))
                for tp, aim in found.items()
                if aim.before != aim.target
            )[:PARTITIONS_MAX],
            checks=tuple(judged.checks),
            cli=tuple(cli(inputs, found)),
            words=words,
            estimate=judged.estimate,
            extra={
                "lines": reassignment_texts.lines(found),
                "load": judged.load,
                "leaders_change": judged.leaders_change,
            },
        )

    async def step(self, site: Site, inputs: ReassignInputs, snapshot: Json, course: Course) -> Step:
        """One look, and at most one request for partitions."""
        found = _aims(inputs, snapshot)
        now = await _now(site)
        refused: dict[str, str] = dict(course.progress.get("refused", {}))
        stand = standings(found, now, {tp for tp in found if f"{tp.topic}-{tp.partition}" in refused})
        ask = way_back(found, now, stand) if course.stopping else next_batch(found, stand, at_once=inputs.at_once)
        if course.paused and not course.stopping:
            ask = next_batch(found, stand, at_once=0)
        moving = Standing.MOVING in stand.values()
        limit = await self._limit(site, inputs, snapshot, found, course, needed=moving or bool(ask.assign))
        if not ask.nothing:
            wanted: dict[TopicPartition, tuple[int, ...] | None] = dict.fromkeys(ask.cancel)
            wanted |= ask.assign
            errors = await alter_reassignments(site.gateway, wanted)
            refused |= {
                f"{tp.topic}-{tp.partition}": sentence(error)
                for tp, error in errors.items()
                if error.code != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            }
            now = await _now(site)
            stand = standings(found, now, {tp for tp in found if f"{tp.topic}-{tp.partition}" in refused})
        progress = await progress_of(site, found, now, stand, course.progress) | {"refused": refused}
        progress["limit"] = limit
        return await self._judge(site, inputs, found, now, stand, progress, course)

    async def _judge(
        self,
        site: Site,
        inputs: ReassignInputs,
        found: Mapping[TopicPartition, Aim],
        now: Mapping[TopicPartition, Now],
        stand: Mapping[TopicPartition, Standing],
        progress: Json,
        course: Course,
    ) -> Step:
        moving = Standing.MOVING in stand.values()
        if course.stopping:
            back = way_back(found, now, stand)
            text = reassignment_texts.stopped(stand)
            return Step(progress, finished=back.nothing and not moving, done=False, sentence=text)
        finished = not moving and Standing.WAITING not in stand.values()
        if finished and inputs.elect:
            refused = await _elect(site, found, now, stand)
            progress = progress | {"not_elected": refused}
        done = finished and all(state is Standing.DONE for state in stand.values())
        text = reassignment_texts.standing_text(stand, progress)
        return Step(progress, finished=finished, done=done, sentence=text)

    async def _limit(
        self,
        site: Site,
        inputs: ReassignInputs,
        snapshot: Json,
        found: Mapping[TopicPartition, Aim],
        course: Course,
        *,
        needed: bool,
    ) -> int | None:
        """Sets the limits before anything moves, puts them back while nothing does. The limit in force then."""
        bytes_per_s = course.throttle_bytes_per_s or inputs.throttle_bytes_per_s
        before = Throttles.of(snapshot["throttles"])
        if needed and bytes_per_s is not None and not course.stopping:
            # Kafka does not tell the rates that are set, so they are set again only when they are to be others.
            known = course.progress.get("limit") == bytes_per_s
            wanted = replication_throttles.wanted(before, found, bytes_per_s)
            await replication_throttles.bring_to(site.gateway, wanted, trust_hidden=known)
            return bytes_per_s
        if not needed and course.paused:
            await replication_throttles.bring_to(site.gateway, before)
            return None
        in_force: int | None = course.progress.get("limit")
        return in_force

    async def clean(self, site: Site, inputs: ReassignInputs, snapshot: Json) -> str:
        """All limits as they were before the plan; a broker that is away keeps its own. Kafka goes on with what moves
        when the plan could not.
        """
        await fetch_cluster(site.gateway, lane=Lane.ACT)
        found, before = _aims(inputs, snapshot), Throttles.of(snapshot["throttles"])
        await replication_throttles.bring_to(site.gateway, before, surely=True)
        limited = replication_throttles.wanted(before, found, inputs.throttle_bytes_per_s or 0).brokers
        away = [broker for broker in limited if int(broker) not in site.gateway.brokers]
        try:
            stand = standings(found, await _now(site))
        except (GatewayError, KafkaError):
            stand = {}  # the limits are gone; what Kafka does not tell stands in the plan's own sentence
        return reassignment_texts.left_behind(stand, [] if inputs.throttle_bytes_per_s is None else away)

    async def verify(self, site: Site, inputs: ReassignInputs, snapshot: Json) -> Verification:
        found = _aims(inputs, snapshot)
        stand = standings(found, await _now(site))
        done = all(state is Standing.DONE for state in stand.values())
        return Verification(done, reassignment_texts.standing_text(stand, {}))

    def revert_inputs(self, inputs: ReassignInputs, snapshot: Json) -> Mapping[str, object]:
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
        return [tp for tp, found in replicas.items() if concerned is None or concerned & set(found)]
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
    inputs: ReassignInputs, layout: replica_placement.Layout, chosen: list[TopicPartition]
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


def _aims(inputs: ReassignInputs, snapshot: Json) -> dict[TopicPartition, Aim]:
    targets = inputs.targets
    return {
        tp: Aim(part["topic_id"], tuple(part["replicas"]), targets[tp])
        for part in snapshot["partitions"].values()
        for tp in (TopicPartition(part["topic"], part["partition"]),)
    }


async def _now(site: Site) -> dict[TopicPartition, Now]:
    """Every partition of the cluster. Moves are asked for first: one that ends in between is then seen as moving."""
    moves = await list_reassignments(site.gateway, lane=Lane.ACT)
    view = await fetch_cluster(site.gateway, lane=Lane.ACT)
    return _joined(view, moves)


def _joined(view: ClusterView, moves: Mapping[TopicPartition, Move]) -> dict[TopicPartition, Now]:
    none = Move((), (), ())
    found = {}
    for p in view.partitions:
        move = moves.get(p.topic_partition, none)
        replicas = move.replicas or p.replicas
        found[p.topic_partition] = Now(
            uuid_text(p.topic_id), tuple(replicas), move.adding, move.removing, p.isr, p.leader
        )
    return found


async def _elect(
    site: Site,
    found: Mapping[TopicPartition, Aim],
    now: Mapping[TopicPartition, Now],
    stand: Mapping[TopicPartition, Standing],
) -> dict[str, str]:
    """Makes the first replicas leaders; why not, by partition."""
    wanted = [tp for tp, aim in found.items() if stand[tp] is Standing.DONE and now[tp].leader != aim.target[0]]
    if not wanted:
        return {}
    errors = await elect_preferred(site.gateway, wanted)
    return {f"{tp.topic}-{tp.partition}": sentence(error) for tp, error in errors.items()}


def cli(inputs: ReassignInputs, found: Mapping[TopicPartition, Aim]) -> Iterable[str]:
    """The same with Kafka's own tools."""
    if len(found) <= SHOWN_MAX:
        yield f"echo '{json.dumps(document(found), separators=(',', ':'))}' > move.json"
    else:
        yield "ebbline export PLAN > move.json"
    tool = "kafka-reassign-partitions.sh --bootstrap-server $BOOTSTRAP --reassignment-json-file move.json"
    copies = any(aim.adding for aim in found.values())
    limit = f" --throttle {inputs.throttle_bytes_per_s}" if inputs.throttle_bytes_per_s and copies else ""
    yield f"{tool} --execute{limit}"
    yield f"{tool} --verify"
    if inputs.elect:
        yield (
            "kafka-leader-election.sh --bootstrap-server $BOOTSTRAP --election-type preferred "
            "--path-to-json-file move.json"
        )


def document(found: Mapping[TopicPartition, Aim]) -> dict[str, Any]:
    """The file that `kafka-reassign-partitions.sh` reads."""
    return {
        "version": 1,
        "partitions": [
            {"topic": tp.topic, "partition": tp.partition, "replicas": list(aim.target)} for tp, aim in found.items()
        ],
    }


def _text(replicas: tuple[int, ...]) -> str:
    return ", ".join(map(str, replicas))
