"""Config, follower bootstrap: where the value of the flag comes from, what it does, who changed it, and the change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st

from app import observed, state
from app.access.identity import READ_ONLY
from app.components.cluster import health_text
from app.components.config import bootstrap_picture, config_matrix
from app.components.plan import plan_dialog, plan_text
from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.cards import card_head
from app.components.shared.markup import Cell
from app.components.shared.page import Page, body_key, live
from app.query_cache import SlidingMs
from app.state import ClusterView
from backend.store.queries import audit, config, operations, partitions

CHANGES_MAX: Final = 8
# The estimate reads every tiered partition; it moves slowly, so it is made again at this pace only.
ESTIMATE_STEP_MS: Final = 15_000

VALUES: Final = {"on": True, "off": False, "not set": None}


@dataclass(frozen=True, slots=True)
class BootstrapFlagData:
    """The facts that this section shows and that its buttons depend on."""

    view: ClusterView
    flags: list[config_matrix.BrokerFlag]
    operations: list[audit.OperationRow]
    kafka_rules: bool
    block: str | None
    """Why nothing can be changed from here now."""

    @property
    def sign(self) -> tuple[object, ...]:
        """Grows or changes when the buttons outside of live parts must be drawn again."""
        last = tuple((row.id, row.state) for row in self.operations)
        return (self.block, config_matrix.cluster_default(self.flags), last)


def read(page: Page) -> BootstrapFlagData:
    """Raises DatabaseUnreachable."""
    view, cluster_id = page.view(), page.cluster_id
    rows = state.read_cached(
        config.config_values, cluster_id, "broker", names=config_matrix.NAMES, version=view.version
    )
    brokers = observed.brokers(view)
    # Plans do not move the data version: they are asked for on every read, which is one row by index each.
    plans = state.read_cached(
        audit.operations,
        cluster_id,
        kinds=(config_matrix.KIND,),
        states=plan_text.DONE_STATES,
        limit=3 * CHANGES_MAX,
        version=view.read_ms,
    )
    return BootstrapFlagData(
        view=view,
        flags=config_matrix.broker_flags(brokers, rows),
        operations=plans,
        kafka_rules=config_matrix.kafka_rules(rows, embedded=view.cluster.kind == "embedded"),
        block=health_text.write_block(view, page.user.may_write, READ_ONLY),
    )


def render(page: Page) -> None:
    reading = read(page)
    plan_dialog.host(page)
    with st.container(key="grid-config"):
        with st.container(key="left-config"):
            with st.container(key="card-matrix"):
                live(page, "matrix", _matrix, page)
            with st.container(key="card-changes"):
                _changes(page, reading)
        with st.container(key="card-bootstrap"):
            st.html(markup.card_title("Bootstrap from the tiered offset"))
            st.html(
                '<div class="eb-prose">Where an empty follower starts when the leader has moved old data to remote '
                "storage.</div>" + bootstrap_picture.sketch_html()
            )
            live(page, "effect", _effect, page)
            _buttons(page, reading)
    with st.container(key="card-matter"):
        live(page, "matter", _matter, page)
    live(page, "watch", _watch, page, reading.sign)


def _matrix(page: Page) -> None:
    reading = read(page)
    summary = config_matrix.summarize(reading.flags)
    setters = {
        flag.broker_id: config_matrix.set_by(
            flag, reading.operations, lambda at_ms: page.clock(at_ms, reading.view.now_ms)
        )
        for flag in reading.flags
    }
    card_head(
        "matrix",
        "Where the value comes from",
        "the outlined cell wins; layers read left to right",
        html=f'<span class="eb-push">{markup.pill(summary.label, "warning" if summary.mixed else None)}</span>',
        rows=config_matrix.rows(reading.flags, setters),
    )
    if not reading.flags:
        st.html(markup.empty("No broker has been seen yet."))
        return
    with st.container(key=body_key(reading.view, "matrix")):
        st.html(config_matrix.matrix_html(reading.flags, setters))


def _changes(page: Page, reading: BootstrapFlagData) -> None:
    lines = [plan_text.change_line(row) for row in reading.operations[:CHANGES_MAX]]
    rows = [
        {
            "when": page.clock(line.at_ms, reading.view.now_ms),
            "who": line.who,
            "scope": line.scope,
            "change": line.change,
            "state": line.state,
            "reason": line.reason,
            "plan": line.plan_id,
        }
        for line in lines
    ]
    card_head("changes", "Changes", "this key, newest first", rows=pd.DataFrame(rows) if rows else None)
    if not lines:
        st.html(markup.empty("Nobody has changed it from here yet.", "Changes by other tools show above as they are."))
        return
    with st.container(key="changes"):
        heads = "".join(f"<span>{name}</span>" for name in ("When", "Who", "Scope", "Change", "State", "Reason"))
        st.html(f'<div class="eb-change eb-change-head">{heads}</div>')
        for line in lines:
            with st.container(horizontal=True, key=f"change-row-{line.plan_id}"):
                st.html(_change_html(page, line, reading.view.now_ms))
                if line.revertible:
                    st.button(
                        "Revert…",
                        key=f"revert-{line.plan_id}",
                        type="tertiary",
                        disabled=reading.block is not None,
                        help=reading.block or f"Plan the way back from plan #{line.plan_id}",
                        on_click=plan_dialog.revert,
                        args=(page.user, reading.view.cluster.name, line.plan_id),
                    )


def _change_html(page: Page, line: plan_text.ChangeLine, now_ms: int) -> str:
    cells = (
        markup.text(page.clock(line.at_ms, now_ms)),
        markup.text(line.who),
        markup.text(line.scope),
        f'<code class="eb-code">{markup.text(line.change)}</code>',
        plan_text.state_html(line.state),
        markup.text(line.reason),
    )
    return '<div class="eb-change">' + "".join(f"<span>{cell}</span>" for cell in cells) + "</div>"


def _estimate(page: Page, reading: BootstrapFlagData) -> dict[str, Any]:
    return state.read_cached(
        operations.bootstrap_estimate,
        page.cluster_id,
        kafka_rules=reading.kafka_rules,
        now_ms=SlidingMs.of(reading.view.read_ms, step_ms=ESTIMATE_STEP_MS),
        version=0,
    )


def _effect(page: Page) -> None:
    reading = read(page)
    estimate = _estimate(page, reading)
    counts = state.read_cached(config.follower_counts, page.cluster_id, version=reading.view.version)
    estimated = estimate["tiered_partitions"] - estimate["unknown"]
    thin = Cell(fmt.count(counts.thin_partitions))
    if counts.thin_partitions:
        thin_text = f"{fmt.count(counts.thin_partitions)} partition{'' if counts.thin_partitions == 1 else 's'}"
        thin = Cell(html=f"{markup.mark('warning')} {thin_text}", css="eb-warning")
    pairs: list[tuple[str, str | Cell]] = [
        (
            "Partitions that qualify",
            f"{fmt.count(estimate['qualifies'])} of {fmt.count(estimate['tiered_partitions'])}",
        ),
        ("Copy for one new replica each, off", fmt.size(estimate["off_bytes"] if estimated else None)),
        ("Copy for one new replica each, on", fmt.size(estimate["on_bytes"] if estimated else None)),
        ("Empty followers right now", fmt.count(counts.empty)),
        ("Could lead with less than half of the local data", thin),
    ]
    with st.container(key=body_key(reading.view, "effect")):
        st.html(markup.pairs(pairs))


def _matter(page: Page) -> None:
    reading = read(page)
    estimate = _estimate(page, reading)
    chosen = bootstrap_picture.largest(estimate)
    keys = tuple((row["topic"], row["partition"]) for row in chosen)
    since = SlidingMs.of(reading.view.read_ms, page.range_ms, step_ms=ESTIMATE_STEP_MS)
    rates = state.read_cached(config.produce_rates, page.cluster_id, keys, since, version=0)
    rows = state.read_cached(partitions.partitions, page.cluster_id, version=reading.view.version)
    gains = bootstrap_picture.gains(estimate, {(row.topic, row.partition): row.log_end_offset for row in rows}, rates)
    card_head(
        "matter",
        "Where it would matter most",
        html=bootstrap_picture.LEGEND,
        rows=bootstrap_picture.rows(gains) if gains else None,
    )
    if not gains:
        st.html(markup.empty(bootstrap_picture.why_none(estimate)))
        return
    with st.container(key=body_key(reading.view, "matter")):
        st.html(bootstrap_picture.dumbbells_html(gains))


def _buttons(page: Page, reading: BootstrapFlagData) -> None:
    """Outside of live parts, because they open a dialog."""
    user, name = page.user, reading.view.cluster.name
    blocked = reading.block is not None
    with st.container(key="actions"):
        st.button(
            "Change cluster default…",
            key="change",
            type="primary",
            width="stretch",
            disabled=blocked,
            help=reading.block,
            on_click=_propose_opposite,
            args=(page, reading),
        )
        if reading.block is not None:
            st.html(f'<div class="eb-lines">{markup.mark("notice")} {markup.text(reading.block)}</div>')
        with st.expander("One broker, or remove a value"):
            scope = st.selectbox(
                "Set for",
                [None, *(flag.broker_id for flag in reading.flags)],
                format_func=lambda broker_id: "Cluster default" if broker_id is None else f"Broker {broker_id}",
                key="toggle-scope",
            )
            value = st.segmented_control(
                "Value there", list(VALUES), default="on", required=True, key="toggle-value", width="stretch"
            )
            chosen: dict[str, Any] = {
                "scope": "cluster" if scope is None else "broker",
                "enable": VALUES[value or "on"],
            }
            if scope is not None:
                chosen["broker_id"] = scope
            with st.container(horizontal=True):
                st.button(
                    "Plan it…",
                    key="change-other",
                    disabled=blocked,
                    help=reading.block,
                    on_click=plan_dialog.propose,
                    args=(user, name, config_matrix.KIND, chosen),
                )
                st.button(
                    "Dry run…",
                    key="dry-run",
                    type="tertiary",
                    help="What the plan would be; nothing is stored or changed",
                    disabled=not reading.view.own,
                    on_click=plan_dialog.dry_run,
                    args=(user, name, config_matrix.KIND, chosen),
                )


def _propose_opposite(page: Page, drawn: BootstrapFlagData) -> None:
    """Plans the opposite of the cluster default as it is when the button is pressed.

    The matrix beside the button is a live part: it can show a change before the button is drawn again.
    """
    try:
        flags = read(page).flags
    except state.DatabaseUnreachable:
        flags = drawn.flags
    inputs = {"scope": "cluster", "enable": config_matrix.cluster_default(flags) != "true"}
    plan_dialog.propose(page.user, drawn.view.cluster.name, config_matrix.KIND, inputs)


def _watch(page: Page, drawn: tuple[object, ...]) -> None:
    """Draws the page again when its buttons no longer fit what is in the database."""
    if read(page).sign != drawn:
        st.rerun()
