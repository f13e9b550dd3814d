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

from app import state
from app.access.identity import User, current_user
from app.components.cluster import health_text
from app.components.shared import format as fmt
from app.components.shared import markup, page_header, style
from app.components.shared.cards import SEEN
from app.state import ClusterView, DatabaseUnreachable
from app.theme import Palette, palette
from backend.store.queries import overview

RANGE_LABELS: Final = {"15m": "15 minutes", "1h": "hour", "6h": "6 hours", "24h": "24 hours"}
LONG_RANGES: Final = ("6h", "24h")
REFRESH_S: Final = 5.0
REFRESH_WAIT_S: Final = 2.0
REFRESH_LONG_S: Final = 30.0
IDLE_MS: Final = 30 * 60_000
# Entries of the session's state.
PENDING: Final = "pending_plan"
_TOUCHED: Final = "touched_ms"
_PAUSED: Final = "paused"


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

    def clock(self, time_ms: int | None, now_ms: int) -> str:
        return fmt.clock(time_ms, now_ms, self.zone)


def open_page(
    name: str,
    fact: Callable[[ClusterView], str] | str = "",
    *,
    parent: tuple[Any, str] | None = None,
    alerts: bool = True,
) -> Page | None:
    """Draws style, head row and alerts.

    ``parent`` is (page, title) of the breadcrumb; ``alerts`` False: the page itself shows which data is stale.
    """
    colours = palette(st.context.theme.type)
    st.html(style.base(colours))
    _touch()
    user = current_user()
    if user.must_sign_in:
        page_header.title_only(name)
        _sign_in()
        return None
    try:
        view = state.view(page_header.wanted_cluster())
    except DatabaseUnreachable:
        view = None
    if view is None:
        page_header.title_only(name)
        _wait()
        return None
    with st.container(horizontal=True, key="head"):
        page_header.title(name, fact(view) if callable(fact) else fact, parent)
        live_slot = st.container(key="head-live", width="content")
        cluster_id = page_header.cluster_picker(view)
        range_name = page_header.range_picker()
        zone = page_header.user_menu(user)
    page = Page(colours, cluster_id, range_name, zone, user)
    with live_slot:
        live(page, "head", _pills, page)
    if alerts:
        live(page, "alerts", _alerts, page)
    return page


def live(page: Page, name: str, render: Callable[..., None], *arguments: Any, history: bool = False) -> None:
    """Draws a part of the page again and again: display only, never the place to open a dialog.

    Reads are cached by the data version, so a round without a change costs the head's small queries. Paused while a
    dialog is open and after half an hour without a touch. ``history``: the part draws the chosen range, where a long
    one changes slowly; all others stay at the short interval, so that a stopped process shows within 15 s.
    """

    def guarded() -> None:
        if _idle() and not st.session_state.get(_PAUSED):
            st.session_state[_PAUSED] = True
            st.rerun()
        try:
            render(*arguments)
        except DatabaseUnreachable:
            # Never read before, so there is nothing to show; the head row and the alerts say why.
            st.html(markup.empty("? The database is away, and this was not read before."))

    st.fragment(guarded, run_every=_interval_s(page, history), key=f"live-{name}")()


def _interval_s(page: Page, history: bool) -> float | None:
    if st.session_state.get(PENDING) or st.session_state.get(_PAUSED):
        return None
    return REFRESH_LONG_S if history and page.range_name in LONG_RANGES else REFRESH_S


def _touch() -> None:
    """A run of the whole page is a sign of a person, unless it is the one that begins the pause."""
    if not st.session_state.get(_PAUSED):
        st.session_state[_TOUCHED] = state.now_ms()


def _idle() -> bool:
    touched: int = st.session_state.get(_TOUCHED, state.now_ms())
    return state.now_ms() - touched > IDLE_MS


def _resume() -> None:
    st.session_state[_PAUSED] = False
    st.session_state[_TOUCHED] = state.now_ms()


def _pills(page: Page) -> None:
    view = page.view()
    brokers = state.read_cached(overview.brokers, page.cluster_id, version=view.version)
    if st.session_state.get(_PAUSED) and st.button("Paused · Resume", key="resume"):
        _resume()
        st.rerun()  # every part of the page, not only this one
    findings = state.read_cached(overview.open_findings, page.cluster_id, version=view.version)
    paused = bool(st.session_state.get(_PAUSED))
    live_pills = health_text.head_pills(view, brokers, page.zone, findings)
    pills = [health_text.paused_pill(view, page.zone)] if paused else live_pills
    st.html('<div class="eb-pills">' + "".join(markup.pill(p.label, p.status, title=p.hint) for p in pills) + "</div>")


# --- what is wrong with ourselves ---


def _alerts(page: Page) -> None:
    view = page.view()
    brokers = state.read_cached(overview.brokers, page.cluster_id, version=view.version)
    findings = state.read_cached(overview.open_findings, page.cluster_id, version=view.version)
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
