"""Partition: what can be done to it. Each button makes a plan and opens its dialog, or goes where one is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import streamlit as st

from app import links, observed
from app.access.identity import READ_ONLY
from app.components.cluster import alerts, health_text
from app.components.plan import plan_dialog
from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.cards import title_line
from app.components.shared.page import Page, live
from app.state import DatabaseUnreachable
from app.views.partition.partition_data import row_of
from backend.store.queries.overview import FindingRow
from backend.store.queries.partitions import PartitionRow

ELECT, DELETE = "elect", "delete_records"
BELOW: Final = "remove-below"
LEAK: Final = "segment-leak"
# Of the Reassign page's controls.
TOPICS, PARTITIONS = "topics", "partitions"


def render(page: Page, topic: str, number: int) -> None:
    """Outside of live parts, because two of them open a dialog."""
    try:
        view = page.view()
        row = row_of(view, topic, number)
    except DatabaseUnreachable:
        return
    if row is None:
        return
    block = health_text.write_block(view, page.user.may_write, READ_ONLY)
    name = view.cluster.name
    with st.container(key="card-actions"):
        title_line("actions", "Actions", "each is planned, shown and confirmed before anything changes")
        with st.container(horizontal=True, key="partition-actions", vertical_alignment="bottom"):
            if st.button("Reassign…", key="to-reassign", help="Choose brokers for this partition on the Reassign page"):
                st.session_state[TOPICS], st.session_state[PARTITIONS] = [topic], str(number)
                links.switch("reassign")
            elected = block or no_election(row)
            st.button(
                "Move leadership…",
                key="elect",
                disabled=elected is not None,
                help=elected or f"Broker {row.replicas[0]}, the first of the list, becomes the leader again",
                on_click=plan_dialog.propose,
                args=(page.user, name, ELECT, {"partitions": [{"topic": topic, "partition": number}]}),
            )
            typed = st.text_input("Remove below offset", key=BELOW, max_chars=24, live=True, width=170)
            offset = _offset(typed or "")
            refused = block or no_removal(row, offset)
            inputs: dict[str, Any] = {"partitions": [{"topic": topic, "partition": number, "offset": offset}]}
            st.button(
                "Remove records…",
                key="remove-records",
                disabled=refused is not None,
                help=refused or "For all consumers, local and remote, for good",
                on_click=plan_dialog.propose,
                args=(page.user, name, DELETE, inputs),
            )
        if block is not None:
            st.html(f'<div class="eb-lines">{markup.mark("notice")} {markup.text(block)}</div>')
        live(page, "actions-leak", _leak, page, topic, number)
    live(page, "actions-watch", _watch, page, topic, number, (block, no_election(row)))


def _leak(page: Page, topic: str, number: int) -> None:
    """Beside the field that removes records: what is to be done about segments that retention does not see."""
    view = page.view()
    findings = observed.open_findings(view)
    for line in leak_lines(findings, topic, number):
        st.html(line)


def leak_lines(findings: Sequence[FindingRow], topic: str, number: int) -> list[str]:
    """The open findings of leaked segments of a partition, in their words.

    No offset is offered: below the end of such a segment lies what consumers can still read.
    """
    here = [f for f in findings if f.slug == LEAK and (f.topic, f.partition) == (topic, number)]
    return [_line(alerts.line_of(finding)) for finding in here]


def _line(alert: alerts.Alert) -> str:
    text = f"{alert.title}. {alert.detail} {alert.action}"
    return f'<div class="eb-lines">{markup.mark(alert.severity)} {markup.text(text)}</div>'


def no_election(row: PartitionRow) -> str | None:
    """Why leadership cannot go to the first of the list; None when it can."""
    if not row.replicas:
        return "No replica is known."
    if row.leader == row.replicas[0]:
        return f"Broker {row.leader} leads and is the first of the list; another order is made by Reassign."
    if row.replicas[0] not in row.isr:
        return f"Broker {row.replicas[0]}, the first of the list, is not in sync."
    return None


def no_removal(row: PartitionRow, offset: int | None) -> str | None:
    """Why records below ``offset`` cannot be removed; None when they can."""
    start, end = row.log_start_offset, row.high_watermark
    if start is None or end is None:
        return "The leader has not told its offsets."
    if offset is None or not start < offset <= end:
        return f"Give an offset from {fmt.count(start + 1)} to {fmt.count(end)}." if end > start else "It is empty."
    return None


def _offset(typed: str) -> int | None:
    digits = "".join(typed.split())
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def _watch(page: Page, topic: str, number: int, drawn: tuple[object, ...]) -> None:
    """Draws the page again when the buttons no longer fit what may be done."""
    view = page.view()
    row = row_of(view, topic, number)
    block = health_text.write_block(view, page.user.may_write, READ_ONLY)
    if row is not None and (block, no_election(row)) != drawn:
        st.rerun()
