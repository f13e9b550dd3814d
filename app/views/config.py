"""Config: what is in effect, where it is set, by whom; and the safe way to change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st

from app import state
from app.components import (
    audit_table,
    bootstrap_picture,
    config_table,
    flag_matrix,
    health_words,
    markup,
    plan,
    plan_dialog,
)
from app.components import format as fmt
from app.components.markup import Cell
from app.components.page import Page, body_key, card_head, live, open_page
from app.person import READ_ONLY
from app.state import DatabaseAway, View
from backend.store.queries import audit, config, operations, overview, partitions

SECTIONS: Final = {
    "bootstrap": "Follower bootstrap",
    "brokers": "Brokers",
    "topics": "Topic tiering",
    "history": "History",
}
CHANGES_MAX: Final = 8
AUDIT_MAX: Final = 100
# The estimate reads every tiered partition; it moves slowly, so it is made again at this pace only.
ESTIMATE_STEP_MS: Final = 15_000
_SHOWN: Final = "section-shown"
VALUES: Final = {"on": True, "off": False, "not set": None}


def render() -> None:
    section = _section()
    page = open_page("Config", SECTIONS[section].lower())
    if page is None:
        return
    st.html(f"<style>{bootstrap_picture.CSS}{plan_dialog.CSS}{CSS}</style>")
    st.segmented_control(
        "Section",
        list(SECTIONS),
        format_func=SECTIONS.__getitem__,
        default=section,
        required=True,
        key=_SHOWN,
        label_visibility="collapsed",
    )
    draw = {"bootstrap": _bootstrap, "brokers": _brokers, "topics": _topics, "history": _history}[section]
    try:
        draw(page)
    except DatabaseAway:
        st.html(markup.empty("? The database is away, and this was not read before."))


def _section() -> str:
    """The section of the control, at first that of the link. Not bound: a bound control's links hold its labels."""
    wanted = st.session_state.get(_SHOWN) or st.query_params.get("section") or "bootstrap"
    if wanted not in SECTIONS:
        st.toast(f"There is no section {wanted!r:.30}; this is {SECTIONS['bootstrap']}.")
        wanted = "bootstrap"
    st.query_params["section"] = wanted
    return str(wanted)


# --- follower bootstrap ---


@dataclass(frozen=True, slots=True)
class Reading:
    """What this section shows and what its buttons depend on."""

    view: View
    flags: list[flag_matrix.BrokerFlag]
    operations: list[audit.OperationRow]
    kafka_rules: bool
    block: str | None
    """Why nothing can be changed from here now."""

    @property
    def sign(self) -> tuple[object, ...]:
        """Grows or changes when the buttons outside of live parts must be drawn again."""
        last = tuple((row.id, row.state) for row in self.operations)
        return (self.block, flag_matrix.cluster_default(self.flags), last)


def read(page: Page) -> Reading:
    """Raises DatabaseAway."""
    view, cluster_id = page.view(), page.cluster_id
    rows = state.read_cached(config.config_values, cluster_id, "broker", names=flag_matrix.NAMES, version=view.version)
    brokers = state.read_cached(overview.brokers, cluster_id, version=view.version)
    # Plans do not move the data version: they are asked for on every read, which is one row by index each.
    plans = state.read_cached(
        audit.operations,
        cluster_id,
        kinds=(flag_matrix.KIND,),
        states=plan.DONE_STATES,
        limit=3 * CHANGES_MAX,
        version=view.read_ms,
    )
    return Reading(
        view=view,
        flags=flag_matrix.broker_flags(brokers, rows),
        operations=plans,
        kafka_rules=flag_matrix.kafka_rules(rows, embedded=view.cluster.kind == "embedded"),
        block=health_words.write_block(view, page.person.may_write, READ_ONLY),
    )


def _bootstrap(page: Page) -> None:
    reading = read(page)
    plan_dialog.show(page)
    # A place of its own, taken or not: the cards below keep theirs, and are not drawn twice for a moment.
    place = st.empty()
    if plan_dialog.outcome_shown():
        with place.container(horizontal=True, key="outcome"):
            live(page, "outcome", plan_dialog.outcome, page)
            st.button("Dismiss", on_click=plan_dialog.dismiss, key="dismiss", type="tertiary")
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
    found = flag_matrix.summarize(reading.flags)
    setters = {
        flag.broker_id: flag_matrix.set_by(
            flag, reading.operations, lambda at_ms: page.clock(at_ms, reading.view.now_ms)
        )
        for flag in reading.flags
    }
    card_head(
        "matrix",
        "Where the value comes from",
        "the outlined cell wins; layers read left to right",
        html=f'<span class="eb-push">{markup.pill(found.label, "warning" if found.mixed else None)}</span>',
        rows=flag_matrix.rows(reading.flags, setters),
    )
    if not reading.flags:
        st.html(markup.empty("No broker has been seen yet."))
        return
    with st.container(key=body_key(reading.view, "matrix")):
        st.html(flag_matrix.matrix_html(reading.flags, setters))


