"""The controller's part in removing remote data of deleted topics (KIP-405, "Topic deletion lifecycle").

Publishes DELETE_PARTITION_MARKED for every partition of a deleted tiered topic once none of its replicas is online; the
partition remover of the broker that leads that partition of ``__remote_log_metadata`` does the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from backend.engine.controller.commands.command import checked_result
from backend.engine.controller.metadata.topic_deletions import DeletedPartition
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Clock, tasks
from backend.engine.remote.metadata.metadata_scan import MetadataScan
from backend.engine.remote.metadata.metadata_topic import METADATA_TOPIC, MetadataTopic
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.protocol.remote_log.metadata_serde import PartitionDelete, decode, encode, metadata_partition
from backend.tiering.ids import TopicIdPartition
from backend.tiering.segment_state import PartitionDeleteState

CHECK_MS: Final = 1000
RETRY_MS: Final = 2000

_log = logging.getLogger(__name__)


class PartitionMarker:
    """Runs on the node of the active controller."""

    def __init__(
        self,
        controller: Controller,
        topic: MetadataTopic,
        scan: MetadataScan,
        *,
        node_id: int,
        clock: Clock,
        delete_vanished: bool,
    ) -> None:
        self._controller = controller
        self._topic = topic
        self._scan = scan
        self._node_id = node_id
        self._clock = clock
        self._delete_vanished = delete_vanished
        # Snapshots that the controller had loaded when its image was last compared with the metadata topic.
        self._compared = 0

    async def run(self) -> None:
        """Looks again and again until it is cancelled."""
        while True:
            pause_ms = CHECK_MS
            try:
                await self._compare()
                await self._mark(self._controller.deleted_partitions_offline())
            except (KafkaError, OSError) as error:
                _log.warning("Deleted partitions cannot be marked on %s yet: %s", METADATA_TOPIC, error)
                pause_ms = RETRY_MS
            except Exception:
                # After an error of any kind the deletions that are not marked yet are still in the list.
                _log.exception("Deleted partitions could not be marked on %s", METADATA_TOPIC)
                pause_ms = RETRY_MS
            await tasks.sleep_ms(pause_ms)

    async def _compare(self) -> None:
        """Finds the deletions that a loaded snapshot hides: partitions of topics that are not there any more, with
        segments and without a mark on the metadata topic. Reads that topic whole, once for each snapshot loaded.
        """
        controller = self._controller
        loaded = controller.snapshots_loaded
        topic = controller.image.topic(METADATA_TOPIC)
        if loaded == self._compared or topic is None or not controller.is_active:
            return
        for target in topic.partitions:
            offset_ranges = await self._scan.offset_ranges([target])
            if target not in offset_ranges:
                raise KafkaError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"{METADATA_TOPIC}-{target} has no leader that answers"
                )
            mentioned = await self._scan.mentioned_partitions(target, offset_ranges[target])
            unmarked = [tip for tip, is_marked in mentioned.items() if not is_marked]
            # By a command, whose image has all that was ever committed, and after the reading: a topic is in the image
            # before it has a segment.
            image = await controller.submit("look for deleted topics", lambda image: checked_result((), image))
            if self._delete_vanished:
                for tip in controller.topic_deletions.add_vanished(unmarked, image):
                    _log.warning("The topic of %s was deleted before a snapshot; its remote data will go", tip)
                continue
            for tip in controller.topic_deletions.vanished(unmarked, image):
                _log.warning(
                    "The cluster does not know the topic of %s, which has remote data: it was deleted before a"
                    " snapshot, or its records come from another cluster. The data stays;"
                    " ebbline.delete.vanished.topics=true has it deleted",
                    tip,
                )
        self._compared = loaded

    async def _mark(self, removed: Sequence[DeletedPartition]) -> None:
        topic = self._controller.image.topic(METADATA_TOPIC)
        by_target: dict[int, list[DeletedPartition]] = {}
        for deleted in removed:
            if topic is None:
                # Nothing was ever copied.
                self._controller.topic_deletions.mark_informed(deleted.tip)
            else:
                target = metadata_partition(deleted.tip.topic_id, deleted.tip.partition, len(topic.partitions))
                by_target.setdefault(target, []).append(deleted)
        for target, partitions in by_target.items():
            replayed = any(deleted.replayed for deleted in partitions)
            marked = await self._marked_before(target) if replayed else frozenset()
            for deleted in partitions:
                if deleted.tip not in marked:
                    await self._publish(target, deleted.tip)
                self._controller.topic_deletions.mark_informed(deleted.tip)

    async def _publish(self, target: int, tip: TopicIdPartition) -> None:
        state = PartitionDeleteState.DELETE_PARTITION_MARKED
        await self._topic.produce(target, encode(PartitionDelete(tip, self._node_id, self._clock.time_ms(), state)))
        _log.info("Marked deleted partition %s on %s-%d: its remote data will go", tip, METADATA_TOPIC, target)

    async def _marked_before(self, target: int) -> frozenset[TopicIdPartition]:
        """Partitions that an earlier life of the controller, or an earlier controller, has marked."""
        marked: set[TopicIdPartition] = set()
        offset_ranges = await self._scan.offset_ranges([target])
        if target not in offset_ranges:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{METADATA_TOPIC}-{target} has no leader that answers")
        async for records in self._scan.records(target, offset_ranges[target]):
            for record in records:
                try:
                    event = None if record.value is None else decode(record.value)
                except DecodeError:
                    continue
                if isinstance(event, PartitionDelete):
                    marked.add(event.topic_id_partition)
        return frozenset(marked)
