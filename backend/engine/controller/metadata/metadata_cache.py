"""A broker's newest image, and waiting for one that shows something (Kafka's MetadataCache)."""

from __future__ import annotations

from collections.abc import Callable

from backend.engine.controller.image.metadata_image import EMPTY_IMAGE, MetadataImage
from backend.engine.ports import tasks

ImagePredicate = Callable[[MetadataImage], bool]


class MetadataCache:
    """Set by the loader only, read by everything. All calls on the loop's thread."""

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self._image = image
        self._applied_offset = image.offset
        self._waiting: list[tuple[ImagePredicate, tasks.Future[None]]] = []
        # Names that a client asked for and the controller was asked to create (`apis.support.auto_topic_creation`).
        self.topics_in_creation: set[str] = set()

    @property
    def image(self) -> MetadataImage:
        """The newest image; parts of this broker may still be applying it."""
        return self._image

    @property
    def applied_offset(self) -> int:
        """Every part of this broker has applied the metadata up to and including this offset."""
        return self._applied_offset

    def set_image(self, image: MetadataImage) -> None:
        """Replaces the image that readers see."""
        self._image = image

    def mark_applied(self) -> None:
        """The newest image has reached every part of this broker: wakes those who wait for what it shows."""
        self._applied_offset = self._image.offset
        still_waiting = []
        for predicate, applied in self._waiting:
            if applied.done():
                continue
            if predicate(self._image):
                applied.set_result(None)
            else:
                still_waiting.append((predicate, applied))
        self._waiting = still_waiting

    async def wait_for(self, predicate: ImagePredicate, timeout_ms: float) -> bool:
        """Whether an applied image satisfied the predicate within the time."""
        if self._applied_offset == self._image.offset and predicate(self._image):
            return True
        applied: tasks.Future[None] = tasks.future()
        self._waiting.append((predicate, applied))
        try:
            await tasks.wait_for(applied, timeout_ms)
        except tasks.Timeout:
            return False
        return True
