"""What every page needs: which cluster, how to read the database, what time it is.

Pages only read the database; the control API is for actions. Reads are cached by the data
version, a number that grows with each write of the observer and the pipeline, so that an
auto-refresh without news costs one small query.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import streamlit as st
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from backend.store.engine import StoreError, create_engine, reading
from backend.store.queries import health

T = TypeVar("T")

# A read is never older than this, even if the data version stands still.
CACHE_TTL_S = 30
CACHE_ENTRIES_MAX = 500


class DatabaseAway(Exception):
    """The database cannot be read now; the message is one sentence for people."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What `ebbline up` tells the dashboard."""

    database_url: str
    cluster_id: str
    api_url: str
    api_token_file: str


def environment() -> Environment:
    """Read at each call: tests change it."""
    return Environment(
        database_url=os.environ.get("EBBLINE_DATABASE_URL", ""),
        cluster_id=os.environ.get("EBBLINE_CLUSTER_ID", ""),
        api_url=os.environ.get("EBBLINE_API_URL", ""),
        api_token_file=os.environ.get("EBBLINE_API_TOKEN_FILE", ""),
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@st.cache_resource(show_spinner=False, max_entries=4)
def _engine(url: str) -> Engine:
    return create_engine(url)


def read(query: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Result of ``query(connection, *arguments, **options)``. Raises DatabaseAway."""
    try:
        with reading(_engine(environment().database_url)) as connection:
            return query(connection, *arguments, **options)
    except (SQLAlchemyError, StoreError) as error:
        cause = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise DatabaseAway(f"The database cannot be read: {cause}.") from error


@st.cache_data(show_spinner=False, ttl=CACHE_TTL_S, max_entries=CACHE_ENTRIES_MAX)
def _read_version(
    _query: Callable[..., Any], name: str, url: str, version: int, arguments: tuple[Any, ...], options: tuple[Any, ...]
) -> Any:
    with reading(_engine(url)) as connection:
        return _query(connection, *arguments, **dict(options))


def read_cached(query: Callable[..., T], *arguments: Any, version: int, **options: Any) -> T:
    """As :func:`read`, but asked only once per data version. Arguments must be hashable."""
    try:
        found: T = _read_version(
            query,
            f"{query.__module__}.{query.__qualname__}",
            environment().database_url,
            version,
            arguments,
            tuple(sorted(options.items())),
        )
    except (SQLAlchemyError, StoreError) as error:
        cause = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise DatabaseAway(f"The database cannot be read: {cause}.") from error
    return found


@dataclass(frozen=True, slots=True)
class View:
    """The cluster a page shows, and how fresh what it shows is, at ``now_ms``."""

    cluster: health.ClusterRow
    own: bool  # the cluster of this `ebbline up`; others are read-only
    clusters: list[health.ClusterRow]
    processes: dict[str, health.ProcessHealth]
    ages: health.SourceAges
    version: int
    now_ms: int


def view(cluster_id: str | None) -> View | None:
    """The head row's facts; None when the database knows no cluster yet. Raises DatabaseAway."""
    moment = now_ms()

    def load(connection: Connection) -> View | None:
        known = health.clusters(connection)
        own_id = environment().cluster_id
        wanted = cluster_id or own_id
        chosen = next((row for row in known if row.cluster_id == wanted), None)
        if chosen is None:
            chosen = next((row for row in known if row.cluster_id == own_id), known[0] if known else None)
        if chosen is None:
            return None
        return View(
            cluster=chosen,
            own=chosen.cluster_id == own_id,
            clusters=known,
            processes=health.processes(connection, chosen.cluster_id, moment),
            ages=health.source_ages(connection, chosen.cluster_id, moment),
            version=health.data_version(connection, chosen.cluster_id),
            now_ms=moment,
        )

    return read(load)
