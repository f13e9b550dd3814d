"""Routes: by severity, rule and topic; the first that fits, or all of them."""

from __future__ import annotations

from backend.control.alerts.routing import AlertRoute, RoutedFindings, Routing
from tests.unit.control.alerts.sample_notices import notice

PAGER = AlertRoute(("pager",), severities=frozenset({"critical"}), continues=True)
COPIES = AlertRoute(("storage", "chat"), slugs=("copy-*", "delete-lag"))
LOGS = AlertRoute(("logs",), topics=("logs-*",))
REST = AlertRoute(("chat",))
ROUTING = Routing((PAGER, COPIES, LOGS, REST))


def test_the_first_route_that_fits_counts_and_a_continuing_one_goes_on() -> None:
    assert ROUTING.receivers_of(notice(severity="warning", slug="copy-slow")) == {"storage", "chat"}
    assert ROUTING.receivers_of(notice(severity="critical", slug="copy-slow")) == {"pager", "storage", "chat"}
    assert ROUTING.receivers_of(notice(severity="notice", topic="logs-eu")) == {"logs"}
    assert ROUTING.receivers_of(notice(severity="notice", topic="orders")) == {"chat"}


def test_a_route_by_topic_fits_no_finding_without_one() -> None:
    assert Routing((LOGS,)).receivers_of(notice(topic=None)) == frozenset()


def test_a_receiver_of_everything_gets_everything() -> None:
    routing = Routing((LOGS,), frozenset({"webhook_url"}))
    assert routing.receivers_of(notice(topic=None)) == {"webhook_url"}


def test_findings_are_routed_again_when_their_severity_changes() -> None:
    routed = RoutedFindings(Routing((AlertRoute(("pager",), severities=frozenset({"critical"})),)))
    key = notice().key
    assert routed.chosen({key: notice(severity="warning")}, ["pager"]) == {"pager": frozenset()}
    assert routed.chosen({key: notice(severity="critical")}, ["pager"]) == {"pager": frozenset({key})}
    assert routed.chosen({}, ["pager"]) == {"pager": frozenset()}
