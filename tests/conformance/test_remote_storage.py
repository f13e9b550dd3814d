"""The built-in storage keeps the contract wherever its objects lie. A plug-in's author writes such a class too."""

from __future__ import annotations

from pathlib import Path

from backend.engine.remote.conformance.storage import RemoteStorageConformance
from backend.engine.remote.rsm import RemoteStorageManager
from backend.engine.remote.rsm_object_store import open_storage


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
