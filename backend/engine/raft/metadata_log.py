"""`__cluster_metadata-0` on disk: append, flush, read up to the high watermark (Kafka's KafkaMetadataLog)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from backend.engine.log.local_log import FlushWork, sync_files
from backend.engine.log.log_errors import NoSpace
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import Ports, tasks
from backend.engine.raft.acknowledged import Acknowledged, AcknowledgedFiles
from backend.engine.raft.metadata_batches import encode_batch
from backend.engine.raft.quorum_state import QUORUM_STATE_FILE, QuorumState, VoterStanding, encode_quorum_state
from backend.engine.raft.raft_state import LogEnd
from backend.engine.raft.snapshot_files import SnapshotFiles, SnapshotId, keep_from
from backend.engine.raft.voter_directories import UNKNOWN, VoterDirectories, VoterDirectoryHistory, directories_in
from backend.protocol.buffers import Buffer
from backend.protocol.errors import KafkaError
from backend.protocol.messages import Message
from backend.protocol.record_batches.control_records import leader_change, voters

# KafkaRaftClient.MAX_BATCH_SIZE_BYTES: 10,000 records of a command, with room for long replica lists.
BATCH_BYTES_MAX: Final = 8 << 20
BATCH_RECORDS_MAX: Final = 10_000
READ_BYTES: Final = 4 << 20


class MetadataLogFailed(OSError):
    """The metadata log cannot be written or read any longer; the node cannot be a controller."""


class MetadataLog:
    """One node's copy of the log. All calls on the loop's thread; what waits for the device runs on a worker."""

    def __init__(
        self,
        ports: Ports,
        log: UnifiedLog,
        snapshots: SnapshotFiles,
        directories: VoterDirectoryHistory | None = None,
    ) -> None:
        self._ports = ports
        self._voter_directories = directories or VoterDirectoryHistory()
        # The files outside this folder that note a voter's progress; None while the node is no voter.
        self.acknowledged: AcknowledgedFiles | None = None
        # The newest epoch that the voter has taken part in, for that note.
        self.leader_epoch = 0
        self._log = log
        self.snapshots = snapshots
        # Of all appends since the log was opened: what a snapshot would save the next start from.
        self.appended_bytes = 0
        self._high_watermark = snapshots.latest.end_offset if snapshots.latest else 0
        self._moved = tasks.Event()
        # A truncation while a flush is under way would let the flush vouch for records that came after it.
        self._disk_turn = tasks.Lock()

    @property
    def dir(self) -> str:
        return self._log.dir

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        """The oldest that the log goes on from. Older files wait for retention: what lay behind them has been removed,
        or given up for a snapshot of the leader's.
        """
        return next(
            (snapshot_id for snapshot_id in self.snapshots.ids if snapshot_id.end_offset >= self.start_offset), None
        )

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last record, in the log or in the snapshot that it begins with."""
        latest = self.snapshots.latest
        return max(self._log.leader_epochs.latest_epoch or 0, latest.epoch if latest else 0)

    @property
    def end(self) -> LogEnd:
        """The log's last epoch and end offset, which votes compare."""
        return LogEnd(self.last_epoch, self.end_offset)

    @property
    def size_bytes(self) -> int:
        """Bytes of the `.log` files."""
        return self._log.size_bytes

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Offsets below are committed: on the disks of most voters."""
        return self._high_watermark

    @property
    def directories(self) -> VoterDirectories:
        """Each voter's directory by all records of this log, committed or not."""
        return self._voter_directories.latest

    @property
    def committed_directories(self) -> VoterDirectories:
        """The same by the records that this node knows to be committed."""
        return self._voter_directories.below(self._high_watermark)

    def is_superseded(self, voter: int, directory_id: bytes) -> bool:
        """Whether a voter was known by this directory and is by another one now."""
        return self._voter_directories.is_superseded(voter, directory_id)

    def directories_below(self, offset: int) -> VoterDirectories:
        """The same by the records below an offset, for a snapshot."""
        return self._voter_directories.below(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch <= the one asked for; (-1, -1) when there is none."""
        return self._log.end_offset_for_epoch(epoch)

    # --- writing

    def append(self, records: Sequence[Message], epoch: int, now_ms: int) -> int:
        """Writes the leader's records and gives the offset of the last; durable only after `flush`.

        One batch, and so all or none, up to `BATCH_RECORDS_MAX` records. Raises NoSpace when nothing was written,
        MetadataLogFailed when the log cannot be used any longer.
        """
        for start in range(0, len(records), BATCH_RECORDS_MAX):
            part = records[start : start + BATCH_RECORDS_MAX]
            batch = encode_batch(part, base_offset=self.end_offset, epoch=epoch, now_ms=now_ms)
            try:
                self._append(batch, epoch, now_ms)
            except NoSpace as error:
                if start:
                    raise MetadataLogFailed(f"only a part of a change was written: {error.message}") from error
                raise
        return self.end_offset - 1

    def append_leader_change(
        self, leader_id: int, epoch: int, voters: Sequence[int], granting_voters: Sequence[int], now_ms: int
    ) -> None:
        """The first record of a leader's epoch. As `append`."""
        batch = leader_change(
            leader_id=leader_id,
            voters=voters,
            granting_voters=granting_voters,
            timestamp_ms=now_ms,
            base_offset=self.end_offset,
            leader_epoch=epoch,
        )
        self._append(batch, epoch, now_ms)

    def append_voters(self, directories: VoterDirectories, epoch: int, now_ms: int) -> None:
        """Appends the directory of each voter. Errors as `append`."""
        offset = self.end_offset
        batch = voters(directories, timestamp_ms=now_ms, base_offset=offset, leader_epoch=epoch)
        self._append(batch, epoch, now_ms)
        self._voter_directories.add(offset, directories)

    def _append(self, batch: bytearray, epoch: int, now_ms: int) -> None:
        try:
            self._log.append_as_leader(memoryview(batch), epoch, now_ms=now_ms, origin="raft")
        except NoSpace:
            raise
        except KafkaError as error:
            raise MetadataLogFailed(error.message) from error
        self.appended_bytes += len(batch)
        self.wake()

    def append_fetched(self, data: bytes | bytearray | memoryview, epoch: int, now_ms: int) -> None:
        """Batches of the leader of `epoch`, as they are. KafkaError for bytes that do not fit, NoSpace among them."""
        info = self._log.append_as_follower(memoryview(data), epoch, now_ms=now_ms)
        self.appended_bytes += info.size_bytes
        for offset, directories in directories_in(data):
            self._voter_directories.add(offset, directories)
        self.wake()

    @property
    def flushed_end(self) -> int:
        """Everything below is on the device."""
        return min(self._log.recovery_point, self.end_offset)

    async def truncate_to(self, offset: int) -> None:
        """Drops all records at or past the offset, which is never below the high watermark. MetadataLogFailed."""
        if offset < self._high_watermark:
            raise MetadataLogFailed(
                f"the leader's log parts from it at offset {offset}, below the committed offset {self._high_watermark}"
            )
        async with self._disk_turn:
            # Before the log: what is noted is never more than what is there.
            await self._note_acknowledged(offset, sync=True)
            try:
                self._log.truncate_to(offset)
            except KafkaError as error:
                raise MetadataLogFailed(error.message) from error
            self._voter_directories.truncate_to(offset)
        self.wake()

    async def _note_acknowledged(self, end_offset: int, *, sync: bool = False) -> None:
        files = self.acknowledged
        if files is not None:
            acknowledged = Acknowledged(LogEnd(self.epoch_below(end_offset), end_offset), self.leader_epoch)
            await self._ports.workers.run(lambda: files.write(acknowledged, sync=sync))

    def epoch_below(self, offset: int) -> int:
        """The leader epoch of the record before an offset, which the log or its snapshot has."""
        if offset >= self.end_offset:
            return self.last_epoch
        return (self._log.leader_epochs.epoch_for_offset(offset - 1) if offset > self.start_offset else None) or 0

    async def start_at_snapshot(self, snapshot_id: SnapshotId) -> None:
        """A fetched snapshot counts from now on and stands for the whole log, which goes on behind it."""
        directories = await self._ports.workers.run(lambda: self.snapshots.voter_directories(snapshot_id))
        async with self._disk_turn:
            self.snapshots.added(snapshot_id)
            try:
                self._log.truncate_fully_and_start_at(snapshot_id.end_offset)
            except KafkaError as error:
                raise MetadataLogFailed(error.message) from error
            for path in self._log.take_deleted_paths():
                self._ports.disk.remove(path)
            self._voter_directories = VoterDirectoryHistory(directories or UNKNOWN)
        self._high_watermark = max(self._high_watermark, snapshot_id.end_offset)
        self.wake()

    async def flush(self) -> int:
        """Flushes all records that are appended before this call; all below the returned offset is on the device."""
        async with self._disk_turn:
            log = self._log
            up_to = log.log_end_offset
            # Only the records themselves: indexes and the epoch file are rebuilt from them when they are lost.
            paths = tuple(segment.files.log_path for segment in log.segments.from_offset(log.recovery_point))
            work = FlushWork(paths, log.dir, up_to)
            acknowledged, files = Acknowledged(self.end, self.leader_epoch), self.acknowledged

            def flush() -> None:
                sync_files(self._ports.disk, work)
                if files is not None:
                    files.write(acknowledged)

            await self._ports.workers.run(flush)
            log.flusher.done(work)
        return up_to

    def update_high_watermark(self, offset: int) -> None:
        """Offsets below are committed; only moves up."""
        if offset > self._high_watermark:
            self._high_watermark = offset
            self._log.update_high_watermark(offset)
            self.wake()

    # --- who waits for what

    def wake(self) -> None:
        """Something changed that somebody may wait for."""
        moved, self._moved = self._moved, tasks.Event()
        moved.set()

    async def wait_until(self, condition: Callable[[], bool], timeout_ms: float | None = None) -> bool:
        """Whether the condition came true within the time; looked at whenever this log or its quorum changes."""
        deadline_ms = None if timeout_ms is None else self._ports.clock.monotonic_ms() + timeout_ms
        while not condition():
            moved = self._moved.wait()
            if deadline_ms is None:
                await moved
                continue
            try:
                await tasks.wait_for(moved, deadline_ms - self._ports.clock.monotonic_ms())
            except tasks.Timeout:
                return condition()
        return True

    # --- reading

    def read(self, offset: int, max_bytes: int, up_to: int | None = None) -> bytes:
        """Batches from the one that holds `offset`, at least one when there is one, up to an offset.

        Without one, up to the high watermark: what is committed.
        """
        up_to = self._high_watermark if up_to is None else up_to
        try:
            info = self._log.reader.read(offset, max_bytes, up_to_offset=up_to, min_one_message=True)
        except KafkaError as error:
            raise MetadataLogFailed(error.message) from error
        return info.records

    async def write_snapshot(self, snapshot_id: SnapshotId, chunks: Iterable[Buffer]) -> int:
        """A snapshot of the records below its end offset, written by a worker thread; its size in bytes. OSError."""
        unique = self._ports.random.uuid().hex()
        size = await self._ports.workers.run(lambda: self.snapshots.write(snapshot_id, chunks, unique))
        self.snapshots.added(snapshot_id)
        return size

    async def clean(
        self, *, retention_bytes: int, retention_ms: int, now_ms: int, needed_from: int | None = None
    ) -> int:
        """Removes old snapshots, and the log below the oldest that stays; how many snapshots went. OSError."""
        removed = 0
        while True:
            stored = await self._ports.workers.run(self.snapshots.stored)
            start = keep_from(
                stored,
                self.size_bytes,
                retention_bytes=retention_bytes,
                retention_ms=retention_ms,
                now_ms=now_ms,
                needed_from=needed_from,
            )
            if start is None or start.end_offset > self._high_watermark:
                return removed
            try:
                self._log.maybe_increment_log_start_offset(start.end_offset)
                self._log.delete_old_segments(now_ms)
            except KafkaError as error:
                raise MetadataLogFailed(error.message) from error
            expired = self.snapshots.forget_before(start)
            removed += len(expired)
            await self._remove([*expired, *self._log.take_deleted_paths()])

    async def _remove(self, paths: list[str]) -> None:
        def remove() -> None:
            for path in paths:
                self._ports.disk.remove(path)

        await self._ports.workers.run(remove)

    def close(self) -> None:
        """After the last flush."""
        self._log.close()

    def abandon(self) -> None:
        """Lets go of the files as a crash would, without a flush."""
        self._log.close_files()

    async def write_state(self, state: QuorumState) -> None:
        """On the device when this returns. OSError."""
        path, data = f"{self.dir}/{QUORUM_STATE_FILE}", encode_quorum_state(state)
        await self._ports.workers.run(lambda: self._ports.disk.write_atomic(path, data))
        self.leader_epoch = state.leader_epoch
        if state.standing is VoterStanding.MEMBER:
            async with self._disk_turn:
                await self._note_acknowledged(self.flushed_end)
