"""Partition: which offsets are where, on which replica; is the epoch chain sound; what happened last?"""

from __future__ import annotations

from typing import Final

import streamlit as st

from app.components.follower import replica_phases
from app.components.partition import (
    durability,
    epoch_chain,
    offset_history,
    partition_summary,
    pending_limits,
    replica_ranges,
)
from app.components.partition.partition_filter import gap, parse_name, remote_bytes
from app.components.plan import plan_dialog
from app.components.remote import copy_age, remote_readers
from app.components.shared import format as fmt
from app.components.shared import markup, style
from app.components.shared.cards import card_head, source, table_twin
from app.components.shared.page import Page, body_key, live, open_page
from app.state import ClusterView, DatabaseUnreachable
from app.theme import CONFIG
from app.views.partition import partition_absent, partition_actions, partition_report
from app.views.partition.log_cards import events_card, segments_card
from app.views.partition.partition_data import PartitionData, read, row_of
from app.views.shared import comparison_card
from backend.store.queries.partitions import PartitionRow

# A topic's name has at most 249 characters, a number at most 10; a link may hold anything.
NAME_CHARS_MAX: Final = 260


def render() -> None:
    name = (st.query_params.get("tp") or "").strip()
    key = parse_name(name)
    page = open_page(
        name[:NAME_CHARS_MAX] or "Partition",
        lambda view: _fact(view, key),
        parent=("partitions", "Partitions"),
    )
    if page is None:
        return
    style.add("ranges")
    if key is None:
        partition_absent.no_name(name)
        return
    topic, number = key
    if _exists(page, topic, number):
        _present(page, topic, number)
    else:
        partition_absent.absent(page, topic, number)


def _fact(view: ClusterView, key: tuple[str, int] | None) -> str:
    try:
        row = None if key is None else row_of(view, *key)
    except DatabaseUnreachable:
        return ""
    if row is None:
        return ""
    if row.leader < 0:
        return f"no leader · epoch {row.leader_epoch}"
    return f"led by broker {row.leader} · epoch {row.leader_epoch}"


def _exists(page: Page, topic: str, number: int) -> bool:
    try:
        return row_of(page.view(), topic, number) is not None
    except DatabaseUnreachable:
        return True  # the alert says it; the parts appear when the database is back


# --- a partition that is there ---


def _present(page: Page, topic: str, number: int) -> None:
    style.add("plan", "partition")
    plan_dialog.host(page)
    with st.container(key="card-hero"):
        live(page, "hero", _hero, page, topic, number)
    with st.container(key="grid-partition"):
        with st.container(key="card-epochs"):
            live(page, "epochs", _epochs, page, topic, number)
        with st.container(key="card-replicas"):
            live(page, "replicas", _replicas, page, topic, number)
    partition_actions.render(page, topic, number)
    with st.container(key="card-durability"):
        live(page, "durability", _durability, page, topic, number)
    with st.container(key="grid-partition-more"):
        with st.container(key="card-offsets"):
            live(page, "offsets", _offsets, page, topic, number)
        with st.container(key="card-history"):
            live(page, "history", _history, page, topic, number)
    with st.container(key="card-ledger"):
        live(page, "ledger", _ledger, page, topic, number)
    with st.container(key="card-events"):
        live(page, "events", _events, page, topic, number)
    _compare(page, topic, number)
    partition_report.button(page, topic, number)
    _command_line(page, topic, number)


def _compare(page: Page, topic: str, number: int) -> None:
    try:
        row = row_of(page.view(), topic, number)
    except DatabaseUnreachable:
        return
    if row is not None:
        comparison_card.card(page, topic, number, row.topic_id)


def _reading(page: Page, topic: str, number: int) -> PartitionData | None:
    """The result of :func:`read`; when the partition is gone by now, the whole page is run again."""
    reading = read(page, topic, number)
    if reading is None:
        st.rerun()
    return reading


def _hero(page: Page, topic: str, number: int) -> None:
    reading = _reading(page, topic, number)
    if reading is None:
        return
    row, replicas = reading.row, reading.replicas
    with st.container(horizontal=True, key="cardhead-hero"):
        st.html(
            '<div class="eb-head-pills">'
            + markup.card_title("Offsets by tier and replica", html=source("hero"))
            + _hero_pills(reading)
            + markup.legend()
            + "</div>"
        )
        first, last = _window_inputs()
        table_twin(
            "hero",
            "Offsets by tier and replica",
            replica_ranges.rows(row, replicas, reading.verdicts, reading.last_seen),
        )
    axis = replica_ranges.window(row, replicas, first, last)
    if axis is None:
        st.html(markup.empty(f"? {row.error or 'The leader has not told its offsets.'}", "The next sample may tell."))
        return
    with st.container(key=body_key(reading.view, "hero")):
        st.html(replica_ranges.html(row, replicas, reading.verdicts, axis, reading.last_seen))


