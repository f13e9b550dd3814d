"""A node of the metadata quorum: carries out what the state machine (`election`) decides (Kafka's KafkaRaftClient).

One step at a time: the state machine's answer is on disk before anything that follows from it is sent. Beside the steps
run a flusher for records that no caller waits for, a fetcher that follows the leader, and, on voters, a timer. A node
without a vote is an observer (KIP-595).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from backend.engine.config import BrokerConfig
from backend.engine.ports import Ports, tasks
from backend.engine.raft import election as q
from backend.engine.raft import voter_progress
from backend.engine.raft.acknowledged import AcknowledgedFiles
from backend.engine.raft.election_timer import STALL_MS, ElectionTimer
from backend.engine.raft.leader_fetch import LogView
from backend.engine.raft.leader_wait import CHECK_MS, LeaderWait
from backend.engine.raft.metadata_fetcher import MetadataFetcher
from backend.engine.raft.metadata_log import MetadataLog, MetadataLogFailed
from backend.engine.raft.observers import Observers
from backend.engine.raft.quorum_state import NO_DIRECTORY, NOBODY, QuorumState, VoterStanding
from backend.engine.raft.raft_state import (
    AppendLeaderChange,
    Now,
    RaftEffect,
    RaftRole,
    RaftState,
    Timing,
    Transition,
    VoterFetch,
)
from backend.engine.raft.voter_requests import Peer, VoterRequests
from backend.protocol.errors import ErrorCode, KafkaError, error_for
from backend.protocol.messages import Message
from backend.tiering.ids import uuid_text

# Limit for sending the resignation of a leader that stops to the other voters.
RESIGN_TIMEOUT_MS: Final = 500.0

_log = logging.getLogger(__name__)


class QuorumMismatch(Exception):
    """This node must not take part as it is set up; one sentence for the operator."""


@dataclass(frozen=True, slots=True)
class VoterAddress:
    """Host and port of a voter's controller listener."""

    host: str
    port: int


