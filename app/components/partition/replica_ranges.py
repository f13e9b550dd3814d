"""The offsets that each tier holds: the remote tier at its segments' borders, then each replica, the leader first.

Rows → lanes of blocks (pure, tested) → markup. Drawn as elements, so that it fits any width and repaints quietly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import pandas as pd

from app.components.partition import pending_limits
from app.components.partition.lineage_verdicts import JudgedSegment, LineageStanding
from app.components.partition.offset_axis import Axis, OffsetMarker, place, ticks
from app.components.partition.partition_filter import gap
from app.components.shared import format as fmt
from app.components.shared import markup
from backend.store.queries.partitions import PartitionRow, ReplicaRow
from backend.tiering.follower_phase import FollowerPhase
from backend.tiering.pending import pending_from

BLOCKS_MAX: Final = 60
CLOSE_SHARE: Final = 0.015  # markers closer than this share one label
PHASE_LABELS: Final = {
    "TRUNCATING": "truncating",
    "WAITING_FOR_METADATA": "waiting for metadata",
    "BUILDING_REMOTE_AUX": "building remote state",
    "FETCHING": "fetching",
    "DELAYED": "stuck",
    "FAILED": "failed",
    "IN_SYNC": "in sync",
}
_IN_REMOTE: Final = (LineageStanding.IN_LINEAGE, LineageStanding.NOT_CHECKED)


@dataclass(frozen=True, slots=True)
class Block:
    """``[start, end)`` of one kind: remote, copying, deleting, local, pending, unsure, to-go, gap, missing."""

    kind: str
    start: int
    end: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaLane:
    """One row; ``note`` is said in it when there is nothing to draw."""

    name: str
    sub: str
    blocks: tuple[Block, ...]
    note: str = ""


def window(row: PartitionRow, replicas: Sequence[ReplicaRow], first: int | None, last: int | None) -> Axis | None:
    """From 10 % below the lowest local start to the log end, unless ``first`` or ``last`` say otherwise.

    None when the leader's log start or log end is not known.
    """
    if row.log_start_offset is None or row.log_end_offset is None:
        return None
    end = max(row.log_end_offset, row.log_start_offset + 1)
    lowest = min([start for start, _ in map(_local_range, replicas) if start is not None], default=row.log_start_offset)
    start = max(row.log_start_offset, lowest - (end - lowest) // 10)
    if first is not None or last is not None:
        start = start if first is None else max(row.log_start_offset, first)
        end = end if last is None else last
    return Axis(start, end if end > start else start + 1)


def whole(row: PartitionRow) -> Axis | None:
    """All of the log; None when its bounds are not known."""
    if row.log_start_offset is None or row.log_end_offset is None:
        return None
    return Axis(row.log_start_offset, max(row.log_end_offset, row.log_start_offset + 1))


def lanes(
    row: PartitionRow,
    replicas: Sequence[ReplicaRow],
    verdicts: Sequence[JudgedSegment],
    last_seen: Mapping[int, str] = MappingProxyType({}),
) -> list[ReplicaLane]:
    """The remote tier and every replica, the leader first; replicas that were never seen say so.

    `last_seen`: when, by broker that does not answer; its replica is drawn as it was then.
    """
    return [_remote_lane(row, verdicts), *(_replica_lane(row, replica, last_seen) for replica in replicas)]


def markers(row: PartitionRow) -> list[OffsetMarker]:
    """The leader's offsets to mark; what is not known is not marked, -1 is never drawn."""
    marked = []
    start, end, watermark = row.local_log_start_offset, row.log_end_offset, row.high_watermark
    if start is not None and start != row.log_start_offset:
        marked.append(OffsetMarker("Local start", fmt.count(start), start))
    tiered, pending = row.latest_tiered_offset, pending_from(row)
    if tiered is not None and tiered >= 0:
        marked.append(OffsetMarker("Latest tiered", f"{fmt.count(tiered)} incl.", tiered + 1, left=True))
    if pending.offset is not None and pending.offset != end:
        value = f"{fmt.count(pending.offset)}{pending_limits.inferred_note(row)}"
        marked.append(OffsetMarker("Earliest pending upload", value, pending.offset))
    stable = row.last_stable_offset
    if stable is not None and watermark is not None and stable < watermark:
        marked.append(OffsetMarker("Last stable", fmt.count(stable), stable))
    if end is None:
        return marked
    length = max(1, end - (start if start is not None else 0))
    if watermark is not None and watermark != end and (end - watermark) / length < CLOSE_SHARE:
        marked.append(
            OffsetMarker("High watermark · Log end", f"{fmt.count(watermark)} · {fmt.count(end)}", end, left=True)
        )
        return marked
    if watermark is not None and watermark == end:
        return [*marked, OffsetMarker("High watermark = Log end", fmt.count(end), end, left=True)]
    if watermark is not None:
        marked.append(OffsetMarker("High watermark", fmt.count(watermark), watermark, left=True))
    return [*marked, OffsetMarker("Log end", fmt.count(end), end, left=True)]


