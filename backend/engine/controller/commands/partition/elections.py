"""Leader elections: asked for (ElectLeaders, KIP-460), and by the controller itself when brokers come and go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.command import ControllerResult, checked_result
from backend.engine.controller.commands.config.topic_settings import effective_min_isr, unclean_election_enabled
from backend.engine.controller.commands.partition.eligible_leader_replicas import NOBODY
from backend.engine.controller.commands.partition.partition_change import Election, LogEnds, change_record, target_of
from backend.engine.controller.image.metadata_image import NO_LEADER, MetadataImage, PartitionRegistration, TopicImage
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.messages import Message

PREFERRED: Final = 0
UNCLEAN: Final = 1
# ReplicationControlManager.MAX_ELECTIONS_PER_IMBALANCE: the rest waits for the next turn.
REBALANCED_PARTITIONS_MAX: Final = 1000

# A partition by its topic and index.
LocatedPartition = tuple[TopicImage, int, PartitionRegistration]

_Result = m.ElectLeadersResponse.ReplicaElectionResults
_PartitionResult = _Result.PartitionResult
_TEXTS: Final = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}


def elect_leaders(
    image: MetadataImage,
    request: m.ElectLeadersRequest,
    config: BrokerConfig,
    log_ends: Mapping[tuple[bytes, int], LogEnds] | None = None,
) -> ControllerResult[m.ElectLeadersResponse]:
    """Partitions named, or all; of all, those that need no election are left out of the answer.

    `log_ends`: what live replicas say of their logs, by topic id and partition; an unclean election takes the best.
    """
    if request.election_type not in (PREFERRED, UNCLEAN):
        return checked_result([], m.ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST))
    records: list[Message] = []
    response = m.ElectLeadersResponse()
    everything = request.topic_partitions is None
    for topic, index in _asked_partitions(image, request):
        record, result = _elect(image, config, topic, index, request.election_type, log_ends or {})
        if not response.replica_election_results or response.replica_election_results[-1].topic != topic:
            response.replica_election_results.append(_Result(topic=topic))
        if everything and result.error_code == ErrorCode.ELECTION_NOT_NEEDED:
            continue
        if record is not None:
            records.append(record)
        response.replica_election_results[-1].partition_result.append(result)
    # All partitions of a large cluster may need one: each election stands by itself.
    return ControllerResult(tuple(records), response)


def leaderless_in_request(image: MetadataImage, request: m.ElectLeadersRequest) -> list[LocatedPartition]:
    """Partitions without a leader that the request names."""
    if request.election_type != UNCLEAN:
        return []
    if request.topic_partitions is None:
        return list(leaderless(image))
    located = []
    for name, index in _asked_partitions(image, request):
        topic = image.topic(name)
        partition = topic.partitions.get(index) if topic else None
        if topic is not None and partition is not None and partition.leader == NO_LEADER:
            located.append((topic, index, partition))
    return located


def _asked_partitions(image: MetadataImage, request: m.ElectLeadersRequest) -> Iterator[tuple[str, int]]:
    if request.topic_partitions is None:
        for topic in sorted(image.topics.values(), key=lambda topic: topic.name):
            for index in sorted(topic.partitions):
                yield topic.name, index
    else:
        for request_topic in request.topic_partitions:
            for index in request_topic.partitions:
                yield request_topic.topic, index


def _elect(
    image: MetadataImage,
    config: BrokerConfig,
    topic_name: str,
    index: int,
    kind: int,
    log_ends: Mapping[tuple[bytes, int], LogEnds],
) -> tuple[m.PartitionChangeRecord | None, _PartitionResult]:
    topic = image.topic(topic_name)
    partition = topic.partitions.get(index) if topic else None
    if topic is None or partition is None:
        what = f"No such topic as {topic_name}" if topic is None else f"No such partition as {topic_name}-{index}"
        return None, _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
    needed = partition.leader == NO_LEADER if kind == UNCLEAN else partition.leader != partition.preferred_leader
    if not needed:
        return None, _refused(index, ErrorCode.ELECTION_NOT_NEEDED)
    record = change_record(
        image,
        topic.id,
        index,
        partition,
        replace(target_of(partition), log_ends=log_ends.get((topic.id, index), {}), any_log=kind == UNCLEAN),
        min_isr=effective_min_isr(image, config, topic_name),
        acceptable=image.is_active,
        election=Election.UNCLEAN if kind == UNCLEAN else Election.PREFERRED,
    )
    if record is not None:
        return record, _PartitionResult(partition_id=index, error_message=None)
    if kind == PREFERRED:
        return None, _refused(index, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    return None, _refused(index, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)


def _refused(index: int, code: ErrorCode, message: str | None = None) -> _PartitionResult:
    return _PartitionResult(partition_id=index, error_code=code, error_message=message or _TEXTS[code])


def all_partitions(image: MetadataImage) -> Iterator[LocatedPartition]:
    """Every partition, by topic name and index."""
    for name in sorted(image.topic_ids):
        yield from partitions_of(image, name)


def partitions_of(image: MetadataImage, name: str) -> Iterator[LocatedPartition]:
    """A topic's partitions by index; none when there is no such topic."""
    topic = image.topic(name)
    if topic is not None:
        for index, partition in sorted(topic.partitions.items()):
            yield topic, index, partition


