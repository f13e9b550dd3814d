"""Readings that time lines are made of: findings of the API and of commands, and messages at the receiver."""

from __future__ import annotations

import httpx
import pytest

from tests.incidents.rigs.product import finding_of_command, seen
from tests.incidents.rigs.receiver import Receiver
from tests.incidents.timeline import CommandRead

ITEM = {
    "slug": "offline",
    "object": "a-0",
    "severity": "critical",
    "sentence": "No leader: a-0",
    "action": "Start broker 2.",
    "evidence": {"sentence": "Nobody can read or write it.", "isr": []},
    "cause_slug": None,
    "cause_object": None,
}


def test_a_finding_of_the_api_has_its_words_and_its_cause() -> None:
    finding = seen(ITEM)
    assert (finding.key, finding.severity, finding.cause) == (("offline", "a-0"), "critical", None)
    assert (finding.sentence, finding.why) == ("No leader: a-0", "Nobody can read or write it.")
    assert finding.action == "Start broker 2."
    caused = seen(ITEM | {"evidence": None, "cause_slug": "broker-away", "cause_object": "broker 2"})
    assert (caused.why, caused.cause) == ("", ("broker-away", "broker 2"))


@pytest.mark.parametrize(
    ("code", "text", "key"),
    [
        (3, "The API at http://x does not answer: start `ebbline up`.", ("backend-down", "backend")),
        (3, "The database does not answer.", ("database-away", "database")),
        (0, "Nothing needs attention.", None),
        (-1, "it did not end within 30 s", None),
    ],
)
def test_a_command_that_ends_with_3_is_a_finding_and_no_other_is(
    code: int, text: str, key: tuple[str, str] | None
) -> None:
    finding = finding_of_command(CommandRead(1.0, code, text))
    if key is None:
        assert finding is None
    else:
        assert finding is not None
        assert (finding.key, finding.severity, finding.sentence, finding.action) == (key, "critical", text, text)


def test_the_receiver_keeps_each_message_in_order() -> None:
    bodies = [
        {"event": "opened", "finding": {"slug": "offline", "object": "a-0", "severity": "critical"}},
        {"event": "digest", "findings": 12},
    ]
    with Receiver() as receiver:
        for body in bodies:
            assert httpx.post(receiver.url, json=body, timeout=10).status_code == 200
        assert httpx.get(receiver.heartbeat_url, timeout=10).status_code == 200
    assert len(receiver.beats) == 1
    first, second = receiver.notices
    assert (first.event, first.key, first.severity) == ("opened", ("offline", "a-0"), "critical")
    assert (second.event, second.key) == ("digest", ("unknown", ""))
    assert first.at_s <= second.at_s
