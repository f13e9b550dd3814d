"""Remote log: what is in the remote tier, how long each step takes, what is stuck, dangling or outside the lineage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import streamlit as st

from app import links, state
from app.components import (
    attention,
    health_words,
    ledger_past,
    lineage_verdicts,
    markup,
    open_copies,
    remote_style,
    segment_cycle,
    segment_ledger,
)
from app.components import format as fmt
from app.components.ledger_past import Past
from app.components.lineage_verdicts import Judged
from app.components.open_copies import OpenCopy
from app.components.page import Page, card_head, ledger_key, live, open_page, say_unknown, standing_order
from app.components.partition_filter import near_topics, parse_name
from app.state import View
from app.theme import CONFIG
from backend.store.queries import config as config_queries
from backend.store.queries import overview as overview_queries
from backend.store.queries import partition_detail as detail_queries
from backend.store.queries import partitions as partition_queries
from backend.store.queries import remote_log as queries
from backend.store.queries.partitions import PartitionRow, SegmentRow
from backend.store.queries.remote_log import LEDGER_MAX, CycleTotals, Scope
from backend.tiering.segment_state import SegmentState

SEGMENT: Final = "seg"
SEGMENT_ID_CHARS: Final = 22
# Lineage takes two look-ups a partition; beyond this many partitions on one screen it is not judged.
LINEAGE_PARTITIONS_MAX: Final = 60
TABLE_ROWS: Final = 8
UNFOLLOWED_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked for: a part of the log, words that rows must have, a segment, an instant of the past."""

    scope: Scope
    words: str = ""
    state: str | None = None
    at_ms: int | None = None

    @property
    def name(self) -> str:
        if self.scope.topic is None:
            return "the cluster"
        return self.scope.topic if self.scope.partition is None else f"{self.scope.topic}-{self.scope.partition}"


@dataclass(frozen=True, slots=True)
class Reading:
    """What the parts of the page share, read once per data version."""

    view: View
    totals: CycleTotals
    judged: list[Judged]
    copies: list[OpenCopy]
    timed: list[SegmentRow]  # whose steps give the medians
    log_start: int | None
    past: Past | None
    judging_ms: int  # as of when ages are told

    @property
    def hung(self) -> frozenset[str]:
        return frozenset(one.segment.segment_id for one in self.copies if one.kind != open_copies.USUAL)


def render() -> None:
    page = open_page("Remote log", _fact)
    if page is None:
        return
    remote_style.apply()
    try:
        question = _controls(page)
    except state.DatabaseAway:
        st.html(markup.empty("? The database is away, and this was not read before."))
        return
    if question is None:
        return
    with st.container(key="card-cycle"):
        live(page, "cycle", _cycle, page, question)
    with st.container(key="grid-remote"):
        with st.container(key="left-remote"):
            with st.container(key="card-open"):
                live(page, "open", _open, page, question)
            with st.container(key="card-ledger"):
                live(page, "ledger", _ledger, page, question)
        with st.container(key="right-remote"):
            with st.container(key="card-metadata"):
                live(page, "metadata", _metadata, page)
            with st.container(key="card-unfollowed"):
                live(page, "unfollowed", _unfollowed, page, question)


def _fact(view: View) -> str:
    totals = state.read_cached(queries.cycle_totals, view.cluster.cluster_id, Scope(), version=view.version)
    return f"{fmt.count(totals.copy_finished_segments)} segments · {fmt.size(totals.copy_finished_bytes)}"


# --- what is asked for ---


