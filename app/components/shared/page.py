"""The frame of all pages: the style sheet, the head row with the data's age, alerts about stale data, live parts.

A page calls :func:`open_page` first. It returns None when there is nothing to show yet (no database, no cluster);
then the reason is already on the screen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final

import streamlit as st
from streamlit.errors import StreamlitAuthError

from app import links, observed, state
from app.access.identity import User, current_user
from app.components.cluster import alerts, health_text
from app.components.shared import format as fmt
from app.components.shared import markup, page_header, pulse, style
from app.components.shared.cards import SEEN
from app.state import ClusterView, DatabaseUnreachable
from app.theme import Palette, palette
from backend.store.queries.overview import BrokerRow, FindingRow

RANGE_LABELS: Final = {"15m": "15 minutes", "1h": "hour", "6h": "6 hours", "24h": "24 hours"}
LONG_RANGES: Final = ("6h", "24h")
REFRESH_WAIT_S: Final = 2.0
# Maintenance begins and ends on the minute for people; all parts of a page share one read.
WINDOWS_STEP_MS: Final = 5_000
# Entries of the session's state.
PENDING: Final = "pending_plan"
_FRAME: Final = "frame"


@dataclass(frozen=True, slots=True)
class Page:
    """The values that the parts of one page need in common."""

    colours: Palette
    cluster_id: str
    range_name: str
    zone: tzinfo | None
    user: User

    @property
    def range_ms(self) -> int:
        return page_header.RANGES[self.range_name] * 60_000

    @property
    def range_text(self) -> str:
        """``hour``, ``15 minutes``: after "last"."""
        return RANGE_LABELS[self.range_name]

    def view(self) -> ClusterView:
        """The facts of the head row, read now. Raises DatabaseUnreachable."""
        cluster_view = state.view(self.cluster_id)
        if cluster_view is None:
            raise DatabaseUnreachable("The cluster is not in the database any more.")
        st.session_state[SEEN] = cluster_view
        return cluster_view

    def moment(self, time_ms: int) -> str:
        """With its date and zone, as files and pictures need it."""
        return fmt.moment(time_ms, self.zone)

    def clock(self, time_ms: int | None, now_ms: int) -> str:
        return fmt.clock(time_ms, now_ms, self.zone)


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a page, the clause beside it, and (name, label) of the page above."""

    name: str
    fact: Callable[[ClusterView], str] | str
    parent: tuple[str, str] | None

    def clause(self, view: ClusterView) -> str:
        """The clause as of now; empty while it cannot be read."""
        try:
            return self.fact(view) if callable(self.fact) else self.fact
        except DatabaseUnreachable:
            return ""


@dataclass(frozen=True, slots=True)
class Frame:
    """The head row as the entry script has drawn it; `slot`: the place of title and age, for the page to fill.

    `unknown`: the cluster of the link, when it is not here, and the name of the one that is.
    """

    user: User
    page: Page | None = None
    slot: Any = None
    unknown: tuple[str, str] | None = None


def begin() -> None:
    """Draws style and head row, before the page is run.

    The entry script calls it: what is bound to the address within a page's own script belongs to that page, and
    Streamlit drops it from the address when another page is opened.
    """
    colours = palette(st.context.theme.type)
    st.html(style.base(colours))
    user = current_user()
    st.session_state[_FRAME] = Frame(user)
    pulse.begin()
    if user.must_sign_in:
        return
    try:
        view = state.view(page_header.wanted_cluster())
    except DatabaseUnreachable:
        return
    if view is None:
        return
    linked = st.query_params.get("cluster")
    if linked is not None and linked not in {row.cluster_id for row in view.clusters}:
        st.session_state[_FRAME] = Frame(user, unknown=(linked, view.cluster.name))
        return
    with st.container(horizontal=True, key="head"):
        slot = st.container()
        cluster_id = page_header.cluster_picker(view)
        range_name = page_header.range_picker()
        zone = page_header.user_menu(user)
    # A dialog is not drawn again below the hands of who types into it.
    pulse.mount(paused=bool(st.session_state.get(PENDING) or st.session_state.get(page_header.PAUSED)))
    st.session_state[_FRAME] = Frame(user, Page(colours, cluster_id, range_name, zone, user), slot)


def open_page(
    name: str,
    fact: Callable[[ClusterView], str] | str = "",
    *,
    parent: tuple[str, str] | None = None,
    own_alerts: bool = False,
) -> Page | None:
    """Draws title and alerts; None: there is nothing to show, which the page says already.

    ``fact`` is the clause beside the title, as of each refresh; ``parent`` is (name, label) of the page above it;
    ``own_alerts``: the page itself shows which data is stale.
    """
    frame: Frame = st.session_state[_FRAME]
    if frame.page is None or frame.slot is None:
        page_header.title_only(name)
        if frame.user.must_sign_in:
            _sign_in()
        elif frame.unknown is not None:
            _other_cluster(*frame.unknown)
        else:
            _wait()
        return None
    with frame.slot:
        live(frame.page, "head", _head, frame.page, Heading(name, fact, parent))
    if not own_alerts:
        live(frame.page, "alerts", _alerts, frame.page)
    return frame.page


