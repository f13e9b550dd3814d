"""Overview, needs attention: each problem with what it explains, what to do, and buttons that mute and take it over."""

from __future__ import annotations

from typing import Final

import streamlit as st

from app import links, runbooks, state
from app.access.identity import READ_ONLY
from app.components.cluster import alerts, explained_table, finding_rows, health_text, muted_list
from app.components.cluster.overview_facts import OverviewFacts
from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.cards import card_head
from app.components.shared.page import Page
from app.control import finding_notes
from app.query_cache import SlidingMs
from app.state import ClusterView
from backend.store.queries import audit, overview

STEP_MS: Final = 5_000


def render(page: Page, view: ClusterView, facts: OverviewFacts) -> None:
    """The card, in a live part."""
    problems = alerts.problems(facts.blindness, facts.findings, facts.windows, view.now_ms)
    # Blind spots are no stored findings.
    blind = [problem for problem in problems if problem.finding_id is None]
    rows = finding_rows.frame(facts.findings, page.moment, blind) if problems else None
    card_head("attention", "Needs attention", alerts.summary(problems), rows=rows)
    finding_notes.show_problem()
    block = health_text.note_block(view, page.user.may_write, READ_ONLY)
    _problems(page, view, facts, problems, block)
    _muted(page, view, block)


def _problems(
    page: Page, view: ClusterView, facts: OverviewFacts, problems: list[alerts.Alert], block: str | None
) -> None:
    if not problems:
        partitions = sum(topic.partition_count for topic in facts.topics)
        st.html(markup.empty(health_text.checked_text(view, partitions)))
        return
    with st.container(key="attention-list"):
        for number, problem in enumerate(problems[: alerts.ROWS_MAX]):
            _problem(number, problem, page, block)
    if len(problems) > alerts.ROWS_MAX:
        with st.expander(f"{len(problems) - alerts.ROWS_MAX} more"):
            for number, problem in enumerate(problems[alerts.ROWS_MAX : alerts.DRAWN_MAX], alerts.ROWS_MAX):
                _problem(number, problem)
            if (left := alerts.not_drawn(problems)) is not None:
                links.link("activity", left)


def _muted(page: Page, view: ClusterView, block: str | None) -> None:
    """Folded away: what is silent, until when, by whom, and the way to end that."""
    now = SlidingMs.of(view.read_ms, step_ms=STEP_MS)
    since = SlidingMs.of(view.read_ms, muted_list.MUTE_MS_MAX, step_ms=STEP_MS)
    findings = state.read_cached(overview.muted_findings, page.cluster_id, now, version=view.version)
    if not findings:
        return
    actors = state.read_cached(audit.actors, page.cluster_id, muted_list.ACTION, since, version=view.version)
    lines = muted_list.lines(findings, actors, view.now_ms)
    if not lines:
        return
    with (
        st.expander(f"{fmt.count(len(lines))} muted", key="muted", type="compact"),
        st.container(key="explained-list-muted"),
    ):
        for line in lines[: muted_list.DRAWN_MAX]:
            with st.container(horizontal=True, key=f"explained-row-muted-{line.finding_id}"):
                st.html(muted_list.line_html(line, lambda at_ms: page.clock(at_ms, view.now_ms)))
                st.button(
                    "Unmute",
                    key=f"unmute-{line.finding_id}",
                    type="tertiary",
                    disabled=block is not None,
                    help=block or "It sends again; what is open is sent then",
                    on_click=finding_notes.unmute,
                    args=(page.user, line.finding_id),
                )
        if len(lines) > muted_list.DRAWN_MAX:
            left = fmt.count(len(lines) - muted_list.DRAWN_MAX)
            st.html(f'<div class="eb-lines">{left} more: <code class="eb-code">ebbline findings</code>.</div>')


def _problem(number: int, problem: alerts.Alert, page: Page | None = None, block: str | None = None) -> None:
    """One row: what is wrong, since when, what to do; with a page, which says for whom, also the buttons that mute a
    finding and take it over.
    """
    age = "" if problem.age_ms is None else f" · {fmt.duration(max(1, round(problem.age_ms / 1000)))}"
    action = f'<div class="eb-action">{markup.text(problem.action)}</div>' if problem.action else ""
    with st.container(key=f"attention-row-{number}"):
        st.html(
            f'<div class="eb-problem">{markup.status_word(problem.severity)}<div>'
            f'<div class="eb-sentence">{markup.text(problem.title)}<span class="eb-age">{age}</span></div>'
            f'<div class="eb-detail">{markup.text(problem.detail)}</div>{action}</div></div>'
        )
        _links(number, problem, page, block)
        if page is not None and problem.explained:
            _explained(problem)


def _links(number: int, problem: alerts.Alert, page: Page | None, block: str | None) -> None:
    with st.container(horizontal=True, key=f"attention-links-{number}"):
        _object_link(problem)
        if problem.slug in runbooks.slugs():
            links.link("activity", "Runbook →", runbook=problem.slug)
        if page is None and problem.explained:
            _all_explained(problem)
        if page is not None and problem.finding_id is not None:
            _notes(page, problem.finding_id, problem.taken_by, block)


def _explained(problem: alerts.Alert) -> None:
    """Folded away: the first of what it explains, each with the page of its object.

    By the finding's number, so that it stays open where others come before it.
    """
    of, plural = problem.finding_id, "" if problem.explained_count == 1 else "s"
    label = f"Explains {fmt.count(problem.explained_count)} finding{plural}"
    with (
        st.container(key=f"explained-of-{of}"),
        st.expander(label, key=f"explained-{of}", type="compact"),
        st.container(key=f"explained-list-{of}"),
    ):
        for place, explained in enumerate(problem.explained):
            with st.container(horizontal=True, key=f"explained-row-{of}-{place}"):
                st.html(
                    f'<div class="eb-explained">{markup.mark(explained.severity)} {markup.text(explained.title)}</div>'
                )
                _object_link(explained)
        _all_explained(problem)


def _all_explained(problem: alerts.Alert) -> None:
    cause = explained_table.cause_text(problem.slug, problem.object)
    links.link("activity", f"All {fmt.count(problem.explained_count)} →", cause=cause)


def _object_link(problem: alerts.Alert) -> None:
    if problem.partition:
        links.link("partition", f"{problem.link} →", tp=problem.partition)
    elif problem.page:
        links.link(problem.page, f"{problem.link} →", **({"section": problem.section} if problem.section else {}))


def _notes(page: Page, finding_id: int, taken_by: str, block: str | None) -> None:
    """Folded away: a row has room for its sentence."""
    with st.popover("Note", type="tertiary", key=f"notes-{finding_id}", help="Mute it or take it over"):
        for hours in (1, 8):
            st.button(
                f"Mute {hours} h",
                key=f"mute-{hours}-{finding_id}",
                disabled=block is not None,
                help=block or f"It sends nothing for {hours} h; one that is open then is sent then",
                on_click=finding_notes.mute,
                args=(page.user, finding_id, 60 * hours),
            )
        st.button(
            "Take over",
            key=f"acknowledge-{finding_id}",
            disabled=block is not None or bool(taken_by),
            help=block or (f"{taken_by} looks after it." if taken_by else "Says that you look after it"),
            on_click=finding_notes.acknowledge,
            args=(page.user, finding_id),
        )