def _controls(page: Page) -> Question | None:
    """None: it was said what cannot be shown. Raises DatabaseAway."""
    with st.container(horizontal=True, key="filters"):
        typed = st.text_input(
            "Topic, partition or segment id",
            key="q",
            bind="query-params",
            placeholder="Topic, partition or segment id",
            icon=":material/search:",
            max_chars=260,
            label_visibility="collapsed",
            width=250,
        )
        say_unknown("state", segment_ledger.STATES)
        chosen = st.pills(
            "State",
            segment_ledger.STATES,
            key="state",
            bind="query-params",
            label_visibility="collapsed",
            width="content",
            wrap=True,
        )
        with st.container(horizontal=True, key="filter-right", width="content"):
            instant = st.text_input(
                "As of",
                key="at",
                bind="query-params",
                placeholder="As of: now, or a time",
                icon=":material/history:",
                max_chars=40,
                label_visibility="collapsed",
                help=f"Time travel for one partition: {ledger_past.HINT}",
                on_change=_fix_instant,
                args=(page,),
                width=216,
            )
            if instant:
                st.button("Now", key="now", on_click=_go_to_now)
    scope, words = _scope(page, (typed or "").strip())
    at_ms = _at_ms(page, instant or "")
    if at_ms is not None and scope.partition is None:
        _no_past()
        return None
    return Question(scope, words, chosen, at_ms)


def _fix_instant(page: Page) -> None:
    """What was typed becomes a time that a link can carry and that does not move on."""
    at_ms = ledger_past.parse_instant(st.session_state.get("at") or "", state.now_ms(), page.zone)
    if at_ms is not None:
        st.session_state["at"] = ledger_past.link_words(at_ms)


def _go_to_now() -> None:
    st.session_state["at"] = ""


def _at_ms(page: Page, typed: str) -> int | None:
    if not typed.strip():
        return None
    found = ledger_past.parse_instant(typed, state.now_ms(), page.zone)
    if found is None:
        st.toast(f"{typed!r:.44} is no time in the past; this is now. Use {ledger_past.HINT}.")
    return found


def _no_past() -> None:
    with st.container(key="card-no-past"):
        st.html(
            markup.empty(
                "The past is computed from the stored events of one partition.",
                "Name one at the left, for example orders-7; or clear the time.",
            )
        )


def _scope(page: Page, typed: str) -> tuple[Scope, str]:
    """Which part of the log the words name; words that name nothing filter what is listed. Raises DatabaseAway."""
    if not typed:
        return Scope(), ""
    cluster_id, version = page.cluster_id, page.view().version
    key = parse_name(typed)
    if key is not None and _known(page, Scope(*key)):
        return Scope(*key), ""
    if _known(page, Scope(typed)):
        return Scope(typed), ""
    if len(typed) == SEGMENT_ID_CHARS:
        found = state.read_cached(queries.find_segment, cluster_id, typed, version=version)
        if found is not None:
            st.session_state[SEGMENT] = typed
            return Scope(found.topic, found.partition), ""
    return Scope(), typed


def _known(page: Page, scope: Scope) -> bool:
    totals = state.read_cached(queries.cycle_totals, page.cluster_id, scope, version=page.view().version)
    return totals.partitions > 0


# --- what is known ---


def read(page: Page, question: Question) -> Reading:
    """One consistent set of facts. Raises DatabaseAway."""
    view = page.view()
    if question.at_ms is not None:
        return _read_past(page, view, question, question.at_ms)
    cluster_id, version, scope = page.cluster_id, view.version, question.scope
    segments = state.read_cached(queries.newest_segments, cluster_id, scope, version=version)
    started = state.read_cached(partition_queries.open_segments, cluster_id, version=version)
    started = [row for row in started if _within(row, scope)]
    rows = state.read_cached(partition_queries.partitions, cluster_id, version=version)
    judging_ms = health_words.ledger_ms(view)
    deleted: list[SegmentRow] = []
    if scope.topic is None:
        deleted = state.read_cached(queries.recent_deletions, cluster_id, version=version)
    judged, log_start = _judge(page, view, segments, rows)
    return Reading(
        view=view,
        totals=state.read_cached(queries.cycle_totals, cluster_id, scope, version=version),
        judged=judged,
        copies=_copies(page, view, started, rows, judging_ms),
        timed=[*segments, *deleted],
        log_start=log_start if scope.partition is not None else None,
        past=None,
        judging_ms=judging_ms,
    )


