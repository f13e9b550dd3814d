"""Broker side of the metadata: follows `__cluster_metadata` over the network and publishes image after image.

Fetch to the controller's listener (KIP-595, as an observer) → batches → replay → `on_metadata(old, new)` of every
listener in their order. Kafka's MetadataLoader; these brokers keep no copy of the log: they begin with the controller's
newest snapshot (KIP-630), in memory, and go on from there.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.controller.bulk import BulkDecoder
from backend.engine.controller.image import EMPTY_IMAGE, MetadataImage
from backend.engine.controller.metadata_cache import MetadataCache
from backend.engine.controller.replay import ImageBuilder, ReplayError
from backend.engine.controller.snapshot_images import image_of_snapshot
from backend.engine.ports import Workers, tasks
from backend.engine.raft.fetch import as_buffer
from backend.engine.raft.metadata_log import TOPIC, TOPIC_ID, decode_batches
from backend.engine.raft.snapshots import BadSnapshot, SnapshotId
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError, error_for

FETCH_VERSION: Final = 18
FETCH_SNAPSHOT_VERSION: Final = 1
SNAPSHOT_PIECE_BYTES: Final = 1 << 20
# 100,000 partitions of 3 replicas are 15 MB.
SNAPSHOT_BYTES_MAX: Final = 1 << 30
# KafkaRaftClient.MAX_FETCH_WAIT_MS, and the most that one answer may hold.
FETCH_WAIT_MS: Final = 500
FETCH_BYTES: Final = 8 << 20
# Loopback answers at once; a controller that takes longer than this on top of the wait is asked again.
ANSWER_TIMEOUT_MS: Final = 5000
RETRY_PAUSE_MS: Final = 50
REFUSED_PAUSE_MS: Final = 1000

Listener = Callable[[MetadataImage, MetadataImage], Awaitable[None] | None]

_log = logging.getLogger(__name__)


class MetadataLoader:
    """One task per broker. `channel` is used by nothing else, since a fetch may wait half a second."""

    def __init__(
        self,
        channel: ControllerChannel,
        cache: MetadataCache,
        *,
        node_id: int,
        cluster_id: str,
        directory_id: bytes = bytes(16),
        workers: Workers | None = None,
    ) -> None:
        """Snapshots are read by `workers`, where there are some: 100,000 partitions take seconds."""
        self._channel = channel
        self._cache = cache
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._directory_id = directory_id
        self._workers = workers
        self._listeners: list[tuple[str, Listener]] = []
        self._image = replace(EMPTY_IMAGE, cluster_id=cluster_id)
        self._leader_epoch = 0
        # Nothing is published before the first image is as new as the controller's.
        self._caught_up = False
        self._task: tasks.Task[None] | None = None

    def add_listener(self, name: str, listener: Listener) -> None:
        """Called with (old, new) for every image, after those added before; before the start only."""
        self._listeners.append((name, listener))

    def start(self) -> None:
        """Begins to follow."""
        self._task = tasks.spawn(self._run(), name=f"metadata loader {self._node_id}")

    async def stop(self) -> None:
        """Ends; the last image stays."""
        await tasks.cancel(self._task)

    async def _run(self) -> None:
        while True:
            try:
                await self._fetch_once()
            except KafkaError as error:
                _log.debug("Broker %d got no metadata: %s", self._node_id, error)
                await tasks.sleep_ms(RETRY_PAUSE_MS if error.retriable else REFUSED_PAUSE_MS)
            except (DecodeError, ReplayError) as error:
                _log.error("Broker %d reads the metadata anew: offset %d cannot be applied: %s",
                           self._node_id, self._image.offset + 1, error)  # fmt: skip
                self._start_over()
                await tasks.sleep_ms(REFUSED_PAUSE_MS)
            except Exception:
                # A broker that no longer follows would serve stale leaders for ever while its heartbeats go on.
                _log.exception("Broker %d could not follow the metadata, trying on", self._node_id)
                await tasks.sleep_ms(REFUSED_PAUSE_MS)

    def _start_over(self) -> None:
        self._image = replace(EMPTY_IMAGE, cluster_id=self._cluster_id)
        self._caught_up = False

    def _request(self) -> m.FetchRequest:
        request = m.FetchRequest
        return request(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            session_epoch=-1,
            cluster_id=self._cluster_id,
            replica_state=request.ReplicaState(replica_id=self._node_id, replica_epoch=-1),
            topics=[
                request.Topics(
                    topic_id=TOPIC_ID,
                    partitions=[
                        request.Topics.Partitions(
                            partition=0,
                            current_leader_epoch=self._leader_epoch,
                            fetch_offset=self._image.offset + 1,
                            last_fetched_epoch=self._image.epoch,
                            log_start_offset=-1,
                            replica_directory_id=self._directory_id,
                        )
                    ],
                )
            ],
        )

    async def _fetch_once(self) -> None:
        response = await self._channel.send(
            self._request(), FETCH_VERSION, timeout_ms=FETCH_WAIT_MS + ANSWER_TIMEOUT_MS
        )
        if not isinstance(response, m.FetchResponse):
            raise TypeError(f"a Fetch was answered by {type(response).__name__}")
        if response.error_code:
            error = error_for(response.error_code)
            _log.error("Broker %d is refused the metadata of cluster %s: %s", self._node_id, self._cluster_id, error)
            raise error
        partition = response.responses[0].partitions[0]
        if partition.error_code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH):
            if partition.current_leader.leader_epoch == self._leader_epoch:
                raise error_for(partition.error_code)
            self._leader_epoch = partition.current_leader.leader_epoch
            return
        if partition.error_code:
            raise error_for(partition.error_code)
        if partition.diverging_epoch.end_offset >= 0:
            # What the controller no longer has was applied here: only a fresh image is right.
            _log.warning(
                "Broker %d reads the metadata anew: it diverges from the controller's at offset %d of epoch %d",
                self._node_id, partition.diverging_epoch.end_offset, partition.diverging_epoch.epoch,
            )  # fmt: skip
            self._start_over()
            return
        if partition.snapshot_id.end_offset >= 0:
            await self._fetch_snapshot(SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch))
            return
        self._replay(as_buffer(partition.records))
        if self._image.offset + 1 >= partition.high_watermark:
            self._caught_up = True
        if self._caught_up and self._image is not self._cache.image:
            await self._publish()

    def _replay(self, data: bytes | bytearray | memoryview) -> None:
        builder, last = ImageBuilder(self._image, self._note_unknown), None
        for batch in decode_batches(data, BulkDecoder().decode):
            builder.apply(batch.records)
            last = batch
        if last is not None:
            self._image = builder.finish(last.last_offset, last.epoch)

    async def _fetch_snapshot(self, wanted: SnapshotId) -> None:
        """The image starts over from a snapshot; whatever goes wrong, the next fetch says what to do instead."""
        data = bytearray()
        size = 1
        while len(data) < size:
            told = await self._fetch_piece(wanted, len(data))
            size, piece = told.size, as_buffer(told.unaligned_records)
            got = SnapshotId(told.snapshot_id.end_offset, told.snapshot_id.epoch)
            if got != wanted or told.position != len(data) or not piece or size > SNAPSHOT_BYTES_MAX:
                raise DecodeError(f"snapshot {wanted} came as {size} bytes of {got} from {told.position}")
            data += piece

        def read() -> MetadataImage:
            return image_of_snapshot(data, wanted, self._cluster_id, report_unknown=self._note_unknown)[0]

        try:
            image = read() if self._workers is None else await self._workers.run(read)
        except BadSnapshot as error:
            raise DecodeError(f"snapshot {wanted} is damaged: {error}") from error
        _log.info("Broker %d goes on from snapshot %s of %d bytes", self._node_id, wanted, len(data))
        self._image = image

    async def _fetch_piece(self, wanted: SnapshotId, position: int) -> m.FetchSnapshotResponse.Topics.Partitions:
        part = m.FetchSnapshotRequest.Topics.Partitions
        asked = part(
            partition=0,
            current_leader_epoch=self._leader_epoch,
            snapshot_id=part.SnapshotId(end_offset=wanted.end_offset, epoch=wanted.epoch),
            position=position,
        )
        # Without a replica id: on a combined node it would be the leader's own.
        topics = [m.FetchSnapshotRequest.Topics(name=TOPIC, partitions=[asked])]
        request = m.FetchSnapshotRequest(cluster_id=self._cluster_id, max_bytes=SNAPSHOT_PIECE_BYTES, topics=topics)
        response = await self._channel.send(request, FETCH_SNAPSHOT_VERSION, timeout_ms=ANSWER_TIMEOUT_MS)
        if not isinstance(response, m.FetchSnapshotResponse):
            raise TypeError(f"a FetchSnapshot was answered by {type(response).__name__}")
        if response.error_code or not response.topics:
            raise error_for(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
        told = response.topics[0].partitions[0]
        if told.error_code:
            raise error_for(told.error_code)
        return told

    async def _publish(self) -> None:
        old, new = self._cache.image, self._image
        self._cache.set_image(new)
        for name, listener in self._listeners:
            try:
                applying = listener(old, new)
                if applying is not None:
                    await applying
            except Exception:
                # The others must follow all the same; what failed says so itself with its next step.
                _log.exception("Broker %d: %s could not apply metadata offset %d", self._node_id, name, new.offset)
        self._cache.mark_applied()

    def _note_unknown(self, record: object) -> None:
        _log.warning("Broker %d skips a metadata record it does not model: %s", self._node_id, type(record).__name__)
