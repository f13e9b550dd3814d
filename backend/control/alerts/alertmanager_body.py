"""Alerts as Alertmanager's API v2 takes them (`POST /api/v2/alerts`). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from backend.control.alerts.alert_texts import ClusterName
from backend.control.alerts.notices import Notice, NoticeEvent
from backend.control.alerts.page_links import finding_link, runbook_link
from backend.control.findings.finding_context import FindingKey

Alerts = list[dict[str, Any]]


def alertmanager_body(
    notices: Iterable[Notice], severity_before: Mapping[FindingKey, str], cluster: ClusterName
) -> Alerts:
    """The alerts of these notices. The severity is a label, and labels are an alert's identity: of a finding that
    changed it the alert with the former one (`severity_before`) ends.
    """
    alerts: Alerts = []
    for notice in notices:
        former = severity_before.get(notice.key)
        if former is not None and former != notice.severity:
            alerts.append(_alert(notice, former, cluster, ends_ms=notice.at_ms))
        ends_ms = notice.at_ms if notice.event is NoticeEvent.CLOSED else None
        alerts.append(_alert(notice, notice.severity, cluster, ends_ms=ends_ms))
    return alerts


def _alert(notice: Notice, severity: str, cluster: ClusterName, *, ends_ms: int | None) -> dict[str, Any]:
    labels = {
        "alertname": notice.slug,
        "severity": severity,
        "cluster": cluster.name,
        "object": notice.object,
        "topic": notice.topic,
        "partition": notice.partition,
        "broker": notice.broker_id,
    }
    link = finding_link(cluster.public_url, cluster.cluster_id, notice.topic, notice.partition)
    annotations = {
        "summary": notice.sentence,
        "description": f"{notice.why} {notice.action}".strip(),
        "runbook_url": runbook_link(cluster.public_url, notice.slug),
        "link": link,
    }
    alert: dict[str, Any] = {
        "labels": {name: str(value) for name, value in labels.items() if value is not None},
        "annotations": {name: value for name, value in annotations.items() if value is not None},
        "startsAt": _rfc3339(notice.opened_ms),
    }
    if ends_ms is not None:
        # An alert that ends before it starts is refused: the clock may have been set back.
        alert["endsAt"] = _rfc3339(max(ends_ms, notice.opened_ms + 1))
    if link is not None:
        alert["generatorURL"] = link
    return alert


def _rfc3339(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
