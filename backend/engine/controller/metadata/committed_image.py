"""The image of a node with a metadata log: the newest snapshot, then the log as far as it is committed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from backend.engine.controller.image.metadata_image import EMPTY_IMAGE, MetadataImage
from backend.engine.controller.image.record_interning import InterningDecoder
from backend.engine.controller.image.replay import ImageBuilder, ReplayError
from backend.engine.controller.metadata.image_loading import load_newest_snapshot
from backend.engine.controller.metadata.topic_deletions import TopicDeletions
from backend.engine.log.log_errors import CorruptLog
from backend.engine.ports import Ports, tasks
from backend.engine.raft.metadata_batches import decode_batches
from backend.engine.raft.metadata_log import READ_BYTES, MetadataLog
from backend.engine.raft.snapshot_files import StoredSnapshot
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError

_log = logging.getLogger(__name__)


class CommittedImage:
    """Leads nobody and writes nothing. All methods on the loop's thread."""

    def __init__(
        self,
        ports: Ports,
        log: MetadataLog,
        topic_deletions: TopicDeletions,
        *,
        node_id: int,
        cluster_id: str,
        applied: Callable[[int], None],
        loaded: Callable[[StoredSnapshot], None],
    ) -> None:
        """`applied` gets the bytes of records that have become part of the image, `loaded` the snapshot that
        the image was taken from.
        """
        self._ports = ports
        self._metadata_log = log
        self._topic_deletions = topic_deletions
        self._node_id = node_id
        self._applied = applied
        self._loaded = loaded
        self._image = replace(EMPTY_IMAGE, cluster_id=cluster_id)
        self._moved = tasks.Event()
        # Time of the last committed record, ms since the epoch; how long the last load of a snapshot took.
        self.last_record_ms = 0
        self.load_latency_ms = 0.0
        self.snapshots_loaded = 0
        self._unknown_records = 0

    @property
    def image(self) -> MetadataImage:
        return self._image

    @image.setter
    def image(self, image: MetadataImage) -> None:
        self._image = image
        moved, self._moved = self._moved, tasks.Event()
        moved.set()

    @property
    def is_current(self) -> bool:
        """Whether the image shows all that this node knows to be committed."""
        return self._image.offset + 1 >= self._metadata_log.high_watermark

    async def changed(self) -> None:
        """Returns once the image is another one than at the call."""
        await self._moved.wait()

    async def load_snapshot(self) -> None:
        """The newest snapshot that is whole, or the empty image. CorruptLog, OSError."""
        begun_ms = self._ports.clock.monotonic_ms()
        log, cluster_id = self._metadata_log, self.image.cluster_id
        loaded = await self._ports.workers.run(lambda: load_newest_snapshot(log, cluster_id))
        self.image = loaded.image
        self.last_record_ms = loaded.last_record_ms
        self._unknown_records += loaded.unknown_records
        if loaded.snapshot is not None:
            self.load_latency_ms = self._ports.clock.monotonic_ms() - begun_ms
            self.snapshots_loaded += 1
            _log.info("Node %d has loaded snapshot %s", self._node_id, loaded.snapshot.id)
            self._loaded(loaded.snapshot)

    async def catch_up(self) -> None:
        """The image follows the log as far as it is committed."""
        while (offset := self.image.offset + 1) < self._metadata_log.high_watermark:
            if offset < self._metadata_log.start_offset:
                await self.load_snapshot()
                continue
            unknown = self._unknown_records
            try:
                image, size_bytes = self._replayed(self._metadata_log.read(offset, READ_BYTES))
            except (DecodeError, ReplayError) as error:
                raise CorruptLog(
                    f"{self._metadata_log.dir} is damaged behind offset {self.image.offset}: {error}; restore the"
                    " folder from another controller"
                ) from error
            if image is self.image:
                raise CorruptLog(f"{self._metadata_log.dir} has no whole batch at offset {offset}; restore the folder")
            self.image = image
            self._applied(size_bytes)
            if self._unknown_records > unknown:
                _log.warning(
                    "Node %d skipped %d metadata records of unknown kinds up to offset %d",
                    self._node_id, self._unknown_records - unknown, image.offset,
                )  # fmt: skip
            await tasks.sleep_ms(0)

    def _replayed(self, data: bytes) -> tuple[MetadataImage, int]:
        """The image after whole batches of the log, and their bytes. DecodeError, ReplayError."""
        image, last, size_bytes = self.image, None, 0
        builder = ImageBuilder(image, self._count_unknown)
        for batch in decode_batches(data, InterningDecoder().decode):
            if batch.base_offset <= image.offset:
                # A node that replayed records twice would differ from all others, and nobody would notice.
                span = f"{batch.base_offset} to {batch.last_offset}"
                raise ReplayError(f"the batch of offsets {span} has records that are applied already")
            if any(type(record) is m.RemoveTopicRecord for record in batch.records):
                # The deletion needs the topic's partitions and settings as they were before its record.
                image = image if last is None else builder.finish(last.last_offset, last.epoch)
                self._topic_deletions.add(image, batch.records, batch.last_offset, replayed=True)
                builder = ImageBuilder(image, self._count_unknown)
            builder.apply(batch.records)
            last, size_bytes = batch, size_bytes + batch.size_bytes
        if last is not None:
            image, self.last_record_ms = builder.finish(last.last_offset, last.epoch), last.timestamp_ms
        return image, size_bytes

    def _count_unknown(self, record: object) -> None:
        self._unknown_records += 1