def html(
    row: PartitionRow,
    replicas: Sequence[ReplicaRow],
    verdicts: Sequence[JudgedSegment],
    axis: Axis,
    last_seen: Mapping[int, str] = MappingProxyType({}),
) -> str:
    """The drawing: marks, lanes, axis, and the whole log under it when only a part of it is shown."""
    shown = lanes(row, replicas, verdicts, last_seen)
    marked = [marker for marker in markers(row) if axis.start <= marker.offset <= axis.end]
    placed = place(marked, axis)
    names = "".join(
        f'<div class="eb-lane-name"><span>{markup.text(lane.name)}</span><small>{markup.text(lane.sub)}</small></div>'
        for lane in shown
    )
    grid = "".join(f'<i class="eb-tick-line" style="left:{axis.percent(at):.3f}%"></i>' for at, _ in ticks(axis))
    labels = "".join(
        f'<div class="eb-mark-label{" eb-at-left" if label.left else ""}" style="left:{label.percent:.3f}%;'
        f'bottom:{label.level * 34}px"><span>{markup.text(label.marker.name)}</span>'
        f"{markup.text(label.marker.value)}</div>"
        for label in placed
    )
    lines = "".join(
        f'<i class="eb-mark-line eb-mark-{"local" if label.marker.name == "Local start" else "text"}" '
        f'style="left:{label.percent:.3f}%;top:-{label.level * 34}px"></i>'
        for label in placed
    )
    label_rows = 1 + max((label.level for label in placed), default=0)
    listed = "".join(f"<div><span>{markup.text(m.name)}</span> {markup.text(m.value)}</div>" for m in markers(row))
    body = "".join(f'<div class="eb-lane">{_blocks(lane, axis)}</div>' for lane in shown)
    axis_text = "".join(
        f'<span style="left:{axis.percent(at):.3f}%">{markup.text(label)}</span>' for at, label in ticks(axis)
    )
    return (
        f'<div class="eb-ranges" role="img" aria-label="{markup.text(_screen_reader_text(row, shown))}">'
        f'<div class="eb-mark-list">{listed}</div>'
        f'<div class="eb-lane-names" style="margin-top:{label_rows * 34 + 4}px">{names}</div>'
        f'<div class="eb-plot" style="margin-top:{label_rows * 34 + 4}px">{grid}{lines}'
        f'<div class="eb-mark-labels">{labels}</div>{body}</div>'
        f'<div class="eb-axis">{axis_text}</div>{_strip(row, shown, axis)}</div>'
    )


def rows(
    row: PartitionRow,
    replicas: Sequence[ReplicaRow],
    verdicts: Sequence[JudgedSegment],
    last_seen: Mapping[int, str] = MappingProxyType({}),
) -> pd.DataFrame:
    """The drawing's blocks as a table."""
    lines = [
        {"where": f"{lane.name} ({lane.sub})", "what": block.kind, "range": fmt.offset_range(block.start, block.end)}
        for lane in lanes(row, replicas, verdicts, last_seen)
        for block in lane.blocks
    ]
    return pd.DataFrame(lines, columns=["where", "what", "range"])


# --- facts to blocks ---


def _local_range(replica: ReplicaRow) -> tuple[int | None, int | None]:
    """The replica's local range; None, None when it holds nothing or that is not known."""
    start, end = replica.local_log_start_offset, replica.log_end_offset
    return (start, end) if start is not None and end is not None and end > start else (None, None)


def _first_pending(row: PartitionRow) -> int | None:
    pending = pending_limits.pending_start(row)
    if pending is None and row.latest_tiered_offset is not None and row.latest_tiered_offset >= 0:
        return row.latest_tiered_offset + 1
    return pending


