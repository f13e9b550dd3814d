"""The ledger's card of the remote log: its rows, and every event of the segment that is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import streamlit as st

from app import links, state
from app.components.partition.lineage_verdicts import JudgedSegment
from app.components.partition.partition_filter import near_topics
from app.components.remote import segment_ledger
from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.cards import card_head, title_line
from app.components.shared.page import Page, ledger_key
from app.components.shared.selection import row_order, select_row
from app.state import ClusterView
from app.views.remote.remote_data import LedgerQuery, RemoteData, read
from app.views.shared import no_tiered_topic
from backend.store.queries import config as config_queries
from backend.store.queries import remote_log as queries
from backend.store.queries.partitions import SegmentRow
from backend.store.queries.remote_log import LEDGER_MAX

SEGMENT: Final = "seg"
SEGMENT_ID_CHARS: Final = 22
TABLE_ROWS: Final = 8


def render(page: Page, ledger_query: LedgerQuery) -> None:
    reading = read(page, ledger_query)
    matching = segment_ledger.select(reading.verdicts, ledger_query.state, ledger_query.search, reading.hung)
    clause = _ledger_clause(reading, ledger_query, matching)
    if not matching:
        card_head("ledger", "Ledger", clause)
        _nothing(page, reading, ledger_query)
        return

    def clock(at_ms: int | None) -> str:
        return page.clock(at_ms, view.now_ms)

    by_name = {_name(verdict.segment): verdict for verdict in matching}
    view = reading.view
    ranked = row_order("ledger-rows", list(by_name), (ledger_query, page.cluster_id), view.now_ms)
    ordered = [by_name[name] for name in ranked.names]

    def files() -> object:
        return segment_ledger.frame(ordered, reading.hung, page.colours, clock).drop(columns=segment_ledger.PICTURE)

    card_head("ledger", "Ledger", clause + ranked.clause(page, view.now_ms), files=files)
    with st.container(key=ledger_key(view, "ledger")):
        st.dataframe(
            segment_ledger.shown(ordered, reading.hung, page.colours, clock),
            column_config=segment_ledger.columns(ordered),
            hide_index=True,
            height=37 + 35 * min(TABLE_ROWS, len(ordered)),
            key="ledger-rows",
            on_select=lambda: select_row("ledger-rows", SEGMENT, [verdict.segment.segment_id for verdict in ordered]),
            selection_mode="single-row",
            placeholder="",
            alt=f"{len(ordered)} remote segments with offsets, state, durations and lineage",
        )
    _selected(page, reading, ledger_query)


def _name(row: SegmentRow) -> str:
    return f"{row.topic_id}/{row.partition}/{row.segment_id}"


def _ledger_clause(reading: RemoteData, ledger_query: LedgerQuery, matching: Sequence[JudgedSegment]) -> str:
    listed = len(reading.verdicts)
    what = f"{fmt.count(len(matching))} row{'' if len(matching) == 1 else 's'}"
    if len(matching) < listed:
        what = f"{fmt.count(len(matching))} match of {fmt.count(listed)}"
    if ledger_query.at_ms is not None:
        return f"{what} · {ledger_query.name} as of {page_clock(ledger_query.at_ms, reading.view)}"
    if ledger_query.scope.topic is None:
        return f"{what} · what is open now and the newest copies; name a partition to see all of its segments"
    if listed >= LEDGER_MAX:
        return f"{what} · the newest {fmt.count(LEDGER_MAX)} segments of {ledger_query.name}"
    return f"{what} · {ledger_query.name}, newest event first"


def page_clock(at_ms: int, view: ClusterView) -> str:
    """An instant in UTC, as the link has it."""
    return fmt.clock(at_ms, view.now_ms) + " UTC"


def _any_tiered(page: Page, reading: RemoteData) -> bool:
    topics = state.read_cached(config_queries.topics, page.cluster_id, version=reading.view.version)
    return any(topic.tiered for topic in topics)


def _nothing(page: Page, reading: RemoteData, ledger_query: LedgerQuery) -> None:
    if reading.verdicts and ledger_query.search:
        topics = state.read_cached(config_queries.topics, page.cluster_id, version=reading.view.version)
        near = near_topics(ledger_query.search, [topic.topic for topic in topics if topic.tiered])
        st.html(
            markup.empty(
                f"No topic, partition or segment is named “{ledger_query.search[:80]}”, and no listed row has it.",
                f"Topics of a like name: {', '.join(near)}." if near else "",
            )
        )
    elif reading.verdicts:
        st.html(markup.empty("No listed segment is in this state.", "Choose another, or none."))
    elif ledger_query.at_ms is not None:
        st.html(markup.empty("Nothing of this partition was in the remote tier then."))
    elif not any(
        topic.tiered
        for topic in state.read_cached(config_queries.topics, page.cluster_id, version=reading.view.version)
    ):
        no_tiered_topic.render("ledger", reading.view.cluster)
    else:
        st.html(
            markup.empty(
                "No remote segment is known: nothing has been copied, or the pipeline has not read its events yet.",
                "The first copy comes with the first rolled segment of a topic with remote.storage.enable=true.",
            )
        )


def _selected(page: Page, reading: RemoteData, ledger_query: LedgerQuery) -> None:
    """The stored events of the segment that the link or the table names."""
    segment_id = st.session_state.get(SEGMENT) or st.query_params.get(SEGMENT)
    if not segment_id:
        st.html('<div class="eb-note">Select a row to see every event of its segment.</div>')
        return
    row = next((verdict.segment for verdict in reading.verdicts if verdict.segment.segment_id == segment_id), None)
    version = reading.view.version
    if row is None and len(segment_id) == SEGMENT_ID_CHARS:
        row = state.read_cached(queries.find_segment, page.cluster_id, segment_id, version=version)
    if row is None:
        st.html(f'<div class="eb-note">There is no segment “{markup.text(segment_id[:60])}” in this ledger.</div>')
        return
    events = state.read_cached(
        queries.events_of_segment, page.cluster_id, row.topic_id, row.partition, row.segment_id, version=version
    )
    if ledger_query.at_ms is not None:
        events = [event for event in events if event.event_timestamp_ms <= ledger_query.at_ms]
    name = f"{row.topic}-{row.partition}"
    with st.container(horizontal=True, key="segment-head"):
        offsets = fmt.offset_range(row.start_offset, row.next_offset)
        title_line("segment", "Segment", f"{row.segment_id} · {name} {offsets}")
        links.link("partition", "Open partition →", tp=name)
    body = [
        (
            markup.Cell(page.clock(event.event_timestamp_ms, reading.view.now_ms), css="eb-nowrap eb-quiet"),
            markup.Cell(html=("" if event.legal else markup.mark("warning") + " ") + markup.text(_event_text(event))),
            f"{event.broker_id}",
            markup.Cell(f"{event.metadata_partition} · {fmt.count(event.metadata_offset)}", css="eb-nowrap eb-quiet"),
        )
        for event in events
    ]
    names = [("Time", "left"), ("Event", "left"), ("Broker", "left"), ("Metadata partition · offset", "right")]
    st.html(markup.table(names, body, caption="Events of the segment"))


def _event_text(event: queries.StoredEvent) -> str:
    return segment_ledger.event_text(event)[:300]
