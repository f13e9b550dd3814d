"""The end up to which a voter has acknowledged the metadata log, noted outside that log's folder.

A metadata folder that was put back from an older copy looks whole. Records that the voter had acknowledged since may be
committed with its help, so it must not vote as if it had never had them. The note is written after each flush, before
the leader hears of it, to each log directory and to `ebbline.quorum.acknowledged.dir`: a note that was not put back
together with the metadata shows the difference. It need not survive a power failure, after which it can only be behind.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from backend.engine.ports.disk import Disk
from backend.engine.raft.raft_state import LogEnd

ACKNOWLEDGED_FILE: Final = "quorum-acknowledged"
_VERSION: Final = 0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The end of the log that was on the device, and the newest epoch that the voter has taken part in."""

    end: LogEnd
    leader_epoch: int = 0


def encode_acknowledged(acknowledged: Acknowledged) -> bytes:
    """The file's bytes: one line of JSON."""
    fields = {
        "version": _VERSION,
        "leaderEpoch": acknowledged.leader_epoch,
        "endEpoch": acknowledged.end.epoch,
        "endOffset": acknowledged.end.offset,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_acknowledged(data: bytes) -> Acknowledged:
    """ValueError for anything else than `encode_acknowledged` writes."""
    try:
        fields = json.loads(data)
        if fields["version"] != _VERSION:
            raise ValueError(f"version {fields['version']} is not {_VERSION}")
        end = LogEnd(int(fields["endEpoch"]), int(fields["endOffset"]))
        return Acknowledged(end, int(fields["leaderEpoch"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"it cannot be read: {error!r}") from error


class AcknowledgedFiles:
    """The notes of one voter. Calls block: on a worker thread."""

    def __init__(self, disk: Disk, paths: Iterable[str]) -> None:
        self._disk = disk
        self.paths = tuple(paths)
        self._failed: set[str] = set()

    def read(self) -> Acknowledged | None:
        """The highest end and epoch of all notes; None when none can be read."""
        stored = []
        for path in self.paths:
            try:
                if self._disk.exists(path):
                    stored.append(decode_acknowledged(self._disk.read(path)))
            except (OSError, ValueError) as error:
                _log.warning("The note %s of what this voter acknowledged is not used: %s", path, error)
        if not stored:
            return None
        return Acknowledged(max(entry.end for entry in stored), max(entry.leader_epoch for entry in stored))

    def write(self, acknowledged: Acknowledged, *, sync: bool = False) -> None:
        """Writes the note to the device in every place. A place that cannot be written is left out, with one warning.

        `sync`: a note of less than before must not be lost with the machine's power.
        """
        data = encode_acknowledged(acknowledged)
        for path in self.paths:
            try:
                self._disk.write_atomic(path, data, sync=sync)
                self._failed.discard(path)
            except OSError as error:
                if path not in self._failed:
                    self._failed.add(path)
                    _log.warning("The note %s of what this voter acknowledged cannot be written: %s", path, error)
