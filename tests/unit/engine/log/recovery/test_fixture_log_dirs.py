"""Log directories written by Apache Kafka 4.3.1 brokers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from backend.engine.log.checkpoint_files import decode_clean_shutdown, decode_meta_properties, decode_offsets
from backend.engine.log.log_config import LogConfig
from backend.engine.log.manager.log_directory import read_topic_id
from backend.engine.log.producers.producer_snapshot import decode_snapshot
from backend.engine.log.recovery.log_loader import LoadOptions, open_log
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports.disk import OsDisk
from backend.engine.ports.random import SystemRandom
from backend.protocol.record_batches.record_batch import iter_batches
from backend.tiering.ids import TopicIdPartition, TopicPartition, uuid_text
from tests.unit.engine.log.logs import FIXTURES

LOG_DIRS = FIXTURES / "logdirs"
# Producers of the fixtures must not expire: the day of the run.
RUN_MS = 1_795_000_000_000
FOLDERS = [
    (broker.name, folder.name)
    for broker in sorted(LOG_DIRS.iterdir())
    for folder in sorted(broker.iterdir())
    if folder.is_dir()
]
CONFIG = LogConfig(index_interval_bytes=1, remote_storage_enable=True)


def opened(tmp_path: Path, broker: str, folder: str, *, clean: bool) -> UnifiedLog:
    shutil.copytree(LOG_DIRS / broker / folder, tmp_path / folder)
    topic, _, partition = folder.rpartition("-")
    points = decode_offsets((LOG_DIRS / broker / "recovery-point-offset-checkpoint").read_bytes())
    starts = decode_offsets((LOG_DIRS / broker / "log-start-offset-checkpoint").read_bytes())
    key = TopicPartition(topic, int(partition))
    disk = OsDisk()
    tip = TopicIdPartition(topic, read_topic_id(disk, str(tmp_path / folder)), int(partition))
    options = LoadOptions(
        recovery_point=points[key] if clean else 0,
        log_start_offset=starts.get(key, 0),
        clean_shutdown=clean,
        remote_system_enabled=True,
    )
    return open_log(disk, SystemRandom(1), str(tmp_path / folder), tip, CONFIG, options, now_ms=RUN_MS)


def high_watermark(broker: str, folder: str) -> int:
    topic, _, partition = folder.rpartition("-")
    data = (LOG_DIRS / broker / "replication-offset-checkpoint").read_bytes()
    return decode_offsets(data)[TopicPartition(topic, int(partition))]


@pytest.mark.parametrize(("broker", "folder"), FOLDERS)
def test_a_log_of_kafka_opens_cleanly_and_its_files_stay_as_they_are(tmp_path: Path, broker: str, folder: str) -> None:
    log = opened(tmp_path, broker, folder, clean=True)
    log.check()
    assert log.log_end_offset == high_watermark(broker, folder)
    epochs = (LOG_DIRS / broker / folder / "leader-epoch-checkpoint").read_text().split()[2:]
    entries = [(int(e), int(o)) for e, o in zip(epochs[::2], epochs[1::2], strict=True)]
    # Kafka drops an epoch without records at the log end, too, when it loads.
    assert list(log.leader_epochs.entries) == [(e, o) for e, o in entries if o < log.log_end_offset]
    log.close()
    for original in (LOG_DIRS / broker / folder).iterdir():
        if original.name != "leader-epoch-checkpoint":
            assert (tmp_path / folder / original.name).read_bytes() == original.read_bytes(), original.name


@pytest.mark.parametrize(("broker", "folder"), FOLDERS)
def test_indexes_rebuilt_from_the_batches_equal_kafkas(tmp_path: Path, broker: str, folder: str) -> None:
    # No recovery point and no marker: every segment is scanned and every index rebuilt.
    log = opened(tmp_path, broker, folder, clean=False)
    log.close()
    for original in (LOG_DIRS / broker / folder).iterdir():
        if original.suffix in (".index", ".timeindex", ".txnindex", ".log"):
            rebuilt = (tmp_path / folder / original.name).read_bytes()
            assert rebuilt == original.read_bytes(), original.name


@pytest.mark.parametrize(("broker", "folder"), FOLDERS)
def test_every_batch_is_found_by_each_of_its_offsets(tmp_path: Path, broker: str, folder: str) -> None:
    log = opened(tmp_path, broker, folder, clean=True)
    for segment in log.segments:
        for position, header in iter_batches(segment.files.pread(segment.size_bytes, 0)):
            for offset in range(max(header.base_offset, log.log_start_offset), header.next_offset):
                info = log.reader.read(offset, 1, up_to_offset=log.log_end_offset, min_one_message=True)
                assert (info.segment_base_offset, info.position) == (segment.base_offset, position)
                assert len(info.records) == header.size_bytes


def test_every_producer_snapshot_encodes_to_its_own_bytes() -> None:
    from backend.engine.log.producers.producer_snapshot import encode_snapshot, java_map_order

    count = 0
    for path in sorted(LOG_DIRS.rglob("*.snapshot")):
        entries = decode_snapshot(path.read_bytes())
        assert encode_snapshot(entries) == path.read_bytes(), path
        ids = [entry.producer_id for entry in entries]
        assert java_map_order(sorted(ids, reverse=True)) == ids, path
        count += len(entries)
    assert count > 0


def test_aborted_transactions_equal_those_that_kafka_answered(tmp_path: Path) -> None:
    log = opened(tmp_path, "broker-1", "clicks-0", clean=True)
    log.update_high_watermark(log.log_end_offset)
    compared = 0
    for answer in _read_committed():
        offset, expected = answer
        if offset < log.segments.first_base_offset:
            continue
        info = log.reader.read(offset, 1 << 20, up_to_offset=log.last_stable_offset, min_one_message=True)
        aborted = log.reader.aborted_in(offset, info)
        assert {(txn.producer_id, txn.first_offset) for txn in aborted} == expected, offset
        compared += 1
    assert compared > 0


def _read_committed() -> list[tuple[int, set[tuple[int, int]]]]:
    document = json.loads((FIXTURES / "read-committed.json").read_text())
    fetches = []
    for row in document["fetches"]:
        aborted = {(txn["producer_id"], txn["first_offset"]) for txn in row["aborted"]}
        fetches.append((row["offset"], aborted))
    return fetches


def test_identity_and_marker_files_are_understood() -> None:
    for broker in sorted(LOG_DIRS.iterdir()):
        meta = decode_meta_properties((broker / "meta.properties").read_bytes(), str(broker))
        assert broker.name == f"broker-{meta.node_id}"
        assert len(uuid_text(meta.directory_id)) == 22
        assert decode_clean_shutdown((broker / ".kafka_cleanshutdown").read_bytes()) > 0
