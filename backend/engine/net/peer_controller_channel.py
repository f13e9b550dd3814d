"""A broker's way to the active controller: one connection, moved on to the next voter when one cannot be reached.

A standby says that it is one, having carried nothing out; the request then goes to the next voter at once. A voter
that hangs says nothing: the channel's node moves it on when it hears that another leads.
"""

from __future__ import annotations

from typing import Final

from backend.engine.common.controller_channel import is_from_standby
from backend.engine.net.peer_client import PeerClient
from backend.engine.net.peer_security import OPEN, PeerSecurity
from backend.engine.ports import Ports
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.protocol.messages import Message

# Errors after which the next controller is tried by the next request.
_MOVE_ON: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
# A leader that resigned answers what it has carried out within this time, or it hangs.
FORMER_LEADER_ANSWER_MS: Final = 1000.0


class PeerControllerChannel:
    """Implements `common.controller_channel.ControllerChannel` over the network, also towards the own node.

    Requests of one channel are worked off one by one by the controller's listener: heartbeats, metadata fetches and
    forwarded admin requests each have a separate channel.
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
        """See the protocol; DecodeError becomes NETWORK_EXCEPTION.

        While there is no active controller the answer of a standby comes back.
        """
        response = await self._ask(request, version, timeout_ms)
        for _ in self._peers[1:]:
            if not is_from_standby(response):
                break
            response = await self._ask(request, version, timeout_ms)
        return response

    async def _ask(self, request: Message, version: int, timeout_ms: float) -> Message:
        peer = self._peers[self._current]
        try:
            response = await peer.send(request, version, timeout_ms=timeout_ms)
        except DecodeError as error:
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION, f"The controller at {peer.address} sent an answer that cannot be read"
            ) from error
        except KafkaError as error:
            if error.code in _MOVE_ON:
                self._leave(peer)
            raise
        if is_from_standby(response):
            self._leave(peer)
        return response

    def _leave(self, peer: PeerClient) -> None:
        if peer is self._peers[self._current]:
            self._current = (self._current + 1) % len(self._peers)

    def move_to(self, host: str, port: int) -> None:
        """The voter there leads now and gets the next request; those that wait for another voter soon end.

        Without an answer within FORMER_LEADER_ANSWER_MS they fail with NETWORK_EXCEPTION: they may have been carried
        out.
        """
        for number, peer in enumerate(self._peers):
            if (peer.host, peer.port) == (host, port):
                self._current = number
            else:
                peer.limit_answers(FORMER_LEADER_ANSWER_MS)

    def close(self) -> None:
        """Drops the connections; requests in flight fail."""
        for peer in self._peers:
            peer.close()
