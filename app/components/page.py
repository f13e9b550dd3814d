"""What all pages share: the style sheet, the head row with the data's age, alerts about our own blindness, live parts.

A page calls :func:`open_page` first. It returns None when there is nothing to show yet (no database, no cluster);
then the reason is already on the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from app import state
from app.components import export, health_words, markup, sources, style
from app.components import format as fmt
from app.person import Person, current_person
from app.state import DatabaseAway, View
from app.theme import Palette, palette
from backend.store.queries import overview

RANGES: Final = {"15m": 15, "1h": 60, "6h": 360, "24h": 1440}
RANGE_WORDS: Final = {"15m": "15 minutes", "1h": "hour", "6h": "6 hours", "24h": "24 hours"}
LONG_RANGES: Final = ("6h", "24h")
REFRESH_S: Final = 5.0
REFRESH_WAIT_S: Final = 2.0
REFRESH_LONG_S: Final = 30.0
IDLE_MS: Final = 30 * 60_000
# Entries of the session's state.
PENDING: Final = "pending_plan"
_TOUCHED: Final = "touched_ms"
_PAUSED: Final = "paused"
_SEEN: Final = "view_seen"


@dataclass(frozen=True, slots=True)
class Page:
    """What the parts of one page need in common."""

    colours: Palette
    cluster_id: str
    range_name: str
    zone: tzinfo | None
    person: Person

    @property
    def range_ms(self) -> int:
        return RANGES[self.range_name] * 60_000

    @property
    def range_words(self) -> str:
        """``hour``, ``15 minutes``: after "last"."""
        return RANGE_WORDS[self.range_name]

    def view(self) -> View:
        """The facts of the head row, read now. Raises DatabaseAway."""
        found = state.view(self.cluster_id)
        if found is None:
            raise DatabaseAway("The cluster is not in the database any more.")
        st.session_state[_SEEN] = found
        return found

    def clock(self, time_ms: int | None, now_ms: int) -> str:
        return fmt.clock(time_ms, now_ms, self.zone)


def open_page(
    name: str,
    fact: Callable[[View], str] | str = "",
    *,
    parent: tuple[Any, str] | None = None,
    alerts: bool = True,
) -> Page | None:
    """Draws style, head row and alerts.

    ``parent`` is (page, title) of the breadcrumb; ``alerts`` False: the page itself tells our own blindness.
    """
    colours = palette(st.context.theme.type)
    st.html(style.sheet(colours, sources.CSS))
    _touch()
    person = current_person()
    if person.must_sign_in:
        _plain_head(name)
        _sign_in()
        return None
    try:
        known = state.view(_wanted_cluster())
    except DatabaseAway:
        known = None
    if known is None:
        _plain_head(name)
        _wait()
        return None
    with st.container(horizontal=True, key="head"):
        _title(name, fact(known) if callable(fact) else fact, parent)
        live_slot = st.container(key="head-live", width="content")
        cluster_id = _cluster_picker(known)
        range_name = _range_picker()
        zone = _person_menu(person)
    page = Page(colours, cluster_id, range_name, zone, person)
    with live_slot:
        live(page, "head", _pills, page)
    if alerts:
        live(page, "alerts", _alerts, page)
    return page


def live(page: Page, name: str, draw: Callable[..., None], *arguments: Any, history: bool = False) -> None:
    """Draws a part of the page again and again: display only, never the place to open a dialog.

    Reads are cached by the data version, so a round without news costs the head's small queries. Paused while a
    dialog is open and after half an hour without a touch. ``history``: the part draws the chosen range, where a long
    one changes slowly; all others stay at the short interval, so that a stopped process shows within 15 s.
    """

    def guarded() -> None:
        if _idle() and not st.session_state.get(_PAUSED):
            st.session_state[_PAUSED] = True
            st.rerun()
        try:
            draw(*arguments)
        except DatabaseAway:
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


# --- the head row ---


def _plain_head(name: str) -> None:
    st.html(f'<div class="eb-title"><h1>{markup.text(name)}</h1></div>')


def _title(name: str, fact: str, parent: tuple[Any, str] | None) -> None:
    clause = f'<span class="eb-clause">{markup.text(fact)}</span>' if fact else ""
    if parent is None:
        st.html(f'<div class="eb-title"><h1>{markup.text(name)}</h1>{clause}</div>')
        return
    with st.container(horizontal=True, key="crumbs"):
        st.page_link(parent[0], label=parent[1])
        st.html(
            f'<div class="eb-title"><span class="eb-slash">/</span><h1>{markup.text(name)}</h1>{clause}</div>',
            width="content",
        )


def _wanted_cluster() -> str | None:
    return st.session_state.get("cluster") or st.query_params.get("cluster")


def _cluster_picker(view: View) -> str:
    names = {row.cluster_id: row.name for row in view.clusters}
    own = state.environment().cluster_id
    ids = sorted(names, key=lambda cluster_id: (cluster_id != own, names[cluster_id]))
    wanted = st.query_params.get("cluster")
    if wanted is not None and wanted not in names:
        st.toast(f"There is no cluster {wanted!r:.60} here; this is {names[ids[0]]}.")
    chosen = st.selectbox(
        "Cluster",
        ids,
        format_func=lambda cluster_id: names.get(cluster_id, cluster_id),
        key="cluster",
        bind="query-params",
        persist_state="session",
        label_visibility="collapsed",
        width=130,
    )
    return chosen or ids[0]


def _range_picker() -> str:
    wanted = st.query_params.get("range")
    if wanted is not None and wanted not in RANGES:
        st.toast(f"There is no range {wanted!r:.20}; this is the last hour.")
    chosen = st.segmented_control(
        "Range of the charts",
        list(RANGES),
        default="1h",
        required=True,
        key="range",
        bind="query-params",
        persist_state="session",
        label_visibility="collapsed",
    )
    return chosen or "1h"


def _person_menu(person: Person) -> tzinfo | None:
    with st.popover(person.label, key="person"):
        st.markdown(f"**{person.name}**  \n{person.explanation}")
        zone = st.segmented_control(
            "Times in",
            ["UTC", "local"],
            default="UTC",
            required=True,
            key="tz",
            bind="query-params",
            persist_state="session",
        )
        st.caption("Link to this view")
        st.code(st.context.url or "/", language=None, wrap_lines=True)
        st.caption("Keys: G overview, P partitions, F followers, A reassign, Esc closes a dialog.")
        if person.can_sign_out and st.button("Sign out"):
            st.logout()
    return _browser_zone() if zone == "local" else None


def _browser_zone() -> tzinfo | None:
    try:
        return ZoneInfo(st.context.timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return None


def _pills(page: Page) -> None:
    view = page.view()
    brokers = state.read_cached(overview.brokers, page.cluster_id, version=view.version)
    if st.session_state.get(_PAUSED) and st.button("Paused · Resume", key="resume"):
        _resume()
        st.rerun()  # every part of the page, not only this one
    pills = health_words.head_pills(view, brokers, page.zone)
    st.html('<div class="eb-pills">' + "".join(markup.pill(p.label, p.status, title=p.hint) for p in pills) + "</div>")


# --- what is wrong with ourselves ---


def _alerts(page: Page) -> None:
    view = page.view()
    brokers = state.read_cached(overview.brokers, page.cluster_id, version=view.version)
    notices = health_words.blindness(view, brokers, page.zone)
    with st.container(key="alerts"):
        for notice in notices:
            st.html(markup.alert(notice.status, notice.title, notice.sentence, notice.note))


def _sign_in() -> None:
    st.html(markup.empty("Sign in to see the cluster."))
    with st.container(horizontal=True, horizontal_alignment="center"):
        st.button("Sign in", on_click=st.login, type="primary")


def _wait() -> None:
    """Instead of the page, until there is a cluster to show."""

    @st.fragment(run_every=REFRESH_WAIT_S)
    def wait() -> None:
        try:
            known = state.view(_wanted_cluster())
        except DatabaseAway as error:
            _database_away(str(error))
            return
        if known is not None:
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


# --- cards ---


def card_head(name: str, title: str, clause: str = "", *, html: str = "", rows: Any = None, files: Any = None) -> None:
    """The first line of a card, at its right the table twin when ``rows`` (a data frame) is given.

    ``files``: a function that gives the rows of a card that is a table already, to take away as a file.
    """
    with st.container(horizontal=True, key=f"cardhead-{name}"):
        title_line(name, title, clause, html=html)
        if rows is not None:
            table_twin(name, title, rows)
        elif files is not None:
            export_menu(name, title, files)


def title_line(name: str, title: str, clause: str = "", *, html: str = "") -> None:
    """A card's title with its source and age, where a whole :func:`card_head` does not fit."""
    st.html(markup.card_title(title, clause, html=source(name) + html))


