"""Parts that both rigs share: the common topics under load, and the way back to them after an incident."""

from __future__ import annotations

import os
import signal
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from tests.incidents.rigs import cluster_requests as requests
from tests.incidents.rigs.product_operations import ProductOperations
from tests.incidents.rigs.reader_operations import ReaderOperations
from tests.incidents.rigs.setting_operations import SettingOperations
from tests.incidents.rigs.topic_operations import TopicOperations
from tests.waiting import wait_until

# A partition of three gets 200 kB a second, and so seals a segment of 1 MiB each 5 s.
LOAD_BYTES_PER_S: Final = 600_000
ORDERS, QUIET = "orders", "quiet"
SPREAD: Final = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
# A broker that comes back: the longest pause of a supervisor (30 s), its start and the load of its logs.
RETURN_S: Final = 120.0
SETTLED_S: Final = 90.0


class RigBase(ProductOperations, TopicOperations, SettingOperations, ReaderOperations):
    """Brokers by their process ids, which the two rigs find in their own places."""

    def __init__(self) -> None:
        super().__init__()
        self._hung: set[int] = set()

    @abstractmethod
    def pid(self, broker: int) -> int: ...
    @abstractmethod
    def kill(self, *, broker: int) -> None: ...
    @abstractmethod
    def start_all(self) -> None: ...
    @abstractmethod
    def heal_store(self) -> None: ...
    @abstractmethod
    def restore_objects(self) -> None: ...
    @abstractmethod
    def free_disk(self, *, broker: int) -> None: ...

    def make_common_topics(self) -> None:
        self.create_topic(topic=ORDERS, replicas=SPREAD, tiered=True, config={"min.insync.replicas": "2"})
        self.create_topic(topic=QUIET, replicas=(*SPREAD, *SPREAD[:2]))
        self.produce(topic=QUIET, records=50)
        self.load(topic=ORDERS, bytes_per_s=LOAD_BYTES_PER_S)

    def hang(self, *, broker: int) -> None:
        self._hung.add(broker)
        os.kill(self.pid(broker), signal.SIGSTOP)

    def resume(self, *, broker: int) -> None:
        self._hung.discard(broker)
        with suppress(ProcessLookupError):
            os.kill(self.pid(broker), signal.SIGCONT)

    def kill_quorum_leader(self) -> Mapping[str, str]:
        leader = requests.quorum_leader(self.live_port())
        self.kill(broker=leader)
        return {"quorum": str(leader)}

    def kill_leader_of(self, *, topic: str, partition: int) -> Mapping[str, str]:
        leader = requests.leaders(self.live_port(), [topic])[topic, partition]
        self.kill(broker=leader)
        return {"leader": str(leader)}

    def wait_for_brokers(self) -> None:
        """All answer, and all know each other."""

        def complete() -> bool:
            with suppress(OSError):
                views = (requests.metadata(port, ()) for port in self.ports.values())
                return all({broker.node_id for broker in view.brokers} >= set(self.ports) for view in views)
            return False

        wait_until("all brokers are back", complete, RETURN_S)

    def tidy(self) -> None:
        for broker in sorted(self._hung):
            self.resume(broker=broker)
        self.tidy_product()
        self.heal_store()
        self.restore_objects()
        self.free_disk(broker=0)
        self.start_all()
        self.wait_for_brokers()
        for topic in [topic for topic in self.loads if topic != ORDERS]:
            self.stop_load(topic=topic)
        self.end_readers()
        self.end_transactions()
        self.clear_settings()
        self.limit_pipeline(bytes_per_s=0)
        for topic in [topic for topic in self.topics if topic not in (ORDERS, QUIET)]:
            self.delete_topic(topic=topic)
        self.wait_in_sync()
        self.restore_leaders()

    def wait_in_sync(self) -> None:
        """As who restarts brokers in order does before the next one."""
        wait_until("every replica is in sync", self._in_sync, SETTLED_S)

    def _in_sync(self) -> bool:
        partitions = [
            partition for topic in requests.metadata(self.live_port()).topics for partition in topic.partitions
        ]
        return all(len(partition.isr_nodes) == len(partition.replica_nodes) for partition in partitions)

    def end_clients(self) -> None:
        """Before the brokers end for good."""
        self.end_readers()
        for topic in list(self.loads):
            self.stop_load(topic=topic)