def _within(row: SegmentRow, scope: Scope) -> bool:
    return scope.topic in (None, row.topic) and scope.partition in (None, row.partition)


def _read_past(page: Page, view: View, question: Question, at_ms: int) -> Reading:
    topic, number = question.scope.topic or "", question.scope.partition or 0
    ledgers = state.read_cached(detail_queries.ledgers, page.cluster_id, topic, number, version=view.version)
    events: list[queries.StoredEvent] | None = []
    if ledgers:
        events = state.read_cached(
            queries.past_events, page.cluster_id, ledgers[0].topic_id, number, version=view.version
        )
    found = ledger_past.past(events or [], at_ms)
    return Reading(
        view=view,
        totals=segment_cycle.totals_of(found.segments),
        # The leader's epochs of then are not stored, so nothing of the past is judged by them.
        judged=[replace(one, why="") for one in lineage_verdicts.judge(found.segments, None)],
        copies=_copies(page, view, found.segments, None, at_ms),
        timed=found.segments,
        log_start=None,
        past=found if events is not None else None,
        judging_ms=at_ms,
    )


def _copies(
    page: Page, view: View, segments: Sequence[SegmentRow], rows: Sequence[PartitionRow] | None, now_ms: int
) -> list[OpenCopy]:
    """``rows`` None: who led then is not known, so no copy is called dangling."""
    started = [row for row in segments if row.state is SegmentState.COPY_SEGMENT_STARTED]
    keys = tuple(sorted({(row.topic, row.partition) for row in started}))
    p99 = state.read_cached(overview_queries.copy_p99_ms, page.cluster_id, keys, version=view.version)
    if rows is not None:
        return open_copies.judge(started, rows, p99, now_ms)
    found = []
    for row in started:
        took = p99.get((row.topic, row.partition))
        kind = open_copies.HUNG if attention.is_hung(row, took, now_ms) else open_copies.USUAL
        found.append(OpenCopy(row, max(0, now_ms - row.copy_started_ms), took, kind))
    return sorted(found, key=lambda one: -one.age_ms)


def _judge(
    page: Page, view: View, segments: Sequence[SegmentRow], rows: Sequence[PartitionRow]
) -> tuple[list[Judged], int | None]:
    """Each segment against its leader's epochs, and the log start of the last partition."""
    topic_ids = {(row.topic, row.partition): row.topic_id for row in rows}
    judged, log_start = [], None
    for number, (key, group) in enumerate(groupby(segments, key=lambda row: (row.topic, row.partition, row.topic_id))):
        topic, partition, topic_id = key
        chain = None
        if number < LINEAGE_PARTITIONS_MAX and topic_ids.get((topic, partition)) == topic_id:
            replicas = state.read_cached(
                partition_queries.replicas, page.cluster_id, topic, partition, version=view.version
            )
            chain = lineage_verdicts.leader_chain(replicas)
        log_start = None if chain is None else chain.log_start
        judged += lineage_verdicts.judge(group, chain)
    return judged, log_start


# --- the cards ---


def _cycle(page: Page, question: Question) -> None:
    reading = read(page, question)
    found = segment_cycle.boxes(
        reading.totals,
        hung=sum(one.kind == open_copies.HUNG for one in reading.copies),
        dangling=sum(one.kind == open_copies.DANGLING for one in reading.copies),
        oldest_delete_ms=_oldest_delete_ms(reading),
        judging_ms=reading.judging_ms,
    )
    taken = segment_cycle.steps(reading.timed)
    missing = segment_cycle.gaps(reading.judged, reading.log_start) if question.scope.partition is not None else None
    clause = f"{question.name} · median and p99 of the newest segments"
    card_head(
        "cycle",
        "Segment life cycle",
        clause,
        html=segment_cycle.verdict_pills(reading.judged, missing),
        rows=segment_cycle.rows(found, taken),
    )
    if question.at_ms is not None:
        _say_past(page, reading, question.at_ms)
    with st.container(key=ledger_key(reading.view, "cycle")):
        st.html(segment_cycle.cycle_html(found, taken))


