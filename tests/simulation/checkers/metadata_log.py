"""The events of ``__remote_log_metadata`` from its first record on, read from its leader's own log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from backend.engine.remote.metadata.metadata_topic import METADATA_TOPIC
from backend.protocol.errors import DecodeError
from backend.protocol.record_batches.record_batch import iter_batches, iter_records
from backend.protocol.remote_log.metadata_serde import PartitionDelete, SegmentMetadata, SegmentUpdate, decode
from backend.tiering.ids import TopicIdPartition, TopicPartition
from backend.tiering.segment_state import PartitionDeleteState, SegmentState, is_legal, is_legal_delete

if TYPE_CHECKING:
    from tests.simulation.world import World

METADATA: Final = TopicPartition(METADATA_TOPIC, 0)
READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class MetadataLog:
    """Segments by id with their last state, deleted topics' among them; and deletions of partitions."""

    segments: dict[bytes, tuple[SegmentMetadata, SegmentState]] = field(default_factory=dict)
    deletions: dict[TopicIdPartition, PartitionDeleteState] = field(default_factory=dict)

    def apply(self, event: object) -> None:
        """Takes one event; what the life cycles do not allow changes nothing."""
        if isinstance(event, SegmentMetadata | SegmentUpdate):
            existing = self.segments.get(event.segment_id)
            # A segment that is gone is unknown: a broker whose copy came too late publishes its deletion again.
            before = None if existing is None or existing[1] is SegmentState.DELETE_SEGMENT_FINISHED else existing[1]
            if is_legal(before, event.state):
                segment = event if isinstance(event, SegmentMetadata) else self.segments[event.segment_id][0]
                self.segments[event.segment_id] = segment, event.state
        elif isinstance(event, PartitionDelete) and is_legal_delete(
            self.deletions.get(event.topic_id_partition), event.state
        ):
            self.deletions[event.topic_id_partition] = event.state


def read_metadata_log(world: World) -> MetadataLog:
    """Everything up to the high watermark; nothing where there is no such topic."""
    metadata_log = MetadataLog()
    registration = world.registration(METADATA)
    if registration is None:
        return metadata_log
    replica = world.replica(registration.leader, METADATA)
    assert replica is not None, f"{METADATA} has no leader in the end"
    log, offset = replica.log, replica.log.log_start_offset
    while offset < log.high_watermark:
        data = log.reader.read(offset, READ_BYTES, up_to_offset=log.high_watermark, min_one_message=True).records
        for position, header in iter_batches(data):
            offset = header.next_offset
            for record in iter_records(data, position):
                try:
                    metadata_log.apply(decode(record.value))
                except DecodeError:
                    # Of somebody else: every reader passes it by.
                    continue
    return metadata_log
