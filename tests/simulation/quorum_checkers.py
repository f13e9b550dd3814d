"""Raft's promises (Ongaro's figure 3.2), and that the images follow, checked from outside of every process.

Batches are known by their base offset; what is committed anywhere is written down once and compared for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Final

from backend.engine.controller.image.metadata_image import BROKER_RESOURCE, EMPTY_IMAGE, MetadataImage
from backend.engine.controller.image.replay import apply_records
from backend.engine.controller.image.snapshot_images import snapshot_batches
from backend.engine.controller.quorum_controller import Controller
from backend.engine.raft.metadata_batches import MetadataBatch, decode_batches
from backend.protocol import messages as m
from tests.simulation.checkers import Violation
from tests.simulation.world import CLUSTER_ID

# Every change sets one of so many settings to its number.
SETTINGS_MAX: Final = 9


def bytes_of(image: MetadataImage) -> bytes:
    """Equal images, equal bytes."""
    return b"".join(snapshot_batches(image, last_contained_ms=0, now_ms=0))


def log_of(controller: Controller) -> list[MetadataBatch]:
    """Everything that a node's log holds, committed or not."""
    log, metadata_batches = controller.log, list[MetadataBatch]()
    offset = log.start_offset
    while offset < log.end_offset:
        metadata_batches += decode_batches(log.read(offset, 1 << 20, log.end_offset))
        offset = metadata_batches[-1].last_offset + 1
    return metadata_batches


