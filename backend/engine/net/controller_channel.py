"""A broker's way to the controller: one connection, moved on to the next quorum node when one cannot be reached."""

from __future__ import annotations

from typing import Final

from backend.engine.net.peer_client import PeerClient
from backend.engine.net.peer_security import OPEN, PeerSecurity
from backend.engine.ports import Ports
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.protocol.messages import Message

# Errors after which the next controller is tried by the next request.
_MOVE_ON: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})


class PeerControllerChannel:
    """Implements `common.controller_channel.ControllerChannel` over the network, also towards the own node.

    Requests of one channel are worked off one by one by the controller's listener: heartbeats, metadata fetches and
    forwarded admin requests each have a channel of their own.
    """

    def __init__(
        self,
        ports: Ports,
        addresses: tuple[tuple[str, int], ...],
        *,
        client_id: str,
        security: PeerSecurity = OPEN,
    ) -> None:
        self._peers = [
            PeerClient(ports, host, port, client_id=client_id, security=security) for host, port in addresses
        ]
        self._current = 0

    async def send(self, request: Message, version: int, *, timeout_ms: float) -> Message:
        """See the protocol; DecodeError becomes NETWORK_EXCEPTION, and a controller that is none any more is left."""
        peer = self._peers[self._current]
        try:
            answer = await peer.send(request, version, timeout_ms=timeout_ms)
        except DecodeError as error:
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION, f"The controller at {peer.address} sent an answer that cannot be read"
            ) from error
        except KafkaError as error:
            if error.code in _MOVE_ON:
                self._leave(peer)
            raise
        if getattr(answer, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
            self._leave(peer)
        return answer

    def _leave(self, peer: PeerClient) -> None:
        if peer is self._peers[self._current]:
            self._current = (self._current + 1) % len(self._peers)

    def close(self) -> None:
        """Drops the connections; requests in flight fail."""
        for peer in self._peers:
            peer.close()
