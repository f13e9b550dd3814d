"""The built-in storage keeps the contract wherever its objects lie. A plug-in's author writes such a class too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.engine.config import BrokerConfig
from backend.engine.ports.object_store import READ_RETRIES, READ_RETRIES_MAX
from backend.engine.remote.conformance.samples import LOG, data, segment
from backend.engine.remote.conformance.storage import RemoteStorageConformance
from backend.engine.remote.storage.object_store_manager import object_key, open_storage
from backend.engine.remote.storage.remote_storage_manager import (
    IndexType,
    RemoteStorageError,
    RemoteStorageManager,
    RetriableRemoteStorageError,
)
from tests.s3_server import KEY, REGION, S3Server


class TestFolder(RemoteStorageConformance):
    def open_storage(self, folder: str) -> RemoteStorageManager:
        return open_storage({"dir": f"{folder}/remote"}, broker_id=1)


class TestFolderByUrl(RemoteStorageConformance):
    def open_storage(self, folder: str) -> RemoteStorageManager:
        (Path(folder) / "remote").mkdir()
        return open_storage({"url": (Path(folder) / "remote").as_uri()}, broker_id=1)


class TestMemory(RemoteStorageConformance):
    def open_storage(self, folder: str) -> RemoteStorageManager:
        return open_storage({"url": "memory://"}, broker_id=1)


class TestS3(RemoteStorageConformance):
    """Against moto's S3; Azure and GCS, which obstore reaches the same way, are not tested."""

    @pytest.fixture(autouse=True, scope="class")
    def server(self, request: pytest.FixtureRequest) -> Iterator[S3Server]:
        with S3Server() as running:
            request.cls.s3 = running
            yield running

    s3: S3Server

    def open_storage(self, folder: str) -> RemoteStorageManager:
        return open_storage(self._settings(f"s3://bucket/{Path(folder).name}"), broker_id=1)

    def _settings(self, url: str) -> dict[str, str]:
        return {
            "url": url,
            "store.aws_endpoint": self.s3.endpoint,
            "store.aws_access_key_id": KEY,
            "store.aws_secret_access_key": KEY,
            "store.aws_region": REGION,
            "client.allow_http": "true",
        }

    def test_a_large_log_goes_up_in_parts_under_kafkas_names(self, tmp_path: Path) -> None:
        storage = self.open_storage(str(tmp_path))
        storage.copy_log_segment_data(segment(), data(tmp_path, log=bytes(12_000_000)))
        posts = [path for method, path in self.s3.requests if method == "POST" and tmp_path.name in path]
        assert [path.rpartition("?")[2].partition("=")[0] for path in posts] == ["uploads", "uploadId"]
        key = f"{tmp_path.name}/{object_key(segment(), 'log')}"
        # S3 names the number of parts in the tag of an object that came in parts.
        assert self.s3.client.head_object(Bucket="bucket", Key=key)["ETag"].strip('"').endswith("-3")
        assert "Uploads" not in self.s3.client.list_multipart_uploads(Bucket="bucket")

    def test_a_server_error_is_tried_again_and_a_refusal_is_final(self, tmp_path: Path) -> None:
        storage = self.open_storage(str(tmp_path))
        self.s3.fail_next[:] = [503, 500]
        storage.copy_log_segment_data(segment(), data(tmp_path))
        assert storage.fetch_log_segment(segment(), 0) == LOG
        self.s3.fail_next[:] = [403]
        with pytest.raises(RemoteStorageError) as caught:
            storage.fetch_index(segment(), IndexType.OFFSET)
        assert type(caught.value) is RemoteStorageError
        assert "test" not in str(caught.value).split(":")[0]

    def test_a_read_is_given_up_while_its_reader_still_waits_and_an_upload_is_not(self, tmp_path: Path) -> None:
        storage = self.open_storage(str(tmp_path))
        copied = self._copied(storage, segment(), tmp_path)
        reads: list[Callable[[], bytes]] = [
            lambda: storage.fetch_log_segment(copied, 0),
            lambda: storage.fetch_index(copied, IndexType.OFFSET),
        ]
        for read in reads:
            before = len(self.s3.requests)
            self.s3.fail_next[:] = [503] * 20
            with pytest.raises(RetriableRemoteStorageError, match="503"):
                read()
            assert len(self.s3.requests) - before == 1 + READ_RETRIES_MAX
        self.s3.fail_next[:] = [503] * (READ_RETRIES_MAX + 2)
        storage.copy_log_segment_data(segment(2), data(tmp_path))
        assert self.s3.fail_next == []
        pauses_s = READ_RETRIES_MAX * READ_RETRIES["backoff"]["max_backoff"].total_seconds()
        assert 1000 * pauses_s < BrokerConfig.parse({}).remote_fetch_max_wait_ms

    def test_a_bucket_that_is_not_there_has_neither_lost_nor_deleted_its_objects(self, tmp_path: Path) -> None:
        gone = open_storage(self._settings("s3://nowhere/prefix"), broker_id=1)
        calls: list[Callable[[], object]] = [
            lambda: gone.copy_log_segment_data(segment(), data(tmp_path)),
            lambda: gone.copy_log_segment_data(segment(), data(tmp_path, log=bytes(12_000_000))),
            lambda: gone.fetch_log_segment(segment(), 0),
            lambda: gone.fetch_index(segment(), IndexType.TRANSACTION),
            lambda: gone.delete_log_segment_data(segment()),
        ]
        for call in calls:
            with pytest.raises(RetriableRemoteStorageError, match="the bucket or container does not exist"):
                call()

    def test_settings_that_the_store_does_not_have_are_refused(self) -> None:
        for wrong in ({"store.aws_nonsense": "1"}, {"client.nonsense": "1"}):
            with pytest.raises(ValueError, match="nonsense"):
                open_storage({"url": "s3://bucket/x", **wrong}, broker_id=1)