def live(page: Page, name: str, render: Callable[..., None], *arguments: Any, history: bool = False) -> None:
    """Draws a part of the page again and again: display only, never the place to open a dialog.

    Reads are cached by the data version, so a round without a change costs the head's small queries. ``history``: the
    part draws the chosen range, where a long one changes slowly; all others come with each beat of the page's clock, so
    that a stopped process shows within 15 s.
    """
    every_ms = pulse.LONG_MS if history and page.range_name in LONG_RANGES else pulse.VISIBLE_MS

    def guarded() -> None:
        pulse.drawn(name, every_ms)
        try:
            render(*arguments)
        except DatabaseUnreachable:
            # Never read before, so there is nothing to show; the head row and the alerts say why.
            st.html(markup.empty("? The database is away, and this was not read before."))

    st.fragment(guarded, key=pulse.key(name))()


def _head(page: Page, heading: Heading) -> None:
    """Title, clause, age and time: all of one moment, so that a picture of the page says what it shows and when."""
    view = page.view()
    brokers = observed.brokers(view)
    findings = observed.open_findings(view)
    windows = observed.maintenance_windows(view)
    blind = health_text.blindness(view, brokers, page.zone, findings)
    status = alerts.page_status(alerts.problems(blind, findings, windows, view.now_ms))
    st.set_page_config(page_title=page_header.document_title(heading.name, view.cluster.name, status))
    with st.container(horizontal=True, key="head-live"):
        page_header.title(heading.name, heading.clause(view), heading.parent)
        _pills(page, view, brokers, findings)


def _pills(page: Page, view: ClusterView, brokers: list[BrokerRow], findings: list[FindingRow]) -> None:
    paused = bool(st.session_state.get(page_header.PAUSED))
    live_pills = health_text.head_pills(view, brokers, page.zone, findings)
    pills = [health_text.paused_pill(view, page.zone)] if paused else live_pills
    moment = f'<span class="eb-moment">{fmt.moment(view.now_ms, page.zone)}</span>'
    shown = "".join(markup.pill(p.label, p.status, title=p.hint) for p in pills)
    st.html(f'<div class="eb-pills">{shown}{moment}</div>', width="content")


# --- what is wrong with ourselves ---


def _alerts(page: Page) -> None:
    view = page.view()
    brokers = observed.brokers(view)
    findings = observed.open_findings(view)
    notices = health_text.blindness(view, brokers, page.zone, findings)
    with st.container(key="alerts"):
        for notice in notices:
            st.html(markup.alert(notice.status, notice.title, notice.sentence, notice.note))


def _sign_in() -> None:
    st.html(markup.empty("Sign in to see the cluster."))
    with st.container(horizontal=True, horizontal_alignment="center"):
        pressed = st.button("Sign in", type="primary")
    if pressed:
        try:
            st.login()
        except StreamlitAuthError as error:
            st.html(markup.alert("critical", "The sign-in is not set up whole.", str(error), "See docs/security.md."))


def _other_cluster(linked: str, name: str) -> None:
    """Nothing of this cluster is shown for another one's: its objects may have the same names."""
    st.html(markup.empty(f"There is no cluster {linked[:60]!r} here.", f"This dashboard has {name}."))
    if st.button(f"Open {name}", key="open-own-cluster"):
        links.switch(links.FIRST)


def _wait() -> None:
    """Instead of the page, until there is a cluster to show."""

    @st.fragment(run_every=REFRESH_WAIT_S)
    def wait() -> None:
        try:
            view = state.view(page_header.wanted_cluster())
        except DatabaseUnreachable as error:
            _database_away(str(error))
            return
        if view is not None:
            st.rerun()
        st.html(
            markup.empty(
                "No cluster has been observed yet: the first sample comes a few seconds after the brokers are up.",
                "If this stays, look at logs/backend.log in the data folder.",
            )
        )

    wait()


def _database_away(cause: str) -> None:
    st.html(
        markup.alert(
            "critical",
            "The database does not answer.",
            "Nothing was read from it yet, so there is nothing to show. The cluster is not affected; "
            "this page tries again by itself.",
        )
    )
    st.code(cause, language=None, wrap_lines=True)
    st.button("Retry", key="retry")


def body_key(view: ClusterView, name: str) -> str:
    """The key of a card's content: greyed while the data behind it is stale."""
    return f"{'stale' if health_text.stale(view) else 'fresh'}-{name}"


def ledger_key(view: ClusterView, name: str) -> str:
    """As :func:`body_key`, for what comes from the pipeline's ledger: greyed while nobody reads its events."""
    pipeline = view.processes.get("pipeline")
    silent = view.away is not None or view.write_problem is not None or (pipeline is not None and not pipeline.alive)
    return f"{'stale' if silent else 'fresh'}-{name}"
