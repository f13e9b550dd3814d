"""Every node's copy of the metadata log as it lies in a stopped cluster's data folder. Reads, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from backend.data_folder.data_folder import ClusterIdentity, DataFolder
from backend.engine.common.topic_names import CLUSTER_METADATA_TOPIC
from backend.engine.controller.image.metadata_image import EMPTY_IMAGE, MetadataImage
from backend.engine.controller.image.record_interning import InterningDecoder
from backend.engine.controller.image.replay import ImageBuilder, ReplayError
from backend.engine.controller.image.snapshot_images import image_of_snapshot
from backend.engine.log.checkpoint_files import decode_clean_shutdown, decode_meta_properties
from backend.engine.log.file_names import (
    CLEAN_SHUTDOWN_FILE,
    LOG_SUFFIX,
    META_PROPERTIES_FILE,
    base_offset_of,
    parse_dir_name,
)
from backend.engine.log.log_errors import LogDirError
from backend.engine.ports.disk import OsDisk
from backend.engine.raft.acknowledged import ACKNOWLEDGED_FILE, AcknowledgedFiles
from backend.engine.raft.metadata_batches import MetadataBatch, decode_batches
from backend.engine.raft.quorum_state import NO_DIRECTORY, VoterStanding
from backend.engine.raft.raft_state import LogEnd
from backend.engine.raft.snapshot_files import BadSnapshot, parse_file_name
from backend.engine.raft.voter_memory import MetadataLost, Traces, judge, judge_only_voter, read_quorum_state
from backend.protocol.errors import DecodeError

METADATA_FOLDER: Final = f"{CLUSTER_METADATA_TOPIC}-0"
NOTHING: Final = LogEnd(0, 0)


class UnreadableCopy(Exception):
    """A copy that no cluster can go on from; why."""


@dataclass(frozen=True, slots=True)
class MetadataCopy:
    """The copy of one node.

    `lost`: what a voter does not remember, None for one that may vote. `unreadable`: why nothing can go on from it;
    `image` is None then, and empty where there are no records. `last_record_ms` 0: not known.
    `newest_epoch` and `newest_offset`: the newest that any of the node's files mentions, in its copy or lost.
    """

    node_id: int
    path: Path
    votes: bool
    lost: str | None
    unreadable: str | None
    image: MetadataImage | None
    end: LogEnd
    last_record_ms: int
    newest_epoch: int
    newest_offset: int

    @property
    def usable(self) -> bool:
        """Whether a cluster can go on from it."""
        return self.image is not None and self.end.offset > 0


@dataclass(frozen=True, slots=True)
class _Replayed:
    image: MetadataImage
    end: LogEnd
    last_record_ms: int


def read_copies(folder: DataFolder, identity: ClusterIdentity) -> tuple[MetadataCopy, ...]:
    """All nodes' copies, by id. OSError."""
    return tuple(_read_copy(node_id, folder, identity) for node_id in range(1, identity.brokers + 1))


def _read_copy(node_id: int, folder: DataFolder, identity: ClusterIdentity) -> MetadataCopy:
    log_dir = folder.broker_log_dir(node_id)
    path = log_dir / METADATA_FOLDER
    replayed, unreadable = _Replayed(EMPTY_IMAGE, NOTHING, 0), None
    image: MetadataImage | None = replayed.image
    try:
        _check_cluster(log_dir / META_PROPERTIES_FILE, identity.cluster_id)
        replayed = _replayed(path, identity.cluster_id) if path.is_dir() else replayed
        image = replayed.image
    except UnreadableCopy as error:
        unreadable, image = str(error), None
    traces = _traces(node_id, log_dir, folder)
    votes = node_id <= identity.controllers
    lost = _lost(path, replayed.end, traces, only=identity.controllers == 1) if votes else None
    if lost is None and votes and unreadable is not None:
        lost = f"cannot be read: {unreadable}"
    stored, _ = read_quorum_state(OsDisk(), str(path))
    acknowledged = traces.acknowledged
    epochs = [replayed.end.epoch, *([stored.leader_epoch] if stored else [])]
    offsets = [replayed.end.offset, traces.broker_epoch + 1]
    if acknowledged is not None:
        epochs += [acknowledged.leader_epoch, acknowledged.end.epoch]
        offsets.append(acknowledged.end.offset)
    return MetadataCopy(
        node_id, path, votes, lost, unreadable, image, replayed.end, replayed.last_record_ms, max(epochs), max(offsets)
    )


