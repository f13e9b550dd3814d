"""The state that every page needs: the cluster, reads of the database, the time.

Pages only read the database; the control API is for actions. Reads are cached by the data
version, a number that grows with each write of the observer and the pipeline, so that an auto-refresh without a change
costs one small query. While the database is away, pages show what was read last, with its age.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import streamlit as st
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from app.control.backend_readiness import database_readiness
from app.query_cache import CachedResult, QueryCache, SlidingMs
from backend.store.connection.database import StoreError, create_engine, reading
from backend.store.connection.database_faults import diagnose, first_line
from backend.store.connection.limits import PAGES
from backend.store.queries import health

T = TypeVar("T")

# A database that has just failed is asked again after this.
RETRY_MS: Final = 2_000
_query_cache: Final = QueryCache()


@dataclass(frozen=True, slots=True)
class DatabaseFailure:
    """That the database could not be read: since when and when last, as far as somebody looked."""

    first_ms: int
    last_ms: int
    sentence: str


_failed: Final[dict[str, DatabaseFailure]] = {}  # by URL


class DatabaseUnreachable(Exception):
    """The database cannot be read now; the message is one sentence for people."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The variables that `ebbline up` gives the dashboard."""

    database_url: str
    cluster_id: str
    api_url: str
    api_token_file: str
    allow_changes: bool = True


