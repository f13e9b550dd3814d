"""Every finished segment has all its objects, and every object belongs to a segment that is known and not deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from backend.engine.remote.manager.remote_log_manager import RemoteLogManager
from backend.engine.remote.metadata.metadata_topic import METADATA_TOPIC
from backend.engine.remote.storage.object_store_manager import SUFFIXES, object_key
from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.tiering.ids import TopicIdPartition
from backend.tiering.remote_keys import partition_folder
from backend.tiering.segment_state import SegmentState
from tests.simulation.checkers.checker import Checker, metadata_version
from tests.simulation.checkers.metadata_log import METADATA, read_metadata_log

if TYPE_CHECKING:
    from tests.simulation.world import World


class ObjectsAndMetadata(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        # Keys of a segment's objects, the log first.
        self._keys: dict[bytes, list[str]] = {}
        # The inputs of the last check of a partition in which everything was there.
        self._seen: dict[TopicIdPartition, tuple[Any, ...]] = {}

    def look(self) -> None:
        changes = self.world.objects.changes
        for node, remote, tip in self._tiered():
            depends_on = (node, changes, metadata_version(remote, tip))
            if self._seen.get(tip) != depends_on and self._check_partition(node, remote, tip):
                self._seen[tip] = depends_on

    def _tiered(self) -> Iterator[tuple[int, RemoteLogManager, TopicIdPartition]]:
        """The leader of each tiered partition that knows its segments."""
        for node, topic, _, replica in self.leaders():
            remote = self.world.brokers()[node].services.remote_log_manager
            tip = replica.topic_id_partition
            if topic.tiered and remote is not None and remote.is_ready(tip):
                yield node, remote, tip

    def _check_partition(self, node: int, remote: RemoteLogManager, tip: TopicIdPartition) -> bool:
        """Whether everything is there, and not on its way out only."""
        complete = True
        for segment in remote._tier.metadata.segments(tip):
            if segment.state is SegmentState.COPY_SEGMENT_FINISHED:
                complete &= self._check_objects(node, segment)
        return complete

    def _check_objects(self, node: int, segment: SegmentMetadata) -> bool:
        stored = self.world.objects.stored
        keys = self._keys.get(segment.segment_id)
        if keys is None:
            suffixes = [suffix for suffix in SUFFIXES if suffix != "txnindex" or not segment.txn_index_empty]
            keys = self._keys[segment.segment_id] = [object_key(segment, suffix) for suffix in suffixes]
        missing = [key for key in keys if key not in stored]
        if missing and not self._deletion_began(segment):
            raise self.violated(f"broker {node} knows {segment} as finished, but {missing} are not there")
        if keys[0] in stored and len(stored[keys[0]]) != segment.segment_size_bytes:
            raise self.violated(f"the log object of {segment} has {len(stored[keys[0]])} bytes")
        return not missing

    def _deletion_began(self, segment: SegmentMetadata) -> bool:
        """Some broker has it as being deleted already, or at least the topic; the news travels."""
        for broker in self.world.brokers().values():
            remote = broker.services.remote_log_manager
            tip = segment.topic_id_partition
            if remote is None or not remote.hosts(tip) or not remote.is_ready(tip):
                continue
            states = {metadata.segment_id: metadata.state for metadata in remote._tier.metadata.segments(tip)}
            if states.get(segment.segment_id) is not SegmentState.COPY_SEGMENT_FINISHED:
                return True
        # The broker that published it may host the partition no longer, before the others have read it.
        registration = self.world.registration(METADATA)
        if registration is None or self.world.replica(registration.leader, METADATA) is None:
            return True
        _, state = read_metadata_log(self.world).segments.get(segment.segment_id, (None, None))
        return state not in (None, SegmentState.COPY_SEGMENT_FINISHED)

    async def finish(self) -> None:
        self.look()
        by_id = {
            segment.segment_id: segment
            for _, remote, tip in self._tiered()
            for segment in remote._tier.metadata.segments(tip)
        }
        prefixes = {object_key(segment, "") for segment in by_id.values()}
        led = [replica.topic_id_partition for _, topic, _, replica in self.leaders() if topic.tiered]
        folders = tuple(partition_folder(tip) + "/" for tip in led)
        for key in self.world.objects.stored:
            if key.startswith(folders) and key.rpartition(".")[0] + "." not in prefixes:
                raise self.violated(f"object {key} belongs to no segment that the leader knows")
        segment_states = {
            object_key(segment, ""): state for segment, state in read_metadata_log(self.world).segments.values()
        }
        for key in self.world.objects.stored:
            state = segment_states.get(key.rpartition(".")[0] + ".")
            if state is None or state is SegmentState.DELETE_SEGMENT_FINISHED:
                raise self.violated(f"object {key} is there, but {METADATA_TOPIC} has its segment as {state}")
