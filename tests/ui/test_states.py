"""All pages in each state that they are designed for: one table of states, the same questions to every page."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Block

from app import links, state
from app.access.identity import READ_ONLY
from backend.store import tables as t
from tests.ui import many
from tests.ui.api_stub import refusing_api
from tests.ui.conftest import Database, html_of, now_ms, open_page, plain, text_of, viewer

# Buttons that plan or change something in the cluster; `revert-N` and `open-N` carry a plan's number.
WRITES = re.compile(
    r"change|change-other|revert-\d+|race-start|race-cancel|fault-break|fault-heal|clear-throttle|save|move|pause|raise|stop"
    r"|broker-change|set-aside-remove|topic-change|elect|remove-records"
    r"|(un)?mute-.*|acknowledge-.*|maintenance-(begin|end-.*)|rule-.*"
)
# Old data stops nobody there: what the lab broke may be the cause, and must be healed; a mute changes no cluster.
LAB = re.compile(r"race-.*|fault-.*|(un)?mute-.*|acknowledge-.*|maintenance-.*|rule-.*")
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
# ui.md, section 8. A heatmap has a point a cell.
FIGURE_BYTES_MAX = 310_000
POINTS_MAX, CELLS_MAX = 2_000, 11_000


@dataclass(frozen=True, slots=True)
class State:
    """How the world is made so, what every page then says, and why nothing can be changed (None: it can)."""

    prepare: Callable[[Database], Any]
    says: str
    block: str | None = None
    user: dict[str, Any] | None = None


def _down(*processes: str) -> Callable[[Database], None]:
    def prepare(database: Database) -> None:
        database.fill(trouble=True)
        last_ms = database.silence(*processes)
        if "observer" in processes:
            age = {"sampled_ms": last_ms}
            database.change(
                t.partition_current.update().values(**age), t.broker.update().values(seen_ms=last_ms, **age)
            )

    return prepare


def _large(database: Database) -> None:
    many.seed_many(database.url, now_ms(), segments=1, trouble=True, interval_ms=HOUR_MS)


OLD_DATA = r"Data is \d+ m.* old\."
BACKEND_DOWN = "The backend is down: nothing can be changed until it runs again."
STATES = {
    "healthy": State(lambda database: database.fill(trouble=False), r"● Live · \d"),
    "nothing observed yet": State(lambda database: None, "No cluster has been observed yet"),
    "no tiered topic": State(lambda database: database.fill(trouble=False, topics=()), r"[6?]/6 brokers"),
    "stale": State(_down("observer"), r"▲ Not live since \d\d:", OLD_DATA),
    "backend down": State(_down("backend", "observer"), r"Backend down since \d\d:", BACKEND_DOWN),
    "pipeline down": State(_down("pipeline"), r"Pipeline down since \d\d:"),
    "no permission": State(lambda database: database.fill(trouble=True), r"● Live · \d", READ_ONLY, viewer()),
    "10,000 partitions": State(_large, r"● Live · \d"),
}


@pytest.mark.parametrize("name", STATES)
def test_every_page_has_a_designed_answer_to_a_state(database: Database, tmp_path: Path, name: str) -> None:
    designed = STATES[name]
    designed.prepare(database)
    with refusing_api(tmp_path) as api:
        for page_name in links.NAMES:
            query: dict[str, Any] = {"tp": "orders-7"} if page_name == "partition" else {}
            page = open_page(page_name, user=designed.user, **query)
            where = f"{page_name}, {name}"
            assert not page.exception, where
            assert re.search(designed.says, text_of(page)), f"{where}: {text_of(page)[-2_000:]}"
            assert "Traceback" not in text_of(page), where
            _may_write(page, designed, where)
            _is_bounded(page, where)
        assert api.calls == [], "to draw a page plans nothing"


def _may_write(page: AppTest, designed: State, where: str) -> None:
    """A control that writes is there and says why it is off; it is never hidden."""
    for button in page.button:
        key = str(button.key)
        if designed.block is None or not WRITES.fullmatch(key) or (designed.block == OLD_DATA and LAB.fullmatch(key)):
            continue
        assert button.disabled, f"{where}: {key}"
        assert re.search(designed.block, button.help or ""), f"{where}: {key} says {button.help!r}"


def _is_bounded(page: AppTest, where: str) -> None:
    """No figure, series or frame grows with the cluster beyond what a browser draws at once."""
    for chart in page.get("plotly_chart"):
        assert len(chart.proto.spec) <= FIGURE_BYTES_MAX, f"{where}: a figure of {len(chart.proto.spec)} bytes"
        for series in json.loads(chart.proto.spec)["data"]:
            most = CELLS_MAX if "cells" in chart.proto.id else POINTS_MAX
            assert len(series.get("customdata") or ()) <= most, where
            assert not isinstance(series.get("x"), list) or len(series["x"]) <= POINTS_MAX, where
    for frame in page.dataframe:
        assert len(frame.value) <= many.PARTITIONS, f"{where}: {len(frame.value)} rows"
    assert len(html_of(page)) <= 300_000, f"{where}: {len(html_of(page))} characters of markup"


@pytest.mark.parametrize("name", ["partition", "reassign", "config", "activity", "lab"])
def test_every_write_control_is_there_for_a_viewer_too(trouble: Database, name: str) -> None:
    """Off with a reason, never hidden: who may not write sees the same controls."""
    query: dict[str, Any] = {"tp": "orders-7"} if name == "partition" else {}
    mine, theirs = (
        {str(button.key) for button in open_page(name, user=user, **query).button if button.key}
        for user in (None, viewer())
    )
    assert mine == theirs
    assert any(WRITES.fullmatch(key) or key == "review" for key in mine)


# --- a database that goes away ---


def test_a_database_that_goes_away_takes_nothing_from_a_page_however_late(
    trouble: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another session reads the head row a minute after a page was drawn, then the database goes away, for long."""
    clock, later_ms = time.time_ns, 0
    monkeypatch.setattr(time, "time_ns", lambda: clock() + later_ms * 1_000_000)
    then = {"at": str(now_ms() - 10 * MINUTE_MS)}
    pages = [open_page(name, **(query | then if "at" in query else query)) for name, query in LOOKS]
    later_ms = MINUTE_MS + 1
    assert state.view(None) is not None
    with trouble.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE process_status")
    for (name, query), page in zip(LOOKS, pages, strict=True):
        later_ms += MINUTE_MS
        page.run()
        assert not page.exception, name
        assert "this was not read before" not in text_of(page), f"{name} {query}"
        assert "▲ Database away" in text_of(page), f"{name} {query}"