def _remote_lane(row: PartitionRow, verdicts: Sequence[JudgedSegment]) -> ReplicaLane:
    log_start = row.log_start_offset or 0
    kinds = {LineageStanding.COPYING: "copying", LineageStanding.DELETING: "deleting"}
    blocks = [
        Block(
            "remote" if verdict.lineage_standing in _IN_REMOTE else kinds[verdict.lineage_standing],
            max(verdict.segment.start_offset, log_start)
            if verdict.lineage_standing in _IN_REMOTE
            else verdict.segment.start_offset,
            verdict.segment.next_offset,
            "" if verdict.lineage_standing in _IN_REMOTE else kinds[verdict.lineage_standing],
        )
        for verdict in verdicts
        if verdict.lineage_standing in _IN_REMOTE or verdict.lineage_standing in kinds
    ]
    blocks = [block for block in blocks if block.end > block.start]
    copied = sum(block.kind == "remote" for block in blocks)
    sub = f"{fmt.count(copied)} segment{'' if copied == 1 else 's'}"
    between = gap(row)
    if between is not None:
        blocks.append(Block("gap", *between, "in neither tier"))
    if not row.tiered:
        return ReplicaLane(
            "Remote tier", "not tiered", tuple(blocks), "" if blocks else "remote.storage.enable is false"
        )
    tiered = row.latest_tiered_offset
    if not copied and tiered is not None and tiered >= log_start:
        reported = Block("remote", log_start, tiered + 1)
        return ReplicaLane("Remote tier", "not in the ledger", (reported, *blocks))
    if not copied:
        note = "" if blocks else ("? the leader did not tell" if tiered is None else "nothing copied yet")
        return ReplicaLane("Remote tier", sub if blocks else "empty", tuple(blocks), note)
    remote = sorted((b for b in blocks if b.kind == "remote"), key=lambda block: block.start)
    others = [b for b in blocks if b.kind != "remote"]
    holes = _holes(remote, log_start, log_start if tiered is None else tiered + 1)
    return ReplicaLane("Remote tier", sub, (*remote, *holes, *others))


def _holes(remote: Sequence[Block], first: int, end: int) -> list[Block]:
    """Offsets that the leader calls tiered and the ledger has no segment of."""
    holes: list[Block] = []
    reached = first
    for block in remote:
        if block.start > reached:
            holes.append(Block("missing", reached, min(block.start, end), "not in the ledger"))
        reached = max(reached, block.end)
    if end > reached:
        holes.append(Block("missing", reached, end, "not in the ledger yet"))
    return [block for block in holes if block.end > block.start]


def _replica_lane(row: PartitionRow, replica: ReplicaRow, last_seen: Mapping[int, str]) -> ReplicaLane:
    name = f"Broker {replica.broker_id}"
    leads = replica.role == "leader"
    sub = "leader" if leads else PHASE_LABELS.get(replica.phase or "", "? phase")
    start, end = _local_range(replica)
    if replica.log_end_offset is None or replica.local_log_start_offset is None:
        return ReplicaLane(name, sub, (), f"? {replica.error or 'its offsets are not known'}")
    if replica.broker_id in last_seen:
        # Nothing goes to it, and nobody knows what it has now.
        before = () if start is None or end is None or end <= start else (Block("unsure", start, end, "as last seen"),)
        return ReplicaLane(name, last_seen[replica.broker_id], before, "" if before else "empty when last seen")
    blocks = []
    if start is not None and end is not None:
        pending = _first_pending(row)
        if not pending_limits.is_tiered(row):
            blocks.append(Block("unsure", start, end, "local only"))
        elif pending is None:
            blocks.append(Block("unsure", start, end, "? not known what is copied"))
        else:
            thin = "no older local data" if not leads and start >= pending > (row.log_start_offset or 0) else ""
            blocks += [Block("local", start, min(end, pending)), Block("pending", max(start, pending), end, thin)]
    leader_end = row.log_end_offset
    if not leads and leader_end is not None and leader_end > replica.log_end_offset:
        to_go = leader_end - replica.log_end_offset
        first = max(replica.log_end_offset, row.local_log_start_offset or 0)
        behind = replica.in_isr and replica.phase == FollowerPhase.IN_SYNC.value
        blocks.append(Block("to-go", first, leader_end, "" if behind else f"{fmt.count(to_go)} to go"))
    drawn = tuple(block for block in blocks if block.end > block.start)
    return ReplicaLane(name, sub, drawn, "" if drawn else "empty")


