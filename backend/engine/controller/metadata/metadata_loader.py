"""The committed metadata of a node's own log reaches its broker's parts, image after image (Kafka's MetadataLoader)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.controller.metadata.committed_image import CommittedImage
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.ports import tasks

MetadataPublisher = Callable[[MetadataImage, MetadataImage], Awaitable[None] | None]

_log = logging.getLogger(__name__)


class MetadataLoader:
    """One task per broker."""

    def __init__(self, committed: CommittedImage, cache: MetadataCache, *, node_id: int) -> None:
        self._committed = committed
        self._cache = cache
        self._node_id = node_id
        self._listeners: list[tuple[str, MetadataPublisher]] = []
        # Called with (old, new) once every listener has applied the new image.
        self.on_applied: Callable[[MetadataImage, MetadataImage], None] = lambda old, new: None
        self._caught_up = False
        self._task: tasks.Task[None] | None = None

    def add_listener(self, name: str, listener: MetadataPublisher) -> None:
        """Called with (old, new) for every image, after those added before; before the start only."""
        self._listeners.append((name, listener))

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
        for name, listener in self._listeners:
            try:
                applying = listener(old, new)
                if applying is not None:
                    await applying
            except Exception:
                # The others must follow all the same; what failed says so itself with its next step.
                _log.exception("Broker %d: %s could not apply metadata offset %d", self._node_id, name, new.offset)
        self._cache.mark_applied()
        self.on_applied(old, new)
