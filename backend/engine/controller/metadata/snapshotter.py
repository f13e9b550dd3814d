"""Writes a node's image as a snapshot when it is due, and deletes the log before (Kafka's SnapshotGenerator, KIP-630).

The decision is by the bytes of the records since the last snapshot, or by its age. Writing happens on a worker thread:
the image is immutable, so the controller goes on meanwhile. A failed snapshot is logged and tried again later; nothing
depends on it but the time of the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from backend.engine.config import BrokerConfig
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.controller.image.snapshot_images import snapshot_batches, snapshot_id_of
from backend.engine.ports import Ports, tasks
from backend.engine.raft.metadata_log import MetadataLog, MetadataLogFailed
from backend.engine.raft.snapshot_files import StoredSnapshot

# Interval between checks of the newest snapshot's age. The bytes since then are checked on every change too.
CHECK_INTERVAL_MS: Final = 5_000
# A disk that refused a snapshot is not asked again at once.
RETRY_PAUSE_MS: Final = 60_000

_log = logging.getLogger(__name__)


class Snapshotter:
    """One per node with a metadata log. All methods on the loop's thread."""

    def __init__(
        self,
        ports: Ports,
        config: BrokerConfig,
        log: MetadataLog,
        committed: Callable[[], tuple[MetadataImage, int]],
        needed_from: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`committed` gives the newest committed image and the time of its last record, ms since the epoch;
        `needed_from` the lowest offset that a live follower still reads, or None.
        """
        self._ports = ports
        self._config = config
        self._metadata_log = log
        self._committed = committed
        self._needed_from = needed_from
        # Bytes of the records in the image that the newest snapshot lacks.
        self._bytes_since = 0
        self._last_at_ms = ports.clock.monotonic_ms()
        self._not_before_ms = 0.0
        self._wake = tasks.Event()
        self._task: tasks.Task[None] | None = None
        # For metrics: when the newest one here was written (ms since the epoch), its size, how long the last took.
        self.latest_generated_ms: int | None = None
        self.latest_generated_bytes = 0
        self.generation_latency_ms = 0.0

    def start(self) -> None:
        """Begins to watch."""
        self._task = tasks.spawn(self._run(), name=f"snapshots of node {self._config.id}")

    async def stop(self) -> None:
        """Ends; a snapshot that is being written is left to the next start to clear away."""
        await tasks.cancel(self._task)

    def applied(self, size_bytes: int) -> None:
        """So many bytes of records have become part of the committed image."""
        self._bytes_since += size_bytes
        if self._enough_bytes():
            self._wake.set()

    def observe_snapshot(self, snapshot: StoredSnapshot) -> None:
        """The image was taken from this one, of an earlier run or of the leader."""
        self.latest_generated_ms, self.latest_generated_bytes = snapshot.written_ms, snapshot.size_bytes

    def _enough_bytes(self) -> bool:
        return self._bytes_since >= self._config.metadata_log_max_record_bytes_between_snapshots

    def _due(self) -> bool:
        now_ms = self._ports.clock.monotonic_ms()
        if now_ms < self._not_before_ms:
            return False
        interval_ms = self._config.metadata_log_max_snapshot_interval_ms
        return self._enough_bytes() or (interval_ms > 0 and now_ms - self._last_at_ms >= interval_ms)

    async def _run(self) -> None:
        while True:
            with suppress(tasks.Timeout):
                await tasks.wait_for(self._wake.wait(), CHECK_INTERVAL_MS)
            self._wake.clear()
            try:
                if self._due():
                    await self.write_snapshot()
                await self.clean()
            except (OSError, MetadataLogFailed) as error:
                self._not_before_ms = self._ports.clock.monotonic_ms() + RETRY_PAUSE_MS
                _log.error(
                    "Node %d could not write or remove a snapshot in %s: %s; it is tried again in %d s",
                    self._config.id, self._metadata_log.dir, error, RETRY_PAUSE_MS // 1000,
                )  # fmt: skip

    async def write_snapshot(self) -> bool:
        """Writes a snapshot of the newest committed image; False when there is one already. OSError."""
        image, last_ms = self._committed()
        snapshot_id = snapshot_id_of(image)
        latest = self._metadata_log.snapshots.latest
        if snapshot_id.end_offset <= 0 or (latest is not None and latest.end_offset >= snapshot_id.end_offset):
            self._last_at_ms = self._ports.clock.monotonic_ms()
            return False
        begun_ms, bytes_then = self._ports.clock.monotonic_ms(), self._bytes_since
        batches = snapshot_batches(
            image,
            last_contained_ms=last_ms,
            now_ms=self._ports.clock.time_ms(),
            directories=self._metadata_log.directories_below(snapshot_id.end_offset),
        )
        size = await self._metadata_log.write_snapshot(snapshot_id, batches)
        self._last_at_ms = self._ports.clock.monotonic_ms()
        self._bytes_since -= bytes_then
        self.latest_generated_ms, self.latest_generated_bytes = self._ports.clock.time_ms(), size
        self.generation_latency_ms = self._last_at_ms - begun_ms
        _log.info("Node %d has written snapshot %s of %d bytes", self._config.id, snapshot_id, size)
        return True

    async def clean(self) -> None:
        """Old snapshots, and the log below the oldest one left, go as metadata.max.retention.* says. OSError."""
        config = self._config
        removed = await self._metadata_log.clean(
            retention_bytes=config.metadata_max_retention_bytes,
            retention_ms=config.metadata_max_retention_ms,
            now_ms=self._ports.clock.time_ms(),
            needed_from=self._needed_from(),
        )
        if removed:
            _log.info(
                "Node %d has removed %d old snapshots; its metadata log starts at %d",
                config.id, removed, self._metadata_log.start_offset,
            )  # fmt: skip
