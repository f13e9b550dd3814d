"""The queue of a receiver: the newest state of each cause, each once, whatever happens in between."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.control.alerts import receiver_queue
from backend.control.alerts.notices import NoticeEvent, OpenAlerts
from backend.control.alerts.receiver_queue import DIGEST_ABOVE, Delivery, QueuePolicy, ReceiverQueue
from tests.unit.control.alerts.sample_notices import AT_MS, alerts, notice

ONE_BY_ONE = QueuePolicy()
ALERTMANAGER = QueuePolicy(digest_above=None, batch_max=500, every_severity=True)


def update(queue: ReceiverQueue, state: OpenAlerts) -> None:
    queue.update(state, state.open)


def drained(queue: ReceiverQueue) -> list[tuple[NoticeEvent, str, str]]:
    """All messages, each taken."""
    messages = []
    while (delivery := queue.next_delivery()) is not None:
        messages += [(n.event, n.object, n.severity) for n in delivery.notices]
        queue.mark_delivered(delivery)
    return messages


def first(queue: ReceiverQueue) -> Delivery:
    delivery = queue.next_delivery()
    assert delivery is not None
    return delivery


def test_a_cause_is_one_message_and_its_end_another() -> None:
    queue = ReceiverQueue(ONE_BY_ONE)
    update(queue, alerts(notice()))
    update(queue, alerts(notice()))
    assert drained(queue) == [(NoticeEvent.OPENED, "t-0", "critical")]
    update(queue, alerts(notice(evidence={"sentence": "For longer."})))
    assert queue.waiting == 0, "other numbers are no message"
    update(queue, alerts())
    assert drained(queue) == [(NoticeEvent.CLOSED, "t-0", "critical")]
    update(queue, alerts())
    assert (queue.waiting, queue.delivered) == (0, [])


def test_what_opens_and_closes_before_its_opening_was_delivered_leaves_nothing() -> None:
    queue = ReceiverQueue(ONE_BY_ONE)
    update(queue, alerts(notice()))
    update(queue, alerts())
    assert queue.waiting == 0


def test_what_closes_while_its_opening_is_on_its_way_is_followed_to_its_end() -> None:
    queue = ReceiverQueue(ONE_BY_ONE)
    update(queue, alerts(notice()))
    sent = first(queue)
    update(queue, alerts())
    assert queue.waiting == 0
    queue.mark_delivered(sent)
    assert drained(queue) == [(NoticeEvent.CLOSED, "t-0", "critical")], "without a round in between"
    assert queue.delivered == []


def test_what_closes_and_opens_again_before_its_end_was_delivered_leaves_nothing() -> None:
    queue = ReceiverQueue(ONE_BY_ONE)
    update(queue, alerts(notice()))
    drained(queue)
    update(queue, alerts())
    update(queue, alerts(notice(opened_ms=AT_MS + 5)))
    assert queue.waiting == 0


def test_a_severity_that_rises_is_a_message_and_one_that_falls_is_none() -> None:
    queue = ReceiverQueue(ONE_BY_ONE)
    update(queue, alerts(notice(severity="warning")))
    drained(queue)
    update(queue, alerts(notice(severity="critical")))
    update(queue, alerts(notice(severity="critical")))
    assert drained(queue) == [(NoticeEvent.CHANGED, "t-0", "critical")]
    for severity in ("warning", "critical", "notice"):
        update(queue, alerts(notice(severity=severity)))
        assert queue.waiting == 0


def test_alertmanager_is_given_a_falling_severity_too_as_it_is_part_of_an_alert_s_identity() -> None:
    queue = ReceiverQueue(ALERTMANAGER)
    update(queue, alerts(notice()))
    drained(queue)
    update(queue, alerts(notice(severity="notice")))
    assert drained(queue) == [(NoticeEvent.CHANGED, "t-0", "notice")]


def test_what_is_withheld_is_sent_once_that_ends_and_its_close_always() -> None:
    queue = ReceiverQueue(ONE_BY_ONE)
    muted = frozenset({notice().key})
    update(queue, alerts(withheld=muted))
    assert queue.waiting == 0
    update(queue, alerts(notice()))
    assert drained(queue) == [(NoticeEvent.OPENED, "t-0", "critical")]
    update(queue, alerts(withheld=muted))
    assert queue.waiting == 0, "a mute is no end"
    update(queue, alerts())
    assert drained(queue) == [(NoticeEvent.CLOSED, "t-0", "critical")]


def test_what_turns_out_to_be_explained_ends_with_its_cause_named() -> None:
    queue = ReceiverQueue(ONE_BY_ONE)
    update(queue, alerts(notice()))
    drained(queue)
    cause = ("broker-away", "broker 3")
    update(queue, alerts(explained={notice().key: cause}))
    [closed] = first(queue).notices
    assert (closed.event, closed.cause) == (NoticeEvent.CLOSED, cause)


def test_of_more_than_ten_that_wait_one_digest_is_made_and_covers_all() -> None:
    queue = ReceiverQueue(ONE_BY_ONE)
    update(queue, alerts(*(notice(number) for number in range(DIGEST_ABOVE))))
    assert (first(queue).digest, len(first(queue).notices)) == (False, 1)
    update(queue, alerts(*(notice(number) for number in range(DIGEST_ABOVE + 1))))
    digest = first(queue)
    assert (digest.digest, len(digest.notices)) == (True, DIGEST_ABOVE + 1)
    queue.mark_delivered(digest)
    assert (queue.waiting, len(queue.delivered)) == (0, DIGEST_ABOVE + 1)


def test_alertmanager_takes_many_at_once_and_no_digest() -> None:
    queue = ReceiverQueue(ALERTMANAGER)
    update(queue, alerts(*(notice(number) for number in range(501))))
    assert (first(queue).digest, len(first(queue).notices)) == (False, 500)


def test_a_finding_that_is_known_is_followed_wherever_routes_lead_then() -> None:
    queue = ReceiverQueue(ONE_BY_ONE)
    queue.update(alerts(notice(severity="warning"), notice(1)), {notice().key})
    assert drained(queue) == [(NoticeEvent.OPENED, "t-0", "warning")]
    queue.update(alerts(notice(severity="critical"), notice(1)), {notice(1).key})
    assert {(event, name) for event, name, _ in drained(queue)} == {
        (NoticeEvent.CHANGED, "t-0"),
        (NoticeEvent.OPENED, "t-1"),
    }
    queue.update(alerts(), set())
    assert {(event, name) for event, name, _ in drained(queue)} == {
        (NoticeEvent.CLOSED, "t-0"),
        (NoticeEvent.CLOSED, "t-1"),
    }


def test_a_state_that_arrives_while_a_message_is_on_its_way_goes_on_waiting() -> None:
    queue = ReceiverQueue(ONE_BY_ONE)
    update(queue, alerts(notice(severity="warning")))
    sent = first(queue)
    update(queue, alerts(notice(severity="warning", evidence={"sentence": "Other numbers."})))
    queue.mark_delivered(sent)
    assert queue.waiting == 0, "it is the same cause with the same severity"
    update(queue, alerts(notice(severity="critical")))
    sent = first(queue)
    update(queue, alerts())
    queue.mark_delivered(sent)
    assert drained(queue) == [(NoticeEvent.CLOSED, "t-0", "critical")]


def test_a_message_that_may_have_arrived_has_its_end_sent_too() -> None:
    queue = ReceiverQueue(ONE_BY_ONE)
    update(queue, alerts(notice()))
    queue.mark_doubtful(first(queue))
    update(queue, alerts(notice()))
    assert first(queue).notices[0].event is NoticeEvent.OPENED, "it is sent again"
    update(queue, alerts())
    assert drained(queue) == [(NoticeEvent.CLOSED, "t-0", "critical")]
    assert queue.delivered == []


def test_the_process_after_goes_on_with_what_was_delivered() -> None:
    before = ReceiverQueue(ONE_BY_ONE)
    update(before, alerts(notice(0), notice(1)))
    drained(before)
    after = ReceiverQueue(ONE_BY_ONE, before.delivered)
    assert after.still_open() == []
    update(after, alerts(notice(0), notice(2)))
    assert drained(after) == [(NoticeEvent.OPENED, "t-2", "critical"), (NoticeEvent.CLOSED, "t-1", "critical")]
    assert {n.object for n in after.still_open()} == {"t-0", "t-2"}


def test_a_storm_beyond_the_room_loses_no_end_of_a_finding_that_the_receiver_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A receiver that never gets an end has that finding open for good."""
    monkeypatch.setattr(receiver_queue, "WAITING_MAX", 3)
    queue = ReceiverQueue(QueuePolicy(digest_above=None), [notice(number) for number in range(3)])
    update(queue, alerts(notice(7), notice(8)))
    assert (queue.waiting, queue.superseded) == (3, 2)
    update(queue, alerts(notice(7), notice(8)))
    assert queue.superseded == 2, "each is counted once"
    assert {n[:2] for n in drained(queue)} == {(NoticeEvent.CLOSED, f"t-{number}") for number in range(3)}
    assert queue.delivered == []
    update(queue, alerts(notice(7), notice(8)))
    assert {n[:2] for n in drained(queue)} == {(NoticeEvent.OPENED, "t-7"), (NoticeEvent.OPENED, "t-8")}


