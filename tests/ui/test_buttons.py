"""Every button of every page: one call of the control API each, or none because it only changes the view."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from app import links, state
from app.control import user_api
from backend.store import tables as t
from tests.ui import seed
from tests.ui.api_stub import REFUSAL, refusing_api
from tests.ui.conftest import Database, now_ms, open_page, text_of

# The API request of each button. A button that is not here fails the test: say what it does.
CALLS = {
    r"change|change-other|dry-run": "POST /v1/plans",
    r"clear-throttle": "POST /v1/plans",
    r"review|save|elect|remove-records|topic-change|broker-change|set-aside-remove": "POST /v1/plans",
    r"revert-(\d+)": r"POST /v1/plans/\1/revert",
    r"race-start": "POST /v1/lab/bootstrap",
    r"race-cancel": "POST /v1/lab/bootstrap/cancel",
    r"pause": "POST /v1/plans/3/pause",
    r"mute-[18]-(\d+)": r"POST /v1/findings/\1/mute",
    r"unmute-(\d+)": r"POST /v1/findings/\1/mute",
    r"acknowledge-(\d+)": r"POST /v1/findings/\1/acknowledge",
    r"maintenance-begin": "POST /v1/maintenance",
    r"maintenance-end-(\d+)": r"DELETE /v1/maintenance/\1",
}
VIEW_ONLY = re.compile(
    r"race-(step|pause|reset)|to-reassign|shortcut-\w+|window-\w+|now|(open|clone)-\d+|back|clear|cause-close|dismiss|resume|retry"
    # These open a dialog that asks; the call is made by its own button.
    r"|raise|stop"
)
# Made in the browser from what is on the page.
DOWNLOADS = re.compile(r"export.*|download.*")


@pytest.fixture
def running(trouble: Database) -> Database:
    """Also a move that is being carried out."""
    moment = now_ms()
    row: dict[str, Any] = {
        "id": 3,
        "cluster_id": seed.CLUSTER_ID,
        "kind": "reassign",
        "state": "running",
        "author": "ops-1",
        "role": "operator",
        "reason": "drain 5",
        "inputs": {"throttle_bytes_per_s": 50_000_000},
        "diff": {"object": "orders", "changes": []},
        "checks": [],
        "cli": [],
        "progress": {"batches": []},
        "created_ms": moment - 60_000,
        "updated_ms": moment,
        "requested_ms": moment - 50_000,
    }
    trouble.change(insert(t.operation).values(row))
    return trouble


def test_a_review_and_a_left_limit_s_removal_are_one_call_each(trouble: Database, tmp_path: Path) -> None:
    moment = now_ms()
    limit = {"object": "cluster", "severity": "warning", "sentence": "orders is limited.", "action": "Clear it."}
    times = {"opened_ms": moment, "seen_ms": moment}
    trouble.change(insert(t.finding).values(cluster_id=seed.CLUSTER_ID, slug="throttle-left", **limit, **times))
    with refusing_api(tmp_path) as api:
        page = open_page("reassign")
        page.multiselect(key="topics").set_value(["orders"]).run()
        page.multiselect(key="brokers-add").set_value([6]).run()
        for key in ("review", "clear-throttle"):
            api.calls.clear()
            page.button(key=key).click().run()
            assert not page.exception
            assert api.calls == [_expected(key)]
            assert REFUSAL in text_of(page)


def test_what_a_person_decides_about_findings_is_one_call_each(trouble: Database, tmp_path: Path) -> None:
    moment = now_ms()
    lost = {"object": "orders-1", "severity": "critical", "sentence": "No leader: orders-1", "action": "Start it."}
    trouble.change(
        insert(t.finding).values(
            id=41, cluster_id=seed.CLUSTER_ID, slug="offline", opened_ms=moment, seen_ms=moment, **lost
        ),
        insert(t.maintenance_window).values(
            id=5, cluster_id=seed.CLUSTER_ID, begins_ms=moment - 1, ends_ms=moment + 3_600_000, topic="logs-*",
            reason="a test", created_ms=moment, created_by="ops-1",
        ),
    )  # fmt: skip
    with refusing_api(tmp_path) as api:
        for key in ("mute-1-41", "mute-8-41", "acknowledge-41"):
            page = open_page("overview")
            page.button(key=key).click().run()
            assert not page.exception
            assert api.calls == [_expected(key)]
            assert REFUSAL in text_of(page)
            api.calls.clear()
        muted = t.finding.update().where(t.finding.c.id == 41).values(muted_until_ms=moment + 3_600_000)
        entry = {"at_ms": moment, "actor": "ops-1", "role": "operator", "action": "mute finding"}
        entry |= {"object": "offline orders-1", "result": "verified"}
        trouble.change(muted, insert(t.audit).values(cluster_id=seed.CLUSTER_ID, **entry))
        page = open_page("overview")
        assert "mute-1-41" not in {button.key for button in page.button}
        (listed,) = [expander for expander in page.expander if expander.label == "1 muted"]
        assert "No leader: orders-1" in "".join(str(element.proto.body) for element in listed.get("html"))
        assert re.search(r"muted until \d\d:\d\d:\d\d|muted until \d{4}-", text_of(page))
        assert "by ops-1" in text_of(page)
        page.button(key="unmute-41").click().run()
        assert api.calls == [_expected("unmute-41")]
        assert REFUSAL in text_of(page)
        api.calls.clear()
        page = open_page("activity")
        assert "topics logs-*" in text_of(page)
        page.button(key="maintenance-end-5").click().run()
        assert api.calls == [_expected("maintenance-end-5")]
        assert REFUSAL in text_of(page)
        api.calls.clear()
        assert page.button(key="maintenance-begin").disabled, "a window needs a reason"
        page.text_input(key="maintenance-reason").input("new disks").run()
        page.button(key="maintenance-begin").click().run()
        assert api.calls == [_expected("maintenance-begin")]
        assert not page.exception


def test_a_partition_s_actions_and_a_topic_s_settings_are_one_call_each(trouble: Database, tmp_path: Path) -> None:
    current = t.partition_current
    trouble.change(current.update().where(current.c.topic == "orders").values(leader=2, replicas=[4, 2, 5], isr=[2, 4]))
    with refusing_api(tmp_path) as api:
        page = open_page("partition", tp="orders-7")
        assert page.button(key="remove-records").disabled, "without an offset there is nothing to remove"
        page.text_input(key="remove-below").input("8 500 000").run()
        for key in ("elect", "remove-records"):
            api.calls.clear()
            page.button(key=key).click().run()
            assert not page.exception
            assert api.calls == [_expected(key)]
            assert REFUSAL in text_of(page)
        page = open_page("config", section="topics")
        page.selectbox(key="topic").select("orders").run()
        assert page.button(key="topic-change").disabled, "nothing differs yet"
        page.text_input(key="local.retention.ms-orders").input("99999999999999").run()
        assert "Kafka would refuse it: local retention by time is above the total." in text_of(page)
        assert page.button(key="topic-change").disabled
        page.text_input(key="local.retention.ms-orders").input("7200000").run()
        assert "local.retention.ms = 7200000 (2 h)" in text_of(page)
        api.calls.clear()
        page.button(key="topic-change").click().run()
        assert api.calls == [_expected("topic-change")]
        assert REFUSAL in text_of(page)


def test_a_double_click_acts_once(running: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = now_ms()
    monkeypatch.setattr(state, "now_ms", lambda: moment)
    with refusing_api(tmp_path) as api:
        for name, key in (("config", "change"), ("reassign", "pause")):
            page = open_page(name)
            for after_ms, calls in ((0, 1), (user_api.DOUBLE_CLICK_MS - 1, 1), (user_api.DOUBLE_CLICK_MS, 2)):
                if after_ms == 0:
                    api.calls.clear()
                monkeypatch.setattr(state, "now_ms", lambda at_ms=moment + after_ms: at_ms)
                page.button(key=key).click().run()
                assert not page.exception, name
                assert len(api.calls) == calls, f"{name}: {key} {after_ms} ms after the first press"
            moment += 2 * user_api.DOUBLE_CLICK_MS


def test_every_button_makes_exactly_one_call_or_only_changes_the_view(running: Database, tmp_path: Path) -> None:
    pressed: dict[str, str] = {}
    with refusing_api(tmp_path) as api:
        for name in links.NAMES:
            query: dict[str, Any] = {"tp": "orders-7"} if name == "partition" else {}
            page = open_page(name, **query)
            for key in sorted({str(button.key) for button in page.button if not button.disabled}):
                if key in pressed or DOWNLOADS.fullmatch(key):
                    continue
                api.calls.clear()
                page = open_page(name, **query)
                page.button(key=key).click().run()
                where = f"{name}: {key}"
                assert not page.exception, where
                expected = _expected(key)
                assert api.calls == ([expected] if expected else []), where
                if expected:
                    assert REFUSAL in text_of(page), f"{where}: a refusal is told"
                    page.run()
                    assert api.calls == [expected], f"{where}: to draw the page again asks nothing"
                pressed[key] = name
    missing = [pattern for pattern in CALLS if not any(re.fullmatch(pattern, key) for key in pressed)]
    assert missing == [
        "clear-throttle",
        "review|save|elect|remove-records|topic-change|broker-change|set-aside-remove",
        r"unmute-(\d+)",
        "maintenance-begin",
        r"maintenance-end-(\d+)",
    ], "these need more than a press"


def _expected(key: str) -> str | None:
    for pattern, call in CALLS.items():
        if match := re.fullmatch(pattern, key):
            return match.expand(call)
    assert VIEW_ONLY.fullmatch(key), f"what does the button {key} ask of the API?"
    return None
