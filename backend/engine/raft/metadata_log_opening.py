"""Opening `__cluster_metadata-0`: tail, leader epochs and the voters' directories (`KafkaMetadataLog.apply`)."""

from __future__ import annotations

from backend.engine.common.topic_names import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from backend.engine.config import BrokerConfig
from backend.engine.log.local_log import FlushWork, sync_files
from backend.engine.log.log_config import INT64_MAX, LogConfig
from backend.engine.log.log_errors import CorruptLog
from backend.engine.log.recovery.log_loader import LoadOptions, open_log
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import Ports
from backend.engine.raft.metadata_log import BATCH_BYTES_MAX, READ_BYTES, MetadataLog
from backend.engine.raft.snapshot_files import SnapshotFiles, SnapshotId
from backend.engine.raft.voter_directories import VoterDirectoryHistory, directories_in
from backend.protocol.errors import DecodeError
from backend.protocol.record_batches.record_batch import BatchHeader, iter_batches
from backend.tiering.ids import TopicIdPartition


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
