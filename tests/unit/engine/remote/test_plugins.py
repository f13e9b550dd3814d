"""Plug-ins are found by entry point, opened with their settings, and held to their contract."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend.engine.config import BrokerConfig
from backend.engine.metrics import BrokerMetrics
from backend.engine.ports import system_ports, tasks
from backend.engine.remote.assembly import open_remote_log_manager
from backend.engine.remote.conformance.samples import data, segment
from backend.engine.remote.manager.remote_log_manager import RemoteLogManager
from backend.engine.remote.plugins import (
    IN_MEMORY,
    LOCAL_TIERED_STORAGE,
    METADATA_GROUP,
    OBJECT_STORE,
    STORAGE_GROUP,
    open_remote_storage,
)
from backend.engine.remote.storage.checked_storage import CheckedStorage
from backend.engine.remote.storage.object_store_manager import ObjectStoreRemoteStorageManager
from backend.engine.remote.storage.remote_storage_manager import IndexType, RemoteResourceNotFound, RemoteStorageError
from tests.conformance.memory_topic import MemoryMetadataTopic
from tests.unit.engine.remote.tiers import RecordingSink

PLUGIN = """
from backend.engine.remote.metadata.in_memory_metadata_manager import InMemoryRemoteLogMetadataManager
from backend.engine.remote.storage.object_store_manager import open_storage

opened = []

def storage(config):
    if config.get("bucket") is None:
        raise ValueError("rsm.config.bucket is missing")
    opened.append(dict(config))
    return open_storage({"url": "memory://"}, broker_id=int(config["broker.id"]))

def metadata(config, context):
    opened.append(dict(config))
    return InMemoryRemoteLogMetadataManager()

def broken(config):
    raise OSError("no network")
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that offers plug-ins, as an installer lays it out."""
    site = tmp_path / "site"
    (site / "tape_plugin-1.0.dist-info").mkdir(parents=True)
    (site / "tape_plugin.py").write_text(PLUGIN)
    (site / "tape_plugin-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tape-plugin\nVersion: 1.0\n"
    )
    (site / "tape_plugin-1.0.dist-info" / "entry_points.txt").write_text(
        f"[{STORAGE_GROUP}]\ntape = tape_plugin:storage\nbroken = tape_plugin:broken\nlost = no_such_module:storage\n"
        f"[{METADATA_GROUP}]\ntape = tape_plugin:metadata\n"
    )
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "tape_plugin", raising=False)


def opened(folder: Path, **settings: str) -> RemoteLogManager:
    """The remote log manager of a broker with these settings; underscores stand for dots."""
    config = BrokerConfig.parse({name.replace("_", "."): value for name, value in settings.items()})
    ports = system_ports()
    try:
        return open_remote_log_manager(
            broker_id=3,
            cluster_id="C",
            log_dir=str(folder),
            config=lambda: config,
            ports=ports,
            workers=ports.workers,
            topic=MemoryMetadataTopic(),
            events=RecordingSink(),
            metrics=BrokerMetrics(3),
            on_fatal=print,
        )
    finally:
        ports.workers.close()


def test_both_plug_ins_are_chosen_by_name_and_get_their_settings_and_whose_they_are(
    installed: None, tmp_path: Path
) -> None:
    manager = opened(
        tmp_path,
        remote_log_storage_manager_class_name="tape",
        rsm_config_bucket="b",
        remote_log_metadata_manager_class_name="tape",
        rlmm_config_place="here",
    )
    assert isinstance(manager.storage, CheckedStorage)
    import tape_plugin  # type: ignore[import-not-found]  # made by the fixture

    assert tape_plugin.opened == [
        {"bucket": "b", "broker.id": "3"},
        {"place": "here", "broker.id": "3", "cluster.id": "C", "log.dir": str(tmp_path)},
    ]


@pytest.mark.parametrize("name", ["", LOCAL_TIERED_STORAGE, OBJECT_STORE])
def test_built_in_storage_has_kafkas_name_and_one_of_its_own(name: str, tmp_path: Path) -> None:
    storage = open_remote_storage(name, {"dir": str(tmp_path / "remote"), "broker.id": "3"})
    assert isinstance(storage, ObjectStoreRemoteStorageManager)


def test_the_prefixes_of_the_settings_can_be_changed(tmp_path: Path) -> None:
    manager = opened(
        tmp_path,
        remote_log_storage_manager_impl_prefix="mine.",
        mine_dir=str(tmp_path / "remote"),
        remote_log_metadata_manager_class_name=IN_MEMORY,
    )
    assert isinstance(manager.storage, ObjectStoreRemoteStorageManager)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"remote_log_storage_manager_class_name": "nowhere"}, "is nowhere, which no installed .* known are .*tape"),
        ({"remote_log_metadata_manager_class_name": "nowhere"}, "is nowhere, which no .* known are in-memory, .*tape"),
        ({"remote_log_storage_manager_class_name": "tape"}, r"rsm\.config\.bucket is missing"),
        ({"remote_log_storage_manager_class_name": "broken"}, r"broken \(tape_plugin:broken\) cannot .*no network"),
        ({"remote_log_storage_manager_class_name": "lost"}, "lost .*cannot be opened: No module named"),
    ],
)
def test_a_plug_in_that_cannot_be_had_is_one_sentence_with_its_setting(
    installed: None, tmp_path: Path, settings: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        opened(tmp_path, **{"rsm_config_dir": str(tmp_path / "remote"), **settings})
    assert "\n" not in str(caught.value)


class Careless:
    """A storage that knows nothing of the contract."""

    def copy_log_segment_data(self, *_: Any) -> Any:
        return "text"

    def fetch_log_segment(self, *_: Any) -> Any:
        raise KeyError("bucket")

    def fetch_index(self, *_: Any) -> Any:
        return None

    def delete_log_segment_data(self, *_: Any) -> Any:
        raise RemoteResourceNotFound("nothing there")

    def close(self) -> None: ...


def test_a_careless_plug_in_fails_with_the_contracts_errors_only(tmp_path: Path) -> None:
    storage = CheckedStorage("careless", Careless())
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: storage.copy_log_segment_data(segment(), data(tmp_path)), "custom metadata is str, not bytes"),
        (lambda: storage.fetch_log_segment(segment(), 0), "KeyError: 'bucket'"),
        (lambda: storage.fetch_index(segment(), IndexType.OFFSET), "it returned NoneType, not bytes"),
    ]
    for call, problem in calls:
        with pytest.raises(RemoteStorageError, match=problem) as caught:
            call()
        assert "plug-in careless" in str(caught.value)
        assert "orders-0" in str(caught.value)
    storage.delete_log_segment_data(segment())


def test_a_broker_with_metadata_in_memory_starts_and_ends(tmp_path: Path) -> None:
    async def scene() -> None:
        ports = system_ports()
        config = BrokerConfig.parse(
            {"rsm.config.dir": str(tmp_path / "remote"), "remote.log.metadata.manager.class.name": IN_MEMORY}
        )
        manager = open_remote_log_manager(
            broker_id=1, cluster_id="C", log_dir=str(tmp_path), config=lambda: config, ports=ports,
            workers=ports.workers, topic=MemoryMetadataTopic(), events=RecordingSink(), metrics=BrokerMetrics(3),
            on_fatal=print,
        )  # fmt: skip
        await manager.start()
        await manager.close()
        ports.workers.close()

    tasks.run(scene())
