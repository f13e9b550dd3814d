"""A node's image at its start: the newest snapshot that is whole, then the log behind it (KIP-630).

A snapshot that is damaged or incomplete is set aside, with a warning, and the one before it is taken, as long as the
log reaches back that far; else from the log alone, if it begins at 0.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from backend.engine.controller.image.metadata_image import EMPTY_IMAGE, MetadataImage
from backend.engine.controller.image.snapshot_images import image_of_snapshot
from backend.engine.log.log_errors import CorruptLog
from backend.engine.raft.metadata_log import MetadataLog
from backend.engine.raft.snapshot_files import BadSnapshot, StoredSnapshot

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedImage:
    """The offset at which replay of the log goes on: the one behind `MetadataImage.offset`."""

    image: MetadataImage
    last_record_ms: int = 0
    unknown_records: int = 0
    snapshot: StoredSnapshot | None = None


def load_newest_snapshot(log: MetadataLog, cluster_id: str) -> LoadedImage:
    """The image of the newest snapshot that is whole, or the empty one. Blocks: on a worker thread.

    CorruptLog when the log does not reach back to what is left; OSError when a file cannot be read.
    """
    while (latest := log.snapshots.latest) is not None:
        unknown = 0

        def count(record: object) -> None:
            nonlocal unknown
            unknown += 1

        try:
            image, last_ms = image_of_snapshot(log.snapshots.read(latest), latest, cluster_id, report_unknown=count)
        except BadSnapshot as error:
            aside = log.snapshots.set_corrupt_aside(latest)
            _log.warning("Snapshot %s of %s is ignored: %s; it is kept as %s", latest, log.dir, error, aside)
            continue
        if latest.end_offset < log.start_offset:
            break
        return LoadedImage(image, last_ms, unknown, log.snapshots.stored()[-1])
    if log.start_offset > 0:
        raise CorruptLog(
            f"{log.dir} begins at offset {log.start_offset} and has no whole snapshot that reaches it; put the"
            " folder back from its disk or from the newest backup"
        )
    return LoadedImage(replace(EMPTY_IMAGE, cluster_id=cluster_id))
