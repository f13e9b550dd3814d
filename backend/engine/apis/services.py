"""The parts of one broker that handlers use; filled by ``broker``, which is the only one to construct them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backend.engine.apis.fetch.fetch_session_cache import FetchSessionCache
from backend.engine.apis.produce.produce_verification import ProduceQueue
from backend.engine.apis.quotas.client_quota_manager import ClientQuotaManager
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.common.event_sink import EventSink
from backend.engine.config import BrokerConfig
from backend.engine.ports import Ports, tasks
from backend.engine.ports.time_slices import TimeSlicer

if TYPE_CHECKING:
    from backend.engine.apis.table import ApiTable
    from backend.engine.controller.commands.partition.recovery_verdict import LogEndReader
    from backend.engine.controller.metadata.metadata_cache import MetadataCache
    from backend.engine.controller.quorum_controller import Controller
    from backend.engine.controller.registration.producer_id_manager import ProducerIdManager
    from backend.engine.coordinator.group.group_coordinator import GroupCoordinator
    from backend.engine.coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from backend.engine.coordinator.transaction.transaction_verifier import TransactionVerifier
    from backend.engine.log.log_manager import LogManager
    from backend.engine.metrics import BrokerMetrics
    from backend.engine.remote.rlm import RemoteLogManager
    from backend.engine.replica.replica_manager import ReplicaManager


@dataclass(slots=True, kw_only=True)
class Services:
    """One broker's parts. On a node without the broker role only the controller's are there."""

    node_id: int
    cluster_id: str
    config: BrokerConfig
    ports: Ports
    metadata: MetadataCache
    log_manager: LogManager
    replica_manager: ReplicaManager
    group_coordinator: GroupCoordinator
    transaction_coordinator: TransactionCoordinator
    transaction_verifier: TransactionVerifier
    producer_ids: ProducerIdManager
    controller_channel: ControllerChannel
    events: EventSink
    metrics: BrokerMetrics
    # None unless remote.log.storage.system.enable.
    remote_log_manager: RemoteLogManager | None
    # None on nodes without the controller role.
    controller: Controller | None
    # Every API served by this node; ApiVersions answers from it.
    apis: ApiTable
    # Asks brokers how far their logs reach; on nodes with the controller role.
    log_ends: LogEndReader | None = None
    fetch_sessions: FetchSessionCache = field(default_factory=FetchSessionCache)
    client_quotas: ClientQuotaManager = field(default_factory=ClientQuotaManager)
    produce_turns: ProduceQueue = field(default_factory=ProduceQueue)
    turns: TimeSlicer = field(init=False)
    # Held while a worker validates a batch that holds much.
    large_batches: tasks.Lock = field(default_factory=tasks.Lock)

    def __post_init__(self) -> None:
        self.turns = TimeSlicer(self.ports.clock.monotonic_ms)
