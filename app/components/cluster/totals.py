"""The Overview's six figures, and the rates behind its chart. Pure functions of the cluster's totals."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from app.components.follower.replica_phases import STUCK_PHASES
from app.components.partition.pending_limits import free_bytes
from app.components.partition.replica_ranges import PHASE_LABELS
from app.components.remote.copy_age import is_hung, times_p99
from app.components.shared import format as fmt
from app.components.shared.gaps import broken, gaps
from backend.store.queries.overview import (
    HISTORY_POINTS,
    BrokerRow,
    ClusterSample,
    CopiedBytes,
    LedgerTotals,
)
from backend.store.queries.partitions import SegmentRow
from backend.tiering.segment_state import DELETE_OVERDUE_MS, SegmentState

# Copies come segment by segment; a rate over less than this would be a comb.
RATE_WINDOW_MS_MIN: Final = 60_000
RATE_WINDOW_SHARE: Final = 1 / 40


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure: its value, what goes with it, its status (None: quiet) and the line beside it (None: a gap)."""

    name: str
    value: str
    sub: str
    status: str | None
    series: tuple[float | None, ...]
    from_ledger: bool = False  # computed from the pipeline's ledger, not from the observer's samples


def tiles(
    history: Sequence[ClusterSample],
    ledger: LedgerTotals,
    open_segments: Sequence[SegmentRow],
    p99_ms: Mapping[tuple[str, int], int],
    behind: Mapping[tuple[int, str | None], int],
    brokers: Sequence[BrokerRow],
    *,
    pending_status: str | None,
    ledger_ms: int | None,
    range_ms: int,
    interval_ms: int,
) -> list[Tile]:
    """Pending, oldest open copy, not in sync, delete overdue, remote, local.

    ``pending_status``: of the worst partition. ``ledger_ms``: up to when the ledger is known; None: not at all.
    """
    over = _covered(history, range_ms)
    if ledger_ms is None:
        copy, delete, remote = (_unknown(name) for name in ("Oldest open copy", "Delete overdue", "Remote"))
    else:
        copy = _oldest_copy(history, open_segments, p99_ms, ledger_ms)
        delete = _delete_overdue(history, ledger, over, ledger_ms)
        remote = _remote(history, ledger, over)
    all_tiles = [
        _pending(history, pending_status, over),
        copy,
        _not_in_sync(history, behind),
        delete,
        remote,
        _local(history, brokers),
    ]
    missing = history_gaps(history, interval_ms)
    return [replace(tile, series=tuple(broken(tile.series, missing, None))) for tile in all_tiles]


def _covered(history: Sequence[ClusterSample], range_ms: int) -> str:
    """The length of the history: the range, or less in a cluster that is not watched for that long yet."""
    span_ms = history[-1].sampled_ms - history[0].sampled_ms if history else 0
    if not history or span_ms >= 0.9 * range_ms:
        return fmt.duration(range_ms / 1000)
    step_s = 60 if span_ms >= 60_000 else 1
    return fmt.duration(max(1, round(span_ms / 1000 / step_s) * step_s))


def _unknown(name: str) -> Tile:
    return Tile(name, fmt.UNKNOWN, "the pipeline has not said", None, (), from_ledger=True)


def _pending(history: Sequence[ClusterSample], status: str | None, over: str) -> Tile:
    series = tuple(sample.pending_bytes for sample in history)
    return Tile("Pending upload", fmt.size(series[-1] if series else None), _change(series, over), status, series)


def _change(series: Sequence[float | None], over: str) -> str:
    values = [value for value in series if value is not None]
    if len(values) < 2:
        return "no history yet" if values else "the leaders have not told it"
    delta = values[-1] - values[0]
    return "unchanged in " + over if not delta else f"{'+' if delta > 0 else '−'}{fmt.size(abs(delta))} in {over}"


def _oldest_copy(
    history: Sequence[ClusterSample], segments: Sequence[SegmentRow], p99: Mapping[tuple[str, int], int], now_ms: int
) -> Tile:
    series = tuple(None if s.open_copies is None else (s.oldest_open_copy_ms or 0) for s in history)
    copies = [s for s in segments if s.state is SegmentState.COPY_SEGMENT_STARTED and not s.superseded]
    if not copies:
        return Tile("Oldest open copy", "none", "all have ended", None, series, from_ledger=True)
    oldest = min(copies, key=lambda s: s.copy_started_ms)
    age_ms, p99_ms = now_ms - oldest.copy_started_ms, p99.get((oldest.topic, oldest.partition))
    status = "critical" if is_hung(oldest, p99_ms, now_ms) else None
    sub = times_p99(age_ms, p99_ms)
    return Tile("Oldest open copy", fmt.duration(age_ms / 1000), sub, status, series, from_ledger=True)


def _not_in_sync(history: Sequence[ClusterSample], behind: Mapping[tuple[int, str | None], int]) -> Tile:
    series = tuple(sample.replicas_not_in_sync for sample in history)
    count = sum(behind.values())
    phase_counts: Counter[str] = Counter()
    for (_, phase), number in behind.items():
        phase_counts[PHASE_LABELS.get(phase or "", "phase not known")] += number
    worst_first = sorted(phase_counts.items(), key=lambda entry: (entry[0] not in ("failed", "stuck"), -entry[1]))
    sub = ", ".join(f"{number} {word}" for word, number in worst_first[:2]) or _all_in_sync(history)
    stuck = any(phase in STUCK_PHASES for _, phase in behind)
    value = f"{fmt.count(count)} replica{'' if count == 1 else 's'}"
    return Tile("Not in sync", value, sub, None if not count else ("critical" if stuck else "warning"), series)


