"""`__cluster_metadata-0` on disk: append, flush, read up to the high watermark (Kafka's KafkaMetadataLog)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from backend.engine.common.topic_names import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from backend.engine.config import BrokerConfig
from backend.engine.log.local_log import FlushWork, sync_files
from backend.engine.log.log_config import INT64_MAX, LogConfig
from backend.engine.log.log_errors import CorruptLog, NoSpace
from backend.engine.log.recovery.log_loader import LoadOptions, open_log
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import Ports, tasks
from backend.engine.raft.acknowledged import Acknowledged, AcknowledgedFiles
from backend.engine.raft.quorum_state import QUORUM_STATE_FILE, QuorumState, VoterStanding, encode_quorum_state
from backend.engine.raft.raft_state import LogEnd
from backend.engine.raft.snapshot_files import SnapshotFiles, SnapshotId, keep_from
from backend.engine.raft.voter_directories import UNKNOWN, VoterDirectories, VoterDirectoryHistory, directories_in
from backend.protocol import cluster_metadata
from backend.protocol.buffers import Buffer
from backend.protocol.errors import DecodeError, KafkaError
from backend.protocol.messages import Message
from backend.protocol.record_batches.control_records import leader_change, voters
from backend.protocol.record_batches.record_batch import BatchHeader, build_batch, crc_valid, iter_batches, iter_records
from backend.protocol.record_batches.record_codec import RecordData
from backend.tiering.ids import TopicIdPartition

# KafkaRaftClient.MAX_BATCH_SIZE_BYTES: 10,000 records of a command, with room for long replica lists.
BATCH_BYTES_MAX: Final = 8 << 20
BATCH_RECORDS_MAX: Final = 10_000
READ_BYTES: Final = 4 << 20


class MetadataLogFailed(OSError):
    """The metadata log cannot be written or read any longer; the node cannot be a controller."""


@dataclass(frozen=True, slots=True)
class MetadataBatch:
    """A batch of metadata records as it stands in the log; control batches have no records."""

    base_offset: int
    last_offset: int
    epoch: int
    records: tuple[object, ...]
    timestamp_ms: int = 0
    size_bytes: int = 0


def decode_record(value: bytes | None) -> object:
    """One record, as `cluster_metadata.decode`."""
    return cluster_metadata.decode(value)[0]


def decode_batches(
    data: bytes | bytearray | memoryview, decode: Callable[[bytes | None], object] = decode_record
) -> Iterator[MetadataBatch]:
    """Whole batches with their records; DecodeError for a bad CRC or a record that cannot be read.

    Records of a kind that Kafka 4.3 does not have come as `cluster_metadata.UnknownRecord`.
    """
    for position, header in iter_batches(data):
        if not crc_valid(data, position, header):
            raise DecodeError(f"the metadata batch at offset {header.base_offset} has a wrong CRC")
        records: tuple[object, ...] = ()
        if not header.is_control:
            records = tuple(decode(record.value) for record in iter_records(data, position))
        yield MetadataBatch(
            header.base_offset,
            header.last_offset,
            header.leader_epoch,
            records,
            header.max_timestamp,
            header.size_bytes,
        )


def encode_batch(records: Sequence[Message], *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    """One batch, which is atomic in the log; every record in the newest version, as metadata version 4.3-IV0 has it."""
    data = [RecordData(now_ms, None, cluster_metadata.encode(record, record.MAX_VERSION)) for record in records]
    return build_batch(data, base_offset=base_offset, leader_epoch=epoch)


async def open_metadata_log(ports: Ports, config: BrokerConfig) -> MetadataLog:
    """The log in `metadata.log.dir`; an invalid tail (never acknowledged) is cut off. Raises CorruptLog or OSError."""
    folder = f"{config.metadata_dir}/{CLUSTER_METADATA_TOPIC}-0"
    log_config = LogConfig(
        segment_bytes=config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
        max_message_bytes=BATCH_BYTES_MAX,
        retention_ms=-1,
        retention_bytes=-1,
    )
    tip = TopicIdPartition(CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID, 0)
    # Everything that was ever answered is on the device, so damage before the tail is never cut off silently.
    # A power failure may tear its last segment alone.
    options = LoadOptions(recovery_point=INT64_MAX, flush_before_roll=True)
    now_ms = ports.clock.time_ms()

    def opened() -> tuple[UnifiedLog, SnapshotFiles, VoterDirectoryHistory]:
        log = open_log(ports.disk, ports.random, folder, tip, log_config, options, now_ms=now_ms)
        # Records that a killed process has left to the operating system count as flushed from now on.
        active = FlushWork((log.active_segment.files.log_path,), log.dir, log.log_end_offset)
        sync_files(ports.disk, active)
        _restore_epochs(log)
        snapshots = SnapshotFiles(ports.disk, folder)
        latest = snapshots.latest
        if latest is not None and not _leads_to(log, latest):
            # A crash after a snapshot was fetched and before the log was truncated to it: the log is older, or another
            # one.
            log.truncate_fully_and_start_at(latest.end_offset)
        return log, snapshots, _directories(log, snapshots)

    log, snapshots, directories = await ports.workers.run(opened)
    return MetadataLog(ports, log, snapshots, directories)


def _directories(log: UnifiedLog, snapshots: SnapshotFiles) -> VoterDirectoryHistory:
    """The voters' directories from snapshot and log. CorruptLog, OSError."""
    latest = snapshots.latest
    history, offset = VoterDirectoryHistory(), log.log_start_offset
    snapshot = snapshots.voter_directories(latest) if latest is not None and latest.end_offset >= offset else None
    if latest is not None and snapshot is not None:
        history, offset = VoterDirectoryHistory(snapshot), latest.end_offset
    try:
        while offset < log.log_end_offset:
            data = log.reader.read(offset, READ_BYTES, up_to_offset=log.log_end_offset, min_one_message=True).records
            for at, directories in directories_in(data):
                history.add(at, directories)
            offset = max(header.next_offset for _, header in iter_batches(data))
    except DecodeError as error:
        raise CorruptLog(f"{log.dir} has a record of the voters that cannot be read: {error}") from error
    return history


