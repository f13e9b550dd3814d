"""The cards about what the remote tier should have freed, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import streamlit as st

from app import state
from app.components.cluster import health_text
from app.components.remote import remote_cost, retention_debt
from app.components.remote.remote_cost import FinishedCopies, Prices
from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.cards import card_head, title_line
from app.components.shared.page import Page, body_key, ledger_key, live
from app.query_cache import SlidingMs
from app.views.remote.remote_data import LedgerQuery, read
from backend.store.queries import config as config_queries
from backend.store.queries import partitions as partition_queries
from backend.store.queries import remote_log as queries
from backend.store.queries.partitions import PartitionRow

# The copies of this time give the pace of a month: of a day they would be some hundred thousand entries of an index.
# It moves in steps, so that a minute's reads share one answer.
PACE_MS: Final = 3_600_000
STEP_MS: Final = 60_000


def render(page: Page, ledger_query: LedgerQuery) -> None:
    """Both cards; the prices are outside of the live part, because a person types into them."""
    with st.container(key="card-debt"):
        live(page, "debt", _debt, page, ledger_query)
    with st.container(key="card-cost"):
        prices = _prices()
        live(page, "cost", _cost, page, ledger_query, prices)


def _debt(page: Page, ledger_query: LedgerQuery) -> None:
    view = page.view()
    rows = state.read_cached(partition_queries.partitions, page.cluster_id, version=view.version)
    topics = state.read_cached(config_queries.topics, page.cluster_id, version=view.version)
    debt = retention_debt.debt(_within(rows, ledger_query), topics)
    # Then is not stored: with an instant chosen it must be said that this card stays in the present.
    clause = fmt.size(debt.total_bytes) + ("" if ledger_query.at_ms is None else " · as of now")
    card_head("debt", "Local data past retention", clause, rows=retention_debt.rows(debt))
    with st.container(key=body_key(view, "debt")):
        st.html(retention_debt.html(debt))


def _within(rows: Iterable[PartitionRow], ledger_query: LedgerQuery) -> list[PartitionRow]:
    scope = ledger_query.scope
    return [row for row in rows if scope.topic in (None, row.topic) and scope.partition in (None, row.partition)]


def _prices() -> Prices:
    defaults = Prices()
    with st.container(horizontal=True, key="cardhead-cost"):
        title_line("cost", "Remote cost", "at the prices given")
        with st.popover("Prices", key="table-prices"):
            st.caption("US dollars. Kept in this browser tab.")
            storage = _price("Storage, a GB and month", "price-storage", defaults.storage_gb_month)
            puts = _price("1 000 writes", "price-puts", defaults.puts_1000)
            egress = _price("A GB read back", "price-egress", defaults.egress_gb)
    return Prices(storage, puts, egress)


def _price(label: str, key: str, default: float) -> float:
    return float(
        st.number_input(label, 0.0, 100.0, default, step=0.001, format="%.4f", key=key, persist_state="session")
    )


def _cost(page: Page, ledger_query: LedgerQuery, prices: Prices) -> None:
    reading = read(page, ledger_query)
    view = reading.view
    since = SlidingMs.of(health_text.ledger_ms(view), PACE_MS, step_ms=STEP_MS)
    copies = state.read_cached(queries.copies_since, page.cluster_id, since, version=0)
    over_ms = min(PACE_MS, max(STEP_MS, view.now_ms - view.cluster.first_seen_ms))
    backend = view.processes.get("backend")
    fetched = (((backend.detail if backend is not None else None) or {}).get("readers") or {}).get("fetched_bytes")
    with st.container(key=ledger_key(view, "cost")):
        st.html(
            markup.pairs(
                remote_cost.pairs(reading.totals, FinishedCopies(copies, over_ms), reading.verdicts, fetched, prices)
            )
        )
