"""The embedded cluster as a user has it: `ebbline up --process-per-broker`, with the remote tier on an S3 server."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from tests.incidents.expectations import RigForm
from tests.incidents.rigs import cluster_requests as requests
from tests.incidents.rigs.processes import KeptDown, is_alive
from tests.incidents.rigs.product import Product
from tests.incidents.rigs.rig_base import RETURN_S, RigBase
from tests.incidents.rigs.small_disks import CannotPlay, SmallDisk
from tests.incidents.rigs.store_faults import FaultyS3, StoreFaultNow
from tests.oracle.apache_kafka import answers_api_versions
from tests.waiting import wait_until

BROKERS: Final = (1, 2, 3)
OPTIONS: Final = ("--process-per-broker", "--cluster-name", "incidents")


class EmbeddedRig(RigBase):
    """Brokers are children of the supervisor, which starts one again that ends."""

    def __init__(self, folder: Path, form: RigForm) -> None:
        super().__init__()
        data = folder / "data"
        self._disks: dict[int, SmallDisk] = {}
        if form.shared_disk_mb:
            self._disks[0] = SmallDisk(data, form.shared_disk_mb)
        if form.small_disk_mb:
            self._disks[3] = SmallDisk(data / "brokers" / "3", form.small_disk_mb, folder / "broker-3.img")
        self._away: dict[int, KeptDown] = {}
        self._store = FaultyS3()
        self._store.__enter__()
        database = self.database_environment(folder, postgresql=form.postgresql)
        self.product = Product(data, OPTIONS, {**self._store.settings, **database})
        try:
            self.product.start()
            self.make_common_topics()
        except BaseException:
            self.close()
            raise

    @property
    def ports(self) -> dict[int, int]:
        return {broker: self.product.up.base + broker - 1 for broker in BROKERS}

    def pid(self, broker: int) -> int:
        return self.product.up.pid(f"broker-{broker}")

    # --- brokers
    def kill(self, *, broker: int) -> None:
        self._away[broker] = KeptDown(lambda: self.pid(broker), f"broker-{broker}.properties")

    def stop(self, *, broker: int) -> None:
        before = self.pid(broker)
        os.kill(before, signal.SIGTERM)
        wait_until(f"broker {broker} has ended", lambda: not is_alive(before), RETURN_S)
        self.kill(broker=broker)

    def start(self, *, broker: int, wait: bool = True) -> None:
        self._away.pop(broker).release()
        if wait:
            self._wait_for(broker)

    def _wait_for(self, broker: int) -> None:
        wait_until(f"broker {broker} answers", lambda: answers_api_versions(self.ports[broker]), RETURN_S)

    def restart(self, *, broker: int) -> None:
        before = self.pid(broker)
        os.kill(before, signal.SIGTERM)
        wait_until(f"broker {broker} is started again", lambda: self._started_after(broker, before), RETURN_S)
        self._wait_for(broker)
        self.wait_in_sync()

    def _started_after(self, broker: int, before: int) -> bool:
        try:
            return self.pid(broker) != before
        except (OSError, ValueError):
            return False

    def kill_all(self) -> None:
        for broker in BROKERS:
            self.kill(broker=broker)

    def start_all(self) -> None:
        away = sorted(self._away)
        for broker in away:
            self._away.pop(broker).release()
        for broker in away:
            self._wait_for(broker)

    # --- the store
    def fault_store(self, *, fault: str, topic: str = "", delay_ms: int = 0) -> None:
        self._store.fault(StoreFaultNow(fault, topic, delay_ms))

    def heal_store(self) -> None:
        self._store.fault(StoreFaultNow())

    def delete_objects(self, *, topic: str, segments: int) -> None:
        folders = f"-{requests.topic_id(self.live_port(), topic)}/" if topic else "/"
        if not self._store.take_away(folders, segments):
            raise RuntimeError(f"there is no object of {topic or 'any topic'} to take away")

    def restore_objects(self) -> None:
        self._store.put_back()

    # --- disks
    def fill_disk(self, *, broker: int, percent: int) -> None:
        self._disks[broker].fill(percent)

    def free_disk(self, *, broker: int) -> None:
        """Of broker 0: every small disk."""
        for owner, disk in self._disks.items():
            if broker in (0, owner):
                disk.free()

    def damage(self, *, broker: int, topic: str, partition: int) -> None:
        """Half of a file of records is gone, as after a file system's repair."""
        folder = self.product.up.data / "brokers" / str(broker) / "log" / f"{topic}-{partition}"
        path = max(folder.glob("*.log"), key=lambda file: file.stat().st_size)
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])

    # --- never asked for: the catalogue says why
    def kill_controller(self, *, nodes: Sequence[int]) -> None:
        _not_here()

    def lose_all_then_format(self, *, broker: int) -> None:
        _not_here()

    def save_by_hand(self, *, empty: int) -> None:
        _not_here()

    def lose_directory(self, *, broker: int) -> None:
        _not_here()

    def give_directory_back(self, *, broker: int) -> None:
        _not_here()

    def revoke(self, *, resource: str) -> None:
        _not_here()

    def grant(self, *, resource: str) -> None:
        _not_here()

    def close(self) -> None:
        self.end_clients()
        for kept in self._away.values():
            kept.release()
        self._away.clear()
        if hasattr(self, "product"):
            self.close_product()
        self._store.close()
        for disk in self._disks.values():
            disk.close()


def _not_here() -> NoReturn:
    raise CannotPlay("this is played on Apache Kafka only")
