"""The chain of leader epochs, one strip a source: leader, each replica, remote segments; last what does not fit.

Facts → strips of blocks (pure, tested) → markup.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from app.components.partition.lineage_verdicts import JudgedSegment, LeaderChain, LineageStanding, counts, entries
from app.components.partition.offset_axis import Axis
from app.components.shared import format as fmt
from app.components.shared import markup
from backend.store.queries.partitions import ReplicaRow
from backend.tiering.epoch_lineage import EpochEntry, without_empty_epochs

OUTSIDE_ROWS_MAX: Final = 3
# A block narrower than this share of the log is joined with the blocks beside it.
NARROW_PERCENT: Final = 0.6
TICK_GAP_PERCENT: Final = 11.0


@dataclass(frozen=True, slots=True)
class EpochBlock:
    """Offsets ``[start, end)`` of ``first`` to ``last`` epoch; ``kind``: plain, remote, diverged or outside."""

    first: int
    last: int
    start: int
    end: int
    kind: str = "plain"

    @property
    def label(self) -> str:
        return f"epoch {self.first}" if self.first == self.last else f"{self.first}–{self.last}"


@dataclass(frozen=True, slots=True)
class Strip:
    """One source; ``note`` is said in place of blocks or beside them, ``sub`` says how the chain is known."""

    name: str
    blocks: tuple[EpochBlock, ...]
    note: str = ""
    sub: str = ""


def spans(chain: Sequence[EpochEntry], start: int, end: int) -> list[EpochBlock]:
    """The epochs of ``[start, end)`` as blocks; before the first entry nothing is known."""
    kept = without_empty_epochs(chain)
    blocks = []
    for position, (epoch, first) in enumerate(kept):
        following = kept[position + 1][1] if position + 1 < len(kept) else end
        low, high = max(first, start), min(following, end)
        if high > low:
            blocks.append(EpochBlock(epoch, epoch, low, high))
    return blocks


def diverges_at(chain: Sequence[EpochEntry], leader: Sequence[EpochEntry], start: int, end: int) -> int | None:
    """The first offset of ``[start, end)`` to which both chains give an epoch, and not the same one."""
    points = sorted({start, *(at for _, at in [*chain, *leader] if start < at < end)})
    for point in points:
        own, leaders = _epoch_at(chain, point), _epoch_at(leader, point)
        if end > point and own is not None and leaders is not None and own != leaders:
            return point
    return None


def strips(chain: LeaderChain, replicas: Sequence[ReplicaRow], verdicts: Sequence[JudgedSegment]) -> list[Strip]:
    """The leader's strip first; chains that are not known say why."""
    drawn = []
    for replica in replicas:
        name = f"Leader, broker {replica.broker_id}" if replica.role == "leader" else f"Broker {replica.broker_id}"
        drawn.append(_replica_strip(name, replica, chain))
    drawn.append(_remote_strip(verdicts, chain))
    outside = [segment for segment in verdicts if segment.lineage_standing is LineageStanding.OUTSIDE]
    for number, segment in enumerate(outside[:OUTSIDE_ROWS_MAX]):
        drawn.append(_outside_strip("Outside lineage" if number == 0 else "", segment))
    if len(outside) > OUTSIDE_ROWS_MAX:
        more = len(outside) - OUTSIDE_ROWS_MAX
        drawn.append(Strip("", (), f"{more} more outside; the ledger below lists them"))
    return drawn


def divergences(chain: LeaderChain, replicas: Iterable[ReplicaRow]) -> dict[int, int]:
    """Broker → the offset from which on its replica has other epochs than the leader."""
    by_broker = {}
    for replica in replicas:
        at = _divergence(replica, chain)
        if at is not None:
            by_broker[replica.broker_id] = at
    return by_broker


def pills_html(chain: LeaderChain | None, replicas: Sequence[ReplicaRow], verdicts: Sequence[JudgedSegment]) -> str:
    """The verdict: how many segments are in lineage, and what is wrong."""
    if chain is None:
        return f'<div class="eb-pills">{markup.pill("? the leader has not told its epochs", "warning")}</div>'
    seen = counts(verdicts)
    finished = sum(
        seen[lineage_standing]
        for lineage_standing in (LineageStanding.IN_LINEAGE, LineageStanding.OUTSIDE, LineageStanding.NOT_CHECKED)
    )
    pills = []
    if finished:
        text = f"{fmt.count(seen[LineageStanding.IN_LINEAGE])} of {fmt.count(finished)} segments in lineage"
        pills.append(markup.pill(text, "ok" if seen[LineageStanding.IN_LINEAGE] == finished else "notice"))
    else:
        pills.append(markup.pill("no finished segment in the ledger", "notice"))
    for broker, at in divergences(chain, replicas).items():
        pills.append(markup.pill(f"broker {broker} diverges at {fmt.count(at)}", "critical"))
    if seen[LineageStanding.OUTSIDE]:
        pills.append(markup.pill(f"{fmt.count(seen[LineageStanding.OUTSIDE])} outside, retention skips it", "warning"))
    overlaps = sum(segment.overlaps for segment in verdicts)
    if overlaps:
        pills.append(markup.pill(f"{fmt.count(overlaps)} overlap", "notice", title="Copied again by a later leader"))
    if seen[LineageStanding.NOT_CHECKED]:
        pills.append(markup.pill(f"{fmt.count(seen[LineageStanding.NOT_CHECKED])} not checked", "warning"))
    return '<div class="eb-pills">' + "".join(pills) + "</div>"


