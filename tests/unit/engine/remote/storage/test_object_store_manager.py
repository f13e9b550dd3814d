"""The layout of Kafka's LocalTieredStorage, its history of calls, and the kinds of failures."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from obstore.exceptions import GenericError

from backend.engine.log.checkpoint_files import decode_epochs
from backend.engine.ports.object_store import ObjectStore, open_object_store
from backend.engine.remote.conformance.samples import data, segment
from backend.engine.remote.storage.object_store_manager import (
    EventType,
    ObjectStoreRemoteStorageManager,
    check_location,
    former_object_key,
    object_key,
    open_storage,
)
from backend.engine.remote.storage.remote_storage_manager import (
    IndexType,
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from backend.protocol.record_batches.record_batch import crc_valid, iter_batches
from backend.protocol.remote_log.metadata_serde import SegmentMetadata, decode
from backend.tiering.ids import TopicIdPartition
from tests.unit.engine.log.logs import FIXTURES


def test_names_are_those_of_local_tiered_storage() -> None:
    folder, name = object_key(segment(number=17, start=42), "log").rsplit("/", 1)
    assert folder == "kafka-tiered-storage/orders-0-AQIDBAUGBwgJCgsMDQ4PEA"
    assert name == "00000000000000000042-EREREREREREREREREREREQ.log"


LONG = TopicIdPartition("t" * 249, bytes(range(1, 17)), 1_234_567)


def test_every_part_of_a_key_fits_a_file_system_and_the_key_s3() -> None:
    key = object_key(segment(partition=LONG), "leader_epoch_checkpoint")
    assert max(len(part) for part in key.split("/")) == 255
    assert len(key) < 1024
    assert key.split("/")[1].endswith("-1234567-AQIDBAUGBwgJCgsMDQ4PEA")
    assert former_object_key(segment(), "log") is None
    assert former_object_key(segment(partition=LONG._replace(topic="t" * 224)), "log") is None


def test_what_an_earlier_version_put_under_a_longer_key_is_read_and_deleted(tmp_path: Path) -> None:
    """As S3 takes it; a folder never had such a file."""
    store = open_object_store("memory://")
    storage = ObjectStoreRemoteStorageManager(store, broker_id=1)
    metadata = segment(partition=LONG)
    for suffix, content in (("log", b"log bytes"), ("index", b"offsets")):
        key = former_object_key(metadata, suffix)
        assert key is not None
        store.put(key, content)
    assert storage.fetch_log_segment(metadata._replace(segment_size_bytes=9), 4) == b"bytes"
    assert storage.fetch_log_segment(metadata._replace(segment_size_bytes=9), 9) == b""
    assert storage.fetch_index(metadata, IndexType.OFFSET) == b"offsets"
    storage.delete_log_segment_data(metadata)
    assert store.list("kafka-tiered-storage") == []


def test_files_of_a_copy_and_what_is_left_after_deletion(tmp_path: Path) -> None:
    storage = open_storage({"dir": str(tmp_path / "remote")}, broker_id=7)
    storage.copy_log_segment_data(segment(), data(tmp_path, txn=b"aborted"))
    folder = tmp_path / "remote" / "kafka-tiered-storage" / "orders-0-AQIDBAUGBwgJCgsMDQ4PEA"
    suffixes = {path.name.split(".", 1)[1] for path in folder.iterdir()}
    assert suffixes == {"log", "index", "timeindex", "txnindex", "snapshot", "leader_epoch_checkpoint"}
    storage.delete_log_segment_data(segment())
    assert list(folder.iterdir()) == []
    storage.copy_log_segment_data(segment(), data(tmp_path, epochs=b""))
    assert not list(folder.glob("*.leader_epoch_checkpoint"))
    assert [(event.type, event.broker_id, event.succeeded) for event in storage.history] == [
        (EventType.COPY_SEGMENT, 7, True),
        (EventType.DELETE_SEGMENT, 7, True),
        (EventType.COPY_SEGMENT, 7, True),
    ]


def test_delete_enable_and_delete_on_close(tmp_path: Path) -> None:
    kept = open_storage({"dir": str(tmp_path / "remote"), "delete.enable": "false"}, broker_id=1)
    kept.copy_log_segment_data(segment(), data(tmp_path))
    kept.delete_log_segment_data(segment())
    assert kept.fetch_index(segment(), IndexType.OFFSET) == b"offsets"
    kept.close()
    swept = open_storage({"dir": str(tmp_path / "remote"), "delete.on.close": "true"}, broker_id=1)
    swept.close()
    assert open_object_store(str(tmp_path / "remote")).list("kafka-tiered-storage") == []


@pytest.mark.parametrize(
    "config", [{}, {"dir": ""}, {"dir": "x", "delete.enable": "maybe"}, {"url": "nonsense://bucket"}]
)
def test_wrong_settings_are_refused_with_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"rsm\.config|nonsense"):
        open_storage(config, broker_id=1)


class Broken:
    """A store whose every call fails."""

    def __init__(self, real: ObjectStore, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> object:
        def fail(*_: object) -> None:
            raise self._error

        return fail


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FileNotFoundError("gone"), RemoteResourceNotFound),
        (PermissionError("no"), RemoteStorageError),
        (OSError("unreachable"), RetriableRemoteStorageError),
        (TimeoutError("slow"), RetriableRemoteStorageError),
    ],
)
def test_failures_are_told_apart(tmp_path: Path, error: Exception, expected: type[Exception]) -> None:
    real = open_object_store(str(tmp_path))
    storage = ObjectStoreRemoteStorageManager(Broken(real, error), broker_id=1)  # type: ignore[arg-type]  # by getattr
    with pytest.raises(RemoteStorageError) as caught:
        storage.fetch_index(segment(), IndexType.OFFSET)
    assert type(caught.value) is expected
    assert [event.succeeded for event in storage.history] == [False]


UNREACHABLE = """

