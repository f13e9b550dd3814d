"""The committed metadata of a node's own log reaches its broker's parts, image after image (Kafka's MetadataLoader)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.controller.metadata.committed_image import CommittedImage
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.ports import tasks


class MetadataPublisher(Protocol):
    """Carries images out on the parts of a broker, or on some of them."""

    name: str

    async def on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        """Called for every image, after the metadata cache has it and the publishers before have carried it out."""
        ...

    def on_applied(self, old: MetadataImage, new: MetadataImage) -> None:
        """Every publisher has carried the image out, and the cache counts it as applied."""
        ...


_log = logging.getLogger(__name__)


class MetadataLoader:
    """One task per broker."""

    def __init__(
        self,
        committed: CommittedImage,
        cache: MetadataCache,
        publishers: Sequence[MetadataPublisher],
        *,
        node_id: int,
    ) -> None:
        self._committed = committed
        self._cache = cache
        self._node_id = node_id
        self._publishers = publishers
        self._caught_up = False
        self._task: tasks.Task[None] | None = None

    def start(self) -> None:
        """Begins to publish."""
        self._task = tasks.spawn(self._run(), name=f"metadata loader {self._node_id}")

    async def stop(self) -> None:
        """Ends; the last image stays."""
        await tasks.cancel(self._task)

    async def _run(self) -> None:
        while True:
            image = self._committed.image
            # A start replays the log in steps; none is published before the last that is known to be committed.
            self._caught_up = self._caught_up or (image.offset >= 0 and self._committed.is_current)
            if self._caught_up and image is not self._cache.image:
                await self._publish(image)
            else:
                await self._committed.changed()

    async def _publish(self, new: MetadataImage) -> None:
        old = self._cache.image
        self._cache.set_image(new)
        for publisher in self._publishers:
            try:
                await publisher.on_metadata(old, new)
            except Exception:
                # The others must follow all the same; the part that failed reports it itself with its next step.
                _log.exception(
                    "Broker %d: %s could not apply metadata offset %d", self._node_id, publisher.name, new.offset
                )
        self._cache.mark_applied()
        for publisher in self._publishers:
            publisher.on_applied(old, new)
