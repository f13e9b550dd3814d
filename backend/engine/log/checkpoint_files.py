"""The small text files of a log directory: format and parsing, no I/O except the two functions that say so.

`OffsetCheckpointFile`, `LeaderEpochCheckpointFile`, `PartitionMetadataFile`, `MetaProperties` and
`CleanShutdownFileHandler` of Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from backend.engine.log.file_names import META_PROPERTIES_FILE
from backend.engine.log.log_errors import LogDirError
from backend.engine.ports.disk import Disk
from backend.engine.ports.random import Random
from backend.tiering.ids import TopicPartition, uuid_bytes, uuid_text

CHECKPOINT_VERSION: Final = "0"
META_PROPERTIES_VERSION: Final = 1
CLEAN_SHUTDOWN_VERSION: Final = 0


class MalformedCheckpoint(ValueError):
    """A checkpoint file that does not have the form its name promises."""


def _encode(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in (CHECKPOINT_VERSION, str(len(lines)), *lines)).encode()


def _decode(data: bytes, what: str) -> list[list[str]]:
    """The words of each entry. A file without a byte is an empty checkpoint, as it is to Kafka."""
    if not data:
        return []
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise MalformedCheckpoint(f"the {what} checkpoint is not text") from None
    if lines[0].strip() != CHECKPOINT_VERSION:
        raise MalformedCheckpoint(f"the {what} checkpoint has version {lines[0][:20]!r}, not {CHECKPOINT_VERSION}")
    entries = [line.split() for line in lines[2:] if line.strip()]
    if len(lines) < 2 or not lines[1].strip().isdigit() or int(lines[1]) != len(entries):
        raise MalformedCheckpoint(f"the {what} checkpoint announces another number of entries than its {len(entries)}")
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """`0`, count, `<topic> <partition> <offset>` lines."""
    return _encode([f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()])


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Raises `MalformedCheckpoint`."""
    offsets: dict[TopicPartition, int] = {}
    for fields in _decode(data, "offset"):
        try:
            topic, partition, offset = fields
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise MalformedCheckpoint(f"the offset checkpoint has the malformed line {' '.join(fields)!r}") from None
    return offsets


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """(epoch, start offset) pairs as `leader-epoch-checkpoint` holds them.

    Also the remote tier's LEADER_EPOCH index.
    """
    return _encode([f"{epoch} {start}" for epoch, start in entries])


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    """Raises `MalformedCheckpoint`."""
    epochs: list[tuple[int, int]] = []
    for fields in _decode(data, "leader epoch"):
        try:
            epoch, start = fields
            epochs.append((int(epoch), int(start)))
        except ValueError:
            raise MalformedCheckpoint(f"the leader epoch checkpoint has the line {' '.join(fields)!r}") from None
    return epochs


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """`version: 0` and the topic id, without a newline at the end."""
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> bytes:
    """The topic id; raises `MalformedCheckpoint`."""
    fields = _properties(data, ":")
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise MalformedCheckpoint("partition.metadata has no version 0 and topic_id lines")
    try:
        return uuid_bytes(fields["topic_id"])
    except ValueError as error:
        raise MalformedCheckpoint(f"partition.metadata: {error}") from None


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return json.dumps({"version": CLEAN_SHUTDOWN_VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> int:
    """Returns the broker epoch of the stopped process, -1 when the file has none (Kafka ignores it then, too)."""
    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The cluster, broker and directory ids in a log directory's ``meta.properties``."""

    cluster_id: str
    node_id: int
    directory_id: bytes

    def encode(self) -> bytes:
        return (
            f"#\nnode.id={self.node_id}\ndirectory.id={uuid_text(self.directory_id)}\n"
            f"version={META_PROPERTIES_VERSION}\ncluster.id={self.cluster_id}\n"
        ).encode()


def _properties(data: bytes, separator: str) -> dict[str, str]:
    properties: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, found_separator, value = line.partition(separator)
        if found_separator and not line.startswith("#"):
            properties[name.strip()] = value.strip()
    return properties


def decode_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Raises `LogDirError` for a version or form this program does not know."""
    fields = _properties(data, "=")
    if fields.get("version") != str(META_PROPERTIES_VERSION):
        raise LogDirError(
            f"{path} has format version {fields.get('version', 'none')}, but this program knows version "
            f"{META_PROPERTIES_VERSION}; use the program that wrote it or another folder"
        )
    try:
        return MetaProperties(fields["cluster.id"], int(fields["node.id"]), uuid_bytes(fields["directory.id"]))
    except (KeyError, ValueError) as error:
        raise LogDirError(f"{path} is damaged ({error}); restore it or use another folder") from None


def ensure_meta_properties(disk: Disk, log_dir: str, cluster_id: str, node_id: int, random: Random) -> MetaProperties:
    """Reads the directory's identity, or writes it on first use. Raises `LogDirError` when it belongs to another."""
    path = f"{log_dir}/{META_PROPERTIES_FILE}"
    if not disk.exists(path):
        fresh = MetaProperties(cluster_id, node_id, random.uuid())
        disk.write_atomic(path, fresh.encode())
        return fresh
    properties = decode_meta_properties(disk.read(path), path)
    if properties.cluster_id != cluster_id:
        raise LogDirError(
            f"{log_dir} belongs to cluster {properties.cluster_id}, not {cluster_id}; "
            "start with that cluster's folder or an empty one"
        )
    if properties.node_id != node_id:
        raise LogDirError(
            f"{log_dir} belongs to node {properties.node_id}, not {node_id}; give each node its own folder"
        )
    return properties