def _changes(page: Page, reading: Reading) -> None:
    lines = [plan.change_line(row) for row in reading.operations[:CHANGES_MAX]]
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
                        args=(page.person, reading.view.cluster.name, line.plan_id),
                    )


def _change_html(page: Page, line: plan.ChangeLine, now_ms: int) -> str:
    cells = (
        markup.text(page.clock(line.at_ms, now_ms)),
        markup.text(line.who),
        markup.text(line.scope),
        f'<code class="eb-code">{markup.text(line.change)}</code>',
        plan.state_html(line.state),
        markup.text(line.reason),
    )
    return '<div class="eb-change">' + "".join(f"<span>{cell}</span>" for cell in cells) + "</div>"


def _estimate(page: Page, reading: Reading) -> dict[str, Any]:
    step = reading.view.read_ms // ESTIMATE_STEP_MS
    return state.read_cached(
        operations.bootstrap_estimate,
        page.cluster_id,
        kafka_rules=reading.kafka_rules,
        now_ms=step * ESTIMATE_STEP_MS,
        version=step,
    )


def _effect(page: Page) -> None:
    reading = read(page)
    found = _estimate(page, reading)
    counts = state.read_cached(config.follower_counts, page.cluster_id, version=reading.view.version)
    known = found["tiered_partitions"] - found["unknown"]
    thin = Cell(fmt.count(counts.thin_partitions))
    if counts.thin_partitions:
        words = f"{fmt.count(counts.thin_partitions)} partition{'' if counts.thin_partitions == 1 else 's'}"
        thin = Cell(html=f"{markup.mark('warning')} {words}", css="eb-warning")
    pairs: list[tuple[str, str | Cell]] = [
        ("Partitions that qualify", f"{fmt.count(found['qualifies'])} of {fmt.count(found['tiered_partitions'])}"),
        ("Copy for one new replica each, off", fmt.size(found["off_bytes"] if known else None)),
        ("Copy for one new replica each, on", fmt.size(found["on_bytes"] if known else None)),
        ("Empty followers right now", fmt.count(counts.empty)),
        ("Could lead with less than half of the local data", thin),
    ]
    with st.container(key=body_key(reading.view, "effect")):
        st.html(markup.pairs(pairs))


def _matter(page: Page) -> None:
    reading = read(page)
    found = _estimate(page, reading)
    chosen = bootstrap_picture.largest(found)
    keys = tuple((row["topic"], row["partition"]) for row in chosen)
    since_ms = reading.view.read_ms // ESTIMATE_STEP_MS * ESTIMATE_STEP_MS - page.range_ms
    rates = state.read_cached(config.produce_rates, page.cluster_id, keys, since_ms, version=0)
    rows = state.read_cached(partitions.partitions, page.cluster_id, version=reading.view.version)
    gains = bootstrap_picture.gains(found, {(row.topic, row.partition): row.log_end_offset for row in rows}, rates)
    card_head(
        "matter",
        "Where it would matter most",
        html=bootstrap_picture.LEGEND,
        rows=bootstrap_picture.rows(gains) if gains else None,
    )
    if not gains:
        st.html(markup.empty(bootstrap_picture.why_none(found)))
        return
    with st.container(key=body_key(reading.view, "matter")):
        st.html(bootstrap_picture.dumbbells_html(gains))


def _buttons(page: Page, reading: Reading) -> None:
    """Outside of live parts, because they open a dialog."""
    person, name = page.person, reading.view.cluster.name
    inputs = {"scope": "cluster", "enable": flag_matrix.cluster_default(reading.flags) != "true"}
    blocked = reading.block is not None
    with st.container(key="actions"):
        st.button(
            "Change cluster default…",
            key="change",
            type="primary",
            width="stretch",
            disabled=blocked,
            help=reading.block,
            on_click=plan_dialog.propose,
            args=(person, name, flag_matrix.KIND, inputs),
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
                    args=(person, name, flag_matrix.KIND, chosen),
                )
                st.button(
                    "Dry run…",
                    key="dry-run",
                    type="tertiary",
                    help="What the plan would be; nothing is stored or changed",
                    disabled=not reading.view.own,
                    on_click=plan_dialog.dry_run,
                    args=(person, name, flag_matrix.KIND, chosen),
                )


def _watch(page: Page, drawn: tuple[object, ...]) -> None:
    """Draws the page again when its buttons no longer fit what is in the database."""
    if read(page).sign != drawn:
        st.rerun()


# --- brokers ---


