"""The cards that a partition has whether it is there or gone: its segments and its last events."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import state
from app.components.partition import partition_ledger
from app.components.partition.lineage_verdicts import JudgedSegment
from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.cards import card_head
from app.components.shared.page import Page, body_key
from app.state import ClusterView
from backend.store.queries import partition_detail as detail_queries
from backend.store.queries import partitions as queries

EVENTS_SHOWN = 12


def segments_card(page: Page, view: ClusterView, verdicts: Sequence[JudgedSegment], clause: str) -> None:
    summary = f"{fmt.count(len(verdicts))} segment{'' if len(verdicts) == 1 else 's'}: {clause}" if verdicts else ""
    if len(verdicts) >= queries.SEGMENTS_MAX:
        summary = f"the newest {fmt.count(queries.SEGMENTS_MAX)} segments"

    def files() -> object:
        return partition_ledger.frame(verdicts, lambda at_ms: page.clock(at_ms, view.now_ms))

    card_head("ledger", "Ledger", summary, files=files if verdicts else None)
    if not verdicts:
        st.html(
            markup.empty(
                "No remote segment is known: nothing has been copied, or the pipeline has not read its events yet."
            )
        )
        return
    with st.container(key=body_key(view, "ledger")):
        st.dataframe(
            partition_ledger.shown(verdicts, lambda at_ms: page.clock(at_ms, view.now_ms)),
            column_config=partition_ledger.columns(len(verdicts)),
            hide_index=True,
            height=37 + 35 * min(8, len(verdicts)),
            key="segments",
            placeholder="",
            alt=f"{len(verdicts)} remote segments with offsets, state, size and epochs",
        )


def events_card(page: Page, view: ClusterView, topic: str, number: int, topic_id: str | None) -> None:
    cluster_id, version = page.cluster_id, view.version
    engine = state.read_cached(detail_queries.engine_events, cluster_id, topic, number, version=version)
    remote: list[detail_queries.SegmentEventRow] = []
    if topic_id is not None:
        remote = state.read_cached(detail_queries.segment_events, cluster_id, topic_id, number, version=version)
    events = partition_ledger.newest_events(engine, remote)

    def clock(at_ms: int | None) -> str:
        return page.clock(at_ms, view.now_ms)

    clause = f"the newest {min(EVENTS_SHOWN, len(events))} of {fmt.count(len(events))}" if events else ""
    card_head("events", "Last events", clause, rows=partition_ledger.event_rows(events, clock) if events else None)
    if not events:
        st.html(
            markup.empty(
                "No event of this partition is stored.",
                "Events come from the embedded brokers and, of remote segments, from the pipeline.",
            )
        )
        return
    body = [
        (
            markup.Cell(clock(event.at_ms), css="eb-nowrap eb-quiet"),
            f"{event.broker_id}",
            markup.Cell(html=(markup.mark("warning") + " " if event.bad else "") + markup.text(event.what[:400])),
        )
        for event in events[:EVENTS_SHOWN]
    ]
    with st.container(key=body_key(view, "events")):
        columns = [("Time", "left"), ("Broker", "left"), ("What", "left")]
        st.html(markup.table(columns, body, caption="Last events of the partition"))
