"""Ports for what a test starts."""

from __future__ import annotations

import os
import socket
from typing import Final

# Below the range that outgoing connections take theirs from (32768 on Linux): a port of a node that is down for a
# moment would be gone when it comes back.
FIRST: Final = 20_000
# Each worker (the Makefile starts three, up to six fit) has another lane, so two never choose the same port between
# looking and binding.
LANES: Final = 6
PER_LANE: Final = 2_000

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_lane = FIRST + _worker % LANES * PER_LANE
# Another run on this machine begins elsewhere.
_next = os.getpid() * 40 % PER_LANE


def free_ports(count: int) -> list[int]:
    """Consecutive ports that nobody uses now; this process is given none of them again before a whole lane went by."""
    global _next
    for _ in range(PER_LANE):
        if _next + count > PER_LANE:
            _next = 0
        ports = list(range(_lane + _next, _lane + _next + count))
        _next += count
        if _all_free(ports):
            return ports
    raise RuntimeError(f"no {count} neighbouring free ports from {_lane} to {_lane + PER_LANE}")


def _all_free(ports: list[int]) -> bool:
    held: list[socket.socket] = []
    try:
        for port in ports:
            probe = socket.socket()
            held.append(probe)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except OSError:
        return False
    finally:
        for probe in held:
            probe.close()
    return True
