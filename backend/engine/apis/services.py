"""All parts of one node. ``broker`` makes them whole; each API's handlers see those that their module's Protocol names.

Kafka: the constructors of `KafkaApis` and `ControllerApis`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from backend.engine.apis.api_declaration import ApiTable
from backend.engine.apis.fetch.fetch_session_cache import FetchSessionCache
from backend.engine.apis.produce.produce_verification import ProduceQueue
from backend.engine.apis.quotas.client_quota_manager import ClientQuotaManager
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.common.event_sink import EventSink
from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.partition.recovery_verdict import LogEndReader
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.controller.quorum_controller import Controller
from backend.engine.controller.registration.producer_id_manager import ProducerIdManager
from backend.engine.coordinator.group.group_coordinator import GroupCoordinator
from backend.engine.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from backend.engine.coordinator.transaction.transaction_verifier import TransactionVerifier
from backend.engine.log.manager.log_manager import LogManager
from backend.engine.metrics import BrokerMetrics
from backend.engine.ports import Ports, tasks
from backend.engine.ports.time_slices import TimeSlicer
from backend.engine.remote.manager.remote_log_manager import RemoteLogManager
from backend.engine.replica.replica_manager import ReplicaManager


@dataclass(slots=True, kw_only=True)
class Services:
    """The parts that the listeners of every node serve with; those of the broker role need `BrokerServices`."""

    node_id: int
    cluster_id: str
    config: BrokerConfig
    ports: Ports
    metadata: MetadataCache
    log_manager: LogManager
    controller_channel: ControllerChannel
    events: EventSink
    metrics: BrokerMetrics
    # None unless remote.log.storage.system.enable.
    remote_log_manager: RemoteLogManager | None
    # None on nodes without the controller role.
    controller: Controller | None
    # Every API served by this node; ApiVersions answers from it.
    apis: ApiTable[Services]
    # Asks brokers how far their logs reach; on nodes with the controller role.
    log_ends: LogEndReader | None = None
    fetch_sessions: FetchSessionCache = field(default_factory=FetchSessionCache)
    client_quotas: ClientQuotaManager = field(default_factory=ClientQuotaManager)
    produce_queue: ProduceQueue = field(default_factory=ProduceQueue)
    time_slicer: TimeSlicer = field(init=False)
    # Held while a worker validates a batch that holds much.
    large_batches: tasks.Lock = field(default_factory=tasks.Lock)

    def __post_init__(self) -> None:
        self.time_slicer = TimeSlicer(self.ports.clock.monotonic_ms)


@dataclass(slots=True, kw_only=True)
class BrokerServices(Services):
    """The parts of a node with the broker role."""

    replica_manager: ReplicaManager
    group_coordinator: GroupCoordinator
    transaction_coordinator: TransactionCoordinator
    transaction_verifier: TransactionVerifier
    producer_ids: ProducerIdManager
