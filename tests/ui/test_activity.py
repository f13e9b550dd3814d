"""The Activity page over a seeded database: audit, plans and the way back, broker events, the timeline."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from sqlalchemy import func, select
from streamlit.testing.v1 import AppTest

from app.access.identity import VIEWER, User
from app.views.activity import activity_rules
from backend.store import tables as t
from tests.ui.api_stub import REFUSAL, refusing_api
from tests.ui.conftest import Database, html_of, now_ms, open_page, text_of, viewer
from tests.ui.seed import CLUSTER_ID, uuid_text

# Each rule has one.
RUNBOOKS: Final = Path(__file__).parents[2] / "docs" / "runbooks"

MINUTE_MS = 60_000


def _shown(page: AppTest) -> str:
    assert not page.exception
    return text_of(page).replace("\u202f", " ")


def _event_row(offset: int, kind: str, body: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "cluster_id": CLUSTER_ID,
        "source_partition": 0,
        "source_offset": offset,
        "type": kind,
        "broker_id": 2,
        "at_ms": now_ms() - MINUTE_MS,
        "topic": "orders",
        "topic_id": uuid_text(102),
        "partition": 7,
        "body": body,
        **more,
    }


def _refusal(**more: Any) -> dict[str, Any]:
    return {
        "cluster_id": CLUSTER_ID,
        "at_ms": now_ms() - MINUTE_MS,
        "actor": "vera",
        "role": "viewer",
        "action": "execute toggle_bootstrap",
        "object": "broker 1",
        "result": "refused",
        "detail": "The role viewer may not change the cluster.",
        **more,
    }


def test_audit_lists_who_did_what_and_how_it_ended(trouble: Database) -> None:
    shown = _shown(open_page("activity"))
    assert "Audit 2 entries, refusals included" in shown
    assert "ops-1 (operator) execute toggle bootstrap broker 5 not set → true ✓ verified #2 trial" in shown


def test_words_and_result_in_the_link_filter_the_audit(trouble: Database) -> None:
    trouble.change(t.audit.insert().values(**_refusal()))
    shown = _shown(open_page("activity", kind="Refused"))
    assert "Audit 1 entry of 3 entries" in shown
    assert "◆ refused" in shown
    assert "Audit 1 entry of 3 entries" in _shown(open_page("activity", q="#2"))
    assert "No entry fits." in _shown(open_page("activity", q="nobody"))


def test_unknown_kind_in_the_link_is_named(trouble: Database) -> None:
    page = open_page("activity", kind="Sabotage")
    assert "There is no kind 'Sabotage'" in page.toast[0].value
    assert "Audit 2 entries" in _shown(page)


def test_verified_plan_can_be_reverted_by_an_operator_only(trouble: Database) -> None:
    page = open_page("activity")
    assert "#2 broker 5: not set → true ✓ verified" in _shown(page)
    assert not page.button(key="revert-2").disabled
    page = open_page("activity", user=viewer())
    assert page.button(key="revert-2").disabled
    assert page.button(key="revert-2").help == "Read-only: ask for the operator role."


def test_revert_without_the_control_api_changes_nothing_and_says_so(trouble: Database) -> None:
    page = open_page("activity")
    page.button(key="revert-2").click().run()
    assert "Nothing was changed." in _shown(page)


def test_a_plan_of_another_kind_has_no_way_back_here(trouble: Database) -> None:
    trouble.change(t.operation.update().where(t.operation.c.id == 2).values(kind="something_else"))
    page = open_page("activity")
    assert not page.exception
    assert [button.key for button in page.button if str(button.key).startswith("revert-")] == ["revert-1"]


def test_broker_events_show_leader_changes_and_failures_only(trouble: Database) -> None:
    trouble.change(
        t.finding.delete(),
        t.engine_event.insert().values(_event_row(1, "leader", {"leader": 2, "leader_epoch": 18})),
        t.engine_event.insert().values(_event_row(2, "copy", {"outcome": "failed", "error": "no such bucket"})),
        t.engine_event.insert().values(_event_row(3, "copy", {"outcome": "finished"})),
        t.engine_event.insert().values(_event_row(4, "phase", {"phase": "FETCHING"})),
    )
    page = open_page("activity")
    shown = _shown(page)
    assert "orders-7: leads from epoch 18 on" in shown
    assert "◆ orders-7: copy failed: no such bucket" in shown
    assert "copy finished" not in shown
    figure = json.loads(page.get("plotly_chart")[0].proto.spec)
    marks = {trace["name"]: len(trace["y"]) for trace in figure["data"]}
    drawn = {"incidents": 0, "Leader changes": 1, "Failed on brokers": 1, "Operator actions": 1}
    assert marks == {**drawn, "Partition count": 0, "Ebbline itself": 0}


def test_what_the_product_itself_did_and_partitions_that_came_are_moments(healthy: Database) -> None:
    samples, moment = t.cluster_sample, now_ms()
    status = t.process_status
    at_ms = select(func.max(samples.c.sampled_ms)).scalar_subquery()
    healthy.change(
        status.update().where(status.c.process == "pipeline").values(started_ms=moment - 10 * MINUTE_MS),
        samples.update().where(samples.c.sampled_ms == at_ms).values(partitions=samples.c.partitions + 12),
    )
    page = open_page("activity")
    assert not page.exception
    rows = next(frame.value for frame in page.dataframe if "what" in frame.value.columns)
    by_kind = {kind: list(rows[rows["kind"] == kind]["what"]) for kind in ("Ebbline itself", "Partition count")}
    assert by_kind["Ebbline itself"] == ["Pipeline started"]
    assert len(by_kind["Partition count"]) == 1
    assert by_kind["Partition count"][0].startswith("12 partitions more, ")


def test_stored_findings_are_bars_of_the_timeline(trouble: Database) -> None:
    finding = {
        "cluster_id": CLUSTER_ID,
        "slug": "copy-hung",
        "object": "orders-7",
        "opened_ms": now_ms() - 10 * MINUTE_MS,
        "severity": "critical",
        "sentence": "Copy hung: orders-7",
        "action": "Look at the remote tier of broker 1.",
        "seen_ms": now_ms(),
    }
    trouble.change(t.finding.delete(), t.finding.insert().values(**finding))
    page = open_page("activity")
    assert not page.exception
    figure = json.loads(page.get("plotly_chart")[0].proto.spec)
    assert figure["layout"]["yaxis"]["ticktext"][0] == "Copy hung"


def test_where_nothing_happened_it_says_so(healthy: Database) -> None:
    shown = _shown(open_page("activity"))
    assert "Nobody has planned or changed anything yet." in shown
    assert "Nothing has been planned yet." in shown
    assert "None was told in this time." in shown


def test_without_the_backend_nothing_can_be_reverted_and_the_reason_is_told(trouble: Database) -> None:
    trouble.silence("backend", "observer")
    trouble.change(t.partition_current.update().values(sampled_ms=now_ms() - 60 * MINUTE_MS))
    page = open_page("activity")
    assert "Backend down since" in _shown(page)
    assert page.button(key="revert-2").disabled
    assert page.button(key="revert-2").help == "The backend is down: nothing can be changed until it runs again."
    assert any("stale-timeline" in str(block.proto) for block in page.get("flex_container"))


def test_names_from_outside_cannot_become_markup(trouble: Database) -> None:
    evil = "<img src=x onerror=alert(1)>"
    trouble.change(
        t.audit.insert().values(**_refusal(actor=evil, object=evil, reason=evil, detail=evil)),
        t.operation.update().values(reason=evil, author=evil, result={"executed_by": evil}),
        t.engine_event.insert().values(_event_row(1, "copy", {"outcome": "failed", "error": evil}, topic=evil)),
    )
    assert evil not in html_of(open_page("activity", q=evil))
    assert evil not in html_of(open_page("activity"))


def test_a_link_shows_its_runbook_and_one_that_is_not_there_says_so(healthy: Database) -> None:
    shown = open_page("activity", runbook="copy-hung")
    assert any("a copy does not end" in markdown.value for markdown in shown.markdown)
    missing = open_page("activity", runbook="../../README")
    assert missing.toast[0].value == "There is no runbook '../../README'."
    assert not any("make up" in markdown.value for markdown in missing.markdown)


def test_every_rule_is_listed_with_those_that_fire_first_and_the_file_for_prometheus(trouble: Database) -> None:
    table, opened_ms = t.finding, now_ms() - 25 * MINUTE_MS
    finding = {
        "cluster_id": CLUSTER_ID,
        "slug": "local-debt",
        "object": "orders-7",
        "severity": "warning",
        "sentence": "Its local log is past its retention.",
        "action": "Look at the segments.",
        "opened_ms": opened_ms,
        "seen_ms": opened_ms,
    }
    trouble.change(table.delete(), table.insert().values(finding))
    page = open_page("activity")
    shown = _shown(page)
    assert f"{len(list(RUNBOOKS.glob('*.md')))} rules · 1 firing" in shown
    assert "Local debt ◆ firing 25 m" in shown
    assert "Broker away ● quiet" in shown
    listed = next(frame.value for frame in page.dataframe if "firing" in frame.value.columns)
    assert next(iter(listed["rule"])) == "local-debt"
    assert "Download Prometheus rules" in {str(button.proto.label) for button in page.get("download_button")}


def test_a_maintenance_window_is_planned_with_begin_end_rule_topics_and_broker(
    healthy: Database, tmp_path: Path
) -> None:
    begins = datetime.now(UTC).replace(second=0, microsecond=0, tzinfo=None) + timedelta(hours=2)
    with refusing_api(tmp_path) as api:
        page = open_page("activity")
        assert page.button(key="maintenance-begin").label == "Begin now"
        page.datetime_input(key="maintenance-begins").set_value(begins)
        page.selectbox(key="maintenance-length").select("Until …").run()
        assert page.button(key="maintenance-begin").help == "Say when it ends."
        page.datetime_input(key="maintenance-ends").set_value(begins + timedelta(minutes=90))
        page.selectbox(key="maintenance-rule").select("copy-slow")
        page.selectbox(key="maintenance-broker").select("4")
        page.text_input(key="maintenance-topic").input("logs-*")
        page.text_input(key="maintenance-reason").input("new disks").run()
        assert not page.exception
        button = page.button(key="maintenance-begin")
        assert (button.label, button.disabled) == ("Plan it", False)
        button.click().run()
        assert api.calls == ["POST /v1/maintenance"]
        assert api.bodies == [
            {
                "begins_ms": round(begins.replace(tzinfo=UTC).timestamp() * 1000),
                "minutes": 90,
                "slug": "copy-slow",
                "topic": "logs-*",
                "broker_id": 4,
                "reason": "new disks",
            }
        ]
        assert REFUSAL in text_of(page)


def test_the_rules_file_is_made_outside_of_the_page_for_whom_it_was_drawn(tmp_path: Path) -> None:
    """Streamlit makes it on another thread, where nobody is signed in."""
    with refusing_api(tmp_path), ThreadPoolExecutor(1) as threads:
        made = threads.submit(activity_rules._rules_file, User("ann@example.com", VIEWER)).result(30)
    assert b"No rules were written" not in made
    assert json.loads(made) == {"run": None}, "what that server answers"
