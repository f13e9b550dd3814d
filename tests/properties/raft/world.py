"""Nodes of a quorum on a virtual clock, network and disk: the real state machine under loss, reorder and crashes.

Everything that happens is drawn from one seed. A node's driver is written out here in its simplest form: persist, then
effects one after another, and a crash may come between any two of them. What must hold is checked after every event.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from backend.engine.raft import election as q
from backend.engine.raft import voter_progress
from backend.engine.raft.leader_fetch import LogView, decide, is_diverging
from backend.engine.raft.quorum_state import NOBODY, QuorumState
from backend.engine.raft.raft_state import (
    AppendLeaderChange,
    LogEnd,
    Now,
    RaftEffect,
    RaftRole,
    RaftState,
    ReceivedVote,
    SendBeginQuorumEpoch,
    SendEndQuorumEpoch,
    SendVote,
    Timing,
    VoterFetch,
)
from backend.engine.raft.snapshot_files import SnapshotId
from backend.protocol import messages as m

TIMING: Final = Timing(election_timeout_ms=100, fetch_timeout_ms=200, backoff_max_ms=100)
Entry = tuple[int, int]  # epoch, value; a leader change has the value 0


class Violation(AssertionError):
    """Something that Raft promises did not hold."""


class Crash(Exception):
    """The node stops here."""


@dataclass
class Disk:
    """Entries that survive a crash: all but the entries behind `flushed`, of which a part may."""

    state: QuorumState = field(default_factory=QuorumState)
    snapshot: tuple[SnapshotId, tuple[Entry, ...]] | None = None
    start: int = 0
    entries: list[Entry] = field(default_factory=list)
    flushed: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.entries)

    @property
    def log_end(self) -> LogEnd:
        if self.entries:
            return LogEnd(self.entries[-1][0], self.end)
        return LogEnd(self.snapshot[0].epoch if self.snapshot else 0, self.end)

    def entry(self, offset: int) -> Entry:
        return self.entries[offset - self.start]

    def history(self) -> list[Entry]:
        """All entries from offset 0, those in the snapshot too."""
        assert self.start == 0 or self.snapshot is not None
        return [*(self.snapshot[1][: self.start] if self.snapshot and self.start else ()), *self.entries]

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        epochs = [(entry[0], self.start + at) for at, entry in enumerate(self.entries)]
        if self.start:
            # As the leader epoch cache keeps the epoch that the log's start lies in.
            epochs.insert(0, (self.history()[self.start - 1][0], self.start))
        if not epochs or epoch > epochs[-1][0]:
            return -1, -1
        floor_epoch = max((log_epoch for log_epoch, _ in epochs if log_epoch <= epoch), default=None)
        if floor_epoch is None:
            return epoch, epochs[0][1]
        return floor_epoch, min((offset for log_epoch, offset in epochs if log_epoch > floor_epoch), default=self.end)

    def truncate(self, offset: int) -> None:
        del self.entries[max(0, offset - self.start) :]
        self.flushed = min(self.flushed, self.end)


@dataclass
class Node:
    disk: Disk
    state: RaftState | None = None
    fetch_in_flight: int = 0


Message = dict[str, Any]


class World:
    """`bugs` names faults that a checker must find: see `test_a_planted_bug_is_found`."""

    def __init__(self, seed: int, nodes: int = 3, bugs: frozenset[str] = frozenset()) -> None:
        self.random = random.Random(seed)
        self.bugs = bugs
        self.now_ms = 0.0
        self.voters = tuple(range(1, nodes + 1))
        self.nodes = {node: Node(Disk()) for node in self.voters}
        self.wire: list[tuple[float, Message]] = []
        self.cut: frozenset[int] = frozenset()
        self.leaders: dict[int, int] = {}
        self.committed: list[Entry] = []
        self.next_value = 1
        self.elections = 0
        self.snapshots_installed = 0
        self.loss = self.random.choice((0.0, 0.05, 0.2))
        self.crash_rate = self.random.choice((0.0, 0.002, 0.008))
        for node in self.voters:
            self.boot(node)

    # --- life of a node

    def moment(self) -> Now:
        return Now(self.now_ms, self.random.random())

    def boot(self, node_id: int) -> None:
        node = self.nodes[node_id]
        stored = QuorumState() if "forgets its vote" in self.bugs else node.disk.state
        state, effects = q.start(node_id, self.voters, TIMING, stored, node.disk.log_end, self.moment())
        node.state = replace(state, high_watermark=node.disk.snapshot[0].end_offset if node.disk.snapshot else 0)
        node.fetch_in_flight += 1
        self.attempt(node_id, lambda: self.settle(node_id, node.state, effects))

    def crash(self, node_id: int) -> None:
        node = self.nodes[node_id]
        node.state = None
        disk = node.disk
        disk.truncate(self.random.randint(min(disk.flushed, disk.end), disk.end))

    def attempt(self, node_id: int, work: Callable[[], None]) -> None:
        try:
            work()
        except Crash:
            self.crash(node_id)

    def crash_point(self) -> None:
        if self.random.random() < self.crash_rate:
            raise Crash

    def settle(self, node_id: int, state: RaftState | None, effects: tuple[RaftEffect, ...] = ()) -> None:
        """The driver's work after every step: durable first, then the effects in order."""
        node = self.nodes[node_id]
        assert state is not None
        state.check()
        self.crash_point()
        before = node.state
        node.disk.state = state.durable
        node.state = state
        if before is not None and state.high_watermark < before.high_watermark:
            raise Violation(f"the high watermark of {node_id} went back")
        self.crash_point()
        for effect in effects:
            self.carry_out(node_id, effect)
            self.crash_point()
        self.check_committed(node_id)

    def carry_out(self, node_id: int, effect: RaftEffect) -> None:
        node = self.nodes[node_id]
        state = node.state
        assert state is not None
        match effect:
            case SendVote(pre_vote):
                end = node.disk.log_end
                for other in state.others():
                    self.send(node_id, other, "vote", epoch=state.epoch, end=end, pre_vote=pre_vote)
            case AppendLeaderChange():
                self.begin_epoch(node_id)
            case SendBeginQuorumEpoch(to):
                for other in to:
                    self.send(node_id, other, "begin", epoch=state.epoch)
            case SendEndQuorumEpoch(epoch, preferred):
                for other in state.others():
                    self.send(node_id, other, "end", epoch=epoch, preferred=preferred)

    def begin_epoch(self, node_id: int) -> None:
        node = self.nodes[node_id]
        assert node.state is not None
        epoch = node.state.epoch
        self.elections += 1
        if self.leaders.setdefault(epoch, node_id) != node_id:
            raise Violation(f"epoch {epoch} has two leaders, {self.leaders[epoch]} and {node_id}")
        history = node.disk.history()
        if history[: len(self.committed)] != self.committed:
            raise Violation(f"leader {node_id} of epoch {epoch} lacks what was committed")
        node.disk.entries.append((epoch, 0))

    # --- network

    def send(self, source: int, target: int, kind: str, **content: Any) -> None:
        if self.random.random() < self.loss:
            return
        for _ in range(2 if self.random.random() < self.loss / 2 else 1):
            delay_ms = self.random.choice((1, 2, 5, 20, 80))
            message = {"source": source, "target": target, "kind": kind, **content}
            self.wire.append((self.now_ms + delay_ms * self.random.random(), message))

    def deliver(self, message: Message) -> None:
        source, target = message["source"], message["target"]
        if (source in self.cut) != (target in self.cut):
            return
        node = self.nodes[target]
        if node.state is not None:
            self.attempt(target, lambda: getattr(self, f"on_{message['kind']}")(target, node, node.state, message))

    def on_vote(self, me: int, node: Node, state: RaftState, message: Message) -> None:
        end = LogEnd(-1, -1) if "votes for any log" in self.bugs else node.disk.log_end
        vote = ReceivedVote(message["source"], message["epoch"], message["end"], message["pre_vote"])
        state, error, granted = q.handle_vote(state, vote, end, self.moment())
        self.settle(me, state)
        content = {"asked_epoch": message["epoch"], "pre_vote": message["pre_vote"], "granted": granted and not error}
        self.send(me, message["source"], "voted", epoch=state.epoch, leader=state.leader_id, **content)

    def on_voted(self, me: int, node: Node, state: RaftState, message: Message) -> None:
        state = q.observe_epoch(state, message["epoch"], message["leader"], self.moment())
        state, effects = q.vote_answered(
            state,
            message["source"],
            epoch=message["asked_epoch"],
            pre_vote=message["pre_vote"],
            granted=message["granted"],
            log_end=node.disk.log_end,
            now=self.moment(),
        )
        self.settle(me, state, effects)

    def on_begin(self, me: int, node: Node, state: RaftState, message: Message) -> None:
        self.settle(me, q.handle_begin_quorum_epoch(state, message["source"], message["epoch"], self.moment())[0])

    def on_end(self, me: int, node: Node, state: RaftState, message: Message) -> None:
        moment = self.moment()
        state, _ = q.handle_end_quorum_epoch(state, message["source"], message["epoch"], message["preferred"], moment)
        self.settle(me, state)

    def on_fetch(self, me: int, node: Node, state: RaftState, message: Message) -> None:
        disk = node.disk
        snapshot = disk.snapshot[0] if disk.snapshot else None
        view = LogView(
            state.leader_id,
            state.epoch,
            disk.start,
            disk.end,
            state.high_watermark,
            is_leader=state.is_leader,
            earliest_snapshot=snapshot,
            latest_snapshot=snapshot,
        )
        partition = m.FetchRequest.Topics.Partitions(
            partition=0,
            current_leader_epoch=message["epoch"],
            fetch_offset=message["offset"],
            last_fetched_epoch=message["last_epoch"],
        )
        answer = decide(partition, view, disk.end_offset_for_epoch)
        reply: Message = {
            "ticket": message["ticket"],
            "asked_epoch": message["epoch"],
            "epoch": state.epoch,
            "leader": state.leader_id,
            "error": answer.error_code,
            "offset": message["offset"],
        }
        if is_diverging(answer) and "sends to any log" not in self.bugs:
            reply["diverging"] = (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset)
        elif answer.snapshot_id.end_offset >= 0:
            assert disk.snapshot is not None
            reply["snapshot"] = disk.snapshot
        elif not answer.error_code:
            state = voter_progress.voter_fetched(state, message["source"], VoterFetch(message["offset"]), self.moment())
            self.settle(me, state)
            at = max(0, message["offset"] - disk.start)
            reply["entries"] = tuple(disk.entries[at : at + self.random.randint(1, 5)])
            reply["high_watermark"] = state.high_watermark
        self.send(me, message["source"], "fetched", **reply)

    def on_fetched(self, me: int, node: Node, state: RaftState, message: Message) -> None:
        if message["ticket"] != node.fetch_in_flight:
            return
        node.fetch_in_flight += 1
        state = q.observe_epoch(state, message["epoch"], message["leader"], self.moment())
        if message["error"] or message["asked_epoch"] != state.epoch or state.leader_id != message["source"]:
            self.settle(me, state)
            return
        if state.role is not RaftRole.FOLLOWER:
            self.settle(me, state)
            return
        state = q.leader_answered(state, self.moment())
        disk = node.disk
        if "snapshot" in message:
            self.install(me, message["snapshot"])
            state = voter_progress.leader_committed(state, message["snapshot"][0].end_offset, disk.end)
        elif "diverging" in message:
            epoch, end = message["diverging"]
            own_epoch, own_end = disk.end_offset_for_epoch(epoch)
            target = min(end, own_end) if own_epoch == epoch else own_end
            target = max(target if own_epoch >= 0 else min(end, disk.end), disk.start)
            if target < state.high_watermark:
                raise Violation(f"{me} is told to truncate to {target}, below its high watermark {state}")
            disk.truncate(target)
        elif "entries" in message and message["offset"] == disk.end:
            disk.entries.extend(message["entries"])
            state = voter_progress.leader_committed(state, message["high_watermark"], disk.end)
        self.settle(me, state)
        if "never flushes" not in self.bugs:
            disk.flushed = disk.end

    def install(self, me: int, snapshot: tuple[SnapshotId, tuple[Entry, ...]]) -> None:
        disk = self.nodes[me].disk
        if snapshot[0].end_offset <= (disk.snapshot[0].end_offset if disk.snapshot else 0):
            return
        self.snapshots_installed += 1
        disk.snapshot = snapshot
        # A crash between the frozen file and the empty log: the next start does the rest.
        disk.entries, disk.start = [], snapshot[0].end_offset
        disk.flushed = disk.start
        self.crash_point()

    # --- what happens by itself

    def step(self) -> None:
        self.now_ms += 4.0
        due = [delivery for delivery in self.wire if delivery[0] <= self.now_ms]
        self.wire = [delivery for delivery in self.wire if delivery[0] > self.now_ms]
        self.random.shuffle(due)
        for _, message in due:
            self.deliver(message)
        for node_id, node in self.nodes.items():
            if node.state is None:
                if self.random.random() < 0.04:
                    self.boot(node_id)
                continue
            self.attempt(node_id, lambda node_id=node_id, node=node: self.turn(node_id, node))  # type: ignore[misc]  # bound now
        self.stir()

    def turn(self, node_id: int, node: Node) -> None:
        assert node.state is not None
        self.settle(node_id, *q.tick(node.state, node.disk.log_end, self.moment()))
        state, disk = node.state, node.disk
        if state.is_leader:
            if self.random.random() < 0.1:
                disk.entries.append((state.epoch, self.next_value))
                self.next_value += 1
            if self.random.random() < 0.2:
                disk.flushed = disk.end
                self.settle(node_id, voter_progress.flushed(state, disk.end))
        elif state.role is RaftRole.FOLLOWER and self.random.random() < 0.3:
            node.fetch_in_flight += 1
            end = disk.log_end
            content = {"epoch": state.epoch, "offset": end.offset, "last_epoch": end.epoch}
            self.send(node_id, state.leader_id, "fetch", ticket=node.fetch_in_flight, **content)
        if self.random.random() < 0.04:
            self.take_snapshot(node)

    def take_snapshot(self, node: Node) -> None:
        assert node.state is not None
        disk, end = node.disk, node.state.high_watermark
        snapshot_end = disk.snapshot[0].end_offset if disk.snapshot else 0
        if snapshot_end < end <= disk.end and end > disk.start:
            history = disk.history()
            disk.snapshot = (SnapshotId(end, history[end - 1][0]), tuple(history[:end]))
            if self.random.random() < 0.5:
                del disk.entries[: end - disk.start]
                disk.start = end
                disk.flushed = max(disk.flushed, end)

    def stir(self) -> None:
        if self.random.random() < self.crash_rate / 3:
            self.crash(self.random.choice(self.voters))
        if self.random.random() < 0.02:
            count = self.random.choice((0, 0, 1, 1, 2))
            self.cut = frozenset(self.random.sample(self.voters, min(count, len(self.voters))))

    def heal(self) -> None:
        """From now on nothing fails."""
        self.loss = self.crash_rate = 0.0
        self.cut = frozenset()
        for node_id, node in self.nodes.items():
            if node.state is None:
                self.boot(node_id)

    # --- what must hold

    def check_committed(self, node_id: int) -> None:
        node = self.nodes[node_id]
        assert node.state is not None
        end = node.state.high_watermark
        if end <= node.disk.start and end <= len(self.committed):
            return
        history = node.disk.history()[:end]
        if len(history) < end:
            raise Violation(f"{node_id} has a high watermark behind its log's end")
        shared = min(len(history), len(self.committed))
        if history[:shared] != self.committed[:shared]:
            raise Violation(f"{node_id} applies other records than were committed: {history[:shared]}")
        self.committed.extend(history[shared:])

    def check_logs_match(self) -> None:
        """Equal epoch at equal offset: equal logs up to there."""
        histories = [node.disk.history() for node in self.nodes.values()]
        for at, history in enumerate(histories):
            for other in histories[at + 1 :]:
                for offset in range(min(len(history), len(other)) - 1, -1, -1):
                    if history[offset][0] == other[offset][0]:
                        if history[: offset + 1] != other[: offset + 1]:
                            raise Violation(f"two logs differ below offset {offset} of one epoch")
                        break

    def leader(self) -> int:
        """The node that leads the highest epoch, or NOBODY."""
        leading = [(n.state.epoch, i) for i, n in self.nodes.items() if n.state is not None and n.state.is_leader]
        return max(leading, default=(0, NOBODY))[1]
