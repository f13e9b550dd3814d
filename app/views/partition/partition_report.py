"""The report of one partition: what its page shows at a moment, as one HTML file to mail or keep."""

from __future__ import annotations

from functools import partial

import streamlit as st

from app import state
from app.components.follower import replica_phases
from app.components.partition import epoch_chain, offset_history, partition_ledger, pending_limits, replica_ranges
from app.components.shared import export, markup
from app.components.shared import format as fmt
from app.components.shared.cards import download
from app.components.shared.export import Section
from app.components.shared.page import Page
from app.state import DatabaseUnreachable
from app.theme import LIGHT
from app.views.partition.partition_data import PartitionData, read
from backend.store.queries import partition_detail as detail_queries


def button(page: Page, topic: str, number: int) -> None:
    """Below the cards of the partition."""
    name = f"{topic}-{number}"
    link = st.context.url or ""
    with st.container(horizontal=True, key="report"):
        download(
            "report",
            "Report of this partition (HTML)",
            partial(document, page, topic, number, link),
            export.file_name(name, "html"),
            "text/html",
        )
        what = "ranges, epochs, replicas, history, ledger, events"
        st.html(f'<div class="eb-note">One file without scripts: {what}.</div>')


def document(page: Page, topic: str, number: int, link: str) -> bytes:
    """The file; when nothing can be read it says why."""
    name = f"{topic}-{number}"
    try:
        reading = read(page, topic, number)
    except DatabaseUnreachable as error:
        return export.report(name, [("Not made", str(error))], [], LIGHT)
    if reading is None:
        return export.report(name, [("Not made", "The partition does not exist any more.")], [], LIGHT)
    return export.report(f"Partition {name}", _facts(page, reading, link), _sections(page, reading), LIGHT)


def _facts(page: Page, reading: PartitionData, link: str) -> list[tuple[str, str]]:
    row, view = reading.row, reading.view
    pending = pending_limits.pending_bytes(row)
    facts = [
        ("Cluster", f"{view.cluster.name} ({view.cluster.kind})"),
        ("Made", page.clock(view.now_ms, 0)),
        ("Offsets sampled", page.clock(row.sampled_ms, 0)),
        ("Leader", f"broker {row.leader}, epoch {row.leader_epoch}" if row.leader >= 0 else "none"),
        ("In sync", f"{len(row.isr)} of {len(row.replicas)}"),
        (
            "Pending upload",
            fmt.size(pending) if pending is not None else f"? {pending_limits.pending_unknown_cause(row)}",
        ),
    ]
    return [*facts, ("Page", link)] if link else facts


def _sections(page: Page, reading: PartitionData) -> list[Section]:
    row, replicas, verdicts, now_ms = reading.row, reading.replicas, reading.verdicts, reading.view.now_ms

    def clock(at_ms: int | None) -> str:
        return page.clock(at_ms, 0)

    axis = replica_ranges.window(row, replicas, None, None)
    ranges = markup.empty(f"? {row.error or 'The leader has not told its offsets.'}")
    if axis is not None:
        ranges = replica_ranges.html(row, replicas, verdicts, axis, reading.last_seen)
    epochs = markup.empty("? The leader's epochs are not known.")
    if reading.chain is not None:
        epochs = epoch_chain.pills_html(reading.chain, replicas, verdicts) + epoch_chain.html(
            reading.chain, replicas, verdicts
        )
    states = replica_phases.states(row, replicas, reading.segments, reading.points, now_ms, reading.last_seen)
    phases = replica_phases.table_html(states, row.leader_epoch, now_ms) + replica_phases.evidence_html(states, now_ms)
    note = "" if row.pending_reason is None else pending_limits.REASONS.get(row.pending_reason, row.pending_reason)
    events = _events(page, reading)
    points = [point for point in reading.points if point.sampled_ms >= now_ms - page.range_ms]
    return [
        Section("Offsets by tier and replica", html=markup.legend() + ranges),
        Section("Leader-epoch chain", html=epochs),
        Section("Replicas", "asked from each replica", html=phases),
        Section("Offsets", "as each replica tells them", html=replica_phases.offsets_html(row, replicas, note)),
        Section("Offsets over time", f"last {page.range_name}", rows=offset_history.shown(points, page.zone)),
        Section("Ledger", f"{fmt.count(len(verdicts))} remote segments", rows=partition_ledger.frame(verdicts, clock)),
        Section("Last events", rows=partition_ledger.event_rows(events, clock)),
    ]


def _events(page: Page, reading: PartitionData) -> list[partition_ledger.ListedEvent]:
    row, version = reading.row, reading.view.version
    engine = state.read_cached(detail_queries.engine_events, page.cluster_id, row.topic, row.partition, version=version)
    remote = state.read_cached(
        detail_queries.segment_events, page.cluster_id, row.topic_id, row.partition, version=version
    )
    return partition_ledger.newest_events(engine, remote)