Generic S3 error: Error performing PUT http://127.0.0.1:1/bucket in 3.4s, after 10 retries

Debug source:
Generic {
    store: "S3",
}"""


def test_only_the_first_line_of_the_stores_message_is_told_and_once_per_segment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken(open_object_store(str(tmp_path)), GenericError(UNREACHABLE))
    storage = ObjectStoreRemoteStorageManager(broken, broker_id=1)  # type: ignore[arg-type]  # by getattr
    with caplog.at_level(logging.DEBUG, "backend.engine.remote"), pytest.raises(RetriableRemoteStorageError) as caught:
        storage.copy_log_segment_data(segment(), data(tmp_path))
    first_line = "Generic S3 error: Error performing PUT http://127.0.0.1:1/bucket in 3.4s, after 10 retries"
    assert str(caught.value).endswith(f"failed: {first_line}")
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith(f"retention tries again: {first_line}")
    assert "orders-0" in line


@pytest.mark.parametrize("location", ["foo://bar", "s3://", "az://container", "://", "memory://x", "http:// bad"])
def test_a_location_that_can_never_be_opened_is_one_sentence_with_the_setting(location: str) -> None:
    with pytest.raises(ValueError, match="EBBLINE_REMOTE_LOCATION") as caught:
        check_location(location)
    sentence = str(caught.value)
    assert sentence.startswith(f"The remote location {location} cannot be used (")
    assert "\n" not in sentence


def test_checking_a_location_creates_nothing(tmp_path: Path) -> None:
    check_location(str(tmp_path / "remote"))
    check_location("s3://bucket/prefix")
    check_location("memory://")
    assert list(tmp_path.iterdir()) == []


def test_the_history_is_bounded(tmp_path: Path) -> None:
    storage = ObjectStoreRemoteStorageManager(open_object_store(str(tmp_path)), broker_id=1, history_events_max=3)
    for _ in range(5):
        storage.delete_log_segment_data(segment())
    assert len(storage.history) == 3


def finished_segments() -> list[SegmentMetadata]:
    by_id: dict[bytes, SegmentMetadata] = {}
    for line in (FIXTURES / "metadata-records.jsonl").read_text().splitlines():
        event = decode(bytes.fromhex(json.loads(line)["value"]))
        if isinstance(event, SegmentMetadata):
            by_id[event.segment_id] = event
        else:
            by_id[event.segment_id] = by_id[event.segment_id].updated(event)  # type: ignore[union-attr,arg-type]
    return [metadata for metadata in by_id.values() if metadata.state.name == "COPY_SEGMENT_FINISHED"]


@pytest.mark.parametrize(
    "metadata", finished_segments(), ids=lambda m: f"{m.topic_id_partition.topic}-{m.start_offset}"
)
def test_a_tree_written_by_kafka_is_read(metadata: SegmentMetadata) -> None:
    storage = open_storage({"dir": str(FIXTURES / "remote")}, broker_id=1)
    log = storage.fetch_log_segment(metadata, 0)
    assert len(log) == metadata.segment_size_bytes
    batches = list(iter_batches(log))
    assert all(crc_valid(log, position, header) for position, header in batches)
    assert (batches[0][1].base_offset, batches[-1][1].last_offset) == (metadata.start_offset, metadata.end_offset)
    epochs = decode_epochs(storage.fetch_index(metadata, IndexType.LEADER_EPOCH))
    assert epochs[-1][0] == metadata.segment_leader_epochs[-1][0]
    if metadata.txn_index_empty:
        with pytest.raises(RemoteResourceNotFound):
            storage.fetch_index(metadata, IndexType.TRANSACTION)
    else:
        assert storage.fetch_index(metadata, IndexType.TRANSACTION)
