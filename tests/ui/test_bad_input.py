"""Input from outside: edited URLs, names, clocks, ended sessions. Nothing breaks, leaks markup, or acts twice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from app import links
from backend.store import tables as t
from tests.ui.api_stub import refusing_api
from tests.ui.conftest import Database, html_of, open_page, text_of

EVIL = "<img src=x onerror=alert(1)>💥\u202e"
HOUR_MS = 3_600_000
# Every parameter that a page reads from its URL.
PARAMETERS = {
    "overview": ("range", "cluster", "tz"),
    "partitions": ("q", "state", "rank", "view", "at", "selected"),
    "partition": ("tp", "from", "to", "at", "vs"),
    "remote": ("q", "state", "at", "seg", "vs"),
    "followers": ("tp", "broker", "phase", "replica"),
    "reassign": ("plan", "step"),
    "config": ("section", "key", "topic"),
    "lab": ("scenario", "step"),
    "activity": ("q", "kind", "runbook", "cause"),
}


def test_an_edited_link_gives_a_page_and_no_markup(trouble: Database) -> None:
    value = EVIL + "9" * 5_000
    assert set(PARAMETERS) == set(links.NAMES)
    for name, parameters in PARAMETERS.items():
        query: dict[str, Any] = dict.fromkeys(("range", "cluster", "tz", *parameters), value)
        page = open_page(name, **query)
        assert not page.exception, name
        assert "<img" not in re.sub(r'<img src="data:image/svg\+xml[^>]*>', "", html_of(page)), name
        assert "Traceback" not in text_of(page), name


def test_names_with_markup_emoji_and_249_characters_are_text_on_every_page(trouble: Database) -> None:
    long_name = "x" * 249
    for table in (t.topic, t.partition_current, t.replica_current, t.remote_partition, t.segment, t.partition_sample):
        trouble.change(table.update().where(table.c.topic == "orders").values(topic=long_name))
    trouble.change(t.cluster.update().values(name=EVIL), t.broker.update().values(rack=EVIL, error=EVIL))
    trouble.change(t.audit.update().values(actor=EVIL, reason=EVIL), t.operation.update().values(author=EVIL))
    for name in links.NAMES:
        query: dict[str, Any] = {"tp": f"{long_name}-7"} if name == "partition" else {}
        page = open_page(name, **query)
        assert not page.exception, name
        assert "<img" not in re.sub(r'<img src="data:image/svg\+xml[^>]*>', "", html_of(page)), name
    assert long_name in text_of(open_page("partition", tp=f"{long_name}-7"))


def test_clocks_ahead_of_ours_give_no_negative_ages(trouble: Database) -> None:
    for table, column in ((t.partition_current, "sampled_ms"), (t.replica_current, "phase_since_ms")):
        trouble.change(table.update().values({column: table.c[column] + HOUR_MS}))
    trouble.change(t.process_status.update().values(updated_ms=t.process_status.c.updated_ms + HOUR_MS))
    trouble.change(t.segment.update().values(copy_started_ms=t.segment.c.copy_started_ms + HOUR_MS))
    for name in ("partitions", "remote", "followers"):
        page = open_page(name)
        assert not page.exception, name
        assert not re.search(r"[-−]\d+ (ms|s|m|h)\b", text_of(page)), name
    assert "Live · 1 s ago" in text_of(page)


def test_who_is_signed_out_meanwhile_sees_nothing_more_and_changes_nothing(trouble: Database, tmp_path: Path) -> None:
    ann: dict[str, Any] = {"is_logged_in": True, "email": "ann@example.com", "role": "operator"}
    with refusing_api(tmp_path) as api:
        page = open_page("config", user=ann)
        assert not page.button(key="change").disabled
        page.user = {"is_logged_in": False}
        page.button(key="change").click().run()
        assert not page.exception
        assert api.calls == []
        assert "Sign in to see the cluster." in text_of(page)
        assert "change" not in {str(button.key) for button in page.button}
        assert not page.dataframe
        page.user = {"is_logged_in": True, "email": "bob@example.com", "role": "operator"}
        page.run()
        assert "You are not signed in any more; nothing was changed." in text_of(page)


def test_who_lost_the_role_meanwhile_is_refused_by_the_api_s_own_check(trouble: Database, tmp_path: Path) -> None:
    ann: dict[str, Any] = {"is_logged_in": True, "email": "ann@example.com", "role": "operator"}
    with refusing_api(tmp_path) as api:
        page = open_page("config", user=ann)
        page.user = {**ann, "role": "viewer"}
        page.button(key="change").click().run()
        assert not page.exception
        assert api.roles == ["viewer"]
