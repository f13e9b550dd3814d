"""A broker's choice of storage and metadata manager: built-in ones by Kafka's class names, others by entry point.

A distribution that is installed in the same environment offers a plug-in in its ``pyproject.toml``::

    [project.entry-points."ebbline.remote_storage_managers"]
    my-storage = "my_package.storage:open_storage"

and a broker asks for it with ``remote.log.storage.manager.class.name=my-storage``. The entry point is a function:
`OpenStorage` for ``remote.log.storage.manager.class.name``, `OpenMetadataManager` for
``remote.log.metadata.manager.class.name``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Final

from backend.engine.common.event_sink import EventSink
from backend.engine.common.unreadable_records import UnreadableRecords
from backend.engine.ports import ObjectStore, Ports
from backend.engine.ports.object_store import open_object_store
from backend.engine.remote.metadata.in_memory_metadata_manager import InMemoryRemoteLogMetadataManager
from backend.engine.remote.metadata.metadata_topic import MetadataTopic
from backend.engine.remote.metadata.remote_log_metadata_cache import Overlap
from backend.engine.remote.metadata.remote_log_metadata_manager import RemoteLogMetadataManager
from backend.engine.remote.metadata.topic_based_metadata_manager import RlmmSettings, TopicBasedRemoteLogMetadataManager
from backend.engine.remote.storage.checked_storage import CheckedStorage
from backend.engine.remote.storage.object_store_manager import open_storage
from backend.engine.remote.storage.remote_storage_manager import RemoteStorageManager

STORAGE_SETTING: Final = "remote.log.storage.manager.class.name"
METADATA_SETTING: Final = "remote.log.metadata.manager.class.name"
STORAGE_GROUP: Final = "ebbline.remote_storage_managers"
METADATA_GROUP: Final = "ebbline.remote_log_metadata_managers"

LOCAL_TIERED_STORAGE: Final = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
OBJECT_STORE: Final = "object-store"
TOPIC_BASED: Final = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
IN_MEMORY: Final = "in-memory"

OpenStorage = Callable[[Mapping[str, str]], RemoteStorageManager]
"""Gets what stands under ``rsm.config.``, without the prefix, and ``broker.id``. ValueError names a wrong setting."""


@dataclass(frozen=True, slots=True)
class MetadataContext:
    """The parts of a broker that its metadata manager may use. `topic` is its access to ``__remote_log_metadata``,
    unused by a manager that stores elsewhere; `on_fatal` is called with the reason why the broker must not go on.
    """

    ports: Ports
    topic: MetadataTopic
    events: EventSink
    on_fatal: Callable[[str], None]
    overlap: str
    unreadable_records: UnreadableRecords = field(default_factory=UnreadableRecords)


OpenMetadataManager = Callable[[Mapping[str, str], MetadataContext], RemoteLogMetadataManager]
"""Gets what stands under ``rlmm.config.``, without the prefix, and ``broker.id``, ``cluster.id`` and ``log.dir``."""


def open_remote_storage(
    name: str | None, config: Mapping[str, str], open_store: Callable[..., ObjectStore] = open_object_store
) -> RemoteStorageManager:
    """The storage of this name; None or empty for the built-in one. ValueError says what is wrong."""
    if not name or name in (LOCAL_TIERED_STORAGE, OBJECT_STORE):
        return open_storage(config, broker_id=int(config["broker.id"]), open_store=open_store)
    opened: RemoteStorageManager = _opened(
        STORAGE_SETTING, name, (LOCAL_TIERED_STORAGE, OBJECT_STORE), STORAGE_GROUP, lambda open_: open_(config)
    )
    return CheckedStorage(name, opened)


def open_metadata_manager(name: str, config: Mapping[str, str], context: MetadataContext) -> RemoteLogMetadataManager:
    """The metadata manager of this name. ValueError says what is wrong."""
    if name == TOPIC_BASED:
        return TopicBasedRemoteLogMetadataManager(
            context.topic,
            RlmmSettings.parse(config, context.overlap),
            context.ports,
            context.events,
            on_fatal=context.on_fatal,
            unreadable_records=context.unreadable_records,
        )
    if name == IN_MEMORY:
        return InMemoryRemoteLogMetadataManager(Overlap(context.overlap))
    opened: RemoteLogMetadataManager = _opened(
        METADATA_SETTING, name, (TOPIC_BASED, IN_MEMORY), METADATA_GROUP, lambda open_: open_(config, context)
    )
    return opened


def _opened(
    setting: str, name: str, built_in: tuple[str, ...], group: str, open_: Callable[[Callable[..., Any]], Any]
) -> Any:
    """Returns the object that the entry point of this name makes. A plug-in's failure becomes one sentence."""
    offered = {entry.name: entry for entry in entry_points(group=group)}
    if name not in offered:
        names = ", ".join(sorted({*built_in, *offered}))
        raise ValueError(
            f"{setting} is {name}, which no installed distribution offers as entry point of {group}; known are {names}"
        )
    try:
        return open_(offered[name].load())
    except ValueError:
        raise
    except Exception as error:  # the plug-in is others' code: the start ends with a sentence that names it
        raise ValueError(f"{setting}: the plug-in {name} ({offered[name].value}) cannot be opened: {error}") from error