def leader_and_isr_changes(
    image: MetadataImage,
    config: BrokerConfig,
    partitions: Iterable[LocatedPartition],
    *,
    remove: int | None = None,
    add: int | None = None,
    unclean: int | None = None,
    forget: int | None = None,
) -> list[m.PartitionChangeRecord]:
    """Changes of partitions because a broker comes or goes (generateLeaderAndIsrUpdates).

    `remove` leaves every ISR and cannot lead, whatever the image says of it; `add` can lead although still fenced;
    `unclean` and `forget` leave every ISR and ELR and cannot lead, `forget` is not remembered either.
    """
    leaving = {broker_id for broker_id in (remove, unclean, forget) if broker_id is not None}

    def acceptable(broker: int) -> bool:
        return broker not in leaving and (broker == add or image.is_active(broker))

    records = []
    settings: dict[bytes, tuple[Election, int]] = {}
    for topic, index, partition in partitions:
        if topic.id not in settings:
            settings[topic.id] = election_settings(image, config, topic.name)
        election, min_isr = settings[topic.id]
        target = replace(
            target_of(partition),
            isr=tuple(member for member in partition.isr if member not in leaving),
            unclean=_only(unclean),
            forgotten=_only(forget),
        )
        record = change_record(
            image,
            topic.id,
            index,
            partition,
            target,
            min_isr=min_isr,
            acceptable=acceptable,
            election=election,
        )
        if record is not None:
            records.append(record)
    return records


def _only(broker: int | None) -> Collection[int]:
    return NOBODY if broker is None else (broker,)


def election_settings(image: MetadataImage, config: BrokerConfig, topic: str) -> tuple[Election, int]:
    """The kind of election that a topic's settings allow, and its effective `min.insync.replicas`."""
    unclean = unclean_election_enabled(image, config, topic)
    return Election.UNCLEAN if unclean else Election.ONLINE, effective_min_isr(image, config, topic)


def in_isr(image: MetadataImage, broker: int) -> Iterator[LocatedPartition]:
    """Partitions that have the broker in their ISR."""
    return (located for located in all_partitions(image) if broker in located[2].isr)


def in_isr_or_elr(image: MetadataImage, broker: int) -> Iterator[LocatedPartition]:
    """Partitions that the broker may lead as far as metadata says."""
    return (located for located in all_partitions(image) if broker in located[2].isr or broker in located[2].elr)


def in_isr_or_any_elr(image: MetadataImage, broker: int) -> Iterator[LocatedPartition]:
    """Partitions that have the broker in ISR, ELR or last known ELR."""
    return (
        located
        for located in all_partitions(image)
        if broker in located[2].isr or broker in located[2].elr or broker in located[2].last_known_elr
    )


def leaderless(image: MetadataImage) -> Iterator[LocatedPartition]:
    """Partitions without a leader."""
    return (located for located in all_partitions(image) if located[2].leader == NO_LEADER)


def leads_any(image: MetadataImage, broker: int) -> bool:
    """Whether the broker leads a partition."""
    return any(partition.leader == broker for topic in image.topics.values() for partition in topic.partitions.values())


def rebalance_leaders(image: MetadataImage, config: BrokerConfig) -> ControllerResult[None]:
    """Leadership back to preferred replicas that can take it (auto.leader.rebalance.enable)."""
    records: list[Message] = []
    for topic, index, partition in all_partitions(image):
        if partition.leader == partition.preferred_leader or len(records) >= REBALANCED_PARTITIONS_MAX:
            continue
        record = change_record(
            image,
            topic.id,
            index,
            partition,
            target_of(partition),
            min_isr=effective_min_isr(image, config, topic.name),
            acceptable=image.is_active,
            election=Election.PREFERRED,
        )
        if record is not None:
            records.append(record)
    return checked_result(records, None)


def elect_unclean(image: MetadataImage, config: BrokerConfig) -> ControllerResult[None]:
    """Leaders for leaderless partitions of topics whose settings (now) allow an unclean election."""
    return ControllerResult(tuple(leader_and_isr_changes(image, config, leaderless(image))), None)