def _brokers(page: Page) -> None:
    with st.container(horizontal=True, key="filters"):
        wanted = st.text_input(
            "Setting",
            key="key",
            bind="query-params",
            placeholder="Part of a setting's name",
            label_visibility="collapsed",
            live=True,
            max_chars=120,
            width=320,
        )
        only = st.segmented_control(
            "Which settings",
            ["Tiering and retention", "All"],
            default="Tiering and retention",
            required=True,
            key="settings-shown",
            label_visibility="collapsed",
        )
    with st.container(key="card-broker-settings"):
        live(page, "broker-settings", _broker_settings, page, (wanted or "").strip(), only != "All")


def _broker_settings(page: Page, wanted: str, tiering_only: bool) -> None:
    view = page.view()
    rows = state.read_cached(config.config_values, page.cluster_id, "broker", version=view.version)
    count = len({row.resource for row in rows if row.resource})
    found = config_table.broker_settings(rows, wanted=wanted, tiering_only=tiering_only)
    differing = sum(setting.differs for setting in found)
    clause = f"{fmt.count(len(found))} in effect on {count} brokers · {fmt.count(differing)} differ, shown first"
    card_head("broker-settings", "Brokers", clause, rows=config_table.broker_rows(found) if found else None)
    if not rows:
        st.html(markup.empty("No broker has told its settings yet.", "They come with the first samples."))
    elif not found:
        st.html(markup.empty("No setting fits.", "Choose All, or search for another part of the name."))
    else:
        with st.container(key=body_key(view, "broker-settings")):
            st.html(config_table.broker_html(found, count))
        _more(len(found), config_table.ROWS_MAX)


# --- topics ---


def _topics(page: Page) -> None:
    with st.container(key="card-topics"):
        live(page, "topics", _topic_table, page)


def _topic_table(page: Page) -> None:
    view = page.view()
    known = state.read_cached(config.topics, page.cluster_id, version=view.version)
    rows = state.read_cached(config.config_values, page.cluster_id, "topic", version=view.version)
    sources = {(row.resource, row.name): row.source for row in rows}
    shown = sorted((t for t in known if t.tiered or not t.internal), key=lambda topic: (not topic.tiered, topic.topic))
    tiered = sum(topic.tiered for topic in shown)
    card_head(
        "topics",
        "Topic tiering",
        f"{fmt.count(tiered)} of {fmt.count(len(shown))} topics are tiered · muted: inherited from the brokers",
        rows=config_table.topic_rows(shown, sources) if shown else None,
    )
    if not shown:
        st.html(markup.empty("There is no topic yet.", "Create one with remote.storage.enable=true."))
        return
    with st.container(key=body_key(view, "topics")):
        st.html(config_table.topic_html(shown, sources))
    _more(len(shown), config_table.ROWS_MAX)


def _more(count: int, shown: int) -> None:
    if count > shown:
        st.html(f'<div class="eb-lines">The first {shown} of {fmt.count(count)}; the table holds all.</div>')


# --- history ---


def _history(page: Page) -> None:
    with st.container(key="card-history"):
        live(page, "history", _audit, page)


def _audit(page: Page) -> None:
    view = page.view()
    rows = state.read_cached(audit.entries, page.cluster_id, limit=AUDIT_MAX, version=view.read_ms)
    card_head(
        "history",
        "History",
        "who did what, refusals included, newest first",
        rows=audit_table.rows(rows) if rows else None,
    )
    if not rows:
        st.html(markup.empty("Nobody has planned or changed anything yet."))
        return
    st.html(audit_table.audit_html(rows, lambda at_ms: page.clock(at_ms, view.now_ms)))
    if len(rows) == AUDIT_MAX:
        st.html(f'<div class="eb-lines">The newest {AUDIT_MAX}; GET /v1/audit gives the rest.</div>')


CSS: Final = """
[class*="st-key-cardhead-matrix"] .eb-card-title { width: 100%; }
.eb-push { margin-left: auto; }
.st-key-card-matrix .eb-table td { height: 31px; padding-top: 4px; padding-bottom: 4px; }
@media (max-width: 560px) {
  .eb-push { margin-left: 0; }
  .st-key-section-shown button { padding: 4px 7px; }
  .st-key-section-shown button p { font-size: 12px; }
}
.st-key-left-config { height: 100%; }
.st-key-left-config > :last-child { flex: 1 1 auto; }
.st-key-actions { gap: 6px; margin-top: auto; }
.st-key-card-bootstrap { gap: 10px; }
.st-key-changes .eb-change { grid-template-columns: 124px 92px 104px 138px 82px minmax(60px, 1fr); }
.st-key-changes .eb-change-head { border-bottom: 1px solid var(--eb-line); margin-right: 64px; }
.st-key-changes > * { min-width: 790px; }
.st-key-changes > :last-child { border-bottom: 0; }
[class*="st-key-change-row"] > :last-child:not(:first-child) { width: 58px; }
[class*="st-key-change-row"] button:not(:disabled) p { color: var(--eb-local); }
"""