def source(name: str) -> str:
    """The mark that says where the numbers of this card come from, as of what its part of the page has read."""
    return sources.note_html(name, st.session_state.get(_SEEN))


def table_twin(name: str, title: str, rows: Any) -> None:
    """The same facts as rows, for those who cannot use the picture."""
    with st.popover("View as table", key=f"table-{name}"):
        st.dataframe(rows, hide_index=True, width="content", key=f"twin-{name}", alt=f"{title}, as a table")
        downloads(name, title, rows)


def export_menu(name: str, title: str, rows: Any) -> None:
    """The files of a card that is a table already."""
    with st.popover("Export", key=f"table-{name}"):
        downloads(name, title, rows)


def downloads(name: str, title: str, rows: Any) -> None:
    """CSV and Parquet of these rows, made when somebody asks for them."""
    subject = (st.query_params.get("tp") or st.query_params.get("q") or "").strip()
    words = f"{subject} {title}".strip()
    with st.container(horizontal=True, key=f"downloads-{name}"):
        for kind, make, mime in (
            ("CSV", export.csv, "text/csv"),
            ("Parquet", export.parquet, "application/vnd.apache.parquet"),
        ):
            download(f"{kind.lower()}-{name}", kind, partial(make, rows), export.file_name(words, kind.lower()), mime)