# --- each number says its source and age ---

# Words and controls about the page itself, and texts of ours that are not from a cluster.
NO_NUMBERS = re.compile(
    r"head.*|filters|shortcuts|alerts|card-(choose|runbook|bootstrap|absent|none|no-past)|section.*"
)
SOURCE = re.compile(r'class="eb-source" [^>]*aria-label="Source: ([^"]+)\."')
AGE = re.compile(r", (\d+ [smhd]( \d+ [smh])? old|\? of unknown age)$")
LOOKS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("overview", {}),
    ("partitions", {"view": "Bars"}),
    ("partitions", {"view": "Table"}),
    ("partitions", {"view": "Heatmap"}),
    ("partition", {"tp": "orders-7", "at": "10m"}),
    ("remote", {"q": "orders-7", "at": "10m"}),
    ("followers", {}),
    ("reassign", {}),
    ("config", {"section": "bootstrap"}),
    ("config", {"section": "brokers"}),
    ("config", {"section": "topics"}),
    ("config", {"section": "history"}),
    ("activity", {}),
)


def test_each_number_says_its_source_and_age(trouble: Database) -> None:
    """Walks every element of every page that shows a digit, up to its card: that card says where it is from."""
    unsaid, walked = [], 0
    for name, query in LOOKS:
        page = open_page(name, **query)
        assert not page.exception, name
        for keys, element in _leaves(page.main, ()):
            if not _has_number(element) or any(NO_NUMBERS.fullmatch(key) for key, _ in keys):
                continue
            walked += 1
            cards = [block for key, block in keys if key.startswith("card-") or key.endswith("-tiles")]
            said = [source for card in cards for source in SOURCE.findall(_html_of(card))]
            if not said or not all(AGE.search(part) for source in said for part in unescape(source).split("; ")):
                unsaid.append(f"{name} {query}: {[key for key, _ in keys]}: {_words_of(element)[:80]}")
    assert not unsaid, "\n".join(unsaid)
    assert walked > 80


def _leaves(block: Any, above: tuple[tuple[str, Any], ...]) -> Iterator[tuple[tuple[tuple[str, Any], ...], Any]]:
    """Every element with the keyed containers around it, the cards and rows of the page."""
    for child in block.children.values():
        if isinstance(child, Block):
            named = [*above]
            if match := re.fullmatch(r"\$\$ID-[0-9a-f]+-(.*)", str(getattr(child.proto, "id", "") or "")):
                named.append((match[1], child))
            yield from _leaves(child, tuple(named))
        else:
            yield above, child


def _words_of(element: Any) -> str:
    if element.type == "html":
        return plain(str(element.proto.body))
    return str(element.value) if element.type == "markdown" else ""


def _has_number(element: Any) -> bool:
    if element.type in ("plotly_chart", "dataframe", "arrow_data_frame"):
        return True
    return bool(re.search(r"\d", _words_of(element)))


def _html_of(block: Any) -> str:
    return "\n".join(str(element.proto.body) for _, element in _leaves(block, ()) if element.type == "html")
