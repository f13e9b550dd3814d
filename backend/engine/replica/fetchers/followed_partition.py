"""One followed partition: carries the decisions of `fetch_state` and `tier_state` out on its log and reports its phase.

The fetcher that owns it decides when to ask; everything here is synchronous, so a partition's log and fetch state
change together. Phase changes go to the event sink (`__ebbline_events`) and to the broker's log.
"""

from __future__ import annotations

import logging
from typing import Final, assert_never

from backend.engine.log.producers.producer_snapshot import decode_snapshot
from backend.engine.replica.fetch_data import EpochEnd
from backend.engine.replica.fetchers import fetch_state, tier_state
from backend.engine.replica.fetchers.fetch_session_handler import FetchTarget
from backend.engine.replica.fetchers.fetch_state import UNDEFINED_EPOCH, FetchState
from backend.engine.replica.fetchers.tier_state import ContinueAt, Rebuild, StartAt, TierStateOutcome, TruncateTo
from backend.engine.replica.partition import Partition
from backend.engine.replica.partition_context import PartitionContext
from backend.protocol import messages as m
from backend.tiering.follower_phase import KEEPS_ACKNOWLEDGED, FollowerPhase

FollowerKey = tuple[bytes, int]

# metadata.version 4.2-IV1: followers may use ListOffsets 11 (KIP-1023).
LIST_OFFSETS_11_LEVEL: Final = 29
# Reported attempts in one phase: the first three (a dashboard's "stuck"), then every tenth, and any that failed for
# another reason than the one before it: a cause must not be reported long after it has gone.
ATTEMPTS_REPORTED: Final = 3
ATTEMPTS_REPORTED_EVERY: Final = 10

# An entry of the epoch checkpoint: two numbers of at most 10 and 19 digits. Besides, an empty segment with its indexes.
EPOCH_BYTES_MAX: Final = 32
REBUILD_BYTES: Final = 16 << 10

_log = logging.getLogger(__name__)


