"""Fixtures of the tests of the pages: a seeded database for each, and the dashboard run on it without a browser."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.sql.dml import Delete, Insert, Update
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from backend.store import tables as t
from backend.store.connection.database import writing
from tests.databases import new_sqlite, opened_engine
from tests.ui import seed
from tests.waiting import wait_until

MAIN = Path(__file__).resolve().parents[2] / "app" / "main.py"
# A page that takes a second takes minutes on a machine that is far too busy; only a hang takes longer.
RUN_TIMEOUT_S = 300
# Far beyond what a slow machine needs for a page: nothing here is stale unless a test makes it so.
INTERVAL_MS = 60_000


@dataclass(frozen=True, slots=True)
class Database:
    """The database that the dashboard of this test reads."""

    url: str
    engine: Engine

    def fill(self, *, trouble: bool = True, **options: Any) -> int:
        """Seeds it as of now, and returns that moment."""
        moment = now_ms()
        seed.seed(self.url, moment, trouble=trouble, **{"interval_ms": INTERVAL_MS, **options})
        return moment

    def change(self, *statements: Insert | Update | Delete) -> None:
        """Changes rows as the observer would: the data version grows."""
        table = t.process_status
        with writing(self.engine) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.execute(table.update().values(data_version=table.c.data_version + 1))

    def silence(self, *processes: str, age_ms: int = 10 * INTERVAL_MS) -> int:
        """These processes have been silent that long; returns when they were last heard."""
        last_ms = now_ms() - age_ms
        table = t.process_status
        self.change(table.update().where(table.c.process.in_(processes)).values(updated_ms=last_ms))
        return last_ms


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(autouse=True, scope="session")
def no_search_for_components() -> Iterator[None]:
    """AppTest reads the metadata of every installed package for components, half of a page's time; we have none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", list)
        yield


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A migrated, empty database; the dashboard reads it."""
    url = new_sqlite(tmp_path / "ebbline.db")
    monkeypatch.setenv("EBBLINE_DATABASE_URL", url)
    monkeypatch.setenv("EBBLINE_CLUSTER_ID", seed.CLUSTER_ID)
    monkeypatch.delenv("EBBLINE_API_URL", raising=False)
    monkeypatch.delenv("EBBLINE_API_TOKEN_FILE", raising=False)
    with opened_engine(url) as engine:
        yield Database(url, engine)


@pytest.fixture
def healthy(database: Database) -> Database:
    """Six brokers, seven topics, all in order."""
    database.fill(trouble=False)
    return database


@pytest.fixture
def trouble(database: Database) -> Database:
    """The same with a hung copy, a stuck follower, partitions far behind and a mixed flag."""
    database.fill(trouble=True)
    return database


def open_page(name: str = "overview", *, user: dict[str, Any] | None = None, **query: str) -> AppTest:
    """The page run once with these query parameters; ``user`` are the claims of a sign-in."""
    test = AppTest.from_file(str(MAIN), default_timeout=RUN_TIMEOUT_S)
    test.user = {} if user is None else user
    for key, value in query.items():
        test.query_params[key] = value
    if name != "overview":
        # AppTest switches only to pages that are files; ours are functions, known by the hash of their path.
        test._page_hash = calc_hash(name)
    return test.run()


def viewer() -> dict[str, Any]:
    """The claims of somebody who may only read."""
    return {"is_logged_in": True, "email": "vera@example.com", "role": "viewer"}


def html_of(test: AppTest) -> str:
    """All markup of the page, one element a line."""
    return "\n".join(str(element.proto.body) for element in test.get("html"))


def text_of(test: AppTest) -> str:
    """The text of the markup that a reader sees: tags dropped."""
    return plain(html_of(test))


def plain(markup: str) -> str:
    """Markup as one line of text without style sheets and tags."""
    without_style = re.sub(r"<style>.*?</style>", " ", markup, flags=re.DOTALL)
    # The help behind a figure's "i" is left out.
    without_sources = re.sub(r'<span class="eb-source".*?</span></span>', " ", without_style, flags=re.DOTALL)
    return re.sub(r"[ \n\t]+", " ", unescape(re.sub(r"<[^>]+>", " ", without_sources))).strip()


def press(page: AppTest, key: str) -> None:
    """Presses it when it can be pressed: on a busy machine the samples are too old for a moment."""
    wait_until(f"{key} can be pressed", lambda: not page.run().button(key=key).disabled)
    page.button(key=key).click().run()
    assert not page.exception