def download(key: str, label: str, make: Callable[[], bytes], file_name: str, mime: str) -> None:
    """A button whose file is made when it is pressed; it changes nothing on the page."""
    st.download_button(
        label,
        make,
        file_name=file_name,
        mime=mime,
        key=f"download-{key}",
        on_click="ignore",
        icon=":material/download:",
    )


def body_key(view: View, name: str) -> str:
    """The key of a card's content: greyed while the data behind it is stale."""
    return f"{'stale' if health_words.stale(view) else 'fresh'}-{name}"


def ledger_key(view: View, name: str) -> str:
    """As :func:`body_key`, for what comes from the pipeline's ledger: greyed while nobody reads its events."""
    pipeline = view.processes.get("pipeline")
    silent = view.away is not None or (pipeline is not None and not pipeline.alive)
    return f"{'stale' if silent else 'fresh'}-{name}"


def standing_order(slot: str, names: Sequence[str], question: object) -> list[str]:
    """The order in which this question was first answered, without what is gone, new ones at the end.

    The selection of a table is a row number: rows must not move under it while the page refreshes.
    """
    asked, before = st.session_state.get(slot, (None, []))
    present = set(names)
    order = [name for name in before if name in present] if asked == question else []
    known = set(order)
    order += [name for name in names if name not in known]
    st.session_state[slot] = (question, order)
    return order


def take_row(table: str, slot: str, names: Sequence[str]) -> None:
    """Puts the name of the row that is selected in ``table`` into the session and the link, as ``slot``."""
    rows = st.session_state[table].selection.rows
    if rows and rows[0] < len(names):
        st.session_state[slot] = names[rows[0]]
        st.query_params[slot] = names[rows[0]]
    else:
        st.session_state.pop(slot, None)
        st.query_params.pop(slot, None)


def say_unknown(name: str, known: Sequence[str]) -> None:
    """A notice when the link holds a value that this page does not know; the default is used."""
    wanted = st.query_params.get(name)
    if wanted is not None and wanted not in known:
        st.toast(f"There is no {name} {wanted!r:.40}; this is the default.")
