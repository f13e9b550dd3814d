"""How a metadata quorum goes on that has lost the majority of its voters for good: from which copy, and what is lost.

Kafka has no such command for `controller.quorum.voters`; etcd's is `etcdctl snapshot restore`. The decision is a
function of what lies in the data folder; `quorum_rewrite` carries it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from backend.data_folder.data_folder import ClusterIdentity, DataFolder
from backend.engine.common.topic_names import CLUSTER_METADATA_TOPIC
from backend.engine.controller.image.image_records import broker_record, partition_record
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.log.checkpoint_files import MalformedCheckpoint, decode_epochs, decode_partition_metadata
from backend.engine.log.file_names import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    parse_dir_name,
)
from backend.engine.replica.metadata_changes import is_ours
from backend.protocol import messages as m
from backend.protocol.messages import Message
from backend.supervisor.recovery.metadata_copies import MetadataCopy
from backend.tiering.ids import ZERO_UUID, TopicIdPartition

# A block has 1,000 ids. Blocks that were given out after the copy's last record must not be given out again: two
# producers would pass for one. A thousand blocks are more than a thousand starts of brokers or of busy producers.
PRODUCER_IDS_PASSED_OVER: Final = 1_000_000
# Offsets up to the newest that any file tells of are filled with NoOpRecords, of some 10 bytes: broker epochs are
# offsets, and must not come again. More are not the distance of a copy of the same cluster: 10 MB.
OFFSETS_PASSED_OVER_MAX: Final = 1_000_000


class RecoveryRefused(Exception):
    """Nothing was changed; one sentence with what to do."""


@dataclass(frozen=True, slots=True)
class LocalReplica:
    """A partition's folder in a broker's log directory. `leader_epoch`: the newest that its records have; -1 none."""

    node_id: int
    path: Path
    tip: TopicIdPartition
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """The steps of a recovery.

    `strays`: folders that the copy does not know, and that are kept; `surpassed`: partitions that have had leaders of
    which the copy knows nothing, with the newest leader epoch that was seen.
    """

    best: MetadataCopy
    copies: tuple[MetadataCopy, ...]
    voters: tuple[int, ...]
    epoch: int
    offsets_passed_over: int
    strays: tuple[LocalReplica, ...]
    surpassed: dict[TopicIdPartition, int]

    @property
    def newest_offset(self) -> int:
        """The end of the newest metadata that any file tells of."""
        return max(copy.newest_offset for copy in self.copies)

    @property
    def is_older(self) -> bool:
        """Whether something tells that there were changes after the copy's end."""
        return self.offsets_passed_over > 0 or bool(self.surpassed)

    @property
    def image(self) -> MetadataImage:
        """The metadata that is left."""
        assert self.best.image is not None, "only a usable copy is chosen"
        return self.best.image


def read_local_replicas(folder: DataFolder, identity: ClusterIdentity) -> tuple[LocalReplica, ...]:
    """All partitions' folders of all brokers. OSError."""
    nodes = range(1, identity.brokers + 1)
    return tuple(replica for node_id in nodes for replica in _replicas_of(node_id, folder.broker_log_dir(node_id)))


def _replicas_of(node_id: int, log_dir: Path) -> Iterator[LocalReplica]:
    for path in sorted(log_dir.iterdir()) if log_dir.is_dir() else ():
        tip = parse_dir_name(path.name)
        if tip is None or tip.topic == CLUSTER_METADATA_TOPIC or not path.is_dir():
            continue
        topic_id, epoch = ZERO_UUID, -1
        # A missing or damaged file is made again by its broker.
        try:
            topic_id = decode_partition_metadata((path / PARTITION_METADATA_FILE).read_bytes())
            epochs = decode_epochs((path / LEADER_EPOCH_FILE).read_bytes())
            epoch = max((epoch for epoch, _ in epochs), default=-1)
        except (FileNotFoundError, MalformedCheckpoint):
            pass
        yield LocalReplica(node_id, path, TopicIdPartition(tip.topic, topic_id, tip.partition), epoch)


def plan_recovery(copies: Sequence[MetadataCopy], replicas: Sequence[LocalReplica], *, interrupted: bool) -> Recovery:
    """From which copy the voters go on. RecoveryRefused.

    `interrupted`: a recovery was begun and did not end, so voters that are whole may not be of one quorum.
    """
    voters = tuple(copy.node_id for copy in copies if copy.votes)
    whole = [copy.node_id for copy in copies if copy.votes and copy.lost is None]
    if len(whole) > len(voters) // 2 and not interrupted:
        raise RecoveryRefused(
            f"{len(whole)} of {len(voters)} voters have all their metadata: they are a majority, and nothing needs to"
            " be given up. Start `ebbline up`; the others catch up by themselves."
        )
    usable = [copy for copy in copies if copy.usable]
    if not usable:
        raise RecoveryRefused(
            "No node has a metadata log that can be read, so there is nothing to go on from: put one voter's"
            " __cluster_metadata-0 back from its disk or from a backup."
        )
    best = max(usable, key=lambda copy: (copy.end, copy.votes, -copy.node_id))
    gap = max(copy.newest_offset for copy in copies) - best.end.offset
    if gap > OFFSETS_PASSED_OVER_MAX:
        raise RecoveryRefused(
            f"The best copy ends at offset {best.end.offset}, and {gap} offsets more were in use: that is no copy of"
            " this cluster's recent metadata. Put a newer one back from a disk or a backup."
        )
    assert best.image is not None, "it is usable"
    return Recovery(
        best,
        tuple(copies),
        voters,
        max(copy.newest_epoch for copy in copies) + 1,
        max(0, gap),
        tuple(replica for replica in replicas if not is_ours(best.image, replica.tip, replica.node_id)),
        _surpassed(best.image, replicas),
    )


def _surpassed(image: MetadataImage, replicas: Sequence[LocalReplica]) -> dict[TopicIdPartition, int]:
    epochs: dict[TopicIdPartition, int] = {}
    for replica in replicas:
        registration = image.partition(replica.tip.topic, replica.tip.partition)
        if registration is None or not is_ours(image, replica.tip, replica.node_id):
            continue
        tip = TopicIdPartition(replica.tip.topic, image.topic_ids[replica.tip.topic], replica.tip.partition)
        if replica.leader_epoch > max(registration.leader_epoch, epochs.get(tip, -1)):
            epochs[tip] = replica.leader_epoch
    return epochs


def records_to_append(plan: Recovery) -> list[Message]:
    """Records that keep numbers given out after the copy's last record from being given out again.

    The replicas in sync may have changed since as well. In an older copy the brokers so get an epoch that none of them
    has had: at their registration they count as stopped uncleanly (KIP-966), and the best log of a partition leads,
    whoever the copy takes to be in sync.
    """
    image = plan.image
    records: list[Message] = [m.NoOpRecord() for _ in range(plan.offsets_passed_over)]
    next_id = image.next_producer_id + PRODUCER_IDS_PASSED_OVER
    records.append(m.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=next_id))
    if plan.is_older:
        epoch = plan.newest_offset
        records += [broker_record(replace(broker, epoch=epoch)) for _, broker in sorted(image.brokers.items())]
    for tip, leader_epoch in plan.surpassed.items():
        registration = image.partition(tip.topic, tip.partition)
        assert registration is not None, "only partitions that the image has are listed"
        raised = replace(registration, leader_epoch=leader_epoch + 1, partition_epoch=registration.partition_epoch + 1)
        records.append(partition_record(tip.topic_id, tip.partition, raised))
    return records