def html(chain: LeaderChain, replicas: Sequence[ReplicaRow], verdicts: Sequence[JudgedSegment]) -> str:
    """The drawing over the whole log, ticks where the leader's epochs begin."""
    shown = strips(chain, replicas, verdicts)
    axis = Axis(chain.log_start, max(chain.log_end, chain.log_start + 1))
    names = "".join(
        f'<div class="eb-lane-name"><span>{markup.text(strip.name)}</span><small>{markup.text(strip.sub)}</small></div>'
        for strip in shown
    )
    body = "".join(f'<div class="eb-lane eb-epoch-lane">{_blocks(strip, axis)}</div>' for strip in shown)
    borders = [max(start, chain.log_start) for _, start in chain.entries if start < axis.end]
    lines = "".join(
        f'<i class="eb-epoch-line" style="left:{axis.percent(at):.3f}%"></i>' for at in sorted(set(borders))[-40:]
    )
    ticks = "".join(
        f'<span style="left:{axis.percent(at):.3f}%">{fmt.count(at)}</span>' for at in _ticks(borders, axis)
    )
    return (
        f'<div class="eb-ranges eb-epochs" role="img" aria-label="{markup.text(_screen_reader_text(shown))}">'
        f'<div class="eb-lane-names">{names}</div><div class="eb-plot">{lines}{body}</div>'
        f'<div class="eb-axis">{ticks}</div></div>'
    )


def rows(chain: LeaderChain, replicas: Sequence[ReplicaRow], verdicts: Sequence[JudgedSegment]) -> pd.DataFrame:
    """The drawing's blocks as a table."""
    lines = [
        {
            "source": strip.name,
            "epochs": block.label,
            "range": fmt.offset_range(block.start, block.end),
            "note": strip.note if block.kind in ("outside", "diverged") else "",
        }
        for strip in strips(chain, replicas, verdicts)
        for block in strip.blocks
    ]
    return pd.DataFrame(lines, columns=["source", "epochs", "range", "note"])


# --- facts to strips ---


def _epoch_at(chain: Sequence[EpochEntry], offset: int) -> int | None:
    position = bisect_right([start for _, start in chain], offset)
    return chain[position - 1][0] if position else None


def _divergence(replica: ReplicaRow, chain: LeaderChain) -> int | None:
    if replica.role == "leader" or not replica.leader_epochs or replica.log_end_offset is None:
        return None
    reported = replica.evidence.get("disagrees_with_leader_at") if isinstance(replica.evidence, dict) else None
    if isinstance(reported, int):
        return reported
    # The chain of a follower below its own log start says nothing of what it holds.
    start = max(chain.log_start, replica.log_start_offset or 0)
    return diverges_at(entries(replica.leader_epochs), chain.entries, start, min(replica.log_end_offset, chain.log_end))


def _replica_strip(name: str, replica: ReplicaRow, chain: LeaderChain) -> Strip:
    if replica.leader_epochs is None or replica.log_end_offset is None:
        return Strip(name, (), f"? {replica.error or 'its epochs are not known'}")
    blocks = spans(entries(replica.leader_epochs), chain.log_start, replica.log_end_offset)
    epochs_source = replica.evidence.get("epochs") if isinstance(replica.evidence, dict) else None
    sub = "inferred" if epochs_source == "inferred" else ""
    at = _divergence(replica, chain)
    if at is None:
        return Strip(name, tuple(blocks), "" if blocks else "empty", sub)
    same = [EpochBlock(b.first, b.last, b.start, min(b.end, at)) for b in blocks if b.start < at]
    other = [EpochBlock(b.first, b.last, max(b.start, at), b.end, "diverged") for b in blocks if b.end > at]
    return Strip(name, (*same, *other), f"other epochs than the leader from {fmt.count(at)} on", sub)


