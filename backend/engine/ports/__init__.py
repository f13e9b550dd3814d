"""The engine's only way to the outside world: time, randomness, disk, network, threads, object store.

Every other engine package takes a :class:`Ports` and imports nothing of the operating system, so that a simulator can
run the engine unchanged on virtual ones. ``tasks`` (concurrency) and ``time_slices`` (long work in short turns of the
loop) are used directly: the simulator brings its own event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from backend.engine.ports.clock import Clock, SystemClock
from backend.engine.ports.disk import Disk, OsDisk
from backend.engine.ports.network import Network
from backend.engine.ports.object_store import ObjectStore, open_object_store
from backend.engine.ports.program import raise_file_limit
from backend.engine.ports.random import Random, SystemRandom
from backend.engine.ports.socket_network import SocketNetwork
from backend.engine.ports.workers import ThreadWorkers, Workers


@dataclass(frozen=True, slots=True)
class Ports:
    """One broker's access to the outside world."""

    clock: Clock
    random: Random
    disk: Disk
    network: Network
    workers: Workers
    # More threads, so many, for what may take seconds; and the remote tier's storage by its location.
    more_workers: Callable[[int], Workers] = ThreadWorkers
    object_store: Callable[..., ObjectStore] = open_object_store


def system_ports() -> Ports:
    """Ports of the real machine. Call on the thread that runs the event loop."""
    raise_file_limit()
    return Ports(
        clock=SystemClock(),
        random=SystemRandom(),
        disk=OsDisk(),
        network=SocketNetwork(),
        workers=ThreadWorkers(),
    )


__all__ = ["Clock", "Disk", "Network", "ObjectStore", "Ports", "Random", "Workers", "system_ports"]