def _check_cluster(path: Path, cluster_id: str) -> None:
    try:
        properties = decode_meta_properties(path.read_bytes(), str(path))
    except FileNotFoundError:
        return  # its disk is new
    except LogDirError as error:
        raise UnreadableCopy(str(error)) from error
    if properties.cluster_id != cluster_id:
        raise UnreadableCopy(f"it belongs to cluster {properties.cluster_id}, not {cluster_id}")


def _traces(node_id: int, log_dir: Path, folder: DataFolder) -> Traces:
    notes = (log_dir / ACKNOWLEDGED_FILE, folder.quorum / f"node-{node_id}.{ACKNOWLEDGED_FILE}")
    marker = log_dir / CLEAN_SHUTDOWN_FILE
    names = [entry.name for entry in log_dir.iterdir()] if log_dir.is_dir() else []
    topics = {parsed.topic for name in names if (parsed := parse_dir_name(name)) is not None}
    return Traces(
        AcknowledgedFiles(OsDisk(), map(str, notes)).read(),
        decode_clean_shutdown(marker.read_bytes()) if marker.exists() else -1,
        bool(topics - {CLUSTER_METADATA_TOPIC}),
    )


def _lost(path: Path, end: LogEnd, traces: Traces, *, only: bool) -> str | None:
    """The reason for which the voter would not vote at its start, by the same rule."""
    stored, damage = read_quorum_state(OsDisk(), str(path))
    if only:
        try:
            judge_only_voter(stored, end, traces, str(path))
        except MetadataLost:
            return "is empty or an older copy, although this node was part of a cluster"
        return None
    memory = judge(stored, damage, end, traces, directory_id=NO_DIRECTORY, fresh_directory_id=NO_DIRECTORY)
    if memory.lost is None and memory.state.standing is not VoterStanding.MEMBER:
        return "is empty"
    return memory.lost


def _replayed(path: Path, cluster_id: str) -> _Replayed:
    """The newest whole snapshot, then the log to the end of its last whole batch. UnreadableCopy, OSError."""
    segments = sorted(
        (base, segment_file)
        for segment_file in path.glob(f"*{LOG_SUFFIX}")
        if (base := base_offset_of(segment_file.name)) is not None
    )
    start = segments[0][0] if segments else 0
    image, last_ms = _from_snapshot(path, start, cluster_id)
    if segments and start > image.offset + 1:
        raise UnreadableCopy(f"it begins at offset {start} and has no whole snapshot that reaches it")
    builder, end, newest = ImageBuilder(image), LogEnd(image.epoch, image.offset + 1), image
    last_offset, last_epoch, expected = image.offset, image.epoch, start
    try:
        for base, segment in segments:
            if base != expected:
                raise UnreadableCopy(f"offsets {expected} to {base - 1} are missing before {segment.name}")
            for batch in _batches(segment, last=segment == segments[-1][1]):
                if batch.base_offset != expected:
                    raise UnreadableCopy(f"offset {expected} is missing in {segment.name}")
                expected, end = batch.last_offset + 1, max(end, LogEnd(batch.epoch, batch.last_offset + 1))
                if batch.base_offset <= image.offset:
                    continue
                builder.apply(batch.records)
                last_offset, last_epoch = batch.last_offset, batch.epoch
                last_ms = batch.timestamp_ms if batch.records else last_ms
    except ReplayError as error:
        raise UnreadableCopy(f"its records contradict one another: {error}") from error
    newest = builder.finish(last_offset, last_epoch)
    return _Replayed(newest, end, last_ms)


def _from_snapshot(path: Path, start: int, cluster_id: str) -> tuple[MetadataImage, int]:
    """The image of the newest snapshot that is whole and reaches the log, and the time of its last record."""
    snapshots = sorted((parsed, file) for file in path.iterdir() if (parsed := parse_file_name(file.name)) is not None)
    for parsed, file in reversed(snapshots):
        if parsed.end_offset < start:
            break
        try:
            return image_of_snapshot(file.read_bytes(), parsed, cluster_id)
        except BadSnapshot:
            continue  # as at a node's start, which sets it aside
    return replace(EMPTY_IMAGE, cluster_id=cluster_id), 0


def _batches(segment: Path, *, last: bool) -> Iterator[MetadataBatch]:
    """Whole batches. Only the last segment may end in one that is not whole: it was never acknowledged."""
    data = segment.read_bytes()
    size = 0
    try:
        for batch in decode_batches(data, InterningDecoder().decode):
            size += batch.size_bytes
            yield batch
    except DecodeError as error:
        if not last:
            raise UnreadableCopy(f"{segment.name} is damaged: {error}") from error
    if not last and size != len(data):
        raise UnreadableCopy(f"{segment.name} ends in the middle of a batch")
