"""The reassignment that is being carried out: progress, pause, limit and stop; limits that were left behind."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from app import state
from app.components.plan import move_pictures, plan_dialog, plan_text
from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.cards import source
from app.components.shared.page import Page
from app.state import ClusterView
from app.views.reassign.move_inputs import KIND
from backend.store.queries import audit, findings
from backend.store.queries.audit import OperationRow


def running_plan(page: Page, view: ClusterView) -> OperationRow | None:
    rows = state.read_cached(
        audit.operations, page.cluster_id, kinds=(KIND,), states=plan_text.OPEN_STATES, limit=1, version=view.read_ms
    )
    return rows[0] if rows else None


def progress(page: Page) -> None:
    row = running_plan(page, page.view())
    if row is None:
        st.html(markup.empty("It has come to its end."))
        return
    st.html(move_pictures.running_html(row) + source("running"))
    rows = move_pictures.moving_rows(row)
    if rows:
        columns = [("Filling now", "left"), ("On", "left"), ("Phase", "left"), ("Has", "right")]
        st.html(markup.table(columns, rows, caption="Replicas that are being filled"))


def move_controls(page: Page, row: OperationRow, block: str | None) -> None:
    """Outside of live parts, because two of them open a dialog."""
    limit = row.throttle_bytes_per_s or (row.inputs or {}).get("throttle_bytes_per_s")
    stopping = row.intent == "stop"
    blocked = block is not None or stopping
    hint = block or ("It is being stopped." if stopping else None)
    paused = row.state == "paused"
    counts = (row.progress or {}).get("counts", {})
    with st.container(horizontal=True, key="steering"):
        st.button(
            "Resume" if paused else "Pause",
            key="pause",
            disabled=blocked or row.state not in ("running", "paused"),
            help=hint or "A paused plan begins no further partition; what moves comes to its end",
            on_click=plan_dialog.send_control,
            args=(page.user, row.id, "resume" if paused else "pause", {}),
        )
        if limit:
            control = plan_dialog.PlanControl(
                row.id,
                "limit",
                f"Another limit for plan #{row.id}",
                f"It is {fmt.size(limit)}/s on each broker now.",
                "Keep",
                "Set the limit",
                limit / 1_000_000,
            )
            st.button("Raise…", key="raise", disabled=blocked, help=hint, on_click=plan_dialog.ask, args=(control,))
        st.button(
            "Stop…",
            key="stop",
            disabled=blocked,
            help=hint,
            on_click=plan_dialog.ask,
            args=(_stop_control(row.id, counts, (row.progress or {}).get("copied_bytes") or 0),),
        )


def _stop_control(plan_id: int, counts: Mapping[str, int], copied_bytes: int) -> plan_dialog.PlanControl:
    done, moving = int(counts.get("done") or 0), int(counts.get("moving") or 0)
    text = (
        f"{fmt.count(done)} partition{'' if done == 1 else 's'} finished and stay where they are. "
        f"{fmt.count(moving)} go back to their old replicas; what they copied so far is discarded "
        f"({fmt.size(copied_bytes)} copied in all)."
    )
    return plan_dialog.PlanControl(plan_id, "stop", "Stop this move?", text, "Keep moving", "Stop move")


def left_limits(page: Page, view: ClusterView, block: str | None, *, moves: bool) -> None:
    """Limits that no move uses, as the findings name them, and the way to remove them."""
    left = state.read_cached(
        findings.findings, page.cluster_id, state="open", slug="throttle-left", version=view.version
    )
    if not left or moves:
        return
    with st.container(horizontal=True, key="left-limits", vertical_alignment="center"):
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        st.html(markup.alert("warning", "A limit was left behind.", f"{left[0].sentence}{more}"))
        st.button(
            "Clear throttle…",
            key="clear-throttle",
            disabled=block is not None,
            help=block,
            on_click=plan_dialog.propose,
            args=(page.user, view.cluster.name, "clear_throttle", {}),
        )
