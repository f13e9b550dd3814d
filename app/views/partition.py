"""Partition: which offsets are where, on which replica; is the epoch chain sound; what happened last?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from app import links, state
from app.components import (
    attention,
    epoch_chain,
    limits,
    lineage_verdicts,
    markup,
    offset_history,
    partition_ledger,
    partition_summary,
    range_style,
    replica_phases,
    replica_ranges,
)
from app.components import format as fmt
from app.components.lineage_verdicts import Judged, LeaderChain
from app.components.page import Page, body_key, card_head, live, open_page, table_twin
from app.components.partition_filter import gap, near_topics, parse_name, remote_bytes
from app.state import DatabaseAway, View
from app.theme import CONFIG
from backend.store.queries import config as config_queries
from backend.store.queries import overview as overview_queries
from backend.store.queries import partition_detail as detail_queries
from backend.store.queries import partitions as queries
from backend.store.queries.partitions import PartitionPoint, PartitionRow, ReplicaRow, SegmentRow
from backend.tiering.segment_state import SegmentState

EVENTS_SHOWN = 12
# How far back depth is told by history; older local data is dated by its remote segments.
DEPTH_MS_MIN = 6 * 3_600_000
_LIVE_STATES = (
    SegmentState.COPY_SEGMENT_STARTED,
    SegmentState.COPY_SEGMENT_FINISHED,
    SegmentState.DELETE_SEGMENT_STARTED,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything the page shows of a partition that is there, read once per data version."""

    view: View
    row: PartitionRow
    replicas: list[ReplicaRow]
    segments: list[SegmentRow]
    judged: list[Judged]
    chain: LeaderChain | None
    points: list[PartitionPoint]
    limit_bytes: int | None
    earlier: int  # segments of earlier topics of this name
    p99_ms: int | None  # of how long its copies took


def render() -> None:
    name = (st.query_params.get("tp") or "").strip()
    key = parse_name(name)
    page = open_page(
        name[:120] or "Partition",
        lambda view: _fact(view, key),
        parent=(links.page("partitions"), "Partitions"),
    )
    if page is None:
        return
    range_style.apply()
    if key is None:
        _no_name(name)
        return
    topic, number = key
    if _exists(page, topic, number):
        _present(page, topic, number)
    else:
        _absent(page, topic, number)


def _fact(view: View, key: tuple[str, int] | None) -> str:
    try:
        row = None if key is None else _row(view, *key)
    except DatabaseAway:
        return ""
    if row is None:
        return ""
    if row.leader < 0:
        return f"no leader · epoch {row.leader_epoch}"
    return f"led by broker {row.leader} · epoch {row.leader_epoch}"


def _row(view: View, topic: str, number: int) -> PartitionRow | None:
    return state.read_cached(queries.partition, view.cluster.cluster_id, topic, number, version=view.version)


def _exists(page: Page, topic: str, number: int) -> bool:
    try:
        return _row(page.view(), topic, number) is not None
    except DatabaseAway:
        return True  # the alert says it; the parts appear when the database is back


