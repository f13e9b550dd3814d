"""Images to snapshots and back (KIP-630). Pure: an image is immutable, so a worker thread may write it meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from backend.engine.controller.image.image_records import image_records
from backend.engine.controller.image.metadata_image import EMPTY_IMAGE, MetadataImage
from backend.engine.controller.image.record_interning import InterningDecoder
from backend.engine.controller.image.replay import ImageBuilder, ReplayError
from backend.engine.raft.metadata_batches import encode_batch
from backend.engine.raft.snapshot_files import BadSnapshot, SnapshotId, SnapshotReader
from backend.protocol.buffers import Buffer
from backend.protocol.record_batches.control_records import snapshot_footer, snapshot_header, voters

# Records of one batch: a partition of 3 replicas takes about 120 bytes, so a batch about 120 kB.
RECORDS_PER_BATCH: Final = 1024


def snapshot_id_of(image: MetadataImage) -> SnapshotId:
    """The id of the snapshot that would hold this image."""
    return SnapshotId(image.offset + 1, image.epoch)


def snapshot_batches(
    image: MetadataImage, *, last_contained_ms: int, now_ms: int, directories: Mapping[int, bytes] | None = None
) -> Iterator[bytearray]:
    """A snapshot's bytes, batch by batch; offsets begin at 0, and the epoch is the snapshot's, as in Kafka's files.

    `directories`: by which directory each voter is known; it follows the header, as in Kafka's files.
    """
    epoch = image.epoch
    yield snapshot_header(last_contained_log_timestamp_ms=last_contained_ms, timestamp_ms=now_ms, leader_epoch=epoch)
    offset = 1
    if directories:
        yield voters(directories, timestamp_ms=now_ms, base_offset=offset, leader_epoch=epoch)
        offset += 1
    records = image_records(image)
    while batch := list(islice(records, RECORDS_PER_BATCH)):
        yield encode_batch(batch, base_offset=offset, epoch=epoch, now_ms=now_ms)
        offset += len(batch)
    yield snapshot_footer(timestamp_ms=now_ms, base_offset=offset, leader_epoch=epoch)


def image_of_snapshot(
    data: Buffer,
    snapshot_id: SnapshotId,
    cluster_id: str,
    *,
    report_unknown: Callable[[object], None] = lambda record: None,
) -> tuple[MetadataImage, int]:
    """The image in a snapshot's bytes, and the time of its last record, ms. BadSnapshot for anything else.

    Record kinds that images do not model are passed to `report_unknown` and left out.
    """
    reader = SnapshotReader(data, InterningDecoder().decode)
    builder = ImageBuilder(replace(EMPTY_IMAGE, cluster_id=cluster_id), report_unknown)
    try:
        for batch in reader.batches():
            builder.apply(batch)
    except ReplayError as error:
        raise BadSnapshot(f"its records contradict one another: {error}") from error
    return builder.finish(snapshot_id.end_offset - 1, snapshot_id.epoch), reader.last_contained_ms