def _oldest_delete_ms(reading: Reading) -> int | None:
    begun = [
        one.segment.delete_started_ms
        for one in reading.judged
        if one.segment.state is SegmentState.DELETE_SEGMENT_STARTED and one.segment.delete_started_ms is not None
    ]
    return min(begun, default=None)


def _say_past(page: Page, reading: Reading, at_ms: int) -> None:
    clock = page.clock(at_ms, reading.view.now_ms)
    if reading.past is None:
        most = fmt.count(queries.PAST_EVENTS_MAX)
        sentence = f"This partition has more than {most} stored events: its past is not computed here."
        st.html(markup.alert("warning", f"As of {clock}.", sentence))
        return
    words = ledger_past.words(reading.past, clock, page.clock(reading.past.first_ms, reading.view.now_ms))
    note = "Lineage is not judged: the epochs of then are not stored."
    if at_ms > health_words.ledger_ms(reading.view):
        note = "The pipeline has not read so far yet. " + note
    st.html(markup.alert("notice" if reading.past.exact else "warning", "Time travel.", words, note))


def _open(page: Page, question: Question) -> None:
    reading = read(page, question)
    unknown = sum(one.ratio is None for one in reading.copies)
    clause = "age against the p99 of the partition's own copies; right of the line is suspicious"
    if unknown:
        clause += f" · {fmt.count(unknown)} without a p99 yet: in the table"
    rows = open_copies.rows(reading.copies) if reading.copies else None
    card_head("open", "Open copies", clause, rows=rows)
    drawn = [one for one in reading.copies if one.ratio is not None]
    if not drawn:
        many = f"{fmt.count(unknown)} copies are open; none of their partitions has finished one to compare with."
        st.html(markup.empty("No copy is open now." if not unknown else many))
        return
    with st.container(key=ledger_key(reading.view, "open")):
        st.plotly_chart(
            open_copies.figure(reading.copies, page.colours),
            theme=None,
            config=CONFIG,
            key="open-copies",
            alt=f"{len(drawn)} open copies by age against the p99 of their partition",
        )


def _ledger(page: Page, question: Question) -> None:
    reading = read(page, question)
    found = segment_ledger.select(reading.judged, question.state, question.words)
    card_head("ledger", "Ledger", _ledger_clause(reading, question, found))
    if not found:
        _nothing(page, reading, question)
        return
    by_name = {_name(one.segment): one for one in found}
    order = standing_order("ledger_order", list(by_name), (question, page.cluster_id))
    ordered = [by_name[name] for name in order]
    view = reading.view
    with st.container(key=ledger_key(view, "ledger")):
        st.dataframe(
            segment_ledger.shown(ordered, reading.hung, page.colours, lambda at_ms: page.clock(at_ms, view.now_ms)),
            column_config=segment_ledger.columns(len(ordered)),
            hide_index=True,
            height=37 + 35 * min(TABLE_ROWS, len(ordered)),
            key="ledger-rows",
            on_select=lambda: _take_row([one.segment.segment_id for one in ordered]),
            selection_mode="single-row",
            placeholder="",
            alt=f"{len(ordered)} remote segments with offsets, state, durations and lineage",
        )
    _selected(page, reading, question)


def _name(row: SegmentRow) -> str:
    return f"{row.topic_id}/{row.partition}/{row.segment_id}"


def _take_row(ids: Sequence[str]) -> None:
    rows = st.session_state["ledger-rows"].selection.rows
    if rows and rows[0] < len(ids):
        st.session_state[SEGMENT] = ids[rows[0]]
        st.query_params[SEGMENT] = ids[rows[0]]
    else:
        st.session_state.pop(SEGMENT, None)
        st.query_params.pop(SEGMENT, None)