def _all_in_sync(history: Sequence[ClusterSample]) -> str:
    """Leaders are in sync with themselves: they are not counted, as on the page of the followers."""
    if not history:
        return "no sample yet"
    newest = history[-1]
    return f"all {fmt.count(newest.replicas - (newest.partitions - newest.offline_partitions))} followers in sync"


def _delete_overdue(history: Sequence[ClusterSample], ledger: LedgerTotals, over: str, now_ms: int) -> Tile:
    series = tuple(
        s.oldest_open_delete_ms if (s.oldest_open_delete_ms or 0) > DELETE_OVERDUE_MS else 0 for s in history
    )
    began_ms = ledger.oldest_open_delete_ms
    if began_ms is None or now_ms - began_ms <= DELETE_OVERDUE_MS:
        earlier = any(series)
        sub = f"{'some' if earlier else 'none'} in {over}"
        return Tile("Delete overdue", "0 B", sub, None, series, from_ledger=True)
    sub = f"oldest {fmt.duration((now_ms - began_ms) / 1000)}"
    value = fmt.size(ledger.delete_started_bytes)
    return Tile("Delete overdue", value, sub, "warning", series, from_ledger=True)


def _remote(history: Sequence[ClusterSample], ledger: LedgerTotals, over: str) -> Tile:
    series = tuple(sample.remote_log_bytes for sample in history)
    value = fmt.size(ledger.copy_finished_bytes)
    return Tile("Remote", value, _change(series, over), None, series, from_ledger=True)


def _local(history: Sequence[ClusterSample], brokers: Sequence[BrokerRow]) -> Tile:
    series = tuple(sample.local_log_bytes for sample in history)
    free = [least for broker in brokers if (least := free_bytes(broker)) is not None]
    sub = f"{fmt.size(min(free))} free" if free else "disk size not known"
    return Tile("Local", fmt.size(series[-1] if series else None), sub, None, series)


@dataclass(frozen=True, slots=True)
class ThroughputRates:
    """Bytes per second at the times ``at_ms``; ``gaps``: indices of the samples before which some are missing."""

    at_ms: tuple[int, ...]
    produced: tuple[float | None, ...]
    copied: tuple[float | None, ...]
    gaps: frozenset[int]


def rate_window_ms(range_ms: int) -> int:
    """The time a rate is the mean of."""
    return max(RATE_WINDOW_MS_MIN, round(range_ms * RATE_WINDOW_SHARE))


def copied_step_ms(range_ms: int) -> int:
    """The step of the query to the ledger: a window is some sixty steps."""
    return rate_window_ms(range_ms) // 60


def rates(
    history: Sequence[ClusterSample],
    copied: Sequence[CopiedBytes],
    range_ms: int,
    *,
    interval_ms: int,
    ledger_ms: int | None,
) -> ThroughputRates:
    """Produced: the growth of the samples' counter over a trailing window, never across a gap or a counter that fell.

    Copied: bytes of the segments whose copy finished in the window, ``copied`` of the ledger. It reaches back a window
    before the range. ``ledger_ms``: up to when the ledger is known, later is None; None: not at all.
    """
    window_ms = rate_window_ms(range_ms)
    times = tuple(sample.sampled_ms for sample in history)
    missing = history_gaps(history, interval_ms)
    return ThroughputRates(
        times,
        _growth(times, [sample.produced_bytes for sample in history], missing, window_ms),
        _copied(times, copied, window_ms, ledger_ms),
        missing,
    )


def history_gaps(history: Sequence[ClusterSample], interval_ms: int) -> frozenset[int]:
    """Indices of the samples before which some are missing, not only thinned."""
    times = [sample.sampled_ms for sample in history]
    return gaps(times, interval_ms, (times[-1] - times[0]) // (HISTORY_POINTS - 1) if times else 0)


def _growth(
    times: Sequence[int], values: Sequence[int | None], missing: frozenset[int], window_ms: int
) -> tuple[float | None, ...]:
    rates: list[float | None] = []
    begin, previous = 0, None  # of the piece without a hole
    for index, (at_ms, value) in enumerate(zip(times, values, strict=True)):
        if index in missing or value is None or previous is None or value < previous:
            begin = index
        first = max(begin, bisect_right(times, at_ms - window_ms) - 1)
        before, previous = values[first], value
        if first == index or value is None or before is None:
            rates.append(None)
        else:
            rates.append((value - before) * 1000 / (at_ms - times[first]))
    return tuple(rates)


def _copied(
    times: Sequence[int], copied: Sequence[CopiedBytes], window_ms: int, ledger_ms: int | None
) -> tuple[float | None, ...]:
    if ledger_ms is None:
        return (None,) * len(times)
    starts = [step.from_ms for step in copied]
    total = [0, *accumulate(step.copied_bytes for step in copied)]

    def until(at_ms: int) -> int:
        return total[bisect_right(starts, at_ms)]

    return tuple(
        (until(at_ms) - until(at_ms - window_ms)) * 1000 / window_ms if at_ms <= ledger_ms else None for at_ms in times
    )
