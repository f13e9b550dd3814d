"""Injects faults into the embedded cluster and clears them (`control.lab.faults.fault_target`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from backend.engine.cluster import Cluster, ClusterLayout
from backend.engine.ports import Ports, system_ports
from backend.engine.ports.in_process_network import InProcessNetwork
from backend.engine.ports.object_store_faults import ObjectStoreFaults, StoreFault
from backend.engine.ports.socket_network import SocketNetwork


class FaultInjector:
    """Belongs to the cluster's event loop. ``failed`` is called when a node that was started again cannot go on."""

    def __init__(self, layout: ClusterLayout, failed: Callable[[], None] = lambda: None) -> None:
        self._switches: Final = {node_id: ObjectStoreFaults() for node_id in layout.ports}
        self._failed = failed
        self._network: Final = InProcessNetwork(SocketNetwork())
        self.cluster = Cluster(layout, make_ports=self._ports)

    def _ports(self, node_id: int) -> Ports:
        return replace(system_ports(), network=self._network, object_store=self._switches[node_id].opener())

    @property
    def brokers(self) -> frozenset[int]:
        return frozenset(self.cluster.layout.ports)

    @property
    def running(self) -> frozenset[int]:
        return frozenset(self.cluster.brokers)

    @property
    def needed(self) -> frozenset[int]:
        """Brokers without which nothing could be changed any more: the only voter of the metadata quorum."""
        voters = frozenset(self.cluster.layout.controller_ports)
        return voters if len(voters) < 3 else frozenset()

    async def kill(self, node_id: int) -> None:
        """As a crash: nothing is flushed or handed over, and uploads on their way are cut off."""
        self._switches[node_id].break_off()
        await self.cluster.kill_broker(node_id)

    async def start(self, node_id: int) -> None:
        """Serves when this returns. Raises StartRefused."""
        await self.cluster.start_broker(node_id)
        self.cluster.brokers[node_id].failed.add_done_callback(lambda _: self._failed())

    def inject_store_fault(self, node_id: int, fault: StoreFault) -> None:
        """The fault that this broker's calls of the object store meet from now on."""
        self._switches[node_id].set(fault)

    def paused_uploads(self, node_id: int) -> int:
        return self._switches[node_id].waiting_uploads