class QuorumCheckers:
    """All of one run. `look` may be called at any moment between two steps of the loop."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        # (base offset, epoch) → what every log has there, and the epoch of what comes before it.
        self._batches: dict[tuple[int, int], MetadataBatch] = {}
        self._before: dict[tuple[int, int], int] = {}
        self.committed: dict[int, MetadataBatch] = {}
        # In which epoch at the latest: what the record's own leader left behind may be committed by a later one.
        self._committed_in: dict[int, int] = {}
        self._reference = replace(EMPTY_IMAGE, cluster_id=CLUSTER_ID)
        # Image by offset, as the committed batches give it.
        self._images: dict[int, bytes] = {}
        self._logs: dict[int, tuple[tuple[int, ...], list[MetadataBatch]]] = {}
        self._looked_at: dict[int, MetadataImage] = {}
        self.applied: set[int] = set()
        # Looks that came when records had been committed and, behind a snapshot, removed since the last one.
        self.gaps = 0

    def look(self, controllers: dict[int, Controller]) -> None:
        """One moment; a dead process's state does not count."""
        for node, controller in controllers.items():
            self._one_leader(node, controller)
        logs = {node: self._log_of(node, controller) for node, controller in controllers.items()}
        for node, controller in controllers.items():
            self._commit(node, logs[node], controller.log.high_watermark, controller.raft.epoch)
        self._bridge(controllers)
        for node, controller in controllers.items():
            self._leader_is_complete(node, controller, logs[node])
            self._image_follows(node, controller)

    def _log_of(self, node: int, controller: Controller) -> list[MetadataBatch]:
        """As it was at the last look, unless something has been written or dropped since."""
        log = controller.log
        state = (id(controller), log.start_offset, log.end_offset, log.appended_bytes)
        cached = self._logs.get(node)
        if cached is None or cached[0] != state:
            cached = self._logs[node] = (state, log_of(controller))
            self._logs_match(cached[1])
        return cached[1]

    def _one_leader(self, node: int, controller: Controller) -> None:
        """Election safety: an epoch has one leader at most."""
        state = controller.raft.state
        if state.is_leader and self.leaders.setdefault(state.epoch, node) != node:
            raise Violation("ElectionSafety", f"epoch {state.epoch} is led by {self.leaders[state.epoch]} and {node}")

    def _logs_match(self, batches: list[MetadataBatch]) -> None:
        """Log matching: logs with a batch of one epoch at one offset are the same up to there."""
        for batch in batches:
            if self._batches.setdefault((batch.base_offset, batch.epoch), batch) != batch:
                raise Violation("LogMatching", f"offset {batch.base_offset} of epoch {batch.epoch} is two batches")
        for before, batch in pairwise(batches):
            if self._before.setdefault((batch.base_offset, batch.epoch), before.epoch) != before.epoch:
                raise Violation("LogMatching", f"offset {batch.base_offset} of epoch {batch.epoch} follows two epochs")

    def _commit(self, node: int, batches: list[MetadataBatch], high_watermark: int, epoch: int) -> None:
        for batch in batches:
            if batch.last_offset >= high_watermark:
                break
            self._committed_in.setdefault(batch.base_offset, epoch)
            if self.committed.setdefault(batch.base_offset, batch) != batch:
                raise Violation(
                    "LeaderCompleteness",
                    f"node {node} has offset {batch.base_offset} of epoch {batch.epoch} committed, another node has it"
                    f" of epoch {self.committed[batch.base_offset].epoch}",
                )
        while (batch := self.committed.get(self._reference.offset + 1)) is not None:  # type: ignore[assignment]  # or none
            self._reference = apply_records(self._reference, batch.records, batch.last_offset, batch.epoch)
            self._images[self._reference.offset] = bytes_of(self._reference)
            self.applied.update(
                int(record.value or -1) for record in batch.records if isinstance(record, m.ConfigRecord)
            )

    def _bridge(self, controllers: dict[int, Controller]) -> None:
        """Entries that no log holds any more are taken from an image; the other images are compared with it."""
        newest = max(
            (controller.image for controller in controllers.values()), key=lambda image: image.offset, default=None
        )
        if newest is not None and newest.offset > self._reference.offset:
            self.gaps += 1
            self._reference = newest
            self._images[newest.offset] = bytes_of(newest)

    def _leader_is_complete(self, node: int, controller: Controller, batches: list[MetadataBatch]) -> None:
        """Leader completeness: each leader has everything that was committed in earlier epochs."""
        state = controller.raft.state
        if not state.is_leader:
            return
        own = {batch.base_offset: batch for batch in batches}
        for offset, batch in self.committed.items():
            if (
                self._committed_in[offset] < state.epoch
                and offset >= controller.log.start_offset
                and own.get(offset) != batch
            ):
                raise Violation(
                    "LeaderCompleteness",
                    f"node {node} leads epoch {state.epoch} without what was committed at offset {offset}",
                )

    def _image_follows(self, node: int, controller: Controller) -> None:
        """State-machine safety: the image at an offset is the one that the committed records give, on every node."""
        image = controller.image
        if image is self._looked_at.get(node) or image.offset < 0:
            return
        self._looked_at[node] = image
        expected = self._images.get(image.offset)
        if expected is not None and bytes_of(image) != expected:
            raise Violation("StateMachineSafety", f"node {node} has another image at offset {image.offset}")

    def finish(self, controllers: dict[int, Controller], acknowledged: Iterable[int]) -> None:
        """Everything works again: the nodes have one image, in which all that was acknowledged has been."""
        self.look(controllers)
        ends = {node: controller.image.offset for node, controller in controllers.items()}
        if (
            len({bytes_of(controller.image) for controller in controllers.values()}) != 1
            or len(set(ends.values())) != 1
        ):
            raise Violation("StateMachineSafety", f"the nodes end with different images, at {ends}")
        lost = sorted(set(acknowledged) - self.applied)
        if lost and not self.gaps:
            raise Violation("LeaderCompleteness", f"changes {lost[:5]} were acknowledged and are nowhere")
        # A later change of the same setting has a greater value.
        for controller in controllers.values():
            settings = controller.image.config(BROKER_RESOURCE, "")
            for value in acknowledged:
                if int(settings.get(f"s{value % SETTINGS_MAX}", "-1")) < value:
                    raise Violation(
                        "LeaderCompleteness", f"change {value} was acknowledged, and the settings are {settings}"
                    )