def _remote_strip(verdicts: Sequence[JudgedSegment], chain: LeaderChain) -> Strip:
    """The epochs of the segments in lineage, joined where one goes on with the epoch of the one before."""
    blocks: list[EpochBlock] = []
    for verdict in verdicts:
        if verdict.lineage_standing is not LineageStanding.IN_LINEAGE:
            continue
        segment = verdict.segment
        start = max(segment.start_offset, chain.log_start)
        for block in spans(entries(segment.leader_epochs), start, segment.next_offset):
            last = blocks[-1] if blocks else None
            if last is not None and last.first == block.first and last.end >= block.start:
                blocks[-1] = EpochBlock(last.first, last.last, last.start, max(last.end, block.end), "remote")
            else:
                blocks.append(EpochBlock(block.first, block.last, block.start, block.end, "remote"))
    return Strip("Remote segments", tuple(blocks), "" if blocks else "none in lineage")


def _outside_strip(name: str, verdict: JudgedSegment) -> Strip:
    segment = verdict.segment
    epochs = [epoch for epoch, _ in entries(segment.leader_epochs)] or [-1]
    block = EpochBlock(epochs[0], epochs[-1], segment.start_offset, segment.next_offset, "outside")
    offsets = fmt.offset_range(segment.start_offset, segment.next_offset)
    named = f"epoch {epochs[-1]}" if len(epochs) == 1 else f"epochs {epochs[0]}–{epochs[-1]}"
    return Strip(name, (block,), f"{named}, {offsets}, {fmt.size(segment.segment_size_bytes)}: {verdict.why}")


# --- strips to markup ---


def _joined(blocks: Sequence[EpochBlock], axis: Axis) -> list[EpochBlock]:
    """Runs of blocks too narrow to see as one block with the epochs' range."""
    joined: list[EpochBlock] = []
    narrow_before = False
    for block in blocks:
        span = axis.span(block.start, block.end)
        narrow = span is not None and span[1] < NARROW_PERCENT
        last = joined[-1] if joined else None
        if narrow and narrow_before and last is not None and last.kind == block.kind:
            joined[-1] = EpochBlock(last.first, block.last, last.start, block.end, block.kind)
        else:
            joined.append(block)
        narrow_before = narrow
    return joined


def _blocks(strip: Strip, axis: Axis) -> str:
    if not strip.blocks:
        return f'<span class="eb-lane-note">{markup.text(strip.note)}</span>'
    inner = ""
    for number, block in enumerate(_joined(strip.blocks, axis)):
        span = axis.span(block.start, block.end)
        if span is None:
            continue
        kind = f"epoch-{block.kind}" + (" eb-epoch-odd" if number % 2 and block.kind == "plain" else "")
        hint = f"{block.label} {fmt.offset_range(block.start, block.end)}"
        label = "" if block.kind == "outside" else markup.text(block.label)
        short = label.removeprefix("epoch ")
        inner += (
            f'<div class="eb-block eb-{kind}" style="left:{span[0]:.3f}%;width:{max(span[1], 0.3):.3f}%" '
            f'title="{markup.text(hint)}"><span>{label}</span><em>{short}</em></div>'
        )
    if strip.note:
        inner += _beside(strip, axis)
    return inner


def _beside(strip: Strip, axis: Axis) -> str:
    """The note of a block: at its right, or before it when there is more room."""
    marked = [block for block in strip.blocks if block.kind in ("outside", "diverged")]
    if not marked:
        return ""
    if marked[0].kind == "diverged":
        return ""
    left, right = axis.percent(marked[0].start), axis.percent(marked[-1].end)
    side = f"left:{right:.3f}%;right:0" if right <= 100 - left else f"left:0;right:{100 - left:.3f}%;text-align:right"
    text = markup.text(strip.note)
    return f'<span class="eb-beside" style="{side}" title="{text}">{text}</span>'


def _ticks(borders: Sequence[int], axis: Axis) -> list[int]:
    """Beginnings of epochs that are far enough apart to be written, the first always."""
    ticks: list[int] = []
    for at in sorted(set(borders)):
        percent = axis.percent(at)
        if not ticks or (percent - axis.percent(ticks[-1]) >= TICK_GAP_PERCENT and percent < 96):
            ticks.append(at)
    return ticks


def _screen_reader_text(shown: Sequence[Strip]) -> str:
    parts = []
    for strip in shown:
        blocks = ", ".join(f"{block.label} from {block.start}" for block in strip.blocks[:12])
        parts.append(f"{strip.name}: {blocks} {strip.note}".strip())
    return "Leader epochs. " + ". ".join(parts)
