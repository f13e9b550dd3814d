"""A real Apache Kafka with `ebbline up --attach … --allow-changes` beside it, as a user with exactly its rights."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.incidents.expectations import RigForm
from tests.incidents.rigs import cluster_requests as requests
from tests.incidents.rigs import faulty_store
from tests.incidents.rigs.apache_cluster import BROKERS, CREDENTIALS, ApacheCluster
from tests.incidents.rigs.cluster_clients import ADMIN_S
from tests.incidents.rigs.product import Product
from tests.incidents.rigs.rig_base import RigBase
from tests.incidents.rigs.small_disks import CannotPlay, SmallDisk
from tests.incidents.rigs.store_faults import StoreFaultNow
from tests.waiting import wait_until

# The tables of docs/attach.md, with the second one since changes are allowed.
RIGHTS: Final = {
    "cluster": (ResourceType.BROKER, "kafka-cluster", ("DESCRIBE", "DESCRIBE_CONFIGS", "ALTER", "ALTER_CONFIGS")),
    "topics": (ResourceType.TOPIC, "*", ("DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "DELETE")),
    "metadata": (ResourceType.TOPIC, "__remote_log_metadata", ("READ",)),
    "groups": (ResourceType.GROUP, "*", ("DESCRIBE",)),
    # To name whose transaction it is.
    "transactions": (ResourceType.TRANSACTIONAL_ID, "*", ("DESCRIBE",)),
    "held": (ResourceType.TOPIC, "held", ("READ",)),
}
ALL: Final = "all"
# A broker that was killed is fenced after its session's time (broker.session.timeout.ms, 25 s at most).
FENCED_S: Final = 60.0
SECOND_DIRECTORY_MB: Final = 400


class ApacheRig(RigBase):
    """Brokers stay away until they are started: nobody supervises them."""

    def __init__(self, folder: Path, form: RigForm) -> None:
        super().__init__()
        self.cluster = ApacheCluster(folder / "cluster", form)
        self._disks: dict[int, SmallDisk] = {}
        self._taken = folder / "taken-objects"
        home = self.cluster.folder
        if form.shared_disk_mb:
            self._disks[0] = SmallDisk(home, form.shared_disk_mb)
        if form.small_disk_mb:
            self._disks[3] = SmallDisk(home / "broker-3" / "data", form.small_disk_mb)
        if form.two_directories:
            self._disks[3] = SmallDisk(home / "broker-3" / "data-b", SECOND_DIRECTORY_MB)
        try:
            self.cluster.start()
            self.grant(resource=ALL)
            properties = folder / "client.properties"
            properties.write_text("".join(f"{name}={value}\n" for name, value in CREDENTIALS.items()))
            attach = ("--attach", self.cluster.outside, "--client-properties", str(properties), "--allow-changes")
            metrics = ("--broker-metrics", self.cluster.metrics, "--cluster-name", "incidents")
            database = self.database_environment(folder, postgresql=form.postgresql)
            self.product = Product(folder / "data", (*attach, *metrics), database)
            self.product.start()
            self.make_common_topics()
        except BaseException:
            self.close()
            raise

    @property
    def ports(self) -> dict[int, int]:
        return {broker: self.cluster.base + broker - 1 for broker in BROKERS}

    def pid(self, broker: int) -> int:
        return self.cluster.pid(broker)

    # --- brokers
    def kill(self, *, broker: int) -> None:
        self.cluster.end(broker)

    def stop(self, *, broker: int) -> None:
        self.cluster.end(broker, how=signal.SIGTERM)

    def start(self, *, broker: int, wait: bool = True) -> None:
        self.cluster.begin(broker, wait=wait)

    def restart(self, *, broker: int) -> None:
        self.cluster.end(broker, how=signal.SIGTERM)
        self.cluster.begin(broker)
        self.wait_in_sync()

    def kill_all(self) -> None:
        self.cluster.end(*BROKERS)

    def start_all(self) -> None:
        away = self.cluster.away()
        if away:
            self.cluster.begin(*away)

    def kill_controller(self, *, nodes: Sequence[int]) -> None:
        self.cluster.end(*nodes)

    def lose_all_then_format(self, *, broker: int) -> None:
        others = [other for other in BROKERS if other != broker]
        for number, other in enumerate(others, start=1):
            self.cluster.end(other)
            left = len(BROKERS) - number
            wait_until(f"broker {other} is fenced", partial(self._are_registered, broker, left), FENCED_S)
        self.cluster.end(broker)
        # It is no last leader before, and no broker is left who could be asked.
        wait_until(f"broker {broker} is fenced", partial(self.cluster.has_fenced, broker), FENCED_S)
        self.cluster.new_disk(broker)
        self.cluster.begin(*others)
        port = self.ports[others[0]]
        wait_until(
            f"broker {broker} is fenced and was the last leader of some partitions",
            lambda: broker not in self._registered(port) and -1 in requests.leaders(port).values(),
            FENCED_S,
        )
        self.cluster.begin(broker)
        if -1 not in requests.leaders(port).values():
            raise CannotPlay("broker 3 led at once, as it does once in 26 times: play it again")

    def _are_registered(self, broker: int, count: int) -> bool:
        return len(self._registered(self.ports[broker])) == count

    def _registered(self, port: int) -> set[int]:
        return {row.node_id for row in requests.metadata(port, ()).brokers}

    def save_by_hand(self, *, empty: int) -> None:
        self.cluster.end(empty, how=signal.SIGTERM)
        port = next(port for broker, port in self.ports.items() if broker != empty)
        wait_until(f"nobody knows broker {empty} any more", lambda: empty not in self._registered(port), FENCED_S)
        leaderless = [at for at, leader in requests.leaders(port).items() if leader < 0]
        requests.elect(port, requests.UNCLEAN, leaderless)
        wait_until("every partition is led", lambda: min(requests.leaders(port).values()) >= 0, FENCED_S)
        self.cluster.begin(empty)

    # --- the store
    def fault_store(self, *, fault: str, topic: str = "", delay_ms: int = 0) -> None:
        faulty_store.write_fault(self.cluster.faults, StoreFaultNow(fault, topic, delay_ms))

    def heal_store(self) -> None:
        self.fault_store(fault="none")

    @property
    def _remote(self) -> Path:
        return self.cluster.folder / "remote"

    def delete_objects(self, *, topic: str, segments: int) -> None:
        folders = f"{topic}-*-{requests.topic_id(self.live_port(), topic)}/*.log" if topic else "*.log"
        logs = sorted(self._remote.rglob(folders))
        chosen = logs if segments < 0 else logs[:segments]
        if not chosen:
            raise RuntimeError(f"there is no object of {topic or 'any topic'} to take away")
        for log in chosen:
            for path in log.parent.glob(f"{log.stem}.*"):
                taken = self._taken / path.relative_to(self._remote)
                taken.parent.mkdir(parents=True, exist_ok=True)
                path.rename(taken)

    def restore_objects(self) -> None:
        for path in [path for path in self._taken.rglob("*") if path.is_file()]:
            place = self._remote / path.relative_to(self._taken)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, place)

    # --- disks
    def fill_disk(self, *, broker: int, percent: int) -> None:
        self._disks[broker].fill(percent)

    def free_disk(self, *, broker: int) -> None:
        """Of broker 0: every small disk."""
        for owner, disk in self._disks.items():
            if broker in (0, owner):
                disk.free()

    def lose_directory(self, *, broker: int) -> None:
        self._disks[broker].fail()

    def give_directory_back(self, *, broker: int) -> None:
        self.cluster.end(broker)
        self._disks[broker].mend()
        self.cluster.begin(broker)

    def damage(self, *, broker: int, topic: str, partition: int) -> None:
        _not_here()

    # --- rights
    def revoke(self, *, resource: str) -> None:
        bindings = [binding for chosen in _chosen(resource) for binding in _bindings(*RIGHTS[chosen])]
        for binding in bindings:
            filter_ = _filter(binding)
            self.admin.delete_acls([filter_])[filter_].result(ADMIN_S)

    def grant(self, *, resource: str) -> None:
        bindings = [binding for chosen in _chosen(resource) for binding in _bindings(*RIGHTS[chosen])]
        for future in self.admin.create_acls(bindings).values():
            future.result(ADMIN_S)

    def close(self) -> None:
        self.end_clients()
        if hasattr(self, "product"):
            self.close_product()
        self.cluster.close()
        for disk in self._disks.values():
            disk.close()


def _chosen(resource: str) -> tuple[str, ...]:
    return tuple(RIGHTS) if resource == ALL else (resource,)


def _bindings(kind: ResourceType, name: str, operations: tuple[str, ...]) -> list[AclBinding]:
    return [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            f"User:{CREDENTIALS['sasl.username']}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]


def _filter(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


def _not_here() -> NoReturn:
    raise CannotPlay("this is played on the embedded cluster only")
