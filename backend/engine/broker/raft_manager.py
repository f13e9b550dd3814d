"""A node's place in the metadata quorum, with a vote or without, and the connections to the voters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from backend.engine.common.topic_names import CLUSTER_METADATA_TOPIC
from backend.engine.config import BrokerConfig
from backend.engine.config.listener_security import controller_security
from backend.engine.config.listeners import voter_addresses
from backend.engine.controller.metadata.node_metadata import NodeMetadata
from backend.engine.log.log_errors import CorruptLog
from backend.engine.log.manager.directory_set import LogDirectories
from backend.engine.net.peer_client import PeerClient
from backend.engine.net.peer_security import PeerSecurity
from backend.engine.ports import Ports
from backend.engine.raft.acknowledged import ACKNOWLEDGED_FILE, AcknowledgedFiles
from backend.engine.raft.metadata_log import MetadataLog
from backend.engine.raft.metadata_log_opening import open_metadata_log
from backend.engine.raft.quorum_state import QuorumState
from backend.engine.raft.raft_node import RaftNode, VoterAddress
from backend.engine.raft.voter_memory import Traces, judge, judge_only_voter, read_quorum_state, set_damaged_aside

_log = logging.getLogger(__name__)


class RaftManager:
    """The metadata log and the raft node on it. Start, then resign and close, or kill. Kafka: `KafkaRaftManager`."""

    def __init__(self, metadata: NodeMetadata, log: MetadataLog, clients: Sequence[PeerClient], *, votes: bool) -> None:
        """The log is open; `clients` are the connections to the other voters."""
        self.metadata = metadata
        self._log = log
        self._clients = clients
        self._votes = votes

    async def start(self, on_fatal: Callable[[str], None]) -> None:
        """Follows the quorum; an only voter leads when this returns."""
        await self.metadata.start()
        if not self._votes:
            self.metadata.start_following(on_fatal)

    async def resign(self) -> None:
        """Gives leadership of the quorum up, and takes part no longer."""
        await self.metadata.raft.stop()

    async def close(self) -> None:
        """Leaves the log flushed and closed; after `resign`."""
        await self.metadata.stop()
        self._close_clients()
        self._log.close()

    async def kill(self) -> None:
        """Leaves the log as it is."""
        await self.metadata.stop()
        await self.metadata.raft.kill()
        self._close_clients()
        self._log.abandon()

    def _close_clients(self) -> None:
        for client in self._clients:
            client.close()


async def open_raft(ports: Ports, config: BrokerConfig, cluster_id: str, log_dirs: LogDirectories) -> RaftManager:
    """Opens the log and finds out what this node remembers of the quorum. MetadataLost, CorruptLog, OSError."""
    votes = "controller" in (config.process_roles or ())
    log = await _opened(ports, config, votes)
    try:
        return await _on_log(ports, config, log, cluster_id, log_dirs, votes=votes)
    except BaseException:
        log.abandon()
        raise


async def _on_log(
    ports: Ports, config: BrokerConfig, log: MetadataLog, cluster_id: str, log_dirs: LogDirectories, *, votes: bool
) -> RaftManager:
    voters = voter_addresses(config)
    others = [voter for voter in voters if voter != config.id]
    directory_id = next(iter(log_dirs.directory_ids.values()))
    acknowledged = AcknowledgedFiles(ports.disk, _acknowledged_paths(ports, config, log_dirs))
    memory = None
    if votes:
        traces = await ports.workers.run(lambda: _traces(log_dirs, acknowledged))
        memory = await _remembered(ports, config, log, traces, directory_id, only_voter=not others)
    # Requests of one connection wait for each other: a vote must not wait behind a fetch.
    for_votes = {voter: _client(ports, config, voters[voter], "votes") for voter in others}
    for_log = {voter: _client(ports, config, voters[voter], "log") for voter in others}
    raft = RaftNode(
        ports,
        config,
        log,
        cluster_id=cluster_id,
        votes=votes,
        peers=for_votes,
        fetchers=for_log,
        addresses={voter: VoterAddress(*address) for voter, address in voters.items()},
        memory=memory,
        directory_id=directory_id,
        acknowledged=acknowledged,
    )
    metadata = NodeMetadata(ports, config, raft, cluster_id=cluster_id)
    return RaftManager(metadata, log, [*for_votes.values(), *for_log.values()], votes=votes)


async def _opened(ports: Ports, config: BrokerConfig, votes: bool) -> MetadataLog:
    """A copy that makes no sense is fetched again, unless others count on it. CorruptLog, OSError."""
    try:
        return await open_metadata_log(ports, config)
    except CorruptLog as error:
        if votes:
            raise
        _log.warning("Node %d drops its metadata log and fetches it again: %s", config.id, error)
    folder = f"{config.metadata_dir}/{CLUSTER_METADATA_TOPIC}-0"
    await ports.workers.run(lambda: ports.disk.remove_tree(folder))
    return await open_metadata_log(ports, config)


def _acknowledged_paths(ports: Ports, config: BrokerConfig, log_dirs: LogDirectories) -> list[str]:
    paths = [f"{log_dir.path}/{ACKNOWLEDGED_FILE}" for log_dir in log_dirs.usable_dirs]
    folder = config.ebbline_quorum_acknowledged_dir
    if folder is not None:
        ports.disk.make_dirs(folder)
        paths.append(f"{folder.rstrip('/')}/node-{config.id}.{ACKNOWLEDGED_FILE}")
    return paths


async def _remembered(
    ports: Ports, config: BrokerConfig, log: MetadataLog, traces: Traces, directory_id: bytes, *, only_voter: bool
) -> QuorumState:
    """This voter's memory. A quorum-state that cannot be read is kept aside. MetadataLost, OSError."""
    disk, node_id = ports.disk, config.id
    stored, damage = await ports.workers.run(lambda: read_quorum_state(disk, log.dir))
    if damage is not None:
        now_ms = ports.clock.time_ms()
        aside = await ports.workers.run(lambda: set_damaged_aside(disk, log.dir, now_ms))
        _log.warning("Node %d cannot read its quorum-state (%s); it is kept as %s", node_id, damage, aside)
    if only_voter:
        return judge_only_voter(stored, log.end, traces, log.dir)
    fresh = ports.random.uuid()
    memory = judge(stored, damage, log.end, traces, directory_id=directory_id, fresh_directory_id=fresh)
    if memory.lost is not None:
        _log.warning(
            "Node %d: %s %s. It neither votes nor leads before it has caught up with a leader that the other voters"
            " have elected", node_id, log.dir, memory.lost,
        )  # fmt: skip
    return memory.state


def _client(ports: Ports, config: BrokerConfig, address: tuple[str, int], purpose: str) -> PeerClient:
    security = PeerSecurity.of(controller_security(config))
    return PeerClient(ports, *address, client_id=f"node-{config.id}-{purpose}", security=security)


def _traces(log_dirs: LogDirectories, acknowledged: AcknowledgedFiles) -> Traces:
    """The traces of this node's metadata in its log directories. Blocks: on a worker thread. OSError."""
    dirs = log_dirs.usable_dirs
    return Traces(
        acknowledged.read(),
        max((log_dir.previous_broker_epoch for log_dir in dirs), default=-1),
        any(log_dir.partitions() for log_dir in dirs),
    )