def _leads_to(log: UnifiedLog, snapshot: SnapshotId) -> bool:
    """Whether the log goes through the last record that the snapshot stands for, or begins behind it."""
    if log.log_end_offset < snapshot.end_offset or log.log_start_offset >= snapshot.end_offset:
        return log.log_end_offset >= snapshot.end_offset
    return log.leader_epochs.epoch_for_offset(snapshot.end_offset - 1) == snapshot.epoch


def _restore_epochs(log: UnifiedLog) -> None:
    """A power failure may take the epoch file, or its last changes, and leave the records: they say it again.

    Without it this node would take its log for less than it is and vote for one that lacks what is committed. Both ends
    of every segment are compared; only when one does not fit is the whole log looked through.
    """
    epochs, start, end = log.leader_epochs, log.log_start_offset, log.log_end_offset
    bases = [segment.base_offset for segment in log.segments]
    ends = {offset for base in (*bases, end) for offset in (base - 1, base) if start <= offset < end}
    if all(epochs.epoch_for_offset(offset) == _headers(log, offset, 1)[0].leader_epoch for offset in ends):
        return
    restored: list[tuple[int, int]] = []
    offset = start
    while offset < end:
        for header in _headers(log, offset, READ_BYTES):
            if not restored or header.leader_epoch > restored[-1][0]:
                restored.append((header.leader_epoch, max(header.base_offset, start)))
            offset = header.next_offset
    epochs.clear()
    epochs.assign_all(restored)


def _headers(log: UnifiedLog, offset: int, max_bytes: int) -> list[BatchHeader]:
    """The headers of the batch that holds the offset and of the batches behind it."""
    read = log.reader.read(offset, max_bytes, up_to_offset=log.log_end_offset, min_one_message=True)
    return [header for _, header in iter_batches(read.records)]


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
