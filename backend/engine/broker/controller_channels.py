"""A node's channels to the active controller, which all move on as soon as another voter leads the quorum.

A controller that hangs keeps its connections open and answers nothing. Its successor is elected within
controller.quorum.fetch.timeout.ms; a request that waited for the silent one until its own time-out, 30 s for one that
a client sent, would hold up everybody who asks through this broker although the cluster has long recovered.
"""

from __future__ import annotations

from backend.engine.config import BrokerConfig
from backend.engine.config.listener_security import controller_security
from backend.engine.config.listeners import controller_addresses
from backend.engine.net.peer_controller_channel import PeerControllerChannel
from backend.engine.net.peer_security import OPEN, PeerSecurity
from backend.engine.ports import Ports, tasks
from backend.engine.raft.quorum_state import NOBODY
from backend.engine.raft.raft_node import RaftNode


class ControllerChannels:
    """One per node. Kafka: `NodeToControllerChannelManager` with `RaftControllerNodeProvider`."""

    def __init__(self, ports: Ports, config: BrokerConfig) -> None:
        self._ports = ports
        self._node_id = config.id
        self._addresses = controller_addresses(config)
        # A node that is only a controller sends nothing through them, and may lack the credentials of a broker.
        is_broker = "broker" in (config.process_roles or ())
        self._security = PeerSecurity.of(controller_security(config)) if is_broker else OPEN
        self._channels: list[PeerControllerChannel] = []
        self._leader_id = NOBODY
        self._following: tasks.Task[None] | None = None

    def channel(self, purpose: str | None = None) -> PeerControllerChannel:
        """One more channel: requests of one connection wait for each other."""
        client_id = f"broker-{self._node_id}" + (f"-{purpose}" if purpose else "")
        channel = PeerControllerChannel(self._ports, self._addresses, client_id=client_id, security=self._security)
        self._channels.append(channel)
        return channel

    def start(self, raft: RaftNode) -> None:
        """From now on they go where this node knows the quorum's leader."""
        self._following = tasks.spawn(self._move_with(raft), name=f"controller channels of node {self._node_id}")

    async def _move_with(self, raft: RaftNode) -> None:
        while True:
            await raft.log.wait_until(lambda: raft.leader_id not in (NOBODY, self._leader_id))
            self._leader_id = raft.leader_id
            if (address := raft.addresses.get(self._leader_id)) is not None:
                for channel in self._channels:
                    channel.move_to(address.host, address.port)

    def close(self) -> None:
        """Drops the connections; requests in flight fail with NETWORK_EXCEPTION."""
        if self._following is not None:
            self._following.cancel()
            self._following = None
        for channel in self._channels:
            channel.close()
