"""Replicas that are no longer in use and are kept: folders `<topic>-<partition>.<32 hex>-stray` of a log directory.

Two kinds: strays, of which metadata knows nothing here (Kafka's `LogManager.addStrayLog`,
`UnifiedLog.logStrayDirName`), and damaged replicas that were copied again from their leader. Each may be the only copy
of something, so nothing here removes one by itself; Kafka passes over such folders, too. A small file beside the
records says why and since when.
"""

from __future__ import annotations

import contextlib
import json
from typing import Final, NamedTuple

from backend.engine.log.file_names import STRAY_DIR_SUFFIX, dir_name_for_stray, parse_stray_dir_name
from backend.engine.ports.disk import Disk
from backend.tiering.ids import TopicPartition

REASON_FILE: Final = "set-aside.json"
# Of a folder of Kafka's, or where the disk was too full for a reason.
REASON_UNKNOWN: Final = "no reason is noted in the folder"


class SetAsideFolder(NamedTuple):
    """One folder that is kept: its name in the log directory, bytes of all its files, since when (ms), and why."""

    name: str
    size_bytes: int
    since_ms: int
    reason: str


def set_aside(disk: Disk, folder: str, partition: TopicPartition, unique: bytes, reason: str, now_ms: int) -> str:
    """Renames a partition's folder, which nobody may have open, and notes why; the new path. Blocking. OSError."""
    parent = folder.rpartition("/")[0]
    target = f"{parent}/{dir_name_for_stray(partition, unique)}"
    disk.rename(folder, target)
    disk.sync_dir(parent)
    note = json.dumps({"version": 0, "setAsideMs": now_ms, "reason": reason}).encode()
    # Without its note the folder is kept all the same, with the time of its files.
    with contextlib.suppress(OSError):
        disk.write_atomic(f"{target}/{REASON_FILE}", note)
    return target


def set_aside_in(disk: Disk, log_dir: str) -> list[SetAsideFolder]:
    """Returns the folders that a log directory has set aside, by name. Blocking; any thread. Raises OSError."""
    folders = []
    for name in sorted(disk.list_dir(log_dir)):
        folder = f"{log_dir}/{name}"
        if name.endswith(STRAY_DIR_SUFFIX) and disk.is_dir(folder):
            folders.append(_described(disk, folder, name))
    return folders


def remove_set_aside(disk: Disk, log_dir: str, name: str) -> bool:
    """Removes one such folder for good; False when there is none of that name. Blocking; any thread. Raises OSError."""
    if "/" in name or parse_stray_dir_name(name) is None or not disk.is_dir(f"{log_dir}/{name}"):
        return False
    disk.remove_tree(f"{log_dir}/{name}")
    return True


def _described(disk: Disk, folder: str, name: str) -> SetAsideFolder:
    size_bytes = newest_ms = 0
    for file in disk.list_dir(folder):
        with contextlib.suppress(OSError):  # a folder inside, or a file that an operator is removing
            size_bytes += disk.size(f"{folder}/{file}")
            newest_ms = max(newest_ms, disk.modified_ms(f"{folder}/{file}"))
    try:
        note = json.loads(disk.read(f"{folder}/{REASON_FILE}"))
        return SetAsideFolder(name, size_bytes, int(note["setAsideMs"]), str(note["reason"]))
    except (OSError, ValueError, KeyError, TypeError):
        return SetAsideFolder(name, size_bytes, newest_ms, REASON_UNKNOWN)