def _ledger_clause(reading: Reading, question: Question, found: Sequence[Judged]) -> str:
    listed = len(reading.judged)
    what = f"{fmt.count(len(found))} row{'' if len(found) == 1 else 's'}"
    if len(found) < listed:
        what = f"{fmt.count(len(found))} match of {fmt.count(listed)}"
    if question.at_ms is not None:
        return f"{what} · {question.name} as of {page_clock(question.at_ms, reading.view)}"
    if question.scope.topic is None:
        return f"{what} · what is open now and the newest copies; name a partition to see all of its segments"
    if listed >= LEDGER_MAX:
        return f"{what} · the newest {fmt.count(LEDGER_MAX)} segments of {question.name}"
    return f"{what} · {question.name}, newest event first"


def page_clock(at_ms: int, view: View) -> str:
    """An instant in UTC, as the link has it."""
    return fmt.clock(at_ms, view.now_ms) + " UTC"


def _nothing(page: Page, reading: Reading, question: Question) -> None:
    if reading.judged and question.words:
        topics = state.read_cached(config_queries.topics, page.cluster_id, version=reading.view.version)
        near = near_topics(question.words, [topic.topic for topic in topics if topic.tiered])
        st.html(
            markup.empty(
                f"No topic, partition or segment is named “{question.words[:80]}”, and no listed row has it.",
                f"Topics of a like name: {', '.join(near)}." if near else "",
            )
        )
    elif reading.judged:
        st.html(markup.empty("No listed segment is in this state.", "Choose another, or none."))
    elif question.at_ms is not None:
        st.html(markup.empty("Nothing of this partition was in the remote tier then."))
    else:
        st.html(
            markup.empty(
                "No remote segment is known: nothing has been copied, or the pipeline has not read its events yet.",
                "The first copy comes with the first rolled segment of a topic with remote.storage.enable=true.",
            )
        )


def _selected(page: Page, reading: Reading, question: Question) -> None:
    """What was told of the segment that the link or the table names."""
    wanted = st.session_state.get(SEGMENT) or st.query_params.get(SEGMENT)
    if not wanted:
        st.html('<div class="eb-note">Select a row to see every event of its segment.</div>')
        return
    row = next((one.segment for one in reading.judged if one.segment.segment_id == wanted), None)
    version = reading.view.version
    if row is None and len(wanted) == SEGMENT_ID_CHARS:
        row = state.read_cached(queries.find_segment, page.cluster_id, wanted, version=version)
    if row is None:
        st.html(f'<div class="eb-note">There is no segment “{markup.text(wanted[:60])}” in this ledger.</div>')
        return
    events = state.read_cached(
        queries.events_of_segment, page.cluster_id, row.topic_id, row.partition, row.segment_id, version=version
    )
    if question.at_ms is not None:
        events = [event for event in events if event.event_timestamp_ms <= question.at_ms]
    name = f"{row.topic}-{row.partition}"
    with st.container(horizontal=True, key="segment-head"):
        offsets = fmt.offset_range(row.start_offset, row.next_offset)
        st.html(markup.card_title("Segment", f"{row.segment_id} · {name} {offsets}"))
        st.page_link(links.page("partition"), label="Open partition →", query_params={"tp": name})
    body = [
        (
            markup.Cell(page.clock(event.event_timestamp_ms, reading.view.now_ms), css="eb-nowrap eb-quiet"),
            markup.Cell(html=("" if event.legal else markup.mark("warning") + " ") + markup.text(_said(event))),
            f"{event.broker_id}",
            markup.Cell(f"{event.metadata_partition} · {fmt.count(event.metadata_offset)}", css="eb-nowrap eb-quiet"),
        )
        for event in events
    ]
    names = [("Time", "left"), ("Event", "left"), ("Broker", "left"), ("Metadata partition · offset", "right")]
    st.html(markup.table(names, body, caption="Events of the segment"))


def _said(event: queries.StoredEvent) -> str:
    return segment_ledger.event_words(event)[:300]


