"""Three voters of a metadata quorum on the simulator's clock, network and disks: nothing but controllers.

A process may end before any of its effects: before the n-th thing that it writes, renames, syncs or sends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from backend.engine.controller.quorum_controller import Controller
from tests.simulation.disk import Inode
from tests.simulation.machine import Machine, Process
from tests.simulation.network import EPHEMERAL_PORT, Fabric, VirtualConnection, VirtualNetwork, port_owner
from tests.simulation.world import CLUSTER_ID, HOST, World

VOTERS: Final = (1, 2, 3)
METADATA: Final = "/data/__cluster_metadata-0/"
# Requests that may come again, much later, by another way.
REMEMBERED_MAX: Final = 40

# Small times and sizes: a run of some seconds sees elections, snapshots and logs that begin behind 0.
SETTINGS: Final = {
    "process.roles": "controller",
    "ebbline.cluster.id": CLUSTER_ID,
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": ",".join(f"{node}@{HOST}:{node}000" for node in VOTERS),
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.fetch.timeout.ms": "400",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.request.timeout.ms": "400",
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "metadata.log.segment.bytes": "1000",
    "metadata.max.retention.bytes": "5000",
    "log.dirs": "/data",
}


class QuorumFabric(Fabric):
    """Sending is an effect, before which a process may end; what was asked of a node is remembered."""

    before_send: Callable[[Process], None] = staticmethod(lambda process: None)
    requests: deque[tuple[int, bytes]]

    def carry(self, near: VirtualConnection, data: bytes) -> None:
        if not near.process.alive:
            return
        self.before_send(near.process)
        if near.process.alive:
            port = int(near.peer.rpartition(":")[2])
            if port < EPHEMERAL_PORT:
                self.requests.append((port, data))
            super().carry(near, data)


class QuorumWorld(World):
    """Everything of one run, drawn from one seed."""

    def __init__(self, seed: int, show: Callable[[str], None] | None = None) -> None:
        super().__init__(seed, show)
        self.fabric = self.quorum_fabric = QuorumFabric(self.loop, self.new_random("network"), self.trace)
        self.quorum_fabric.before_send = self._effect
        self.quorum_fabric.requests = deque(maxlen=REMEMBERED_MAX)
        # A run has its own: with none elections are quicker than the others' starts.
        start_wait_ms = self.new_random("start wait").choice((0, 0, 300))
        settings = SETTINGS | {"ebbline.quorum.start.wait.ms": str(start_wait_ms)}
        self.machines = {
            node: Machine(self, node, settings | {"node.id": str(node), "listeners": f"CONTROLLER://{HOST}:{node}000"})
            for node in VOTERS
        }
        self.client = Process(self, 0, 0, Machine(self, 0, {}).disk, 0)
        # Of each process that is to crash: effects until then, and whether its machine loses power.
        self._fuses: dict[Process, tuple[int, bool]] = {}
        self.crashes = 0
        # A checker's reads are no effects of the process.
        self.looking = False

    def controllers(self) -> dict[int, Controller]:
        """Controllers that have opened their log and have not gone down."""
        controllers = {}
        for node, machine in self.machines.items():
            part = None if machine.broker is None else machine.broker._controller
            process = machine.process
            if (
                process is None
                or not process.alive
                or part is None
                or part.controller is None
                or machine.broker is None
            ):
                continue
            if machine.broker._raft is None:
                continue
            if part._ports is process.ports and part.controller.raft.failure is None:
                controllers[node] = part.controller
        return controllers

    def crash_at(self, node: int, effects: int, *, power: bool) -> None:
        """The node's process ends before its n-th effect from now on."""
        process = self.machines[node].process
        if process is not None and process not in self._fuses:
            self._fuses[process] = effects, power
            check = process.disk.check_alive

            def check_alive(path: str = "") -> None:
                self._effect(process)
                check(path)

            process.disk.check_alive = check_alive  # type: ignore[method-assign]  # of this one process

    def spare_all(self) -> None:
        """Cancels planned crashes."""
        self._fuses.clear()

    def _effect(self, process: Process) -> None:
        fuse = self._fuses.get(process)
        if fuse is None or not process.alive or self.looking:
            return
        left, power = fuse
        if left > 0:
            self._fuses[process] = left - 1, power
            return
        del self._fuses[process]
        self.crashes += 1
        self.trace.note(f"node {process.node_id} ends between two effects{' with its power' if power else ''}")
        self.machines[process.node_id].crash(power=power)
        # Tasks that the call under way still starts end with it.
        self.loop.call_soon(self.loop.drop, process, context=self.context)

    def copy_metadata(self, node: int) -> dict[str, bytes]:
        """An operator's copy of the metadata folder, taken now: path → content."""
        files = self.machines[node].disk.files
        return {path: bytes(inode.data) for path, inode in files.items() if path.startswith(METADATA)}

    def lose_disk(self, node: int) -> None:
        """The machine, which is down, gets an empty disk."""
        self.trace.note(f"the disk of node {node} is lost")
        self.machines[node].disk.replace()

    def put_back(self, node: int, copy: dict[str, bytes]) -> None:
        """The machine, which is down, gets its metadata folder as it was when it was copied; the rest stays."""
        self.trace.note(f"node {node} gets an older copy of its metadata")
        disk = self.machines[node].disk
        disk.journal.clear()
        for path in [path for path in disk.files if path.startswith(METADATA)]:
            disk.unlink(path)
        for path, data in copy.items():
            disk.link(path, Inode(bytearray(data), len(data)))

    def damage_promises(self, node: int) -> None:
        """The quorum-state of a machine that is down cannot be read any more."""
        self.trace.note(f"the quorum-state of node {node} is damaged")
        inode = self.machines[node].disk.files[f"{METADATA}quorum-state"]
        inode.data[:] = b"\x00" * len(inode.data)

    async def ask_again(self, choice: Callable[[int], int]) -> None:
        """An old request reaches its node again, by a new connection."""
        requested = self.quorum_fabric.requests
        if not requested:
            return
        port, data = requested[choice(len(requested))]
        if self.machines[port_owner(port)].process is None:
            return
        connection = await VirtualNetwork(self.fabric, self.client).connect(
            HOST, port, lambda connection: _Deaf(), timeout_ms=1000
        )
        connection.send([data])


class _Deaf:
    """The sender of a repeated request reads no response."""

    def on_frame(self, frame: bytearray) -> None:
        """Nobody waits for it."""

    def on_closed(self, error: BaseException | None) -> None:
        """Nobody cares."""
