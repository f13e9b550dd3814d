"""Messages by apprise to PagerDuty: one incident a finding, which ends with it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from backend.control.alerts.notices import Notice, NoticeEvent
from backend.control.alerts.receiver_config import ReceiverConfig, ReceiverKind
from backend.control.alerts.receiver_queue import Delivery
from backend.control.alerts.senders.apprise_sender import AppriseSender
from backend.control.alerts.senders.send_result import SendOutcome
from tests.unit.control.alerts.sample_notices import CLUSTER, notice

PAGER = "pagerduty://integrationkey@apikey"
CHAT = "json://chat.example.org/hook"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Bodies of events that PagerDuty is sent."""
    pagerduty = pytest.importorskip("apprise.plugins.pagerduty")
    bodies: list[dict[str, Any]] = []

    def post(*_: Any, data: str, **__: Any) -> SimpleNamespace:
        bodies.append(json.loads(data))
        return SimpleNamespace(status_code=202, content=b"")

    monkeypatch.setattr(pagerduty, "requests", SimpleNamespace(**{**vars(pagerduty.requests), "post": post}))
    return bodies


def sender(*urls: str, cluster_id: str = "id") -> AppriseSender:
    config = ReceiverConfig("oncall", ReceiverKind.APPRISE, urls)
    return AppriseSender(config, replace(CLUSTER, cluster_id=cluster_id))


def send(to: AppriseSender, sent_notice: Notice) -> None:
    assert asyncio.run(to.send(Delivery((sent_notice,)), {})).outcome is SendOutcome.TAKEN


def test_an_end_resolves_the_incident_that_the_opening_made(sent: list[dict[str, Any]]) -> None:
    pager = sender(PAGER)
    for event in (NoticeEvent.OPENED, NoticeEvent.CHANGED, NoticeEvent.CLOSED):
        send(pager, notice(event=event))
    assert [body["event_action"] for body in sent] == ["trigger", "trigger", "resolve"]
    assert len({body["dedup_key"] for body in sent}) == 1
    assert len(sent[0]["dedup_key"]) <= 255, "as PagerDuty limits it"


def test_each_finding_of_each_cluster_is_an_incident_of_its_own(sent: list[dict[str, Any]]) -> None:
    send(sender(PAGER), notice(0))
    send(sender(PAGER), notice(1))
    send(sender(PAGER, cluster_id="other"), notice(0))
    assert len({body["dedup_key"] for body in sent}) == 3


def test_a_key_that_stands_in_the_url_is_left_as_it_is(sent: list[dict[str, Any]]) -> None:
    send(sender(f"{PAGER}?dedup=mine"), notice(event=NoticeEvent.CLOSED))
    assert [(body["event_action"], body["dedup_key"]) for body in sent] == [("trigger", "mine")]


def test_pagerduty_is_sent_no_digest_as_none_could_end() -> None:
    assert ReceiverConfig("a", ReceiverKind.APPRISE, (CHAT, PAGER.upper())).policy.digest_above is None
    assert ReceiverConfig("a", ReceiverKind.APPRISE, (CHAT,)).policy.digest_above == 10