def _metadata(page: Page) -> None:
    view = page.view()
    version = view.version
    topics = state.read_cached(config_queries.topics, page.cluster_id, version=version)
    known = next((one for one in topics if one.topic == attention.METADATA_TOPIC), None)
    reading = state.read_cached(queries.metadata_reading, page.cluster_id, version=version)
    totals = state.read_cached(queries.cycle_totals, page.cluster_id, Scope(), version=version)
    brokers = state.read_cached(overview_queries.brokers, page.cluster_id, version=version)
    card_head("metadata", "Metadata topic", attention.METADATA_TOPIC)
    live_segments = totals.copy_started_segments + totals.copy_finished_segments + totals.delete_started_segments
    share = f" ({live_segments / reading.records:.1%})" if reading.records else ""
    lag = ((view.processes["pipeline"].detail or {}) if "pipeline" in view.processes else {}).get("lag_records")
    pairs: list[tuple[str, str | markup.Cell]] = [
        ("Records read", fmt.count(reading.records) if reading.partitions else "? none yet"),
        ("Live segments", f"{fmt.count(live_segments)}{share}"),
        ("Pipeline behind by", f"{fmt.count(lag)} records" if isinstance(lag, int) else "? not told"),
        ("Read last", page.clock(reading.updated_ms, view.now_ms)),
        ("Not followed", fmt.count(totals.illegal_events)),
        ("Quarantined", fmt.count(reading.quarantined)),
    ]
    with st.container(key=ledger_key(view, "metadata")):
        st.html(_metadata_pills(known, len(brokers)) + markup.pairs(pairs))


def _metadata_pills(topic: config_queries.TopicRow | None, brokers: int) -> str:
    if topic is None:
        return markup.pill("? the topic has not been seen yet", "warning")
    config = topic.config or {}
    wanted = min(attention.METADATA_REPLICATION, brokers)
    pills = [
        markup.pill(f"RF {topic.replication_factor}", "ok" if topic.replication_factor >= wanted else "critical"),
        markup.pill(f"{topic.partition_count} partitions"),
    ]
    if config.get("min.insync.replicas"):
        pills.insert(1, markup.pill(f"min ISR {config['min.insync.replicas']}"))
    kept = config.get("retention.ms")
    if kept is not None:
        forever = kept == "-1"
        hint = "" if forever else "Events of live segments may be lost with time"
        pills.append(
            markup.pill("kept forever" if forever else "finite retention", "ok" if forever else "warning", title=hint)
        )
    return f'<div class="eb-pills">{"".join(pills)}</div>'


def _unfollowed(page: Page, question: Question) -> None:
    view = page.view()
    found = state.read_cached(queries.unfollowed, page.cluster_id, question.scope, version=view.version)

    def clock(at_ms: int | None) -> str:
        return page.clock(at_ms, view.now_ms)

    clause = f"illegal and quarantined events, {question.name}"
    card_head(
        "unfollowed", "Not followed", clause, rows=segment_ledger.unfollowed_rows(found, clock) if found else None
    )
    if not found:
        read_any = state.read_cached(queries.metadata_reading, page.cluster_id, version=view.version).partitions > 0
        every = "Every event was followed: each fits the life cycle of its segment."
        known = state.read_cached(queries.cycle_totals, page.cluster_id, Scope(), version=view.version)
        st.html(markup.empty(every if read_any or known.partitions else "No event has been read yet."))
        return
    lines = "".join(
        f'<div class="eb-unfollowed"><span>{markup.text(clock(one.at_ms))}</span>'
        f"<div>{markup.mark('warning')} {markup.text('quarantined' if one.quarantined else one.what)}"
        f'<span class="eb-clause"> {markup.text(one.reason[:200])}</span></div></div>'
        for one in found[:UNFOLLOWED_SHOWN]
    )
    with st.container(key=ledger_key(view, "unfollowed")):
        st.html(lines)
        if len(found) > UNFOLLOWED_SHOWN:
            more = fmt.count(len(found) - UNFOLLOWED_SHOWN)
            st.html(
                f'<div class="eb-note">{more} more in the table; the newest {queries.UNFOLLOWED_MAX} are listed.</div>'
            )
