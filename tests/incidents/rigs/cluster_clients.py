"""The clients of a rig: connections to its brokers, and the state that operations leave and `tidy` takes away."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from functools import cached_property
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.incidents.rigs import cluster_requests as requests
from tests.incidents.rigs.consumers import Reader
from tests.incidents.rigs.records import Acknowledged, Load
from tests.oracle.apache_kafka import answers_api_versions
from tests.waiting import wait_until

ADMIN_S: Final = 60.0


class ClusterClients(ABC):
    """Asks the brokers of a rig by Kafka's protocol."""

    def __init__(self) -> None:
        self.acknowledged = Acknowledged()
        self.loads: dict[str, Load] = {}
        self.readers: list[Reader] = []
        self.topics: dict[str, int] = {}
        """The number of partitions of each topic that an incident made."""
        self.written: set[str] = set()
        """Topics that hold all that `produce` has written into them."""
        self.altered: set[tuple[int, str, str]] = set()
        """(kind, resource, name) of settings that an incident has set."""

    @property
    @abstractmethod
    def ports(self) -> dict[int, int]:
        """The port of each broker, without authentication."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    @cached_property
    def admin(self) -> AdminClient:
        """Kept: the library ends the calls of a client that nobody holds."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def live_port(self) -> int:
        """A broker that answers."""
        return wait_until(
            "a broker answers", lambda: next((port for port in self.ports.values() if answers_api_versions(port)), 0)
        )

    def port_of_leader(self, topic: str, partition: int) -> int:
        """The broker that leads a partition, once there is one."""

        def leader() -> int:
            return requests.leaders(self.live_port(), [topic]).get((topic, partition), -1)

        return self.ports[wait_until(f"{topic}-{partition} has a leader", lambda: max(leader(), 0))]

    def forget_topic(self, topic: str) -> None:
        self.topics.pop(topic, None)
        self.written.discard(topic)
        self.acknowledged.forget(topic)

    def delete_group(self, group: str) -> None:
        """One that still has members stays."""
        with suppress(KafkaException):
            for future in self.admin.delete_consumer_groups([group]).values():
                future.result(ADMIN_S)
