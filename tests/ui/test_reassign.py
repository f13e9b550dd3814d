"""Reassign: what a move costs, and a move from choice to revert on a cluster that really runs."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import insert
from streamlit.testing.v1 import AppTest

from backend.store import tables as t
from tests.ui import seed
from tests.ui.conftest import Database, html_of, now_ms, open_page, text_of, viewer

GB = 1_000_000_000


def reassign_page(**options: Any) -> AppTest:
    page = open_page("reassign", **options)
    assert not page.exception
    return page


def stored(database: Database, number: int, state: str, **more: Any) -> None:
    """A plan that moves two partitions to broker 6."""
    moment = now_ms()
    parts = [("orders-0", "1, 2, 5", "1, 2, 6"), ("orders-4", "4, 5, 1", "4, 6, 1")]
    copy = {"off_bytes": 31 * GB, "on_bytes": 2 * GB, "in_effect_bytes": 31 * GB}
    rows = [{"topic": "orders", "partition": p, "broker_id": 6, **copy} for p in (0, 4)]
    estimate = {
        "replicas": 2,
        "qualifies": 2,
        "no_effect": 0,
        "blocked": 0,
        "unknown": 0,
        "off_bytes": 62 * GB,
        "on_bytes": 4 * GB,
        "in_effect_bytes": 62 * GB,
        "off_ms": 1_240_000,
        "on_ms": 80_000,
        "in_effect_ms": 1_240_000,
        "throttle_bytes_per_s": 50_000_000,
        "brokers": [{"broker_id": 6, "flag_on": False}],
        "partitions": rows,
        "age_ms": 4_000,
    }
    load = [
        {"broker_id": b, "replicas": 9, "replicas_after": 9, "leaders": 3, "local_bytes": n, "local_bytes_after": a}
        for b, n, a in ((5, 200 * GB, 138 * GB), (6, 100 * GB, 162 * GB))
    ]
    words = {"title": "Move 2 replicas", "act": "Move 2 replicas", "effect": "Copy 62.0 GB · limit 50.0 MB/s."}
    values = {
        "id": number,
        "cluster_id": seed.CLUSTER_ID,
        "kind": "reassign",
        "state": state,
        "author": "ops-1",
        "role": "operator",
        "reason": "drain 5",
        "inputs": {"throttle_bytes_per_s": 50_000_000},
        "diff": {
            "object": "orders",
            "changes": [{"object": o, "name": "replicas", "before": b, "after": a} for o, b, a in parts],
            "words": words,
            "load": load,
        },
        "checks": [{"name": "space", "outcome": "ok", "sentence": "There is space for what is copied."}],
        "cli": ["kafka-reassign-partitions.sh --execute --throttle 50000000"],
        "estimate": estimate,
        "created_ms": moment - 12_000,
        "updated_ms": moment,
    }
    database.change(insert(t.operation).values(values | more))


def test_without_plans_the_page_says_what_to_do_first(healthy: Database) -> None:
    page = reassign_page()
    assert "Nobody has planned a move yet." in text_of(page)
    assert page.button(key="review").disabled
    assert page.button(key="review").help == "Choose topics."


def test_a_stored_plan_shows_its_cost_its_lists_and_its_checks(trouble: Database) -> None:
    stored(trouble, 92, "checked")
    page = reassign_page(plan="92")
    shown = text_of(page)
    assert "From leader local start flag off · in effect on broker 6 62.0 GB 20 m 40 s at 50.0 MB/s" in shown
    assert "From earliest pending if the flag were on 4.0 GB 1 m 20 s at 50.0 MB/s −94% and in sync 19 m 20 s" in shown
    assert "orders-0 1 2 5 1 2 + 6 31.0 GB 2.0 GB" in shown
    assert "Broker 6 +62.0 GB" in shown
    assert "There is space for what is copied." in shown
    assert "Nothing has been changed" in shown
    assert "3 Review and execute" in shown, "the steps say where one is"
    assert not page.button(key="move").disabled
    page.button(key="move").click().run()
    assert not page.exception
    assert page.button(key="act").disabled, "reason and name are asked for"


def test_a_running_plan_is_on_top_with_its_limit_and_the_way_to_stop_it(trouble: Database) -> None:
    moving = [
        {"topic": "orders", "partition": 0, "broker_id": 6, "local_bytes": 5 * GB, "phase": "fetching", "in_isr": False}
    ]
    counts = {"done": 1, "moving": 1, "waiting": 0}
    progress = {"partitions": 2, "counts": counts, "copied_bytes": 31 * GB, "moving": moving}
    stored(trouble, 91, "running", progress=progress, requested_ms=now_ms())
    page = reassign_page()
    shown = text_of(page)
    assert "Running Plan #91 · orders 1 of 2 partitions · 31.0 GB of 62.0 GB ● limit 50.0 MB/s owned by #91" in shown
    assert "orders-0 broker 6 fetching 5.0 GB" in shown
    page.button(key="stop").click().run()
    assert "1 partition finished and stay where they are. 1 go back to their old replicas" in text_of(page)
    assert page.button(key="keep").label == "Keep moving"


def test_a_viewer_may_look_and_try_and_not_move(trouble: Database) -> None:
    stored(trouble, 92, "checked")
    page = reassign_page(user=viewer(), plan="92")
    assert page.button(key="move").disabled
    assert page.button(key="move").help == "Read-only: ask for the operator role."
    assert page.button(key="revert-92").disabled


def test_an_attached_cluster_is_only_looked_at_unless_it_was_allowed(
    trouble: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EBBLINE_ALLOW_CHANGES", "false")
    stored(trouble, 92, "checked")
    page = reassign_page(plan="92")
    assert page.button(key="move").disabled
    assert "--allow-changes" in str(page.button(key="move").help)


def test_an_unknown_plan_in_the_link_is_told(trouble: Database) -> None:
    for plan in ("777", "nope", "1"):
        page = reassign_page(plan=plan)
        assert [note.value for note in page.toast] == [f"There is no reassignment {plan!r}; make a new one."]


def test_names_from_outside_are_text_and_never_markup(trouble: Database) -> None:
    evil = "<img src=x onerror=alert(1)>"
    stored(trouble, 92, "checked")
    trouble.change(t.operation.update().where(t.operation.c.id == 92).values(reason=evil, author=evil))
    markup = html_of(reassign_page())
    assert "<img src=x" not in markup
    assert "&lt;img src=x" in markup
