"""Copies that fail, by the ledger and by what brokers of the embedded engine report. Pure.

Both sources may tell the same failure: of one partition the one that knows more of them counts, and only the engine
tells the store's reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backend.control.findings.copy_times import is_expected, task_interval_ms
from backend.control.findings.finding_context import FindingContext
from backend.control.findings.holds import default_for_ms
from backend.store.queries.copy_attempts import FailedAttempt
from backend.store.writes.samples import PartitionSample
from backend.tiering.segment_state import SegmentState

REPEATED_FOR_MS: Final = default_for_ms("copy-failing", "of one broker")
TOGETHER_FOR_MS: Final = default_for_ms("copy-failing", "of several brokers")
# A copy that failed is tried again one task interval later: what was not tried twice may be an accident until then, and
# until that try should have ended as well.
RETRY_ENDS_MS: Final = 10_000
PartitionName = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CopyFailures:
    """Failures of a broker's copies of a partition since the last copy of it that finished, newest first.

    `known_ms`: up to when they are known. `error`: the newest reason that the broker gave. `retried_ms`: how long after
    a failure the next try has ended. `lasting_ms`: how long several failures have to last.
    """

    topic: str
    partition: int
    broker_id: int
    times_ms: tuple[int, ...]
    known_ms: int
    error: str | None = None
    retried_ms: int = 0
    lasting_ms: int = 0

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def lasting(self) -> bool:
        """Whether the next copies of the partition should have finished meanwhile, and did not."""
        for_ms = self.retried_ms if len(self.times_ms) == 1 else self.lasting_ms
        return self.known_ms - self.times_ms[-1] >= for_ms


@dataclass(frozen=True, slots=True)
class FailingBroker:
    """A broker whose copies fail. `blocked_since_ms`: none of its copies has finished since; None: some do.

    `finished_ms`: when copies of it have finished, ascending.
    """

    broker_id: int
    failures: tuple[CopyFailures, ...]
    blocked_since_ms: int | None
    known_ms: int
    retried_ms: int
    finished_ms: tuple[int, ...]

    @property
    def others_finish(self) -> bool:
        """Whether a copy of this broker has finished since the first failure."""
        return self.blocked_since_ms is None or any(f.times_ms[-1] < self.blocked_since_ms for f in self.failures)

    @property
    def fails_in_part(self) -> bool:
        """Whether copies of some partition fail for long, or again while others of this broker get through."""
        return any(failures.lasting and not self._awaits_retry(failures) for failures in self.failures)

    def _awaits_retry(self, failures: CopyFailures) -> bool:
        """Whether another copy has finished since, and the next try of this partition tells if it was the store.

        A copy that ends just after the first failure may have been written before the store broke.
        """
        broken_ms = failures.times_ms[-1] + TOGETHER_FOR_MS
        works_ms = next((at_ms for at_ms in self.finished_ms if at_ms > broken_ms), None)
        return works_ms is not None and failures.times_ms[0] < works_ms and self.known_ms - works_ms < self.retried_ms

    def is_blocked(self, for_ms: int) -> bool:
        """Whether nothing of this broker has got through for so long that it is no accident.

        A partition that failed before another's copy finished may fail for a reason that only it has, and a single
        failure proves nothing. Where no partition has failed twice, one bad moment of the store may be all there was.
        """
        since_ms = self.blocked_since_ms
        if since_ms is None:
            return False
        failing = [f for f in self.failures if f.times_ms[0] >= since_ms]
        times_ms = [[at_ms for at_ms in f.times_ms if at_ms >= since_ms] for f in failing]
        if sum(map(len, times_ms)) < 2:
            return False
        if all(len(of_partition) == 1 for of_partition in times_ms):
            for_ms = max(for_ms, self.retried_ms)
        lasts = self.known_ms - min(map(min, times_ms)) >= for_ms
        return lasts and (len(failing) >= 2 or failing[0].times_ms[-1] >= since_ms)


def failing_brokers(context: FindingContext) -> list[FailingBroker]:
    """Brokers with failed copies that are still wanted, by id."""
    finished_ms = _finished(context)
    by_broker: dict[int, list[CopyFailures]] = defaultdict(list)
    for failures in copy_failures(context):
        by_broker[failures.broker_id].append(failures)
    result = []
    for broker_id, of_broker in sorted(by_broker.items()):
        finished = tuple(sorted(finished_ms[broker_id]))
        since = [at_ms for f in of_broker for at_ms in f.times_ms if not finished or at_ms > finished[-1]]
        known_ms, retried_ms = max(f.known_ms for f in of_broker), _retried_ms(context, broker_id)
        result.append(
            FailingBroker(broker_id, tuple(of_broker), min(since, default=None), known_ms, retried_ms, finished)
        )
    return result


def copy_failures(context: FindingContext) -> list[CopyFailures]:
    """Failed copies of what is not in the remote tier yet, by partition; of brokers that lead no more none count."""
    partitions = {(row.topic, row.partition): row for row in context.partitions if row.tiered}
    finished_ms: dict[PartitionName, int] = {}
    for copy in context.finished_copies:
        row = partitions.get((copy.topic, copy.partition))
        if row is not None and row.topic_id == copy.topic_id:
            finished_ms[row.topic, row.partition] = max(copy.at_ms, finished_ms.get((row.topic, row.partition), -1))
    of_ledger = _of_ledger(context, partitions, finished_ms)
    of_events = _of_events(context, partitions, finished_ms)
    result = []
    for key in sorted(of_ledger.keys() | of_events.keys()):
        each = [failures for failures in (of_ledger.get(key), of_events.get(key)) if failures is not None]
        fullest = max(each, key=lambda failures: len(failures.times_ms))
        error = next((failures.error for failures in each if failures.error), None)
        known_ms, retried_ms = max(failures.known_ms for failures in each), _retried_ms(context, fullest.broker_id)
        lasting_ms = context.for_ms("copy-failing", REPEATED_FOR_MS, key[0])
        merged = CopyFailures(*key, fullest.broker_id, fullest.times_ms, known_ms, error, retried_ms, lasting_ms)
        if not _is_paused(context, merged):
            result.append(merged)
    again = _copies_again(context, result)
    return [
        failures
        for failures in result
        if len(failures.times_ms) > 1 or (failures.topic, failures.partition) not in again
    ]


def _retried_ms(context: FindingContext, broker_id: int) -> int:
    return max(context.for_ms("copy-failing", REPEATED_FOR_MS), task_interval_ms(context, broker_id) + RETRY_ENDS_MS)


def _copies_again(context: FindingContext, failures: Sequence[CopyFailures]) -> set[PartitionName]:
    """Partitions of which another copy is open and may well finish: none of its broker has failed since it began."""
    by_name = {(f.topic, f.partition): f for f in failures}
    newest_ms: dict[int, int] = {}
    for each in failures:
        newest_ms[each.broker_id] = max(each.times_ms[0], newest_ms.get(each.broker_id, -1))
    return {
        (segment.topic, segment.partition)
        for segment in context.open_segments
        if segment.state is SegmentState.COPY_SEGMENT_STARTED
        and not segment.superseded
        and (failed := by_name.get((segment.topic, segment.partition))) is not None
        and segment.copy_broker_id == failed.broker_id
        and segment.copy_started_ms >= newest_ms[failed.broker_id]
        and is_expected(context, segment)
    }


def _of_ledger(
    context: FindingContext,
    partitions: Mapping[PartitionName, PartitionSample],
    finished_ms: Mapping[PartitionName, int],
) -> dict[PartitionName, CopyFailures]:
    times_ms: dict[PartitionName, list[int]] = defaultdict(list)
    for attempt in context.failed_attempts:
        row = partitions.get((attempt.topic, attempt.partition))
        if row is None or not _is_wanted(attempt, row):
            continue
        key = (row.topic, row.partition)
        if attempt.at_ms > finished_ms.get(key, -1):
            times_ms[key].append(attempt.at_ms)
    known_ms = context.at_ms if context.ledger_ms is None else context.ledger_ms
    return {
        key: CopyFailures(*key, partitions[key].leader, tuple(sorted(times, reverse=True)), known_ms)
        for key, times in times_ms.items()
    }


def _is_wanted(attempt: FailedAttempt, row: PartitionSample) -> bool:
    """Whether its records are still to be copied by this broker: neither copied since nor expired.

    Leftovers of a failed copy are removed when retention passes them, which looks like another failure.
    """
    if (row.topic_id, row.leader) != (attempt.topic_id, attempt.broker_id):
        return False
    tiered = -1 if row.latest_tiered_offset is None else row.latest_tiered_offset
    return attempt.end_offset > tiered and attempt.end_offset >= (row.log_start_offset or 0)


def _of_events(
    context: FindingContext,
    partitions: Mapping[PartitionName, PartitionSample],
    finished_ms: Mapping[PartitionName, int],
) -> dict[PartitionName, CopyFailures]:
    result: dict[PartitionName, CopyFailures] = {}
    over: set[PartitionName] = set()
    for event in context.copy_events:  # newest first
        key = (event.topic, event.partition)
        row = partitions.get(key)
        if row is None or key in over or event.outcome not in ("finished", "failed"):
            continue
        if event.outcome == "finished" or event.at_ms <= finished_ms.get(key, -1) or event.broker_id != row.leader:
            over.add(key)
            continue
        before = result.get(key) or CopyFailures(*key, row.leader, (), context.at_ms, event.error)
        times_ms = (*before.times_ms, event.at_ms)
        result[key] = CopyFailures(*key, row.leader, times_ms, context.at_ms, before.error or event.error)
    return result


def _is_paused(context: FindingContext, failures: CopyFailures) -> bool:
    """Whether nothing is tried any more, so that there is nothing left to copy for now."""
    topic = context.topic(failures.topic)
    disabled = topic is not None and (topic.config or {}).get("remote.log.copy.disable") == "true"
    return disabled and failures.known_ms - failures.times_ms[0] > 2 * task_interval_ms(context, failures.broker_id)


def _finished(context: FindingContext) -> Mapping[int, set[int]]:
    """When copies of each broker have finished: by the ledger, and by events that may tell the same copies."""
    result: dict[int, set[int]] = defaultdict(set)
    finished: Iterable[tuple[int, int]] = [
        *((copy.broker_id, copy.at_ms) for copy in context.finished_copies),
        *((event.broker_id, event.at_ms) for event in context.copy_events if event.outcome == "finished"),
    ]
    for broker_id, at_ms in finished:
        result[broker_id].add(at_ms)
    return result
