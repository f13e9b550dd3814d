"""A follower's copy of the metadata log: fetches from the leader, truncates where logs diverge, fetches snapshots.

Fetched records are on a voter's disk before its next fetch, because the leader counts that fetch's offset as
replicated. The leader announces itself to voters; an observer asks the voters in turn until one of them knows it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar, cast

from backend.engine.common.topic_names import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from backend.engine.log.log_errors import FULL_ERRNOS, NoSpace
from backend.engine.ports import Ports, tasks
from backend.engine.raft import election as q
from backend.engine.raft import voter_progress
from backend.engine.raft.leader_fetch import as_buffer
from backend.engine.raft.metadata_log import MetadataLog, MetadataLogFailed
from backend.engine.raft.quorum_state import NOBODY
from backend.engine.raft.raft_state import Now, RaftRole, RaftState, Transition
from backend.engine.raft.snapshot_files import BadSnapshot, PartialSnapshot, SnapshotId
from backend.engine.raft.voter_requests import Peer
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError, error_for

FETCH_VERSION: Final = 18
FETCH_SNAPSHOT_VERSION: Final = 1
# KafkaRaftClient.MAX_FETCH_WAIT_MS and the sizes of one answer.
FETCH_WAIT_MS: Final = 500
FETCH_BYTES: Final = 8 << 20
SNAPSHOT_BYTES: Final = 1 << 20
RETRY_PAUSE_MS: Final = 50.0
REFUSED_PAUSE_MS: Final = 1000.0

_Partition = m.FetchResponse.Responses.Partitions
_log = logging.getLogger(__name__)
T = TypeVar("T")


class FollowingNode(Protocol):
    """This node, as its fetches from the leader see it."""

    failure: BaseException | None

    @property
    def state(self) -> RaftState: ...

    @property
    def directory_id(self) -> bytes: ...

    async def step(self, change: Callable[[RaftState, Now], Transition]) -> RaftState:
        """One change of the state, on disk before its effects; the state after it."""
        ...

    async def observe_epoch(self, epoch: int, leader_id: int, *, by_itself: bool = False) -> None:
        """A response has named an epoch and its leader."""
        ...

    def exclusive(self) -> tasks.Lock:
        """Held while the log changes, so that no vote is given meanwhile."""
        ...

    def flush_soon(self) -> None:
        """Flushes the log without waiting for it."""
        ...

    async def admit(self) -> None:
        """Lets a voter that was catching up vote again, when the flushed log says that it may."""
        ...

    def leader_contacted(self) -> None:
        """The leader has answered a fetch."""
        ...

    def refused(self, voter: int, code: int) -> None:
        """A voter has refused a whole request."""
        ...

    def fail(self, error: BaseException) -> None:
        """The log cannot be used any longer."""
        ...


class MetadataFetcher:
    """One task; idle while this node leads, or votes and knows no leader."""

    def __init__(
        self,
        ports: Ports,
        node: FollowingNode,
        log: MetadataLog,
        voters: Mapping[int, Peer],
        *,
        node_id: int,
        cluster_id: str,
        timeout_ms: float,
    ) -> None:
        """`voters`: the other voters by node id, over connections on which a fetch may wait.

        `timeout_ms`: how long a voter may take to answer, beside the time for which a fetch waits for records.
        """
        self._ports = ports
        self._node = node
        self._metadata_log = log
        self._voters = voters
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._timeout_ms = timeout_ms
        self._partial: PartialSnapshot | None = None
        # An observer's: the epoch and leader that did not answer, and how often it has asked another node.
        self._silent: tuple[int, int] | None = None
        self._probes = node_id

    def _follows(self) -> bool:
        state = self._node.state
        if state.role is RaftRole.OBSERVER:
            return True
        return state.role is RaftRole.FOLLOWER and state.leader_id in self._voters

    def _next_voter(self, state: RaftState) -> int:
        may_fetch = state.leader_id in self._voters and (state.epoch, state.leader_id) != self._silent
        if state.role is RaftRole.FOLLOWER or may_fetch:
            return state.leader_id
        voters = sorted(self._voters)
        self._probes += 1
        return voters[self._probes % len(voters)]

    async def run(self) -> None:
        """Fetches until cancelled, or until the log fails."""
        node = self._node
        while node.failure is None:
            await self._metadata_log.wait_until(lambda: self._follows() or node.failure is not None)
            if node.failure is not None:
                return
            state = node.state
            try:
                await self._fetch_once(state)
            except NoSpace as error:
                _log.error("Node %d cannot follow the metadata quorum: %s", self._node_id, error.message)
                await tasks.sleep_ms(REFUSED_PAUSE_MS)
            except KafkaError as error:
                _log.debug("Node %d got nothing from leader %d: %s", self._node_id, state.leader_id, error)
                if error.code in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT):
                    self._silent = (state.epoch, state.leader_id)
                if error.code is ErrorCode.NETWORK_EXCEPTION:
                    await self._unreachable(state)
                await tasks.sleep_ms(RETRY_PAUSE_MS)
            except (DecodeError, ValueError) as error:  # BadSnapshot, and an answer without the partition
                _log.error("Node %d: leader %d sent what cannot be used, asking again: %s",
                           self._node_id, state.leader_id, error)  # fmt: skip
                await tasks.sleep_ms(REFUSED_PAUSE_MS)
            except OSError as error:
                node.fail(error)
                return

    async def _unreachable(self, sent_in: RaftState) -> None:
        def change(state: RaftState, now: Now) -> Transition:
            same = state.epoch == sent_in.epoch and state.leader_id == sent_in.leader_id
            # Once for each silence: every further failure would only draw another delay.
            return (q.leader_unreachable(state, now) if same and state.leader_contacted else state), ()

        await self._node.step(change)

    def _request(self, state: RaftState) -> m.FetchRequest:
        request, end = m.FetchRequest, self._metadata_log.end
        partition = request.Topics.Partitions(
            partition=0,
            current_leader_epoch=state.epoch,
            fetch_offset=end.offset,
            last_fetched_epoch=end.epoch,
            log_start_offset=-1,
            replica_directory_id=self._node.directory_id,
            high_watermark=self._metadata_log.high_watermark,
        )
        return request(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            session_epoch=-1,
            cluster_id=self._cluster_id,
            replica_state=request.ReplicaState(replica_id=self._node_id, replica_epoch=-1),
            topics=[request.Topics(topic_id=CLUSTER_METADATA_TOPIC_ID, partitions=[partition])],
        )

    async def _fetch_once(self, state: RaftState) -> None:
        node = self._node
        timeout_ms = FETCH_WAIT_MS + self._timeout_ms
        request, voter = self._request(state), self._next_voter(state)
        response = cast(m.FetchResponse, await self._voters[voter].send(request, FETCH_VERSION, timeout_ms=timeout_ms))
        if response.error_code:
            node.refused(voter, response.error_code)
            await tasks.sleep_ms(REFUSED_PAUSE_MS)
            return
        [topic] = response.responses
        [partition] = topic.partitions
        await node.observe_epoch(partition.current_leader.leader_epoch, partition.current_leader.leader_id)
        if partition.error_code:
            raise error_for(partition.error_code)
        if not await self._leader_answered(state):
            return
        self._silent = None
        if partition.snapshot_id.end_offset >= 0:
            snapshot_id = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
            await self._fetch_snapshot(state, snapshot_id)
            return
        if not self._has_changes(partition):
            return
        offset = request.topics[0].partitions[0].fetch_offset
        await tasks.shield(tasks.start(self._apply_records(state, offset, partition), name="raft append"))

    def _has_changes(self, partition: _Partition) -> bool:
        """Whether a response changes anything; on an idle quorum, twice a second, it does not."""
        return (
            len(as_buffer(partition.records)) > 0
            or partition.diverging_epoch.end_offset >= 0
            or partition.high_watermark > self._metadata_log.high_watermark
        )

    async def _leader_answered(self, sent_in: RaftState) -> bool:
        """Whether the leader that was asked is still the one that this node follows."""
        self._node.leader_contacted()
        if not self._node.state.is_voter:
            return _same(self._node.state, sent_in)
        now = await self._node.step(
            lambda state, now: (q.leader_answered(state, now) if _same(state, sent_in) else state, ())
        )
        return _same(now, sent_in)

    async def _apply_records(self, sent_in: RaftState, offset: int, partition: _Partition) -> None:
        node, log = self._node, self._metadata_log

        def still_follows() -> bool:
            return _same(node.state, sent_in) and log.end_offset == offset

        async with node.exclusive():
            if not still_follows():
                return
            if partition.diverging_epoch.end_offset >= 0:
                await self._truncate(partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset)
            records = as_buffer(partition.records)
            if len(records):
                self._append(records, sent_in.epoch)
        grown = log.end_offset != offset

        def take_high_watermark(state: RaftState, now: Now) -> Transition:
            # The leader has it on a majority, whatever this disk still lacks.
            updated = _committed_by_leader(state, sent_in, partition.high_watermark, log.end_offset)
            return (q.own_flush_begins(updated) if grown and _same(state, sent_in) else updated), ()

        await node.step(take_high_watermark)
        if not grown:
            await node.admit()
            return
        if self._node_id in node.state.voters:
            await log.flush()
            await node.admit()
            await self._leader_answered(sent_in)
        else:
            # Nobody counts on this disk.
            node.flush_soon()

    def _append(self, records: bytes | bytearray | memoryview, epoch: int) -> None:
        try:
            self._metadata_log.append_fetched(records, epoch, self._ports.clock.time_ms())
        except NoSpace:
            raise
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                raise MetadataLogFailed(error.message) from error
            raise DecodeError(f"its records do not fit: {error.message}") from error

    async def _truncate(self, epoch: int, end_offset: int) -> None:
        """Truncates to the end of what both logs share (`ReplicatedLog.truncateToEndOffset`)."""
        log = self._metadata_log
        own_epoch, own_end = log.end_offset_for_epoch(epoch)
        if own_epoch < 0:
            target = min(end_offset, log.end_offset)
        else:
            target = min(own_end, end_offset) if own_epoch == epoch else own_end
        target = max(target, log.start_offset)
        _log.info(
            "Node %d cuts its metadata log from offset %d to %d: the leader's parts from it in epoch %d",
            self._node_id, log.end_offset, target, epoch,
        )  # fmt: skip
        await log.truncate_to(target)

    # --- snapshots

    async def _fetch_snapshot(self, sent_in: RaftState, snapshot_id: SnapshotId) -> None:
        log, workers = self._metadata_log, self._ports.workers
        if snapshot_id.end_offset <= min(log.high_watermark, log.end_offset):
            raise MetadataLogFailed(f"the leader offers snapshot {snapshot_id} of what is committed here already")
        if self._partial is not None and self._partial.id != snapshot_id:
            await self._discard_partial()
        if self._partial is None:
            unique = self._ports.random.uuid().hex()
            folder, disk = log.dir, self._ports.disk
            self._partial = await self._on_disk(lambda: PartialSnapshot(disk, folder, snapshot_id, unique))
            _log.info("Node %d fetches snapshot %s from leader %d", self._node_id, snapshot_id, sent_in.leader_id)
        partial = self._partial
        while True:
            size = await self._fetch_piece(sent_in, partial)
            if size is None:
                return
            if partial.size_bytes == size:
                break
        try:
            await workers.run(partial.check)
        except BadSnapshot:
            await self._discard_partial()
            raise
        await self._on_disk(partial.freeze)
        self._partial = None
        await tasks.shield(tasks.start(self._install(snapshot_id), name="raft snapshot"))

    async def _install(self, snapshot_id: SnapshotId) -> None:
        node = self._node
        async with node.exclusive():
            await self._metadata_log.start_at_snapshot(snapshot_id)
        await node.step(
            lambda state, now: (
                voter_progress.leader_committed(state, snapshot_id.end_offset, snapshot_id.end_offset),
                (),
            )
        )
        await node.admit()
        _log.info("Node %d goes on from snapshot %s", self._node_id, snapshot_id)

    async def _fetch_piece(self, sent_in: RaftState, partial: PartialSnapshot) -> int | None:
        """The size of the whole snapshot; None when this download is over, or to be gone on with later."""
        node = self._node
        part = m.FetchSnapshotRequest.Topics.Partitions
        partition = part(
            partition=0,
            current_leader_epoch=sent_in.epoch,
            snapshot_id=part.SnapshotId(end_offset=partial.id.end_offset, epoch=partial.id.epoch),
            position=partial.size_bytes,
            replica_directory_id=node.directory_id,
        )
        request = m.FetchSnapshotRequest(
            cluster_id=self._cluster_id,
            replica_id=self._node_id,
            max_bytes=SNAPSHOT_BYTES,
            topics=[m.FetchSnapshotRequest.Topics(name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        )
        timeout_ms = self._timeout_ms
        response = cast(
            m.FetchSnapshotResponse,
            await self._voters[sent_in.leader_id].send(request, FETCH_SNAPSHOT_VERSION, timeout_ms=timeout_ms),
        )
        if response.error_code or not response.topics:
            # A leader of Apache Kafka 4.3.1 answers every error of the partition like this.
            await self._discard_partial()
            node.refused(sent_in.leader_id, response.error_code)
            await tasks.sleep_ms(REFUSED_PAUSE_MS)
            return None
        result = response.topics[0].partitions[0]
        await node.observe_epoch(result.current_leader.leader_epoch, result.current_leader.leader_id)
        if result.error_code == ErrorCode.SNAPSHOT_NOT_FOUND:
            await self._discard_partial()
            return None
        if result.error_code:
            raise error_for(result.error_code)
        if not await self._leader_answered(sent_in):
            return None
        got = SnapshotId(result.snapshot_id.end_offset, result.snapshot_id.epoch)
        data = as_buffer(result.unaligned_records)
        position = partial.size_bytes
        fits = position + len(data) <= result.size and (len(data) or result.size == position)
        if got != partial.id or result.position != position or not fits:
            await self._discard_partial()
            raise BadSnapshot(
                f"asked for snapshot {partial.id} from byte {position}, and got {got} from {result.position}"
            )
        await self._on_disk(lambda: partial.append(data))
        return result.size

    async def _on_disk(self, work: Callable[[], T]) -> T:
        """NoSpace when the snapshot does not fit: what there is of it has made room, and the log is as it was."""
        try:
            return await self._ports.workers.run(work)
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
            await self._discard_partial()
            raise NoSpace(
                f"no space is left for the snapshot in {self._metadata_log.dir}; free some, and it is fetched again"
            ) from error

    async def _discard_partial(self) -> None:
        partial, self._partial = self._partial, None
        if partial is not None:
            await self._ports.workers.run(partial.discard)


def _same(state: RaftState, sent_in: RaftState) -> bool:
    follows = state.role in (RaftRole.FOLLOWER, RaftRole.OBSERVER) and state.leader_id != NOBODY
    return follows and (state.epoch, state.leader_id) == (sent_in.epoch, sent_in.leader_id)


def _committed_by_leader(state: RaftState, sent_in: RaftState, high_watermark: int, own_end: int) -> RaftState:
    return voter_progress.leader_committed(state, high_watermark, own_end) if _same(state, sent_in) else state