def test_a_message_that_may_have_arrived_keeps_its_end_in_a_storm_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_queue, "WAITING_MAX", 1)
    queue = ReceiverQueue(ONE_BY_ONE)
    update(queue, alerts(notice()))
    queue.mark_doubtful(first(queue))
    update(queue, alerts(notice(7), notice(8)))
    assert drained(queue) == [(NoticeEvent.CLOSED, "t-0", "critical")]


def test_a_storm_beyond_the_room_keeps_the_worst_openings_and_of_those_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiver_queue, "WAITING_MAX", 2)
    queue = ReceiverQueue(ONE_BY_ONE)
    update(queue, alerts(notice(1, severity="notice"), notice(2, severity="warning"), notice(3, severity="warning")))
    update(
        queue,
        alerts(notice(1, severity="notice"), notice(2, severity="warning"), notice(3, severity="warning"), notice(4)),
    )
    assert [(name, severity) for _, name, severity in drained(queue)] == [("t-2", "warning"), ("t-4", "critical")]


def test_a_day_away_leaves_no_more_than_what_is_open_and_what_ended() -> None:
    queue = ReceiverQueue(ONE_BY_ONE, [notice(0)])
    for minute in range(1, 1_440):
        update(queue, alerts(replace(notice(minute), opened_ms=minute)))
    assert queue.waiting == 2, "the one that is open, and the end of the one that was"
