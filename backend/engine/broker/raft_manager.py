"""A node's place in the metadata quorum, with a vote or without, and the ways to the voters."""

from __future__ import annotations

import logging
from collections.abc import Callable

from backend.engine.config import BrokerConfig
from backend.engine.config.listener_security import controller_security
from backend.engine.config.listeners import voter_addresses
from backend.engine.controller.metadata.node_metadata import NodeMetadata
from backend.engine.log.errors import CorruptLog
from backend.engine.log.log_directories import LogDirectories
from backend.engine.net.peer_client import PeerClient
from backend.engine.net.peer_security import PeerSecurity
from backend.engine.ports import Ports
from backend.engine.raft.acknowledged import ACKNOWLEDGED_FILE, AcknowledgedFiles
from backend.engine.raft.metadata_log import TOPIC, MetadataLog, open_metadata_log
from backend.engine.raft.quorum_state import QuorumState
from backend.engine.raft.raft_node import RaftNode, VoterAddress
from backend.engine.raft.voter_memory import Traces, judge, judge_only_voter, read_quorum_state, set_damaged_aside

_log = logging.getLogger(__name__)


class RaftManager:
    """Start, then close or kill."""

    def __init__(self, ports: Ports, config: BrokerConfig, on_fatal: Callable[[str], None]) -> None:
        self._ports = ports
        self._config = config
        self._on_fatal = on_fatal
        self._log: MetadataLog | None = None
        self._clients: list[PeerClient] = []
        self.metadata: NodeMetadata | None = None

    async def start(self, cluster_id: str, log_dirs: LogDirectories) -> NodeMetadata:
        """Opens the log and follows the quorum; an only voter leads when this returns. MetadataLost."""
        ports, config = self._ports, self._config
        votes = "controller" in (config.process_roles or ())
        self._log = await self._opened(votes)
        voters = voter_addresses(config)
        others = [voter for voter in voters if voter != config.id]
        directory_id = next(iter(log_dirs.directory_ids.values()))
        acknowledged = AcknowledgedFiles(ports.disk, self._acknowledged_paths(log_dirs))
        memory = None
        if votes:
            traces = await ports.workers.run(lambda: _traces(log_dirs, acknowledged))
            memory = await self._remembered(self._log, traces, directory_id, alone=not others)
        raft = RaftNode(
            ports,
            config,
            self._log,
            cluster_id=cluster_id,
            votes=votes,
            peers={voter: self._client(voters[voter], "votes") for voter in others},
            fetchers={voter: self._client(voters[voter], "log") for voter in others},
            addresses={voter: VoterAddress(*address) for voter, address in voters.items()},
            memory=memory,
            directory_id=directory_id,
            acknowledged=acknowledged,
        )
        metadata = self.metadata = NodeMetadata(ports, config, raft, cluster_id=cluster_id)
        await metadata.start()
        if not votes:
            metadata.follow(self._on_fatal)
        return metadata

    async def _opened(self, votes: bool) -> MetadataLog:
        """A copy that makes no sense is fetched again, unless others count on it. CorruptLog, OSError."""
        try:
            return await open_metadata_log(self._ports, self._config)
        except CorruptLog as error:
            if votes:
                raise
            _log.warning("Node %d drops its metadata log and fetches it again: %s", self._config.id, error)
        folder = f"{self._config.metadata_dir}/{TOPIC}-0"
        await self._ports.workers.run(lambda: self._ports.disk.remove_tree(folder))
        return await open_metadata_log(self._ports, self._config)

    def _acknowledged_paths(self, log_dirs: LogDirectories) -> list[str]:
        paths = [f"{log_dir.path}/{ACKNOWLEDGED_FILE}" for log_dir in log_dirs.usable_dirs]
        folder = self._config.ebbline_quorum_acknowledged_dir
        if folder is not None:
            self._ports.disk.make_dirs(folder)
            paths.append(f"{folder.rstrip('/')}/node-{self._config.id}.{ACKNOWLEDGED_FILE}")
        return paths

    async def _remembered(self, log: MetadataLog, traces: Traces, directory_id: bytes, *, alone: bool) -> QuorumState:
        """This voter's memory. A quorum-state that cannot be read is kept aside. MetadataLost, OSError."""
        disk, node_id = self._ports.disk, self._config.id
        stored, damage = await self._ports.workers.run(lambda: read_quorum_state(disk, log.dir))
        if damage is not None:
            now_ms = self._ports.clock.time_ms()
            aside = await self._ports.workers.run(lambda: set_damaged_aside(disk, log.dir, now_ms))
            _log.warning("Node %d cannot read its quorum-state (%s); it is kept as %s", node_id, damage, aside)
        if alone:
            return judge_only_voter(stored, log.end, traces, log.dir)
        fresh = self._ports.random.uuid()
        memory = judge(stored, damage, log.end, traces, directory_id=directory_id, fresh_directory_id=fresh)
        if memory.lost is not None:
            _log.warning(
                "Node %d: %s %s. It neither votes nor leads before it has caught up with a leader that the other voters"
                " have elected", node_id, log.dir, memory.lost,
            )  # fmt: skip
        return memory.state

    def _client(self, address: tuple[str, int], purpose: str) -> PeerClient:
        """Requests of one connection wait for each other: a vote must not wait behind a fetch."""
        security = PeerSecurity.of(controller_security(self._config))
        client_id = f"node-{self._config.id}-{purpose}"
        made = PeerClient(self._ports, *address, client_id=client_id, security=security)
        self._clients.append(made)
        return made

    async def resign(self) -> None:
        """Gives leadership of the quorum up, and takes part no longer."""
        if self.metadata is not None:
            await self.metadata.raft.stop()

    async def close(self) -> None:
        """Leaves the log flushed and closed; after `resign`."""
        if self.metadata is not None:
            await self.metadata.stop()
        self._close_clients()
        if self._log is not None:
            self._log.close()
            self._log = None

    async def kill(self) -> None:
        """The log is let go of as it is."""
        if self.metadata is not None:
            await self.metadata.stop()
            await self.metadata.raft.kill()
        self._close_clients()
        if self._log is not None:
            self._log.abandon()
            self._log = None

    def _close_clients(self) -> None:
        for client in self._clients:
            client.close()


def _traces(log_dirs: LogDirectories, acknowledged: AcknowledgedFiles) -> Traces:
    """The traces of this node's metadata in its log directories. Blocks: on a worker thread. OSError."""
    dirs = log_dirs.usable_dirs
    return Traces(
        acknowledged.read(),
        max((log_dir.previous_broker_epoch for log_dir in dirs), default=-1),
        any(log_dir.partitions() for log_dir in dirs),
    )
