"""Positions of earlier runs in ``__remote_log_metadata``, and the check that the topic is still the one they read.

The offsets alone are no proof: a topic may have been recreated, or lost its end in an unclean election, and be as long
again. The last record of the earlier run is: it is read again, and if it is another one the files are discarded.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from functools import partial
from typing import Final

from backend.engine.ports import Ports, tasks
from backend.engine.remote.metadata.metadata_files import MetadataFiles, Resume, Stored, record_crc
from backend.engine.remote.metadata.metadata_record import MetadataRecord
from backend.engine.remote.metadata.metadata_topic import METADATA_TOPIC
from backend.tiering.ids import OffsetRange, TopicIdPartition

_log: Final = logging.getLogger(__name__)


class ResumePoints:
    """The files of one broker as its reading half uses them; without files every partition is read from its start."""

    def __init__(self, ports: Ports, files: MetadataFiles | None) -> None:
        self._ports = ports
        self._files = files
        # Positions of an earlier run; None until they have been read.
        self._earlier_positions: dict[int, Resume] | None = None
        # Metadata partitions whose last record was seen again, and those where it must yet be.
        self._proven: set[int] = set()
        self._unproven: dict[int, Resume] = {}
        self._last: dict[int, MetadataRecord] = {}
        self._written: dict[int, Resume] = {}
        self._writing: tasks.Task[None] | None = None

    async def stored(self, partition: TopicIdPartition, target: int) -> Stored | None:
        """The store of a user partition from an earlier run, complete up to and including the offset it names."""
        if self._files is None:
            return None
        if self._earlier_positions is None:
            self._earlier_positions = await self._ports.workers.run(self._files.committed)
            self._written = dict(self._earlier_positions)
        upto = self._earlier_positions.get(target)
        if upto is None:
            return None
        store = await self._ports.workers.run(partial(self._files.load, partition))
        # A store that is ahead was written by a flush that did not end; its last record cannot be checked.
        if store is None or store.offset >= upto.next_offset:
            return None
        return Stored(store.cache, upto.next_offset - 1)

    def proof_of(self, target: int, offset_range: OffsetRange) -> int | None:
        """The record to read before anything stored is believed; None where it cannot be there any more.

        A metadata partition that was proven already needs no more of it: the answer is the log's end.
        """
        upto = None if self._earlier_positions is None else self._earlier_positions.get(target)
        if upto is None:
            return None
        if target in self._proven:
            return offset_range.end
        if not offset_range.start <= upto.last_offset < upto.next_offset <= offset_range.end:
            return None
        self._unproven[target] = upto
        return upto.last_offset

    def believes(self, target: int, record: MetadataRecord) -> bool:
        """Whether the stores may still be believed when this record comes next."""
        upto = self._unproven.get(target)
        if upto is None or record.offset < upto.last_offset:
            return True
        if record.offset > upto.last_offset or record_crc(record.value) != upto.last_crc:
            return False
        del self._unproven[target]
        self._proven.add(target)
        return True

    def is_unproven(self, target: int, next_offset: int | None = None) -> bool:
        """Whether the record is still to come; with `next_offset`: whether it was passed without coming."""
        upto = self._unproven.get(target)
        return upto is not None and (next_offset is None or next_offset > upto.last_offset)

    def drop(self, target: int) -> None:
        """Discards the stores of a metadata partition."""
        self._unproven.pop(target, None)
        if self._earlier_positions is not None:
            self._earlier_positions.pop(target, None)

    def forget(self, target: int) -> None:
        """The metadata partition is not read any more."""
        self._unproven.pop(target, None)
        self._last.pop(target, None)

    def read(self, target: int, record: MetadataRecord) -> None:
        """This record was applied last."""
        self._last[target] = record

    def can_save(self, target: int) -> bool:
        """Whether a last record is known, by which the next run may know the topic again."""
        return target in self._last and target not in self._unproven

    async def wait_idle(self) -> None:
        """Returns when nothing is being written."""
        if self._writing is not None:
            await tasks.first([self._writing])

    async def save(
        self,
        changed: Iterable[Stored],
        hosted: Iterable[TopicIdPartition],
        positions: Mapping[int, int],
        needed: Container[int],
        *,
        force: bool,
    ) -> bool:
        """Writes changed stores and the positions up to which all of them are complete; those of other `needed`
        metadata partitions stay as they were written. Nothing is done when nothing changed, unless by `force`. False
        after a failure, which is logged.
        """
        if self._files is None or self._earlier_positions is None:
            return True
        resume = {target: written for target, written in self._written.items() if target in needed}
        for target, position in positions.items():
            last = self._last[target]
            resume[target] = Resume(position, last.offset, record_crc(last.value))
        stores = list(changed)
        if not stores and not force and resume == self._written:
            return True
        work = partial(self._files.save, stores, list(hosted), resume)
        # Goes on when we are cancelled: who writes next waits for it.
        self._writing = tasks.start(self._ports.workers.run(work), name=f"files of {METADATA_TOPIC}")
        await tasks.first([self._writing])
        try:
            self._writing.result()
        except OSError as error:
            _log.warning("Local files of %s could not be written; a restart reads more: %s", METADATA_TOPIC, error)
            return False
        self._written = resume
        return True