def read(page: Page, topic: str, number: int) -> Reading | None:
    """One consistent set of facts; None when the partition is gone. Raises DatabaseAway."""
    view = page.view()
    row = _row(view, topic, number)
    if row is None:
        return None
    cluster_id, version = page.cluster_id, view.version
    replicas = state.read_cached(queries.replicas, cluster_id, topic, number, version=version)
    every = state.read_cached(
        queries.segments, cluster_id, topic, number, topic_id=row.topic_id, states=_LIVE_STATES, version=version
    )
    chain = lineage_verdicts.leader_chain(replicas)
    step_ms = max(1000, page.range_ms // 600)
    since_ms = (view.now_ms - max(page.range_ms, DEPTH_MS_MIN)) // step_ms * step_ms
    topics = state.read_cached(config_queries.topics, cluster_id, version=version)
    known = next((one for one in topics if one.topic == topic), None)
    p99 = state.read_cached(overview_queries.copy_p99_ms, cluster_id, ((topic, number),), version=version)
    ledgers = state.read_cached(detail_queries.ledgers, cluster_id, topic, number, version=version)
    return Reading(
        view=view,
        row=row,
        replicas=replicas,
        segments=every,
        judged=lineage_verdicts.judge(every, chain),
        chain=chain,
        points=state.read_cached(queries.offset_history, cluster_id, topic, number, since_ms, version=version),
        limit_bytes=None if known is None else limits.pending_limit_bytes(known),
        earlier=sum(_kept(ledger) for ledger in ledgers if ledger.topic_id != row.topic_id),
        p99_ms=p99.get((topic, number)),
    )


def _kept(ledger: detail_queries.LedgerRow) -> int:
    return ledger.copy_started_segments + ledger.copy_finished_segments + ledger.delete_started_segments


# --- a partition that is there ---


def _present(page: Page, topic: str, number: int) -> None:
    with st.container(key="card-hero"):
        live(page, "hero", _hero, page, topic, number)
    with st.container(key="grid-partition"):
        with st.container(key="card-epochs"):
            live(page, "epochs", _epochs, page, topic, number)
        with st.container(key="card-replicas"):
            live(page, "replicas", _replicas, page, topic, number)
    with st.container(key="grid-partition-more"):
        with st.container(key="card-offsets"):
            live(page, "offsets", _offsets, page, topic, number)
        with st.container(key="card-history"):
            live(page, "history", _history, page, topic, number)
    with st.container(key="card-ledger"):
        live(page, "ledger", _ledger, page, topic, number)
    with st.container(key="card-events"):
        live(page, "events", _events, page, topic, number)
    _command_line(page, topic, number)


def _reading(page: Page, topic: str, number: int) -> Reading | None:
    """What :func:`read` finds; when the partition went away meanwhile the whole page is drawn anew."""
    found = read(page, topic, number)
    if found is None:
        st.rerun()
    return found


def _hero(page: Page, topic: str, number: int) -> None:
    reading = _reading(page, topic, number)
    if reading is None:
        return
    row, replicas = reading.row, reading.replicas
    with st.container(horizontal=True, key="cardhead-hero"):
        st.html(
            '<div class="eb-head-pills">'
            + markup.card_title("Offsets by tier and replica")
            + _hero_pills(reading)
            + markup.legend()
            + "</div>"
        )
        first, last = _window_inputs()
        table_twin("hero", "Offsets by tier and replica", replica_ranges.rows(row, replicas, reading.judged))
    axis = replica_ranges.window(row, replicas, first, last)
    if axis is None:
        st.html(markup.empty(f"? {row.error or 'The leader has not told its offsets.'}", "The next sample may tell."))
        return
    with st.container(key=body_key(reading.view, "hero")):
        st.html(replica_ranges.html(row, replicas, reading.judged, axis))


def _hero_pills(reading: Reading) -> str:
    row = reading.row
    pending = limits.pending_bytes(row)
    offsets = limits.pending_offsets(row)
    words = f"pending {fmt.count(offsets)} · {fmt.size(pending)}"
    if offsets is None:
        words = f"pending ? {limits.pending_unknown_cause(row)}"
    elif offsets == 0:
        words = "all copied"
    status = limits.pending_status(pending, reading.limit_bytes) or ("ok" if offsets is not None else "warning")
    pills = [
        markup.pill(f"remote {fmt.size(remote_bytes(row))}", html='<i class="eb-swatch eb-swatch-remote"></i>'),
        markup.pill(f"local {fmt.size(row.local_log_bytes)}", html='<i class="eb-swatch eb-swatch-local"></i>'),
        markup.pill(words, status),
    ]
    hung = [s for s in reading.segments if attention.is_hung(s, reading.p99_ms, reading.view.now_ms)]
    if hung:
        longest_ms = reading.view.now_ms - min(segment.copy_started_ms for segment in hung)
        ratio = attention.times_p99(longest_ms, reading.p99_ms)
        pills.append(markup.pill(f"copy hung for {fmt.duration(longest_ms / 1000)}", "critical", title=ratio))
    between = gap(row)
    if between is not None:
        pills.append(markup.pill(f"gap {fmt.offset_range(*between)}", "critical"))
    thin = sum(one.thin for one in _states(reading))
    if thin:
        pills.append(markup.pill(f"{thin} thin replica{'' if thin == 1 else 's'}", "warning"))
    if row.adding_replicas or row.removing_replicas:
        pills.append(markup.pill("being reassigned", "notice"))
    if row.error:
        pills.append(markup.pill(f"? {row.error}", "warning"))
    return '<div class="eb-pills">' + "".join(pills) + "</div>"


def _window_inputs() -> tuple[int | None, int | None]:
    """The window from the link or from what was typed."""
    with st.popover("Window", key="table-window"):
        st.caption("Offsets shown. Empty: from 10 % below the lowest local start to the log end.")
        first = st.text_input("From offset", key="from", bind="query-params", max_chars=24)
        last = st.text_input("To offset", key="to", bind="query-params", max_chars=24)
        with st.container(horizontal=True):
            st.button("Whole log", on_click=_set_window, args=("0", ""), key="window-whole")
            st.button("Local part", on_click=_set_window, args=("", ""), key="window-local")
    return _offset_of("from", first), _offset_of("to", last)


def _set_window(first: str, last: str) -> None:
    st.session_state["from"], st.session_state["to"] = first, last


def _offset_of(name: str, typed: str | None) -> int | None:
    digits = "".join((typed or "").split())
    if not digits:
        return None
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19:
        st.toast(f"{name!r} is not an offset: {digits!r:.40}; the usual window is shown.")
        return None
    return int(digits)


def _states(reading: Reading) -> list[replica_phases.ReplicaState]:
    return replica_phases.states(reading.row, reading.replicas, reading.segments, reading.points, reading.view.now_ms)


def _epochs(page: Page, topic: str, number: int) -> None:
    reading = _reading(page, topic, number)
    if reading is None:
        return
    chain, replicas = reading.chain, reading.replicas
    card_head(
        "epochs",
        "Leader-epoch chain",
        html=epoch_chain.pills_html(chain, replicas, reading.judged),
        rows=None if chain is None else epoch_chain.rows(chain, replicas, reading.judged),
    )
    if chain is None:
        st.html(
            markup.empty(
                "? The leader's epochs are not known, so no segment can be judged.",
                reading.row.error or "The next sample may tell.",
            )
        )
        return
    with st.container(key=body_key(reading.view, "epochs")):
        st.html(epoch_chain.html(chain, replicas, reading.judged))


def _replicas(page: Page, topic: str, number: int) -> None:
    reading = _reading(page, topic, number)
    if reading is None:
        return
    now_ms = reading.view.now_ms
    found = _states(reading)
    card_head("replicas", "Replicas", "asked from each replica", rows=replica_phases.rows(found, now_ms))
    with st.container(key=body_key(reading.view, "replicas")):
        if not found:
            st.html(markup.empty("? No replica has answered yet."))
            return
        st.html(
            replica_phases.table_html(found, reading.row.leader_epoch, now_ms)
            + replica_phases.evidence_html(found, now_ms)
        )


def _offsets(page: Page, topic: str, number: int) -> None:
    reading = _reading(page, topic, number)
    if reading is None:
        return
    card_head("offsets", "Offsets", "as each replica tells them; ListOffsets' timestamp at the right")
    with st.container(key=body_key(reading.view, "offsets")):
        st.html(replica_phases.offsets_html(reading.row, reading.replicas, _pending_note(reading.row)))


def _pending_note(row: PartitionRow) -> str:
    """What stands for an earliest pending upload of -1, or of a leader that does not know."""
    if row.pending_reason is not None:
        return limits.REASONS.get(row.pending_reason, row.pending_reason)
    return "" if row.earliest_pending_upload_offset != -1 else "? not told"


def _ledger(page: Page, topic: str, number: int) -> None:
    reading = _reading(page, topic, number)
    if reading is None:
        return
    _segments_card(page, reading.view, reading.judged, "the remote segments, newest first")
    if reading.earlier:
        st.html(
            f'<div class="eb-note">{fmt.count(reading.earlier)} segments of an earlier topic of this name are still '
            "in the remote tier; they are not listed here.</div>"
        )


def _segments_card(page: Page, view: View, judged: Sequence[Judged], clause: str) -> None:
    words = f"{fmt.count(len(judged))} segment{'' if len(judged) == 1 else 's'}: {clause}" if judged else ""
    if len(judged) >= queries.SEGMENTS_MAX:
        words = f"the newest {fmt.count(queries.SEGMENTS_MAX)} segments"
    card_head("ledger", "Ledger", words)
    if not judged:
        st.html(
            markup.empty(
                "No remote segment is known: nothing has been copied, or the pipeline has not read its events yet."
            )
        )
        return
    with st.container(key=body_key(view, "ledger")):
        st.dataframe(
            partition_ledger.shown(judged, lambda at_ms: page.clock(at_ms, view.now_ms)),
            column_config=partition_ledger.columns(len(judged)),
            hide_index=True,
            height=37 + 35 * min(8, len(judged)),
            key="segments",
            placeholder="",
            alt=f"{len(judged)} remote segments with offsets, state, size and epochs",
        )


def _history(page: Page, topic: str, number: int) -> None:
    reading = _reading(page, topic, number)
    if reading is None:
        return
    view = reading.view
    points = [point for point in reading.points if point.sampled_ms >= view.now_ms - page.range_ms]
    seen = partition_summary.rates(reading.row, points, view.now_ms)
    clause = f"last {page.range_name}"
    if seen.produced_bytes_s is not None and seen.copied_bytes_s is not None:
        clause += f" · produced {fmt.size(seen.produced_bytes_s)}/s, copied {fmt.size(seen.copied_bytes_s)}/s"
    card_head("history", "Offsets over time", clause, rows=offset_history.shown(points, page.zone) if points else None)
    if len(points) < 2:
        st.html(markup.empty("No history yet: the chart begins with the second sample."))
        return
    with st.container(key=body_key(view, "history")):
        st.plotly_chart(
            offset_history.figure(
                points,
                view.now_ms - page.range_ms,
                view.now_ms,
                view.cluster.sample_interval_ms,
                page.colours,
                page.zone,
            ),
            theme=None,
            config=CONFIG,
            key="offset-history",
            alt="Log end, latest tiered and local start over time",
        )


def _events(page: Page, topic: str, number: int) -> None:
    reading = _reading(page, topic, number)
    if reading is not None:
        _events_card(page, reading.view, topic, number, reading.row.topic_id)


def _events_card(page: Page, view: View, topic: str, number: int, topic_id: str | None) -> None:
    cluster_id, version = page.cluster_id, view.version
    engine = state.read_cached(detail_queries.engine_events, cluster_id, topic, number, version=version)
    remote: list[detail_queries.SegmentEventRow] = []
    if topic_id is not None:
        remote = state.read_cached(detail_queries.segment_events, cluster_id, topic_id, number, version=version)
    found = partition_ledger.merged(engine, remote)

    def clock(at_ms: int | None) -> str:
        return page.clock(at_ms, view.now_ms)

    clause = f"the newest {min(EVENTS_SHOWN, len(found))} of {fmt.count(len(found))}" if found else ""
    card_head("events", "Last events", clause, rows=partition_ledger.event_rows(found, clock) if found else None)
    if not found:
        st.html(
            markup.empty(
                "No event of this partition is stored.",
                "Events come from the embedded brokers and, of remote segments, from the pipeline.",
            )
        )
        return
    body = [
        (
            markup.Cell(clock(one.at_ms), css="eb-nowrap eb-quiet"),
            f"{one.broker_id}",
            markup.Cell(html=(markup.mark("warning") + " " if one.bad else "") + markup.text(one.what[:400])),
        )
        for one in found[:EVENTS_SHOWN]
    ]
    with st.container(key=body_key(view, "events")):
        columns = [("Time", "left"), ("Broker", "left"), ("What", "left")]
        st.html(markup.table(columns, body, caption="Last events of the partition"))


def _command_line(page: Page, topic: str, number: int) -> None:
    try:
        servers = page.view().cluster.bootstrap_servers
    except DatabaseAway:
        return
    with st.expander("The same from the command line"):
        asked = [
            f"kafka-get-offsets.sh --bootstrap-server {servers} --topic-partitions {topic}:{number} --time {time}"
            for time in ("earliest", "earliest-local", "latest-tiered", "earliest-pending-upload", "latest")
        ]
        lines = [
            f"kafka-topics.sh --bootstrap-server {servers} --describe --topic {topic}",
            *asked,
            f"kafka-log-dirs.sh --bootstrap-server {servers} --describe --topic-list {topic}",
        ]
        st.code("\n".join(lines), language="bash", wrap_lines=True)


# --- a partition that is not there ---


def _no_name(name: str) -> None:
    with st.container(key="card-absent"):
        if name:
            st.html(
                markup.empty(f"“{name[:120]}” is no partition's name.", "A name is topic-number, for example orders-7.")
            )
        else:
            st.html(markup.empty("The link names no partition.", "Choose one in the list."))
        st.page_link(links.page("partitions"), label="All partitions →")


def _absent(page: Page, topic: str, number: int) -> None:
    live(page, "absent", _absent_part, page, topic, number)


def _absent_part(page: Page, topic: str, number: int) -> None:
    view = page.view()
    if _row(view, topic, number) is not None:
        st.rerun()
    left = state.read_cached(detail_queries.remains, page.cluster_id, topic, number, version=view.version)
    name = f"{topic}-{number}"
    with st.container(key="card-absent"):
        if left.known:
            st.html(markup.alert("warning", f"{name} does not exist any more.", _last_seen(page, view, left)))
        else:
            instead = _instead(page, view, topic) if left.partition_count is None else _has(topic, left.partition_count)
            st.html(markup.empty(f"There is no partition {name} in {view.cluster.name}.", instead))
        st.page_link(links.page("partitions"), label="All partitions →")
    if not left.known:
        return
    topic_id = left.ledgers[0].topic_id if left.ledgers else None
    segments: list[SegmentRow] = []
    if topic_id is not None:
        segments = state.read_cached(
            queries.segments, page.cluster_id, topic, number, topic_id=topic_id, version=view.version
        )
    with st.container(key="card-ledger"):
        judged = lineage_verdicts.judge(segments, None)
        _segments_card(page, view, judged, "left in the remote tier, newest first")
    with st.container(key="card-events"):
        _events_card(page, view, topic, number, topic_id)


def _last_seen(page: Page, view: View, left: detail_queries.Remains) -> str:
    seen = ""
    if left.last_sampled_ms is not None:
        seen = f"Last seen {page.clock(left.last_sampled_ms, view.now_ms)}. "
    kept = sum(_kept(ledger) for ledger in left.ledgers)
    if not left.ledgers:
        return f"{seen}The ledger knows nothing of it."
    if not kept:
        return f"{seen}Its remote segments are deleted."
    return f"{seen}{fmt.count(kept)} of its segments are still in the remote tier, by the ledger."


def _has(topic: str, count: int) -> str:
    numbers = "partition 0" if count == 1 else f"partitions 0 to {count - 1}"
    return f"Topic {topic} has {numbers}."


def _instead(page: Page, view: View, topic: str) -> str:
    topics = state.read_cached(config_queries.topics, page.cluster_id, version=view.version)
    near = [name for name in near_topics(topic, [one.topic for one in topics]) if name != topic]
    return f"Topics of a like name: {', '.join(near)}." if near else "Choose one in the list."
