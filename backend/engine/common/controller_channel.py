"""The connection to the controller as a broker's parts use it; ``net`` implements it over the peer client.

Between nodes of one cluster both ends run the same code, so versions are given, never negotiated.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.protocol.errors import ErrorCode
from backend.protocol.messages import Message

# Fields in which the answers of admin requests without an error of the whole carry one error for each element.
_PARTS: Final = ("topics", "responses", "results", "entries")
_NOT_LEADER: Final[frozenset[int]] = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH})
# Of an answer as a whole; requests about voters are answered by the quorum's leader.
_STANDBY: Final[frozenset[int]] = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER})


def is_from_standby(response: Message) -> bool:
    """Whether a controller answered that it is not the active one: nothing was carried out, another may be asked."""
    if getattr(response, "error_code", 0) in _STANDBY:
        return True
    first = next((parts[0] for name in _PARTS if (parts := getattr(response, name, None))), None)
    if getattr(first, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
        return True
    # The metadata log's own requests (Fetch, FetchSnapshot, DescribeQuorum) have one partition.
    partitions = getattr(first, "partitions", None) or ()
    return any(getattr(row, "error_code", 0) in _NOT_LEADER for row in partitions[:1])


class ControllerChannel(Protocol):
    """Requests to the active controller's listener."""

    async def send(self, request: Message, version: int, *, timeout_ms: float) -> Message:
        """The controller's answer.

        Raises KafkaError: NETWORK_EXCEPTION when it could not be reached or the connection broke (the request may
        have been carried out), REQUEST_TIMED_OUT when no answer came in time. Error codes inside the answer are the
        caller's.
        """
        ...