class FollowedPartition:
    """A partition that is followed here, under one leader epoch."""

    __slots__ = ("_context", "_reported", "dropped", "key", "leader", "partition", "rule", "state")

    def __init__(self, context: PartitionContext, partition: Partition, leader: int) -> None:
        tip = partition.topic_id_partition
        self.partition = partition
        self.key: FollowerKey = (tip.topic_id, tip.partition)
        self.leader = leader
        # The fetcher has given the partition up or begun again: this object may change and report nothing any more.
        self.dropped = False
        # Names why it is followed no longer, for those who explain it to people.
        self.rule: str | None = None
        self._context = context
        # The last report's attempts, and why they failed.
        self._reported = (0, "")
        log = partition.log
        self.state = fetch_state.initial_state(
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            latest_epoch=log.leader_epochs.latest_epoch,
            leader_epoch=partition.leader_epoch,
            wall_ms=context.clock.time_ms(),
        )
        self._report()

    def __str__(self) -> str:
        return str(self.partition)

    def target(self) -> FetchTarget:
        """The values of this partition in the next Fetch."""
        state, log = self.state, self.partition.log
        return FetchTarget(
            state.fetch_offset,
            log.log_start_offset,
            state.leader_epoch,
            state.last_fetched_epoch,
            log.high_watermark,
            self._context.metadata.config.replica_fetch_max_bytes,
        )

    def is_throttled(self, now_ms: float) -> bool:
        """Whether the throttle of a reassignment lets it ask for nothing now (shouldFollowerThrottle)."""
        at = self.partition.topic_id_partition
        lag = self.state.lag
        in_sync = lag is not None and lag <= 0
        return not in_sync and self._context.follower_quota.throttles(at.topic, at.partition, now_ms)

    def view(self) -> tier_state.FollowerView:
        """The replica as a plan sees it, with the settings of this moment (KIP-1023: no restart needed)."""
        log, config = self.partition.log, self._context.metadata.config
        level = self._context.metadata.image.features.get("metadata.version", 0)
        return tier_state.FollowerView(
            log_end_offset=log.log_end_offset,
            remote_enabled=log.remote_enabled,
            compacted=log.config.is_compacted,
            last_tiered=config.follower_fetch_last_tiered_offset_enable and level >= LIST_OFFSETS_11_LEVEL,
            kafka_compat=config.follower_fetch_tiered_compat == "kafka",
        )

    # --- the log

    def prepare(self) -> None:
        """Truncates a log without epochs to its high watermark before the first fetch."""
        if self.state.truncating:
            self.truncate_to(self.state.fetch_offset, self.state.evidence)

    def append(self, target: FetchTarget, row: m.FetchResponse.Responses.Partitions) -> None:
        """Takes over records, high watermark and log start of the leader. Raises KafkaError."""
        log = self.partition.log
        before = log.log_end_offset
        wall_ms = self._context.clock.time_ms()
        if row.records:
            records = memoryview(_joined(row.records))
            info = log.append_as_follower(records, target.leader_epoch, now_ms=wall_ms)
            self._context.count_replicated(self.partition.topic_partition, info.size_bytes)
        end = log.log_end_offset
        advanced = log.maybe_increment_high_watermark(min(row.high_watermark, end))
        if log.log_start_offset < row.log_start_offset <= log.high_watermark:
            log.maybe_increment_log_start_offset(row.log_start_offset)
        self._set(
            fetch_state.progressed(
                self.state,
                next_offset=end,
                last_epoch=self._latest_epoch(),
                lag=max(0, row.high_watermark - end),
                in_isr=self._context.node_id in self.partition.isr.committed,
                wall_ms=wall_ms,
            )
        )
        if self.partition.delayed.fetches and (advanced or end != before):
            self._context.actions.add(self.partition)

    def truncate(self, leader_end: EpochEnd) -> None:
        """Truncates the log to where it agrees with the leader's. Raises KafkaError."""
        log = self.partition.log
        point = fetch_state.truncation_point(
            leader_end,
            fetch_offset=self.state.fetch_offset,
            log_end_offset=log.log_end_offset,
            own=EpochEnd(*log.end_offset_for_epoch(leader_end.epoch)),
        )
        self._require_space(len(log.leader_epochs.entries))
        evidence = f"on broker {self.leader} leader epoch {leader_end.epoch} ends at {leader_end.end_offset}"
        if not self._keeps(point.offset, evidence):
            self.truncate_to(point.offset, evidence)

    def _keeps(self, offset: int, evidence: str) -> bool:
        """Whether the log stays as it is, as the leader lacks what is acknowledged: it is followed no longer then."""
        log = self.partition.log
        lost_epoch = log.leader_epochs.epoch_for_offset(log.high_watermark - 1)
        if not fetch_state.must_keep(
            offset=offset,
            high_watermark=log.high_watermark,
            lost_epoch=UNDEFINED_EPOCH if lost_epoch is None else lost_epoch,
            unclean_leader_epoch=self.partition.unclean_leader_epoch,
        ):
            if offset < log.high_watermark:
                _log.warning("%s is cut to %d, below its high watermark %d: an unclean election has given up records",
                             self, offset, log.high_watermark)  # fmt: skip
            return False
        self.rule = KEEPS_ACKNOWLEDGED
        self.fail(
            f"to follow broker {self.leader} its log would be cut to offset {offset}, below its high watermark"
            f" {log.high_watermark}, and acknowledged records would be lost ({evidence}); the log is kept as it is"
        )
        return True

    def truncate_to(self, offset: int, evidence: str) -> None:
        """Truncates the log and goes on from its new end."""
        wall_ms = self._context.clock.time_ms()
        self._set(fetch_state.truncating(self.state, target_offset=offset, evidence=evidence, wall_ms=wall_ms))
        self.partition.log.truncate_to(offset)
        self._moved(None, evidence)

    def apply(self, outcome: TierStateOutcome) -> None:
        """Carries out what a plan decided. Raises KafkaError, ValueError for aux state that cannot be read."""
        match outcome:
            case TruncateTo(offset=offset):
                self._require_space(len(self.partition.log.leader_epochs.entries))
                evidence = f"broker {self.leader} has nothing at or past offset {offset}"
                if not self._keeps(offset, evidence):
                    self.truncate_to(offset, evidence)
            case ContinueAt():
                if self.state.fetch_offset != self.partition.log.log_end_offset:
                    self._moved(None, "")
                else:
                    # The leader's range has our offset, and yet it was refused: do not ask in a tight circle.
                    self.delay(f"broker {self.leader} refused offset {outcome.offset}, which its log has")
            case StartAt(offset=offset):
                self._require_space(0)
                evidence = f"broker {self.leader} starts at {offset}; nothing older is valid anywhere"
                if not self._keeps(offset, evidence):
                    self.partition.log.truncate_fully_and_start_at(offset)
                    self._moved(None, evidence)
            case Rebuild():
                self._rebuild(outcome)
            case _:
                assert_never(outcome)

    def _rebuild(self, rebuild: Rebuild) -> None:
        log = self.partition.log
        if self._keeps(rebuild.next_offset, f"the remote tier has its records up to offset {rebuild.next_offset}"):
            return
        snapshot = rebuild.producer_snapshot
        # A snapshot that is damaged and a disk that is full are found before anything local is dropped.
        if snapshot is not None:
            decode_snapshot(snapshot)
        self._require_space(len(rebuild.leader_epochs), len(snapshot or b""))
        log.truncate_fully_and_start_at(rebuild.next_offset, rebuild.log_start_offset)
        try:
            log.leader_epochs.assign_all(rebuild.leader_epochs)
            if snapshot is not None:
                log.producer_state.load_snapshot(rebuild.next_offset, snapshot)
        except OSError as error:
            log.mark_offline(f"its state from the remote tier could not be written: {error}")
        epochs = len(rebuild.leader_epochs)
        self._moved(
            rebuild.lag, f"rebuilt from the remote tier: starts at {rebuild.next_offset} with {epochs} leader epochs"
        )

    def _require_space(self, epochs: int, snapshot_bytes: int = 0) -> None:
        """Raises NoSpace while the disk does not take the new files; the log is as it was.

        A log that was truncated in part is offline until its broker starts again; one that waits goes on by itself.
        """
        self.partition.log.health.require_space(EPOCH_BYTES_MAX * epochs + snapshot_bytes + REBUILD_BYTES)

    def _latest_epoch(self) -> int:
        latest = self.partition.log.leader_epochs.latest_epoch
        return UNDEFINED_EPOCH if latest is None else latest

    def _moved(self, lag: int | None, evidence: str) -> None:
        self._set(
            fetch_state.moved(
                self.state,
                offset=self.partition.log.log_end_offset,
                last_epoch=self._latest_epoch(),
                lag=lag,
                evidence=evidence,
                wall_ms=self._context.clock.time_ms(),
            )
        )

    # --- phases without a change of the log

    def note_isr(self) -> None:
        """Metadata changed the ISR."""
        in_isr = self._context.node_id in self.partition.isr.committed
        self._set(fetch_state.with_isr(self.state, in_isr=in_isr, wall_ms=self._context.clock.time_ms()))

    def plan(self) -> None:
        """A plan starts."""
        self._set(fetch_state.planning(self.state))

    def build(self, request: tier_state.ReadAux) -> None:
        """The plan knows its target and is about to read the remote tier."""
        evidence = (
            f"offset {self.state.fetch_offset} is remote only on broker {self.leader}: reading the remote segment with"
            f" offset {request.offset} of leader epoch {request.epoch} to start at {request.target_offset}"
        )
        wall_ms = self._context.clock.time_ms()
        self._set(
            fetch_state.building(self.state, target_offset=request.target_offset, evidence=evidence, wall_ms=wall_ms)
        )

    def built(self, outcome: str, offset: int, error: str | None) -> None:
        """Reports how reading the remote indexes ended."""
        tip = self.partition.topic_id_partition
        self._context.events.emit(
            "aux_state",
            topic=tip.topic,
            topic_id=tip.topic_id,
            partition=tip.partition,
            step="read_indexes",
            outcome=outcome,
            offset=offset,
            error=error,
        )

    def delay(self, reason: str, *, behind: bool = False) -> None:
        """An attempt failed; nothing until the back-off is over, of which a leader that is `behind` gets a part."""
        wall_ms = self._context.clock.time_ms()
        resume_ms = self._resume_ms(behind=behind)
        self._set(fetch_state.delayed(self.state, reason, resume_ms=resume_ms, wall_ms=wall_ms))

    def wait(self, reason: str) -> None:
        """Remote log metadata is still being read; nothing until `waited`."""
        wall_ms = self._context.clock.time_ms()
        self._set(fetch_state.waiting(self.state, reason, resume_ms=self._resume_ms(), wall_ms=wall_ms))

    def waited(self, *, ready: bool) -> None:
        """The wait is over, and the metadata is read or is not."""
        self._set(fetch_state.waited(self.state, ready=ready))

    def _resume_ms(self, *, behind: bool = False) -> float:
        backoff_ms = self._context.metadata.config.replica_fetch_backoff_ms
        return self._context.clock.monotonic_ms() + fetch_state.pause_ms(self.state.attempts, backoff_ms, behind=behind)

    def fail(self, reason: str, *, expected: bool = False) -> None:
        """Nothing until metadata brings a new leader epoch, which is on its way when the failure is `expected`."""
        level = logging.DEBUG if expected else logging.ERROR
        _log.log(level, "%s is no longer fetched from broker %d: %s", self, self.leader, reason)
        self._set(fetch_state.failed(self.state, reason, wall_ms=self._context.clock.time_ms()))

    def _set(self, state: FetchState) -> None:
        before, self.state = self.state, state
        if not self.dropped and (before.phase is not state.phase or self._is_reportable_attempt()):
            self._report()

    def _is_reportable_attempt(self) -> bool:
        attempts, (reported, reason) = self.state.attempts, self._reported
        if attempts in (0, reported):
            return False
        if self.state.evidence != reason:
            return True
        return attempts <= ATTEMPTS_REPORTED or attempts % ATTEMPTS_REPORTED_EVERY == 0

    def _is_expected(self) -> bool:
        """Whether the replica goes on where its log ends, as thousands do at a start."""
        state = self.state
        if state.phase is FollowerPhase.TRUNCATING:
            return state.target_offset == self.partition.log.log_end_offset
        return state.phase in (FollowerPhase.IN_SYNC, FollowerPhase.FETCHING)

    def _report(self) -> None:
        state = self.state
        self._reported = (state.attempts, state.evidence)
        tip = self.partition.topic_id_partition
        level = logging.DEBUG if self._is_expected() else logging.INFO
        _log.log(level, "%s on broker %d is %s at offset %d: %s", self, self._context.node_id, state.phase.value,
                 state.fetch_offset, state.evidence or f"following broker {self.leader}")  # fmt: skip
        self._context.events.emit(
            "phase",
            topic=tip.topic,
            topic_id=tip.topic_id,
            partition=tip.partition,
            phase=state.phase.value,
            since_ms=state.since_ms,
            target_offset=state.target_offset if state.target_offset >= 0 else None,
            attempts=state.attempts,
            evidence={
                "reason": state.evidence,
                "leader": self.leader,
                "leader_epoch": state.leader_epoch,
                "fetch_offset": state.fetch_offset,
                "last_fetched_epoch": state.last_fetched_epoch,
                **({"rule": self.rule} if self.rule is not None else {}),
            },
        )


def _joined(records: object) -> bytes | bytearray | memoryview:
    """Records of a decoded message are one buffer; only messages under construction hold a list."""
    assert isinstance(records, (bytes, bytearray, memoryview))
    return records
