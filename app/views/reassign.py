"""Reassign: what a move costs with and without the flag; plan it, run it, watch it, stop it, put it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

from app import state
from app.client import ApiError
from app.components import format as fmt
from app.components import health_words, markup, move_pictures, plan, plan_dialog
from app.components.page import Page, body_key, card_head, live, open_page
from app.person import READ_ONLY, Person
from app.state import DatabaseAway, View
from backend.store.queries import audit, config, findings, overview
from backend.store.queries.audit import OperationRow

KIND: Final = "reassign"
PLANS_MAX: Final = 8
# The worst come first; what has passed is shown as far as it fits beside the lists.
CHECKS_SHOWN: Final = 6
ACTIONS: Final = {
    "add": "Add a replica",
    "remove": "Remove replicas",
    "move": "Move replicas",
    "replication_factor": "Replication factor",
    "drain": "Drain brokers",
    "spread_leaders": "Spread leaders",
}
_REVIEW: Final = "reassign_review"


@dataclass(frozen=True, slots=True)
class Review:
    """What a plan would be, or is. ``plan_id`` None: a dry run that nothing was stored of."""

    inputs: Mapping[str, Any]
    diff: Mapping[str, Any]
    checks: list[Any]
    cli: list[str]
    estimate: Mapping[str, Any]
    refused: bool
    at_ms: int
    plan_id: int | None = None


def render() -> None:
    page = open_page("Reassign", _fact)
    if page is None:
        return
    st.html(f"<style>{plan_dialog.CSS}{move_pictures.CSS}{CSS}</style>")
    try:
        _page(page)
    except DatabaseAway:
        st.html(markup.empty("? The database is away, and this was not read before."))


def _fact(view: View) -> str:
    wanted = st.query_params.get("plan")
    return f"plan #{wanted}" if wanted and wanted.isdecimal() else ""


def _page(page: Page) -> None:
    view = page.view()
    block = health_words.write_block(view, page.person.may_write, READ_ONLY)
    running = _running(page, view)
    plan_dialog.show(page)
    if plan_dialog.outcome_shown():
        with st.container(horizontal=True, key="outcome"):
            live(page, "outcome", plan_dialog.outcome, page)
            st.button("Dismiss", on_click=plan_dialog.dismiss, key="dismiss", type="tertiary")
    if running is not None:
        with st.container(key="card-running"):
            live(page, "running", _progress, page)
            _steering(page, running, block)
    _left_limits(page, view, block, moves=running is not None)
    stored = _stored(page, view)
    if stored is not None:
        _review(page, view, _of_plan(stored), block, stored)
    else:
        inputs = _choose(page, view)
        review = st.session_state.get(_REVIEW)
        if isinstance(review, Review) and review.inputs == inputs:
            _review(page, view, review, block, None)
        elif isinstance(review, str):
            st.html(markup.alert("critical", "Nothing has been planned.", review))
    with st.container(key="card-plans"):
        _plans(page, view, block)
    live(page, "watch", _watch, page, _sign(page))


# --- the running plan ---


def _running(page: Page, view: View) -> OperationRow | None:
    rows = state.read_cached(
        audit.operations, page.cluster_id, kinds=(KIND,), states=plan.OPEN_STATES, limit=1, version=view.read_ms
    )
    return rows[0] if rows else None


def _progress(page: Page) -> None:
    row = _running(page, page.view())
    if row is None:
        st.html(markup.empty("It has come to its end."))
        return
    st.html(move_pictures.running_html(row))
    rows = move_pictures.moving_rows(row)
    if rows:
        columns = [("Filling now", "left"), ("On", "left"), ("Phase", "left"), ("Has", "right")]
        st.html(markup.table(columns, rows, caption="Replicas that are being filled"))


def _steering(page: Page, row: OperationRow, block: str | None) -> None:
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
            on_click=plan_dialog.steer,
            args=(page.person, row.id, "resume" if paused else "pause", {}),
        )
        if limit:
            question = plan_dialog.Question(
                row.id,
                "limit",
                f"Another limit for plan #{row.id}",
                f"It is {fmt.size(limit)}/s on each broker now.",
                "Keep",
                "Set the limit",
                limit / 1_000_000,
            )
            st.button("Raise…", key="raise", disabled=blocked, help=hint, on_click=plan_dialog.ask, args=(question,))
        st.button(
            "Stop…",
            key="stop",
            disabled=blocked,
            help=hint,
            on_click=plan_dialog.ask,
            args=(_stop_question(row.id, counts, (row.progress or {}).get("copied_bytes") or 0),),
        )


def _stop_question(plan_id: int, counts: Mapping[str, int], copied_bytes: int) -> plan_dialog.Question:
    done, moving = int(counts.get("done") or 0), int(counts.get("moving") or 0)
    text = (
        f"{fmt.count(done)} partition{'' if done == 1 else 's'} finished and stay where they are. "
        f"{fmt.count(moving)} go back to their old replicas; what they copied so far is discarded "
        f"({fmt.size(copied_bytes)} copied in all)."
    )
    return plan_dialog.Question(plan_id, "stop", "Stop this move?", text, "Keep moving", "Stop move")


def _left_limits(page: Page, view: View, block: str | None, *, moves: bool) -> None:
    """Limits that no move uses, as the findings name them, and the way to remove them."""
    found = state.read_cached(
        findings.findings, page.cluster_id, state="open", slug="throttle-left", version=view.version
    )
    if not found or moves:
        return
    with st.container(horizontal=True, key="left-limits", vertical_alignment="center"):
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        st.html(markup.alert("warning", "A limit was left behind.", f"{found[0].sentence}{more}"))
        st.button(
            "Clear throttle…",
            key="clear-throttle",
            disabled=block is not None,
            help=block,
            on_click=plan_dialog.propose,
            args=(page.person, view.cluster.name, "clear_throttle", {}),
        )


# --- choosing ---


def _choose(page: Page, view: View) -> dict[str, Any]:
    """The controls of the first two steps; the inputs as they stand."""
    brokers = [b.broker_id for b in state.read_cached(overview.brokers, page.cluster_id, version=view.version)]
    topics = [t.topic for t in state.read_cached(config.topics, page.cluster_id, version=view.version)]
    with st.container(key="card-choose"):
        review = st.session_state.get(_REVIEW)
        st.html(move_pictures.steps_html(3 if isinstance(review, Review) else 1))
        with st.container(horizontal=True, key="choose", vertical_alignment="bottom"):
            action = st.selectbox("What", list(ACTIONS), format_func=ACTIONS.__getitem__, key="action", width=180)
            inputs: dict[str, Any] = {"action": action}
            chosen = st.multiselect(
                "Topics", topics, key="topics", placeholder=_topics_hint(str(action)), width=300, max_selections=50
            )
            if len(chosen) == 1:
                numbers = st.text_input("Partitions", key="partitions", placeholder="all, or 0, 3-5", width=110)
                inputs |= _selection(chosen[0], numbers or "")
            elif chosen:
                inputs["topics"] = list(chosen)
            inputs |= _target(str(action), brokers)
            if action not in ("spread_leaders", "remove"):
                limit = st.number_input(
                    "Limit, MB/s", 0.001, 100_000.0, 10.0, step=10.0, key="limit", width=130, help=LIMIT_HELP
                )
                inputs["throttle_bytes_per_s"] = round(float(limit) * 1_000_000)
            problem = _problem(inputs)
            st.button(
                "Review",
                key="review",
                type="primary",
                disabled=problem is not None or not view.own,
                help=problem or "What the plan would be; nothing is stored or changed",
                on_click=_dry_run,
                args=(page.person, inputs),
            )
    return inputs


LIMIT_HELP: Final = (
    "Each broker may send and take so many bytes a second for this move. It is removed when the plan ends, however."
)


def _topics_hint(action: str) -> str:
    return "All that are concerned" if action in ("drain", "spread_leaders") else "Choose topics"


def _selection(topic: str, numbers: str) -> dict[str, Any]:
    """A topic, or some of its partitions: ``0, 3-5``. What is no number makes the selection unusable."""
    if not numbers.strip():
        return {"topics": [topic]}
    found: list[int] = []
    for part in numbers.split(","):
        low, _, high = part.strip().partition("-")
        if not low.isdecimal() or (high and not high.isdecimal()) or int(high or low) - int(low) > 10_000:
            return {"partitions": []}
        found += range(int(low), int(high or low) + 1)
    return {"partitions": [{"topic": topic, "partition": number} for number in sorted(set(found))]}


def _target(action: str, brokers: list[int]) -> dict[str, Any]:
    if action in ("add", "remove", "drain"):
        names = {"add": "On brokers", "remove": "From brokers", "drain": "Brokers"}
        chosen = st.multiselect(names[action], brokers, key=f"brokers-{action}", placeholder="Brokers", width=170)
        return {"brokers": list(chosen)}
    if action == "move":
        source = st.selectbox("From broker", brokers, index=None, key="from", width=120)
        to = st.selectbox("To broker", brokers, index=None, key="to", width=120)
        return {"brokers": [b for b in (source, to) if b is not None]}
    if action == "replication_factor":
        factor = st.number_input(
            "Replicas", 1, max(1, len(brokers)), min(3, max(1, len(brokers))), key="factor", width=110
        )
        return {"factor": int(factor)}
    return {"elect": True}


def _problem(inputs: Mapping[str, Any]) -> str | None:
    """What is missing before a plan can be tried."""
    action = inputs["action"]
    if inputs.get("partitions") == []:
        return "Name partitions as numbers: 0, 3-5."
    if action not in ("drain", "spread_leaders") and not inputs.get("topics") and not inputs.get("partitions"):
        return "Choose topics."
    if action in ("add", "remove", "drain") and not inputs["brokers"]:
        return "Choose brokers."
    if action == "move" and len(inputs["brokers"]) != 2:
        return "Choose where from and where to."
    return None


def _dry_run(person: Person, inputs: dict[str, Any]) -> None:
    try:
        found = plan_dialog.api(person).dry_run(KIND, inputs)
    except ApiError as error:
        st.session_state[_REVIEW] = str(error)
        return
    st.session_state[_REVIEW] = Review(
        inputs, found.diff, found.checks, found.cli, found.estimate or {}, found.refused, state.now_ms()
    )


def _save(person: Person, inputs: Mapping[str, Any]) -> None:
    try:
        row = plan_dialog.api(person).plan(KIND, inputs)
    except ApiError as error:
        st.session_state[_REVIEW] = str(error)
        return
    st.session_state.pop(_REVIEW, None)
    st.query_params["plan"] = str(row.id)


def _back() -> None:
    st.session_state.pop(_REVIEW, None)
    st.query_params.pop("plan", None)


# --- a stored plan ---


def _stored(page: Page, view: View) -> OperationRow | None:
    """The plan of the link."""
    wanted = st.query_params.get("plan")
    if wanted is None:
        return None
    row = None
    if wanted.isdecimal() and len(wanted) < 19:
        row = state.read_cached(audit.operation, page.cluster_id, int(wanted), version=view.read_ms)
    if row is None or row.kind != KIND:
        st.toast(f"There is no reassignment {wanted!r:.30}; make a new one.")
        st.query_params.pop("plan", None)
        return None
    return row


def _of_plan(row: OperationRow) -> Review:
    return Review(
        row.inputs,
        row.diff or {},
        row.checks or [],
        row.cli or [],
        row.estimate or {},
        row.state == "refused",
        row.created_ms,
        row.id,
    )


# --- the review ---


def _review(page: Page, view: View, review: Review, block: str | None, stored: OperationRow | None) -> None:
    estimate, diff = review.estimate, review.diff
    words = diff.get("words", {})
    age = fmt.duration(max(0, view.now_ms - review.at_ms) / 1000)
    copies = int(estimate.get("replicas") or 0)
    with st.container(key="grid-review-a"):
        with st.container(key="card-copy"):
            clause = f"{fmt.count(copies)} replica{'' if copies == 1 else 's'} · {move_pictures.verdicts(estimate)}"
            st.html(markup.card_title("What has to be copied", clause))
            with st.container(key=body_key(view, "copy")):
                if copies:
                    st.html(move_pictures.estimate_html(estimate))
                else:
                    st.html(markup.empty("Nothing is copied."))
        with st.container(key="card-load"):
            load = diff.get("load", [])
            rows = move_pictures.load_rows(load) if load else None
            card_head("load", "Broker load", "local bytes, now ○ and after ●", rows=rows)
            st.html(move_pictures.load_html(load) if load else markup.empty("No broker is known."))
    with st.container(key="grid-review-b"):
        with st.container(key="card-lists"):
            st.html(markup.card_title("Plan", "replicas in preferred order; bold outline leads"))
            st.html(move_pictures.lists_html(diff.get("changes", []), estimate))
        with st.container(key="card-checks"):
            made = f"plan #{review.plan_id}, {age} ago" if review.plan_id else f"dry run, {age} ago"
            st.html(markup.card_title("Before you execute", made))
            checks = [(str(check["outcome"]), str(check["sentence"])) for check in review.checks]
            first = max(CHECKS_SHOWN, sum(outcome != "ok" for outcome, _ in checks))
            st.html(plan.checks_list_html(checks[:first]))
            if checks[first:]:
                with st.expander(f"{len(checks) - first} more passed"):
                    st.html(plan.checks_list_html(checks[first:]))
            st.code("\n".join(review.cli), language="bash", wrap_lines=True)
    with st.container(key="card-total"):
        _total(page, view, review, block, stored, str(words.get("effect", "")))


def _total(page: Page, view: View, review: Review, block: str | None, stored: OperationRow | None, effect: str) -> None:
    words = review.diff.get("words", {})
    person, name = page.person, view.cluster.name
    act = str(words.get("act", "Move"))
    with st.container(horizontal=True, key="total", vertical_alignment="center"):
        told = "Refused: the first check says why." if review.refused else effect
        nothing = (
            markup.pill("Nothing has been changed", "notice") if stored is None or stored.state == "checked" else ""
        )
        st.html(f"<div><strong>{markup.text(words.get('title', ''))}</strong> {markup.text(told)} {nothing}</div>")
        st.button("Back", key="back", on_click=_back)
        if stored is None:
            st.button(
                "Save plan",
                key="save",
                disabled=block is not None,
                help=block,
                on_click=_save,
                args=(person, review.inputs),
            )
            st.button(
                f"{act}…",
                key="move",
                type="primary",
                disabled=block is not None or review.refused,
                help=block,
                on_click=plan_dialog.propose,
                args=(person, name, KIND, review.inputs),
            )
        elif stored.state == "checked":
            st.button(
                f"{act}…",
                key="move",
                type="primary",
                disabled=block is not None,
                help=block,
                on_click=plan_dialog.confirm,
                args=(name, stored),
            )
        else:
            st.html(plan.state_html(stored.state))


# --- plans ---


def _recent(page: Page, view: View) -> list[OperationRow]:
    return state.read_cached(audit.operations, page.cluster_id, kinds=(KIND,), limit=PLANS_MAX, version=view.read_ms)


def _plans(page: Page, view: View, block: str | None) -> None:
    st.html(markup.card_title("Plans", "newest first; a revert is a new plan"))
    rows = _recent(page, view)
    if not rows:
        st.html(markup.empty("Nobody has planned a move yet.", "Choose above what is to move; Review changes nothing."))
        return
    for row in rows:
        line = plan.change_line(row)
        with st.container(horizontal=True, key=f"plan-row-{row.id}", vertical_alignment="center"):
            cells = (
                f"#{row.id}",
                page.clock(line.at_ms, view.now_ms),
                line.who,
                line.scope,
                str((row.diff or {}).get("words", {}).get("title", "")),
            )
            inner = "".join(f"<span>{markup.text(cell)}</span>" for cell in cells)
            result = markup.text((row.result or {}).get("sentence") or line.reason)
            st.html(f'<div class="eb-plan">{inner}<span>{plan.state_html(row.state)}</span><span>{result}</span></div>')
            st.button("Open", key=f"open-{row.id}", type="tertiary", on_click=_open, args=(row.id,))
            st.button(
                "Revert…",
                key=f"revert-{row.id}",
                type="tertiary",
                disabled=block is not None or not line.revertible,
                help=block or ("Plan the way back" if line.revertible else "It has changed nothing that stands."),
                on_click=plan_dialog.revert,
                args=(page.person, view.cluster.name, row.id),
            )


def _open(plan_id: int) -> None:
    st.query_params["plan"] = str(plan_id)


def _sign(page: Page) -> tuple[object, ...]:
    """Changes when the buttons outside of live parts must be drawn again."""
    view = page.view()
    block = health_words.write_block(view, page.person.may_write, READ_ONLY)
    running = _running(page, view)
    now = None if running is None else (running.id, running.state, running.intent, running.throttle_bytes_per_s)
    return (block, now, tuple((row.id, row.state) for row in _recent(page, view)))


def _watch(page: Page, drawn: tuple[object, ...]) -> None:
    """Draws the page again when its buttons no longer fit what is in the database."""
    if _sign(page) != drawn:
        st.rerun()


CSS: Final = """
.st-key-grid-review-a, .st-key-grid-review-b { grid-template-columns: minmax(0, 700fr) minmax(0, 640fr); }
.st-key-choose { gap: 10px; flex-wrap: wrap; }
.st-key-steering { gap: 8px; }
.st-key-total, .st-key-left-limits { flex-wrap: nowrap; gap: 8px; }
.st-key-total > :first-child, .st-key-left-limits > :first-child { flex: 1 1 auto; min-width: 0; width: auto; }
.st-key-total > :not(:first-child) { flex: 0 0 auto; width: auto; }
@media (max-width: 760px) { .st-key-total { flex-wrap: wrap; } }
.eb-plan { display: grid; grid-template-columns: 44px 124px 110px minmax(90px, 150px) minmax(110px, 170px) 90px
  minmax(80px, 1fr); gap: 8px; font-size: 12.5px; align-items: center; color: var(--eb-text); }
@media (max-width: 760px) { .eb-plan { grid-template-columns: 44px minmax(0, 1fr) 90px; }
  .eb-plan > :nth-child(2), .eb-plan > :nth-child(3), .eb-plan > :nth-child(4), .eb-plan > :last-child
  { display: none; } }
[class*="st-key-plan-row-"] > :first-child { flex: 1 1 auto; min-width: 0; width: auto; }
[class*="st-key-plan-row-"] > :not(:first-child) { flex: 0 0 auto; width: auto; }
[class*="st-key-plan-row-"] { border-bottom: 1px solid var(--eb-grid); padding: 2px 0; gap: 6px; flex-wrap: nowrap; }
"""
