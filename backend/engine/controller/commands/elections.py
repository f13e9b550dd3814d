"""Leader elections: asked for (ElectLeaders, KIP-460), and by the controller itself when brokers come and go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.outcome import Outcome, outcome
from backend.engine.controller.commands.partition_change import Election, change_record, target_of
from backend.engine.controller.commands.topic_settings import unclean_election_enabled
from backend.engine.controller.image import NO_LEADER, MetadataImage, PartitionRegistration, TopicImage
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.messages import Message

PREFERRED: Final = 0
UNCLEAN: Final = 1
# ReplicationControlManager.MAX_ELECTIONS_PER_IMBALANCE: the rest waits for the next turn.
REBALANCED_PARTITIONS_MAX: Final = 1000

_Result = m.ElectLeadersResponse.ReplicaElectionResults
_PartitionResult = _Result.PartitionResult
_TEXTS: Final = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}


def elect_leaders(image: MetadataImage, request: m.ElectLeadersRequest) -> Outcome[m.ElectLeadersResponse]:
    """Partitions named, or all; of all, those that need no election are left out of the answer."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        return outcome([], m.ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST))
    records: list[Message] = []
    response = m.ElectLeadersResponse()
    everything = request.topic_partitions is None
    for topic, index in _asked_partitions(image, request):
        record, answer = _elect(image, topic, index, request.election_type)
        if not response.replica_election_results or response.replica_election_results[-1].topic != topic:
            response.replica_election_results.append(_Result(topic=topic))
        if everything and answer.error_code == ErrorCode.ELECTION_NOT_NEEDED:
            continue
        if record is not None:
            records.append(record)
        response.replica_election_results[-1].partition_result.append(answer)
    # All partitions of a large cluster may need one: each election stands by itself.
    return Outcome(tuple(records), response)


def _asked_partitions(image: MetadataImage, request: m.ElectLeadersRequest) -> Iterator[tuple[str, int]]:
    if request.topic_partitions is None:
        for topic in sorted(image.topics.values(), key=lambda topic: topic.name):
            for index in sorted(topic.partitions):
                yield topic.name, index
    else:
        for asked in request.topic_partitions:
            for index in asked.partitions:
                yield asked.topic, index


def _elect(
    image: MetadataImage, topic_name: str, index: int, kind: int
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
        target_of(partition),
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


def all_partitions(image: MetadataImage) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
    """Every partition, by topic name and index."""
    for topic in sorted(image.topics.values(), key=lambda topic: topic.name):
        for index, partition in sorted(topic.partitions.items()):
            yield topic, index, partition


def leader_and_isr_changes(
    image: MetadataImage,
    config: BrokerConfig,
    partitions: Iterable[tuple[TopicImage, int, PartitionRegistration]],
    *,
    remove: int | None = None,
    add: int | None = None,
) -> list[m.PartitionChangeRecord]:
    """What brokers coming and going means for partitions (generateLeaderAndIsrUpdates).

    `remove` leaves every ISR and cannot lead, whatever the image says of it; `add` can lead although still fenced.
    """

    def acceptable(broker: int) -> bool:
        return broker != remove and (broker == add or image.is_active(broker))

    records = []
    unclean: dict[bytes, bool] = {}
    for topic, index, partition in partitions:
        if topic.id not in unclean:
            unclean[topic.id] = unclean_election_enabled(image, config, topic.name)
        target = replace(target_of(partition), isr=tuple(member for member in partition.isr if member != remove))
        record = change_record(
            image,
            topic.id,
            index,
            partition,
            target,
            acceptable=acceptable,
            election=Election.UNCLEAN if unclean[topic.id] else Election.ONLINE,
        )
        if record is not None:
            records.append(record)
    return records


def in_isr(image: MetadataImage, broker: int) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
    """Partitions that have the broker in their ISR."""
    return (found for found in all_partitions(image) if broker in found[2].isr)


def leaderless(image: MetadataImage) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
    """Partitions that nobody leads."""
    return (found for found in all_partitions(image) if found[2].leader == NO_LEADER)


def leads_any(image: MetadataImage, broker: int) -> bool:
    """Whether the broker leads a partition."""
    return any(partition.leader == broker for topic in image.topics.values() for partition in topic.partitions.values())


def rebalance_leaders(image: MetadataImage) -> Outcome[None]:
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
            acceptable=image.is_active,
            election=Election.PREFERRED,
        )
        if record is not None:
            records.append(record)
    return outcome(records, None)


def elect_unclean(image: MetadataImage, config: BrokerConfig) -> Outcome[None]:
    """Leaders for leaderless partitions of topics whose settings (now) allow an unclean election."""
    return Outcome(tuple(leader_and_isr_changes(image, config, leaderless(image))), None)
