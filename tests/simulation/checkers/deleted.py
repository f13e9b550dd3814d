"""Of a topic that was deleted nothing stays in the remote tier: after the faults have stopped its objects go within a
bounded virtual time, and the metadata topic tells every step to its end (KIP-405, "Topic deletion lifecycle").

Where a metadata snapshot has swallowed the deletion, brokers name the partition and leave its data, unless
``ebbline.delete.vanished.topics`` is on: the run then does the operator's steps.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from backend.engine.remote.manager.partition_remover import COPY_GRACE_MS
from backend.tiering.ids import TopicIdPartition
from backend.tiering.remote_keys import partition_folder
from backend.tiering.segment_state import PartitionDeleteState, SegmentState
from tests.simulation.checkers.checker import Checker, hosted_metadata
from tests.simulation.checkers.metadata_log import read_metadata_log
from tests.simulation.world import CONTROLLER

if TYPE_CHECKING:
    from backend.engine.controller.image.metadata_image import MetadataImage
    from tests.simulation.world import World

# The marking and the removing task run again after 2 s at the latest, and a restart of the controller takes a few.
REMOVAL_MS_MAX: Final = 20_000.0
LOOK_S: Final = 0.5
DELETE_VANISHED: Final = "ebbline.delete.vanished.topics"


class DeletedTopicsLeaveNothing(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._is_requested = False

    async def finish(self) -> None:
        loop = self.world.loop
        started_ms = loop.now_ms
        bound_ms = REMOVAL_MS_MAX + (COPY_GRACE_MS if self._copy_has_no_end() else 0)
        while (left := self._left()) is not None:
            if loop.now_ms - started_ms > bound_ms:
                raise self.violated(f"{bound_ms / 1000:.0f} s after the recovery {left}")
            if self._may_be_left():
                await self._have_it_deleted()
            await asyncio.sleep(LOOK_S)
        self.world.trace.note(f"nothing of deleted topics is left after {loop.now_ms - started_ms:.0f} ms")

    def _copy_has_no_end(self) -> bool:
        """Whether a broker went away while it copied into a topic that was deleted: its objects are waited for."""
        image = self.world.image
        return image is None or any(
            state is SegmentState.COPY_SEGMENT_STARTED and segment.topic_id_partition.topic_id not in image.topics
            for segment, state in read_metadata_log(self.world).segments.values()
        )

    def _left(self) -> str | None:
        """The remains of a topic that is deleted."""
        image = self.world.image
        if image is None:
            return "there is no controller"
        log = read_metadata_log(self.world)
        for segment, state in log.segments.values():
            if segment.topic_id_partition.topic_id not in image.topics and state is not _GONE:
                return f"{segment} of a deleted topic is {state.name}; its partition: {log.deletions}"
        for tip in {segment.topic_id_partition for segment, _ in log.segments.values()}:
            if tip.topic_id not in image.topics and log.deletions.get(tip) is not _FINISHED:
                return f"the deletion of {tip} is told as {log.deletions.get(tip)}"
        return self._left_object(image) or self._left_memory(image)

    def _left_object(self, image: MetadataImage) -> str | None:
        living = tuple(
            partition_folder(TopicIdPartition(topic.name, topic.id, index)) + "/"
            for topic in image.topics.values()
            for index in topic.partitions
        )
        return next((f"{key} is stored" for key in self.world.objects.stored if not key.startswith(living)), None)

    def _left_memory(self, image: MetadataImage) -> str | None:
        for node, hosted in hosted_metadata(self.world):
            for tip in hosted:
                if tip.topic_id not in image.topics:
                    return f"broker {node} still keeps the metadata of {tip}"
        return None

    # Deletions that a snapshot contains

    def _may_be_left(self) -> bool:
        """Whether the controller began with a snapshot, and keeps topics that it does not contain."""
        if self._is_requested or self.world.machines[CONTROLLER].properties[DELETE_VANISHED] == "true":
            return False
        image, log = self.world.image, read_metadata_log(self.world)
        assert image is not None
        topic_id_partitions = {segment.topic_id_partition for segment, _ in log.segments.values()}
        controller = self.world.controller
        assert controller is not None
        unmarked = [tip for tip in topic_id_partitions if tip not in log.deletions]
        return bool(controller.snapshots_loaded and controller.topic_deletions.vanished(unmarked, image))

    async def _have_it_deleted(self) -> None:
        self._is_requested = True
        machine = self.world.machines[CONTROLLER]
        self.world.trace.note(f"the controller starts again with {DELETE_VANISHED}")
        machine.crash(power=False)
        machine.properties[DELETE_VANISHED] = "true"
        await machine.start()


_GONE: Final = SegmentState.DELETE_SEGMENT_FINISHED
_FINISHED: Final = PartitionDeleteState.DELETE_PARTITION_FINISHED