def _hero_pills(reading: PartitionData) -> str:
    row = reading.row
    pending = pending_limits.pending_bytes(row)
    offsets = pending_limits.pending_offsets(row)
    pending_text = f"pending {fmt.count(offsets)} · {fmt.size(pending)}"
    if offsets is None:
        pending_text = f"pending ? {pending_limits.pending_unknown_cause(row)}"
    elif offsets == 0:
        pending_text = "all copied"
    status = pending_limits.pending_status(pending, reading.limit_bytes) or ("ok" if offsets is not None else "warning")
    if not pending_limits.is_tiered(row):
        pending_text, status = "not tiered", "notice"
    pills = [
        markup.pill(f"remote {fmt.size(remote_bytes(row))}", html='<i class="eb-swatch eb-swatch-remote"></i>'),
        markup.pill(f"local {fmt.size(row.local_log_bytes)}", html='<i class="eb-swatch eb-swatch-local"></i>'),
        markup.pill(pending_text, status),
    ]
    hung = [s for s in reading.segments if copy_age.is_hung(s, reading.p99_ms, reading.view.now_ms)]
    if hung:
        longest_ms = reading.view.now_ms - min(segment.copy_started_ms for segment in hung)
        ratio = copy_age.times_p99(longest_ms, reading.p99_ms)
        pills.append(markup.pill(f"copy hung for {fmt.duration(longest_ms / 1000)}", "critical", title=ratio))
    between = gap(row)
    if between is not None:
        pills.append(markup.pill(f"gap {fmt.offset_range(*between)}", "critical"))
    thin = sum(state.thin for state in _states(reading))
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


def _states(reading: PartitionData) -> list[replica_phases.ReplicaSummary]:
    return replica_phases.states(
        reading.row, reading.replicas, reading.segments, reading.points, reading.view.now_ms, reading.last_seen
    )


def _epochs(page: Page, topic: str, number: int) -> None:
    reading = _reading(page, topic, number)
    if reading is None:
        return
    chain, replicas = reading.chain, reading.replicas
    card_head(
        "epochs",
        "Leader-epoch chain",
        html=epoch_chain.pills_html(chain, replicas, reading.verdicts),
        rows=None if chain is None else epoch_chain.rows(chain, replicas, reading.verdicts),
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
        st.html(epoch_chain.html(chain, replicas, reading.verdicts))


def _replicas(page: Page, topic: str, number: int) -> None:
    reading = _reading(page, topic, number)
    if reading is None:
        return
    now_ms = reading.view.now_ms
    states = _states(reading)
    card_head("replicas", "Replicas", "asked from each replica", rows=replica_phases.rows(states, now_ms))
    with st.container(key=body_key(reading.view, "replicas")):
        if not states:
            st.html(markup.empty("? No replica has answered yet."))
            return
        st.html(
            replica_phases.table_html(states, reading.row.leader_epoch, now_ms)
            + replica_phases.evidence_html(states, now_ms)
        )
    _readers(reading, topic, number)


def _durability(page: Page, topic: str, number: int) -> None:
    """Possible leaders after a loss, and the lost disks that its acknowledged records survive."""
    reading = _reading(page, topic, number)
    if reading is None:
        return
    card_head("durability", "Durability", "who may lead after a loss, and which losses its records survive")
    with st.container(key=body_key(reading.view, "durability")):
        st.html(
            durability.leaders_of(reading.view, reading.row, reading.topic)
            + durability.of_partition(reading.view, reading.row, reading.topic)
        )


def _readers(reading: PartitionData, topic: str, number: int) -> None:
    """Under the replicas: who reads what is no more on their disks."""
    view = reading.view
    backend = view.processes.get("backend")
    readers = remote_readers.of(None if backend is None else backend.detail, topic, number)
    clause = remote_readers.clause(readers, view.now_ms)
    table = remote_readers.rows(readers) if readers.rows else None
    card_head("readers", "Groups reading from remote", clause, rows=table)
    with st.container(key=body_key(view, "readers")):
        st.html(remote_readers.html(readers))


def _offsets(page: Page, topic: str, number: int) -> None:
    reading = _reading(page, topic, number)
    if reading is None:
        return
    card_head("offsets", "Offsets", "as each replica tells them; ListOffsets' timestamp at the right")
    with st.container(key=body_key(reading.view, "offsets")):
        st.html(replica_phases.offsets_html(reading.row, reading.replicas, _pending_note(reading.row)))


def _pending_note(row: PartitionRow) -> str:
    """The note in place of an earliest pending upload of -1, or of a leader that does not know."""
    if row.pending_reason is not None:
        return pending_limits.REASONS.get(row.pending_reason, row.pending_reason)
    return "" if row.earliest_pending_upload_offset != -1 else "? not told"


def _ledger(page: Page, topic: str, number: int) -> None:
    reading = _reading(page, topic, number)
    if reading is None:
        return
    segments_card(page, reading.view, reading.verdicts, "the remote segments, newest first")
    if reading.earlier:
        st.html(
            f'<div class="eb-note">{fmt.count(reading.earlier)} segments of an earlier topic of this name are still '
            "in the remote tier; they are not listed here.</div>"
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
        events_card(page, reading.view, topic, number, reading.row.topic_id)


def _command_line(page: Page, topic: str, number: int) -> None:
    try:
        servers = page.view().cluster.bootstrap_servers
    except DatabaseUnreachable:
        return
    with st.expander("The same from the command line"):
        arguments = [
            f"kafka-get-offsets.sh --bootstrap-server {servers} --topic-partitions {topic}:{number} --time {time}"
            for time in ("earliest", "earliest-local", "latest-tiered", "earliest-pending-upload", "latest")
        ]
        lines = [
            f"kafka-topics.sh --bootstrap-server {servers} --describe --topic {topic}",
            *arguments,
            f"kafka-log-dirs.sh --bootstrap-server {servers} --describe --topic-list {topic}",
        ]
        st.code("\n".join(lines), language="bash", wrap_lines=True)
