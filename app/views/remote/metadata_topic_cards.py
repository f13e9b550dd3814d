"""The cards about __remote_log_metadata itself: its health, and events that were not followed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import streamlit as st

from app import observed, state
from app.components.remote import segment_ledger
from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.cards import card_head
from app.components.shared.page import Page, ledger_key
from app.query_cache import SlidingMs
from app.state import ClusterView
from app.views.remote.remote_data import LedgerQuery
from backend.store.queries import config as config_queries
from backend.store.queries import pipeline as pipeline_queries
from backend.store.queries import remote_log as queries
from backend.store.queries.pipeline import PipelineStatus
from backend.store.queries.remote_log import Scope

METADATA_TOPIC: Final = "__remote_log_metadata"
METADATA_REPLICATION: Final = 3
UNFOLLOWED_SHOWN: Final = 4


def render_health(page: Page) -> None:
    view = page.view()
    version = view.version
    topics = state.read_cached(config_queries.topics, page.cluster_id, version=version)
    topic = next((row for row in topics if row.topic == METADATA_TOPIC), None)
    reading = state.read_cached(queries.metadata_reading, page.cluster_id, version=version)
    totals = state.read_cached(queries.cycle_totals, page.cluster_id, Scope(), version=version)
    brokers = observed.brokers(view)
    card_head("metadata", "Metadata topic", METADATA_TOPIC)
    live_segments = totals.copy_started_segments + totals.copy_finished_segments + totals.delete_started_segments
    share = f" ({live_segments / reading.records:.1%})" if reading.records else ""
    replay = state.read_cached(queries.metadata_pace, page.cluster_id, version=version)
    sizes = state.read_cached(queries.local_bytes, page.cluster_id, METADATA_TOPIC, version=version)
    moment = SlidingMs.of(view.read_ms)
    status = state.read_cached(pipeline_queries.pipeline_status, page.cluster_id, moment, version=version)
    pairs: list[tuple[str, str | markup.Cell]] = [
        ("Records read", _read_text(page, view, reading)),
        ("Live segments", f"{fmt.count(live_segments)}{share}"),
        ("Bytes on each broker", _each(sizes)),
        ("Replay after a restart", _replay_text(reading.records, replay)),
        ("Pipeline behind by", _lag(status)),
        ("Transactions, 5 min", _batches(status)),
    ]
    with st.container(key=ledger_key(view, "metadata")):
        st.html(_metadata_pills(topic, len(brokers)) + markup.pairs(pairs))


def _read_text(page: Page, view: ClusterView, reading: queries.MetadataReading) -> str:
    if not reading.partitions:
        return "? none yet"
    return f"{fmt.count(reading.records)}, last at {page.clock(reading.updated_ms, view.now_ms)}"


def _each(sizes: Mapping[int, int | None]) -> str:
    """The largest of them: a broker that leads or follows all partitions replays that much."""
    sizes_known = [size for size in sizes.values() if size is not None]
    return fmt.size(max(sizes_known)) if sizes_known else fmt.UNKNOWN


def _replay_text(records: int, rate: float | None) -> str | markup.Cell:
    """The time that the pipeline would take at the pace of its quickest batch: no source has a broker's own time."""
    if not records:
        return "? no record read yet"
    if rate is None:
        return "? no batch is large enough to tell a pace"
    hint = f"{fmt.count(records)} records at {fmt.count(round(rate))} records/s, the pipeline's quickest batch"
    return markup.Cell(html=f'<span title="{markup.text(hint)}">about {fmt.duration(records / rate)}</span>')


def _lag(status: PipelineStatus) -> str:
    if status.lag_records is None:
        return "? not told"
    waited = f", {fmt.duration(max(1, round(status.lag_ms / 1000)))}" if status.lag_ms else ""
    return f"{fmt.count(status.lag_records)} records{waited}"


def _batches(status: PipelineStatus) -> str:
    if status.batch_p50_ms is None:
        return "none"
    return f"{fmt.count(status.batches)} · p50 {status.batch_p50_ms} ms · p99 {status.batch_p99_ms} ms"


def _metadata_pills(topic: config_queries.TopicRow | None, brokers: int) -> str:
    if topic is None:
        return markup.pill("? the topic has not been seen yet", "warning")
    config = topic.config or {}
    replicas_required = min(METADATA_REPLICATION, brokers)
    pills = [
        markup.pill(
            f"RF {topic.replication_factor}", "ok" if topic.replication_factor >= replicas_required else "critical"
        ),
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


def render_unfollowed(page: Page, ledger_query: LedgerQuery) -> None:
    view = page.view()
    records = state.read_cached(queries.unfollowed, page.cluster_id, ledger_query.scope, version=view.version)

    def clock(at_ms: int | None) -> str:
        return page.clock(at_ms, view.now_ms)

    totals = state.read_cached(queries.cycle_totals, page.cluster_id, Scope(), version=view.version)
    reading = state.read_cached(queries.metadata_reading, page.cluster_id, version=view.version)
    clause = f"{fmt.count(totals.illegal_events)} illegal, {fmt.count(reading.quarantined)} quarantined in the cluster"
    if ledger_query.scope.topic is not None:
        clause += f" · those of {ledger_query.name}"
    card_head(
        "unfollowed", "Not followed", clause, rows=segment_ledger.unfollowed_rows(records, clock) if records else None
    )
    if not records:
        every = "Every event was followed: each fits the life cycle of its segment."
        st.html(markup.empty(every if reading.partitions or totals.partitions else "No event has been read yet."))
        return
    lines = "".join(
        f'<div class="eb-unfollowed"><span>{markup.text(clock(record.at_ms))}</span>'
        f"<div>{markup.mark('warning')} {markup.text('quarantined' if record.quarantined else record.what)}"
        f'<span class="eb-clause"> {markup.text(record.reason[:200])}</span></div></div>'
        for record in records[:UNFOLLOWED_SHOWN]
    )
    with st.container(key=ledger_key(view, "unfollowed")):
        st.html(lines)
        if len(records) > UNFOLLOWED_SHOWN:
            more = fmt.count(len(records) - UNFOLLOWED_SHOWN)
            st.html(
                f'<div class="eb-note">{more} more in the table; the newest {queries.UNFOLLOWED_MAX} are listed.</div>'
            )
