"""The embedded brokers as their process lets the lab break them. The control plane receives the implementation."""

from __future__ import annotations

from typing import Literal, Protocol

InjectedStoreFault = Literal["none", "unreachable", "slow", "held"]
"""``held``: uploads wait until the fault is cleared; all else is served."""


class FaultTarget(Protocol):
    """The embedded brokers as the process that runs them can break them."""

    @property
    def brokers(self) -> frozenset[int]: ...

    @property
    def running(self) -> frozenset[int]: ...

    @property
    def needed(self) -> frozenset[int]:
        """Brokers that must not be killed: nothing could be changed without them."""
        ...

    async def kill(self, node_id: int) -> None: ...

    async def start(self, node_id: int) -> None:
        """Raises an error whose message is a sentence."""
        ...

    def inject_store_fault(self, node_id: int, fault: InjectedStoreFault) -> None: ...

    def paused_uploads(self, node_id: int) -> int: ...
