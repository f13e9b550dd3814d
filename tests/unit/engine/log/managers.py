"""Log managers over folders of a test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from backend.engine.log.log_config import LogConfig, LogManagerConfig
from backend.engine.log.manager.log_manager import LogManager
from backend.tiering.ids import TopicIdPartition, TopicPartition
from tests.unit.engine.virtual_time import ports_here, run_virtual

CLUSTER = "cluster-of-the-tests"
ID = bytes(range(1, 17))
CONFIG = LogConfig(file_delete_delay_ms=0, index_interval_bytes=1)
ORDERS = TopicPartition("orders", 0)


def tip(topic: str = "orders", partition: int = 0, topic_id: bytes = ID) -> TopicIdPartition:
    return TopicIdPartition(topic, topic_id, partition)


async def start(
    folder: Path, *, dirs: int = 1, config: LogManagerConfig | None = None, has_others: bool = False
) -> LogManager:
    paths = [str(folder / f"log{number}") for number in range(dirs)]
    manager = LogManager(ports_here(), config or LogManagerConfig(default_log=CONFIG), paths)
    manager.directories.open_dirs(CLUSTER, 1)
    await manager.load_all(has_others=lambda _: has_others)
    return manager


def run(play: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await play()

    run_virtual(main())
