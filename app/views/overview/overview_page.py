"""Overview: is anything wrong, is copying keeping up, can this screen be trusted?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from app import observed, state
from app.components.cluster import broker_grid, health_text, quorum_panel, throughput, tile_card, totals
from app.components.cluster.overview_facts import OverviewFacts
from app.components.cluster.sparkline import sparkline
from app.components.partition import pending_limits, range_list
from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.cards import card_head, source
from app.components.shared.page import Page, body_key, live, open_page
from app.query_cache import SlidingMs
from app.state import ClusterView
from app.theme import CONFIG, status_colour
from app.views.overview import attention_card
from app.views.shared import no_tiered_topic
from backend.store.queries import config as config_queries
from backend.store.queries import overview as queries
from backend.store.queries import partitions as partition_queries
from backend.store.queries.health import STALE_AFTER_INTERVALS

BEHIND_ROWS = 7
# Windows of maintenance are read again after this time, and whenever one is added or ended.
STEP_MS = 5_000
HOW_COUNTED = (
    '<span class="eb-clause" title="Copied: bytes of the segments that the ledger has as finished. '
    'Produced: records of each partition × its own bytes per record.">how it is counted</span>'
)


@dataclass(frozen=True, slots=True)
class OverviewData:
    """The facts that the parts of the page share, read once per data version."""

    view: ClusterView
    facts: OverviewFacts

    @property
    def limits(self) -> dict[str, int | None]:
        return {topic.topic: pending_limits.pending_limit_bytes(topic) for topic in self.facts.topics}

    @property
    def cluster_limit(self) -> int | None:
        """Sum over tiered partitions; None when one of them has no limit."""
        by_topic = self.limits
        each = [by_topic.get(row.topic) for row in self.facts.partitions]
        return sum(value for value in each if value is not None) if each and None not in each else None

    @property
    def ledger_known(self) -> bool:
        return "pipeline" in self.view.processes


def render() -> None:
    # Our own blindness is on top of what needs attention, so it needs no box above the page.
    page = open_page("Overview", _fact, own_alerts=True)
    if page is None:
        return
    live(page, "overview-tiles", _tiles, page, history=True)
    with st.container(key="grid-overview-a"):
        with st.container(key="card-attention"):
            live(page, "attention", _attention, page)
        with st.container(key="card-keeping-up"):
            live(page, "keeping-up", _keeping_up, page, history=True)
    with st.container(key="grid-overview-b"):
        with st.container(key="card-brokers"):
            live(page, "brokers", _brokers, page)
        with st.container(key="card-behind"):
            live(page, "behind", _behind, page)
    with st.container(key="card-quorum"):
        live(page, "quorum", _quorum, page)


def _fact(view: ClusterView) -> str:
    rows = state.read_cached(partition_queries.partitions, view.cluster.cluster_id, version=view.version)
    topics = len({row.topic for row in rows})
    return f"{_plural(len(rows), 'tiered partition')} in {_plural(topics, 'topic')}"


def _plural(number: int, noun: str) -> str:
    return f"{fmt.count(number)} {noun}{'' if number == 1 else 's'}"


def read(page: Page) -> OverviewData:
    """One consistent set of facts; cached reads, so five parts of the page cost one. Raises DatabaseUnreachable."""
    view = page.view()
    cluster_id, version = page.cluster_id, view.version
    brokers = observed.brokers(view)
    open_segments = state.read_cached(partition_queries.open_segments, cluster_id, version=version)
    findings = observed.open_findings(view)
    copying = tuple(sorted({(s.topic, s.partition) for s in open_segments}))
    facts = OverviewFacts(
        now_ms=view.now_ms - (view.ages.offsets_ms or 0) if health_text.stale(view) else view.now_ms,
        ledger_ms=health_text.ledger_ms(view),
        blindness=health_text.blindness(view, brokers, page.zone, findings),
        brokers=brokers,
        partitions=state.read_cached(partition_queries.partitions, cluster_id, version=version),
        replicas_behind=state.read_cached(queries.replicas_behind, cluster_id, version=version),
        open_segments=open_segments,
        p99_ms=state.read_cached(queries.copy_p99_ms, cluster_id, copying, version=version),
        topics=state.read_cached(config_queries.topics, cluster_id, version=version),
        ledger=state.read_cached(queries.ledger_totals, cluster_id, version=version),
        findings=findings,
        windows=observed.maintenance_windows(view),
    )
    return OverviewData(view, facts)


def history(page: Page, view: ClusterView) -> list[queries.ClusterSample]:
    """The cluster's totals over the chosen range. Raises DatabaseUnreachable."""
    since = SlidingMs.of(view.read_ms, page.range_ms, step_ms=max(1000, page.range_ms // 600))
    return state.read_cached(queries.history, page.cluster_id, since, version=view.version)


def copied(page: Page, view: ClusterView) -> list[queries.CopiedBytes]:
    """The bytes copied over the chosen range and the window of a rate before it. Raises DatabaseUnreachable."""
    step_ms = totals.copied_step_ms(page.range_ms)
    before_ms = page.range_ms + totals.rate_window_ms(page.range_ms)
    since = SlidingMs.of(view.read_ms, before_ms, step_ms=step_ms)
    return state.read_cached(queries.copied_bytes, page.cluster_id, since, step_ms, version=view.version)


def _tiles(page: Page) -> None:
    reading = read(page)
    facts, view = reading.facts, reading.view
    tiles = totals.tiles(
        history(page, view),
        facts.ledger,
        facts.open_segments,
        facts.p99_ms,
        facts.replicas_behind,
        facts.brokers,
        pending_status=pending_limits.worst_pending_status(facts.partitions, reading.limits),
        ledger_ms=facts.ledger_ms if reading.ledger_known else None,
        range_ms=page.range_ms,
        interval_ms=view.cluster.sample_interval_ms,
    )
    ledger_old = reading.ledger_known and not view.processes["pipeline"].alive
    with st.container(key=body_key(view, "tiles")):
        inner = "".join(_tile(tile, page, old=ledger_old and tile.from_ledger) for tile in tiles)
        st.html(f'<div class="eb-tiles">{inner}</div>')


def _tile(tile: totals.Tile, page: Page, *, old: bool) -> str:
    colour = page.colours.muted if tile.status is None else status_colour(page.colours, tile.status)
    picture = sparkline(tile.series, colour)
    return tile_card.html(tile, picture, f"{tile.name}, last {page.range_text}", note=source("tiles"), old=old)


def _attention(page: Page) -> None:
    reading = read(page)
    attention_card.render(page, reading.view, reading.facts)


def _keeping_up(page: Page) -> None:
    reading = read(page)
    samples = history(page, reading.view)
    rates = totals.rates(
        samples,
        copied(page, reading.view),
        page.range_ms,
        interval_ms=reading.view.cluster.sample_interval_ms,
        ledger_ms=reading.facts.ledger_ms if reading.ledger_known else None,
    )
    window = fmt.duration(totals.rate_window_ms(page.range_ms) / 1000)
    clause = f"cluster, last {page.range_text} · means of {window}"
    if len(samples) < 2:
        card_head("keeping-up", "Is copying keeping up?", clause)
        st.html(markup.empty("No history yet: the chart begins with the second sample."))
        return
    rows = throughput.rows(rates, samples, page.zone)
    card_head("keeping-up", "Is copying keeping up?", clause, html=HOW_COUNTED, rows=rows)
    now_ms = reading.view.now_ms
    fig = throughput.figure(
        rates, samples, reading.cluster_limit, now_ms - page.range_ms, now_ms, page.colours, page.zone
    )
    with st.container(key=body_key(reading.view, "keeping-up")):
        st.plotly_chart(
            fig, theme=None, config=CONFIG, key="throughput", alt="Rates of production and copying, pending"
        )


def _brokers(page: Page) -> None:
    reading = read(page)
    stale_ms = STALE_AFTER_INTERVALS * reading.view.cluster.sample_interval_ms
    counts = state.read_cached(queries.replica_counts, page.cluster_id, version=reading.view.version)
    checks = broker_grid.checks(reading.facts, counts, stale_ms, reading.view.now_ms)
    card_head("brokers", "Brokers", "only problems are coloured", rows=broker_grid.rows(checks) if checks else None)
    if not checks:
        st.html(markup.empty("No broker has been seen yet."))
        return
    st.html(broker_grid.grid_html(checks))


def _quorum(page: Page) -> None:
    view = page.view()
    backend = view.processes.get("backend")
    quorum = ((backend.detail if backend is not None else None) or {}).get("quorum")
    if not quorum or quorum.get("seen_ms") is None:
        card_head("quorum", "Metadata quorum")
        st.html(markup.empty(f"? {(quorum or {}).get('cause') or quorum_panel.NOT_READ}"))
        return
    age = fmt.duration(max(0, view.now_ms - quorum["seen_ms"]) / 1000)
    card_head("quorum", "Metadata quorum", f"DescribeQuorum, {age} ago", rows=quorum_panel.rows(quorum))
    with st.container(key=body_key(view, "quorum")):
        st.html(quorum_panel.pills_html(quorum, view.now_ms) + quorum_panel.table_html(quorum))
        if note := quorum_panel.note(quorum):
            st.html(f'<div class="eb-note">? {markup.text(note)}</div>')


def _behind(page: Page) -> None:
    reading = read(page)
    ranked = rank_by_pending(reading.facts.partitions)[:BEHIND_ROWS]
    limits = reading.limits
    card_head(
        "behind",
        "Furthest behind",
        "ranked by pending upload · log scale",
        rows=range_list.rows(ranked, limits) if ranked else None,
    )
    if not ranked:
        no_tiered_topic.render("behind", reading.view.cluster)
        return
    st.html(markup.legend())
    bars = [range_list.bar_of(row, limits.get(row.topic)) for row in ranked]
    with st.container(key=body_key(reading.view, "behind")):
        st.plotly_chart(
            range_list.figure(bars, page.colours),
            theme=None,
            config=CONFIG,
            key="behind",
            alt="Remote and local ranges of the partitions with the most pending bytes",
        )


def rank_by_pending(rows: Sequence[partition_queries.PartitionRow]) -> list[partition_queries.PartitionRow]:
    """The most pending bytes first; what is not known comes after what is, then by name."""

    def rank(row: partition_queries.PartitionRow) -> tuple[int, str, int]:
        pending = pending_limits.pending_bytes(row)
        return (1 if pending is None else -pending), row.topic, row.partition

    return sorted(rows, key=rank)
