"""The place where a run happens: one controller, three brokers, their network and disks, the object store."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping
from contextvars import copy_context
from random import Random
from typing import TYPE_CHECKING, Final

from backend.engine.broker import Broker
from backend.engine.controller.image.metadata_image import MetadataImage, PartitionRegistration
from backend.engine.controller.quorum_controller import Controller
from backend.engine.replica.partition import Partition
from backend.tiering.ids import TopicPartition
from tests.simulation.history import History
from tests.simulation.loop import VirtualLoop
from tests.simulation.machine import Machine, Process
from tests.simulation.network import Fabric
from tests.simulation.objects import Objects
from tests.simulation.trace import Trace

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

BROKERS: Final = (1, 2, 3)
CONTROLLER: Final = 4
CLIENT: Final = 0
CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
HOST: Final = "127.0.0.1"
# Part of the runs in which overlapping remote segments are looked up as Kafka does it.
KAFKA_OVERLAP: Final = 0.2
# Part of the runs in which nodes take snapshots of the cluster's metadata and forget the log before them.
METADATA_SNAPSHOTS: Final = 0.5
# The first holds the cluster's metadata too.
LOG_DIRS: Final = ("/data", "/more")

# Small intervals, so that a virtual minute holds a life; everything else is Kafka's default.
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "1800",
    "ebbline.cluster.id": CLUSTER_ID,
    "ebbline.events.topic.replication.factor": "1",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": f"{CONTROLLER}@{HOST}:{CONTROLLER}000",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "700",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "1048576",
    "log.segment.delete.delay.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.flush.start.offset.checkpoint.interval.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "replica.fetch.backoff.ms": "200",
    "replica.lag.time.max.ms": "1200",
    "request.timeout.ms": "4000",
    "leader.imbalance.check.interval.seconds": "5",
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "remote.log.manager.task.interval.ms": "600",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "rlmm.config.remote.log.metadata.files.flush.interval.ms": "700",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
    "rlmm.config.remote.log.metadata.topic.min.isr": "2",
    "rsm.config.dir": "/remote",
    "remote.partition.remover.task.interval.ms": "800",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


def drawn_settings(random: Random) -> dict[str, str]:
    """Settings that differ from run to run: small caches and pools, how a new replica begins, Kafka's own behaviour."""
    settings = {
        # Room for the indexes of one segment to all of them, and readers that wait for each other.
        "remote.log.index.file.cache.total.size.bytes": random.choice(("200", "800", "1048576")),
        "remote.log.index.file.cache.ttl.ms": random.choice(("500", "900000")),
        "remote.log.reader.threads": random.choice(("1", "10")),
        "remote.log.reader.max.pending.tasks": random.choice(("1", "100")),
        "remote.log.manager.copier.thread.pool.size": random.choice(("1", "10")),
        "remote.fetch.max.wait.ms": random.choice(("100", "500")),
        "follower.fetch.last.tiered.offset.enable": random.choice(("true", "false")),
        "ebbline.delete.vanished.topics": random.choice(("true", "false")),
        "producer.id.expiration.ms": random.choice(("86400000", "86400000", "2000")),
    }
    if random.random() < METADATA_SNAPSHOTS:
        settings |= {
            "metadata.log.max.record.bytes.between.snapshots": random.choice(("1500", "6000")),
            "metadata.log.segment.bytes": "3000",
            "metadata.max.retention.bytes": "5000",
        }
    if random.random() < KAFKA_OVERLAP:
        settings["remote.log.metadata.overlap"] = "kafka"
    return settings


def properties(node_id: int) -> dict[str, str]:
    """One node's settings."""
    if node_id == CONTROLLER:
        listeners, role = f"CONTROLLER://{HOST}:{CONTROLLER}000", "controller"
    else:
        listeners, role = f"PLAINTEXT://{HOST}:{node_id}000", "broker"
    return SETTINGS | {
        "node.id": str(node_id),
        "process.roles": role,
        "listeners": listeners,
        "log.dirs": ",".join(LOG_DIRS),
        "broker.rack": f"rack {node_id}",
    }


class World:
    """Everything of one run, drawn from one seed."""

    def __init__(
        self, seed: int, show: Callable[[str], None] | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """`settings` of all nodes differ from those that are the seed's."""
        self.seed = seed
        self.loop = VirtualLoop()
        self.context = copy_context()
        self.trace = Trace(lambda: self.loop.now_ms, show)
        self.fabric = Fabric(self.loop, self.new_random("network"), self.trace)
        self.objects = Objects(self.new_random("objects"), lambda: self.loop.now_ms)
        drawn = drawn_settings(self.new_random("settings")) | dict(settings or {})
        self.machines = {node: Machine(self, node, properties(node) | drawn) for node in (CONTROLLER, *BROKERS)}
        self.producers_expire_ms = int(drawn["producer.id.expiration.ms"])
        self.history = History()
        self.workload: Workload
        # Failures that are never right: exceptions that nobody expected, nodes that gave up.
        self.failures: list[str] = []
        self.client = Process(self, CLIENT, 0, Machine(self, CLIENT, {}).disk, 0)

    def new_random(self, purpose: str) -> Random:
        """Chance for one purpose: what one part draws does not change what others get."""
        return Random(self.seed << 32 | zlib.crc32(purpose.encode()))

    async def start(self) -> None:
        """All nodes serve."""
        await asyncio.gather(*(machine.start() for machine in self.machines.values()))

    # Looking in, from outside of every process

    def brokers(self) -> dict[int, Broker]:
        """Brokers that have come up and have not gone down."""
        return {
            node: machine.broker
            for node in BROKERS
            if (machine := self.machines[node]).broker is not None
            and machine.broker._services is not None
            and machine.process is not None
            and machine.process.alive
        }

    @property
    def image(self) -> MetadataImage | None:
        """The cluster as its controller has it; None while there is none."""
        broker = self.machines[CONTROLLER].broker
        raft = None if broker is None else broker._raft
        return None if raft is None else raft.metadata.image

    @property
    def controller(self) -> Controller | None:
        """The node in the controller's process; None while there is none."""
        broker = self.machines[CONTROLLER].broker
        return None if broker is None or broker._services is None else broker.services.controller

    def registration(self, at: TopicPartition) -> PartitionRegistration | None:
        image = self.image
        return None if image is None else image.partition(at.topic, at.partition)

    def replica(self, node: int, at: TopicPartition) -> Partition | None:
        """A broker's replica of a partition, if it has one."""
        broker = self.brokers().get(node)
        if broker is None or broker.broker_services.replica_manager is None:
            return None
        result = broker.broker_services.replica_manager.find(at.topic, at.partition)
        return result if isinstance(result, Partition) else None