def environment() -> Environment:
    """Read at each call: tests change it."""
    return Environment(
        database_url=os.environ.get("EBBLINE_DATABASE_URL", ""),
        cluster_id=os.environ.get("EBBLINE_CLUSTER_ID", ""),
        api_url=os.environ.get("EBBLINE_API_URL", ""),
        api_token_file=os.environ.get("EBBLINE_API_TOKEN_FILE", ""),
        allow_changes=os.environ.get("EBBLINE_ALLOW_CHANGES", "true") != "false",
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@st.cache_resource(show_spinner=False, max_entries=4, on_release=Engine.dispose)
def _engine(url: str) -> Engine:
    return create_engine(url, PAGES, name="dashboard")


def read(query: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Result of ``query(connection, *arguments, **options)``. Raises DatabaseUnreachable."""
    url = environment().database_url
    failed = _failed.get(url)
    # Seven parts of a page would wait one after the other for a server that does not answer.
    if failed is not None and 0 <= now_ms() - failed.last_ms < RETRY_MS:
        raise DatabaseUnreachable(failed.sentence)
    try:
        with reading(_engine(url)) as connection:
            result = query(connection, *arguments, **options)
    except (SQLAlchemyError, StoreError) as error:
        diagnosis = diagnose(error)
        sentence = f"The database {diagnosis.sentence}." if diagnosis is not None else _as_sentence(first_line(error))
        moment = now_ms()
        _failed[url] = DatabaseFailure(moment if failed is None else failed.first_ms, moment, sentence)
        raise DatabaseUnreachable(sentence) from error
    _failed.pop(url, None)
    return result


def _as_sentence(cause: str) -> str:
    return f"{cause[:1].upper()}{cause[1:]}."


def read_cached(query: Callable[..., T], *arguments: Any, version: Hashable, **options: Any) -> T:
    """As :func:`read`, but asked only once per data version, and the last answer while the database is away.

    Arguments must be hashable; one that moves with the clock is a :class:`SlidingMs`. The result is shared: do not
    change it. Raises DatabaseUnreachable when the database is away and this was never read before.
    """
    named = tuple(sorted(options.items()))
    given = (*arguments, *(value for _, value in named))
    key = (
        environment().database_url,
        f"{query.__module__}.{query.__qualname__}",
        tuple(value.before_ms if isinstance(value, SlidingMs) else value for value in given),
        tuple(name for name, _ in named),
    )
    moments = tuple(value.at_ms for value in given if isinstance(value, SlidingMs))
    try:
        result: T = _query_cache.get(
            key,
            (version, *moments),
            now_ms(),
            lambda: read(query, *map(_passed, arguments), **{name: _passed(value) for name, value in named}),
        )
    except DatabaseUnreachable:
        last = _query_cache.last(key)
        if last is None:
            raise
        result = last.value
    return result


def _passed(value: Any) -> Any:
    return value.at_ms if isinstance(value, SlidingMs) else value


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster a page shows, and how fresh what it shows is, at ``now_ms``."""

    cluster: health.ClusterRow
    own: bool  # the cluster of this `ebbline up`; others are read-only
    clusters: list[health.ClusterRow]
    processes: dict[str, health.ProcessHealth]
    ages: health.SourceAges
    version: int
    now_ms: int
    read_ms: int  # when the database was read; before now_ms only while it is away
    away: str | None = None  # why the database cannot be read, one sentence
    away_seen_ms: int | None = None  # when a page noticed it: perhaps long after, if none was open
    responded_ms: int | None = None  # when it last responded to the backend, which always looks; None: not known
    write_problem: str | None = None  # why the database takes no writes, although it can be read; None: it takes them
    allow_changes: bool = True  # False: this `ebbline up` only looks at the cluster

    @property
    def seen_version(self) -> Hashable:
        """Version of rows whose times grow with each round of the observer: brokers and findings.

        In an idle cluster nothing else changes for minutes, and a time that stands still is taken for silence.
        """
        observer = self.processes.get("observer")
        return self.version, 0 if observer is None else observer.updated_ms


def view(cluster_id: str | None) -> ClusterView | None:
    """The head row's facts; None when the database knows no cluster yet.

    While the database is away: the facts read last, aged. Raises DatabaseUnreachable when there are none.
    """
    moment, own_id = now_ms(), environment().cluster_id
    chosen_id = cluster_id or own_id

    def load(connection: Connection) -> ClusterView | None:
        clusters = health.clusters(connection)
        chosen = next((row for row in clusters if row.cluster_id == chosen_id), None)
        if chosen is None:
            chosen = next((row for row in clusters if row.cluster_id == own_id), clusters[0] if clusters else None)
        if chosen is None:
            return None
        return ClusterView(
            cluster=chosen,
            own=chosen.cluster_id == own_id,
            clusters=clusters,
            processes=health.processes(connection, chosen.cluster_id, moment),
            ages=health.source_ages(connection, chosen.cluster_id, moment),
            version=health.data_version(connection, chosen.cluster_id),
            now_ms=moment,
            read_ms=moment,
            allow_changes=environment().allow_changes,
        )

    key = (environment().database_url, "view", chosen_id)
    try:
        current = read(load)
    except DatabaseUnreachable as error:
        last = _query_cache.last(key)
        if last is None or last.value is None:
            raise
        failed = _failed.get(environment().database_url)
        seen_ms = None if failed is None else failed.first_ms
        readiness = database_readiness(environment().api_url)
        responded_ms = None if readiness is None else readiness.responded_ms
        return replace(aged(last.value, moment, str(error), seen_ms), responded_ms=responded_ms)
    _query_cache.keep(key, CachedResult(current, 0, moment))
    return current if current is None else _with_write_problem(current)


def _with_write_problem(view: ClusterView) -> ClusterView:
    """A backend that gives no sign of life is asked itself: it cannot give one while another program locks SQLite."""
    backend = view.processes.get("backend")
    if not view.own or backend is None or not backend.stale:
        return view
    readiness = database_readiness(environment().api_url)
    return view if readiness is None else replace(view, write_problem=readiness.problem)


def aged(view: ClusterView, moment_ms: int, away: str, seen_ms: int | None = None) -> ClusterView:
    """``view`` as it is at a later moment, when nothing newer could be read, as was noticed at ``seen_ms``."""
    more_ms = moment_ms - view.read_ms

    def older(age_ms: int | None) -> int | None:
        return None if age_ms is None else age_ms + more_ms

    ages = health.SourceAges(
        older(view.ages.offsets_ms),
        older(view.ages.oldest_offsets_ms),
        older(view.ages.configs_ms),
        older(view.ages.pipeline_batch_ms),
    )
    return replace(view, ages=ages, now_ms=moment_ms, away=away, away_seen_ms=seen_ms)