# --- blocks to markup ---


def _blocks(lane: ReplicaLane, axis: Axis) -> str:
    seen = [block for block in lane.blocks if axis.span(block.start, block.end) is not None]
    if not seen:
        note = lane.note or "nothing in this window"
        return f'<span class="eb-lane-note">{markup.text(note)}</span>'
    return "".join(_block(block, axis) for block in _union(seen))


def _union(blocks: Sequence[Block]) -> list[Block]:
    """Joins adjacent blocks of one kind when there are too many to see."""
    if len(blocks) <= BLOCKS_MAX:
        return list(blocks)
    joined: list[Block] = []
    for block in blocks:
        last = joined[-1] if joined else None
        if last is not None and last.kind == block.kind and last.end == block.start and not block.label:
            joined[-1] = Block(last.kind, last.start, block.end, last.label)
        else:
            joined.append(block)
    return joined[-10 * BLOCKS_MAX :]


def _block(block: Block, axis: Axis) -> str:
    span = axis.span(block.start, block.end)
    assert span is not None, block
    hint = f"{block.label or block.kind} {fmt.offset_range(block.start, block.end)}"
    return (
        f'<div class="eb-block eb-block-{block.kind}" style="left:{span[0]:.3f}%;width:{span[1]:.3f}%" '
        f'title="{markup.text(hint)}"><span>{markup.text(block.label)}</span></div>'
    )


def _strip(row: PartitionRow, shown: Sequence[ReplicaLane], axis: Axis) -> str:
    """The whole log with the window on it; nothing when the window is the whole log."""
    all_of_it = whole(row)
    if all_of_it is None or (axis.start <= all_of_it.start and axis.end >= all_of_it.end):
        return ""
    remote, leader = shown[0], shown[1] if len(shown) > 1 else ReplicaLane("", "", ())
    upper = "".join(_strip_block(block, all_of_it) for block in _joined(remote.blocks) if block.kind != "copying")
    lower = "".join(_strip_block(block, all_of_it) for block in leader.blocks)
    left, width = all_of_it.percent(axis.start), all_of_it.percent(axis.end) - all_of_it.percent(axis.start)
    middle = "".join(
        f'<span style="left:{all_of_it.percent(at):.3f}%">{markup.text(label)}</span>'
        for at, label in ticks(all_of_it, 4)
        if 16 < all_of_it.percent(at) < 84
    )
    return (
        '<div class="eb-strip-name">whole log</div>'
        f'<div class="eb-strip"><div class="eb-strip-upper">{upper}</div><div class="eb-strip-lower">{lower}</div>'
        f'<i class="eb-strip-window" style="left:{left:.3f}%;width:{max(width, 0.4):.3f}%"></i></div>'
        f'<div class="eb-axis eb-strip-axis"><b>log start {fmt.count(all_of_it.start)}</b>{middle}'
        f"<em>{fmt.count(all_of_it.end)}</em></div>"
    )


def _joined(blocks: Sequence[Block]) -> list[Block]:
    """Joins adjacent blocks of one kind: borders cannot be seen in the strip."""
    joined: list[Block] = []
    for block in blocks:
        last = joined[-1] if joined else None
        if last is not None and last.kind == block.kind and last.end >= block.start:
            joined[-1] = Block(last.kind, last.start, max(last.end, block.end))
        else:
            joined.append(Block(block.kind, block.start, block.end))
    return joined


def _strip_block(block: Block, axis: Axis) -> str:
    span = axis.span(block.start, block.end)
    if span is None:
        return ""
    style = f"left:{span[0]:.3f}%;width:{span[1]:.3f}%"
    return f'<div class="eb-block eb-block-{block.kind}" style="{style}"></div>'


def _screen_reader_text(row: PartitionRow, shown: Sequence[ReplicaLane]) -> str:
    parts = [f"{lane.name}, {lane.sub}: {_screen_reader_blocks(lane)}" for lane in shown]
    return f"Offsets of {row.topic}-{row.partition}. " + ". ".join(parts)


def _screen_reader_blocks(lane: ReplicaLane) -> str:
    blocks = [f"{block.kind} {block.start} to {block.end}" for block in _joined(lane.blocks)]
    return ", ".join(blocks[:6]) or lane.note