class RaftNode:
    """Start once, then stop. All methods on the loop's thread."""

    def __init__(
        self,
        ports: Ports,
        config: BrokerConfig,
        log: MetadataLog,
        *,
        cluster_id: str,
        votes: bool = True,
        peers: Mapping[int, Peer] | None = None,
        fetchers: Mapping[int, Peer] | None = None,
        addresses: Mapping[int, VoterAddress] | None = None,
        memory: QuorumState | None = None,
        directory_id: bytes = NO_DIRECTORY,
        acknowledged: AcknowledgedFiles | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        """`peers` are the other voters; without any this node, which `votes`, is the only one.

        `fetchers` are second ways to them, for requests that wait there. `memory` is what a voter remembers
        (`voter_memory`), `acknowledged` where it notes its progress; `directory_id` is that of a node without a vote.
        `on_failure` hears why this node ended.
        """
        self._ports = ports
        self.log = log
        self.node_id = config.id
        self.cluster_id = cluster_id
        self._own_directory_id = directory_id
        # An observer has promised nothing, so nothing is kept of what it knew.
        self._memory = memory if memory is not None and votes else QuorumState()
        self._acknowledged = acknowledged
        self.peers = dict(peers or {})
        self.addresses = dict(addresses or {})
        self.voters = tuple(sorted({*self.peers, *((config.id,) if votes else ())}))
        # Latest fetches from this node while it leads: of the other voters, and of those without a vote.
        self.voters_seen = Observers()
        self.observers = Observers()
        self.failure: BaseException | None = None
        self.elections = 0
        self._on_failure = on_failure
        self._timing = Timing(
            config.controller_quorum_election_timeout_ms,
            config.controller_quorum_fetch_timeout_ms,
            config.controller_quorum_election_backoff_max_ms,
            config.ebbline_quorum_start_wait_ms,
        )
        self._state = RaftState(
            config.id, self.voters, self._timing, RaftRole.UNATTACHED if votes else RaftRole.OBSERVER
        )
        self._clock = ElectionTimer(ports.clock, lambda: self._state)
        self._step_lock = tasks.Lock()
        self._unflushed = tasks.Event()
        # Whether a voter has answered without an error.
        self._accepted = False
        self._running: list[tasks.Task[None]] = []
        timeout_ms = config.controller_quorum_request_timeout_ms
        self._requests = VoterRequests(
            self, log, self.peers, node_id=config.id, cluster_id=cluster_id, timeout_ms=timeout_ms
        )
        self._fetcher = MetadataFetcher(
            ports, self, log, fetchers or self.peers, node_id=config.id, cluster_id=cluster_id, timeout_ms=timeout_ms
        )
        self._waiting = LeaderWait(config.id, self.voters)

    # --- what others read

    @property
    def state(self) -> RaftState:
        return self._state

    @property
    def votes(self) -> bool:
        """Whether it may vote and lead now; a voter that is catching up may not."""
        return self._state.is_voter

    @property
    def is_in_voters(self) -> bool:
        """Whether it is one of the voters, as the settings name them: what it fetches must be on its disk."""
        return self.node_id in self.voters

    @property
    def directory_id(self) -> bytes:
        """The directory id that this node sends to voters."""
        return self._state.directory_id if self.is_in_voters else self._own_directory_id

    @property
    def epoch(self) -> int:
        return self._state.epoch

    @property
    def leader_id(self) -> int:
        """The leader as this node knows it, or -1."""
        return self._state.leader_id

    @property
    def is_leader(self) -> bool:
        return self._state.is_leader

    def leads(self, epoch: int) -> bool:
        """Whether this node still leads that epoch."""
        return self._state.is_leader and self._state.epoch == epoch and self.failure is None

    def view(self) -> LogView:
        """The part of this node's state that the response to a fetch depends on."""
        return LogView(
            self.leader_id,
            self.epoch,
            self.log.start_offset,
            self.log.end_offset,
            self.log.high_watermark,
            is_leader=self.is_leader,
            earliest_snapshot=self.log.earliest_snapshot,
            latest_snapshot=self.log.snapshots.latest,
        )

    # --- life

    async def start(self) -> None:
        """Takes its place in the quorum; an only voter leads when this returns. QuorumMismatch, CorruptLog, OSError."""
        stored = self._memory
        if stored.voters and set(stored.voters) != set(self.voters):
            raise QuorumMismatch(
                f"Its metadata log {self.log.dir} belongs to the voters {sorted(stored.voters)}, but"
                f" controller.quorum.voters names {list(self.voters)}: voters cannot be changed on a folder that is in"
                " use; set them as they were"
            )
        stored = replace(stored, voters=self.voters)

        self.log.leader_epoch = stored.leader_epoch

        def begin(_: RaftState, now: Now) -> Transition:
            state, effects = q.start(
                self.node_id, self.voters, self._timing, stored, self.log.end, now, self.log.directories
            )
            return replace(state, high_watermark=self.log.high_watermark), effects

        self._spawn(self._flush_always(), "flusher")
        await self.step(begin)
        if self.voters == (self.node_id,):
            await self.log.wait_until(lambda: self.log.high_watermark > self._state.epoch_start or bool(self.failure))
            if self.failure is not None:
                raise self.failure
            return
        if self.is_in_voters:
            self._spawn(self._tick_always(), "clock")
            self._spawn(self._log_leader_wait(), "waiting")
        self._spawn(self._fetcher.run(), "fetcher")

    def _spawn(self, coroutine: Coroutine[Any, Any, None], what: str) -> None:
        self._running.append(tasks.spawn(coroutine, name=f"raft {what} of node {self.node_id}"))

    async def stop(self) -> None:
        """Gives leadership up, so that the others need not wait for a time-out, and ends."""
        if self.is_leader and self.peers and self.failure is None:
            await self.step(_resign)
            with suppress(tasks.Timeout):
                await tasks.wait_for(self._requests.all_sent(), RESIGN_TIMEOUT_MS)
        await self.kill()

    async def kill(self) -> None:
        """Ends without a word."""
        for task in self._running:
            await tasks.cancel(task)
        self._running.clear()
        await self._requests.cancel()

    def fail(self, error: BaseException) -> None:
        """This node's log cannot be used any longer: it takes part no more."""
        if self.failure is None:
            self.failure = error
            _log.critical("Node %d leaves the metadata quorum: %s", self.node_id, error)
            self.log.wake()
            self._clock.wake()
            if self._on_failure is not None:
                self._on_failure(error)

    def accepted(self) -> None:
        """A voter has answered without an error, so this node belongs to its cluster."""
        self._accepted = True

    def refused(self, voter: int, code: int) -> None:
        """A voter has refused a whole request."""
        # A broker without a vote hears the same when it registers, and says so.
        if code == ErrorCode.INCONSISTENT_CLUSTER_ID and not self._accepted and self.votes:
            where = self.addresses.get(voter)
            place = f" at {where.host}:{where.port}" if where else ""
            self.fail(
                QuorumMismatch(
                    f"voter {voter}{place} belongs to another cluster than {self.cluster_id}; correct"
                    " controller.quorum.voters, or start with this cluster's folder"
                )
            )
        else:
            _log.warning("Node %d: voter %d refuses its request: %s", self.node_id, voter, error_for(code))

    # --- steps

    def _now(self) -> Now:
        return Now(self._ports.clock.monotonic_ms(), self._ports.random.uniform(0.0, 0.999999))

    async def step(self, change: Callable[[RaftState, Now], Transition]) -> RaftState:
        """One change of the state: on disk first, then its effects. Goes through even when the caller is cancelled."""
        step = tasks.start(self._step(change), name=f"raft step of node {self.node_id}")
        return await tasks.shield(step)

    async def _step(self, change: Callable[[RaftState, Now], Transition]) -> RaftState:
        async with self._step_lock:
            before, now = self._state, self._now()
            current = q.log_changed(before, self.log.end, self.log.directories, now)
            state, effects = change(current, now)
            self.log.acknowledged = self._acknowledged if state.standing is VoterStanding.MEMBER else None
            if self.is_in_voters and state.durable != before.durable:
                try:
                    await self.log.write_state(state.durable)
                except OSError as error:
                    self.fail(error)
                    raise
            self._state = state
            self._clock.deadline_moved()
            for effect in effects:
                self._carry_out(state, effect)
            self.log.update_high_watermark(state.high_watermark)
            if (state.role, state.epoch, state.leader_id) != (before.role, before.epoch, before.leader_id):
                _log.info(
                    "Node %d is %s in epoch %d of the metadata quorum, led by %s", self.node_id, state.role,
                    state.epoch, "nobody" if state.leader_id == NOBODY else f"node {state.leader_id}",
                )  # fmt: skip
                self.log.wake()
            return state

    def _carry_out(self, state: RaftState, effect: RaftEffect) -> None:
        if not isinstance(effect, AppendLeaderChange):
            self._requests.carry_out(state, effect)
            return
        self.elections += 1
        try:
            self.log.append_leader_change(
                self.node_id, state.epoch, self.voters, effect.granting_voters, self._ports.clock.time_ms()
            )
        except (OSError, KafkaError) as error:
            self.fail(error)
        self.flush_soon()

    async def observe_epoch(self, epoch: int, leader_id: int, *, by_itself: bool = False) -> None:
        """Another node named an epoch and its leader; `by_itself` when it was that leader, which so is still there."""
        doubted = by_itself and self._state.role is RaftRole.PROSPECTIVE
        if epoch > self.epoch or (epoch == self.epoch and (leader_id != self.leader_id or doubted)):
            await self.step(lambda state, now: (q.observe_epoch(state, epoch, leader_id, now), ()))

    def exclusive(self) -> tasks.Lock:
        """Held while the log is changed by what a leader has sent: no vote is given meanwhile."""
        return self._step_lock

    async def vote_answered(self, voter: int, epoch: int, *, pre_vote: bool, granted: bool, abstains: bool) -> None:
        """A voter has answered the Vote that was sent in `epoch`; it `abstains` while it is catching up."""
        self._waiting.answered(voter, abstains, self._ports.clock.monotonic_ms())

        def change(state: RaftState, now: Now) -> Transition:
            return q.vote_answered(
                state,
                voter,
                epoch=epoch,
                pre_vote=pre_vote,
                granted=granted,
                log_end=self.log.end,
                now=now,
                abstains=abstains,
            )

        await self.step(change)

    async def admit(self) -> None:
        """A voter that was catching up is one again once its directory is noted and that is committed.

        To be called when what the log holds is on the device.
        """
        noted = self.log.committed_directories.get(self.node_id)
        if self._state.standing is VoterStanding.CATCHING_UP and noted == self.directory_id:
            await self.step(lambda state, now: (q.admitted(state, now), ()))
            _log.info("Node %d has caught up with the metadata quorum and votes again", self.node_id)

    # --- the clock and the disk

    async def _tick_always(self) -> None:
        while self.failure is None:
            late_ms = await self._clock.due()
            if late_ms > STALL_MS:
                await self._postpone_timeouts(late_ms)
            if self._ports.clock.monotonic_ms() >= self._state.deadline_ms:
                await self.step(lambda state, now: q.tick(state, self.log.end, now))

    def leader_contacted(self) -> None:
        """The leader of this node's epoch has answered a fetch."""
        self._waiting.leader_contacted(self._ports.clock.monotonic_ms())

    async def _log_leader_wait(self) -> None:
        while self.failure is None:
            await tasks.sleep_ms(CHECK_MS)
            text = self._waiting.check(self._state, self._ports.clock.monotonic_ms())
            if text is not None:
                _log.warning("%s", text)

    @property
    def waits_for(self) -> str | None:
        """Why no leader is known, in one sentence; None while one is."""
        return self._waiting.text

    async def _postpone_timeouts(self, by_ms: float) -> None:
        await self.step(lambda state, now: (q.postpone_timeouts(state, by_ms), ()))

    async def _flushed(self, end: int) -> None:
        await self.step(lambda state, now: (voter_progress.flushed(state, end), ()))

    def flush_soon(self) -> None:
        """Flushes appended records soon; the caller does not wait for it."""
        self._unflushed.set()

    async def _flush_always(self) -> None:
        while self.failure is None:
            await self._unflushed.wait()
            self._unflushed.clear()
            try:
                end = await self.log.flush()
            except OSError as error:
                self.fail(error)
                return
            if self.is_leader:
                await self._flushed(end)

    # --- the leader's work

    def append(self, records: Sequence[Message], epoch: int) -> int:
        """Writes records as leader of `epoch`; the offset of the last. They count once they are `committed`.

        NOT_CONTROLLER when the epoch is over; NoSpace, MetadataLogFailed as the log's.
        """
        if not self.leads(epoch):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"Node {self.node_id} leads epoch {epoch} no longer")
        last = self.log.append(records, epoch, self._ports.clock.time_ms())
        self.flush_soon()
        return last

    async def committed(self, offset: int, epoch: int) -> None:
        """Returns once the offset is on the disks of most voters. NOT_CONTROLLER when leadership ends before."""
        await self.log.wait_until(lambda: self.log.high_watermark > offset or not self.leads(epoch))
        if self.log.high_watermark > offset:
            return
        if isinstance(self.failure, OSError):
            raise MetadataLogFailed(str(self.failure)) from self.failure
        raise KafkaError(ErrorCode.NOT_CONTROLLER, f"Node {self.node_id} leads epoch {epoch} no longer")

    def voter_seen(self, voter: int, directory_id: bytes, offset: int, now_ms: int) -> None:
        """Notes a voter's fetch for DescribeQuorum; the voter is caught up when it fetches at the log's end."""
        self.observers.forget(voter)
        self.voters_seen.note(voter, directory_id, offset, self.log.end_offset, now_ms)

    def voter_fetch(self, voter: int, offset: int, directory_id: bytes) -> VoterFetch:
        """A voter's Fetch as this leader weighs it."""
        log = self.log
        superseded = log.is_superseded(voter, directory_id)
        return VoterFetch(offset, directory_id, log.committed_directories, superseded)

    def counts(self, voter: int, fetched: VoterFetch) -> bool:
        """Whether what the voter has counts for commits; it gets what is not committed yet, too."""
        return voter in self._state.progress and voter_progress.counts(self._state, voter, fetched)

    async def voter_fetched(self, voter: int, fetched: VoterFetch) -> None:
        """A voter has everything below an offset on its disk. A directory that the log does not name is noted there."""
        state = await self.step(lambda state, now: (voter_progress.voter_fetched(state, voter, fetched, now), ()))
        # Others may have been noted during the step: a record names all voters and replaces the one before, so it is
        # made of what the log says now, without a wait in between.
        state = replace(state, directories=self.log.directories)
        fetched = self.voter_fetch(voter, fetched.offset, fetched.directory_id)
        noted = voter_progress.directories_to_note(state, voter, fetched)
        if noted is None or not self.leads(state.epoch):
            return
        try:
            self.log.append_voters(noted, state.epoch, self._ports.clock.time_ms())
        except KafkaError as error:
            _log.error("Node %d cannot note the directory of voter %d: %s", self.node_id, voter, error.message)
            return
        except OSError as error:
            self.fail(error)
            return
        _log.info(
            "Node %d notes directory %s of voter %d in the metadata log",
            self.node_id, uuid_text(fetched.directory_id), voter,
        )  # fmt: skip
        # What comes next must know of the note, or each fetch would write it again.
        await self.step(lambda state, now: (state, ()))
        self.flush_soon()

    async def voter_contacted(self, voter: int) -> None:
        """A voter fetches a snapshot."""
        await self.step(lambda state, now: (voter_progress.voter_contacted(state, voter, now), ()))

    def lowest_needed(self) -> int | None:
        """The lowest offset that a voter which is heard still reads; None on a node that does not lead."""
        if not self.is_leader:
            return None
        now_ms, limit_ms = self._ports.clock.monotonic_ms(), self._timing.fetch_timeout_ms * 2
        read_offsets = [
            progress.end_offset for progress in self._state.progress.values() if now_ms - progress.contact_ms < limit_ms
        ]
        return min((offset for offset in read_offsets if offset >= 0), default=None)


def _resign(state: RaftState, now: Now) -> Transition:
    """`election.resign` as a change for `step`."""
    return q.resign(state, now)
