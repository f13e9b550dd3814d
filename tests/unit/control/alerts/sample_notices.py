"""Notices for tests of what is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from backend.control.alerts.alert_texts import ClusterName
from backend.control.alerts.notices import Notice, NoticeEvent, OpenAlerts
from backend.control.findings.finding_context import FindingKey

AT_MS = 1_800_000_000_000
CLUSTER = ClusterName("id", "demo")
PUBLIC = ClusterName("id", "demo", "https://ebbline.example.org")


def notice(number: int = 0, **more: Any) -> Notice:
    """`No leader: t-NUMBER`, critical."""
    made = Notice(
        NoticeEvent.OPENED,
        AT_MS,
        "offline",
        f"t-{number}",
        "critical",
        f"No leader: t-{number}",
        "Start broker 3.",
        {"sentence": "Nobody can read or write it."},
        "t",
        number,
        None,
        AT_MS,
    )
    return replace(made, **more)


def alerts(*notices: Notice, withheld: frozenset[FindingKey] = frozenset(), **more: Any) -> OpenAlerts:
    """Open alerts after a round."""
    return OpenAlerts(AT_MS + 1_000, {n.key: n for n in notices}, withheld, **more)
