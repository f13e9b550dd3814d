"""The rules file for Prometheus: one alert per incident, and some about our own blindness. Made from the catalogue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from backend.control.alerts.page_links import runbook_link
from backend.control.findings.catalogue import SLUGS, runbook

OPEN_METRIC: Final = "ebbline_findings_open"
RECEIVER_METRIC: Final = "ebbline_receiver_up"
MEDIA_TYPE: Final = "text/plain"
# A scrape every 15 s to 60 s: twice that is no hiccup any more.
BLIND_FOR: Final = "2m"


@dataclass(frozen=True, slots=True)
class OwnAlert:
    """An alert about the product itself; `expression` names numbers of `/metrics`.

    `runbook_of`: the incident whose runbook says what to do; None: the page about alerts does.
    """

    name: str
    expression: str
    severity: str
    summary: str
    runbook_of: str | None = None

    def annotations(self, public_url: str | None) -> dict[str, str]:
        page = f"docs/alerts.md#{self.name.lower()}"
        return {"summary": self.summary} | (
            {"runbook": page} if self.runbook_of is None else _runbook(public_url, self.runbook_of)
        )


# None of them is a finding: who is blind, dead or cannot speak does not say so. A cluster, a database, a pipeline or an
# observer that is away is one, of the same process and the same `/metrics`: an alert of our own would ring twice.
OWN_ALERTS: Final = (
    OwnAlert(
        "EbblineAway",
        "absent(ebbline_cluster_up)",
        "critical",
        "Nothing is scraped from ebbline: it does not watch, or Prometheus does not reach it.",
    ),
    OwnAlert(
        "EbblineRoundsUnjudged",
        "ebbline_rounds_judged == 0",
        "critical",
        "Samples come, and no rule judges them: findings are of before.",
    ),
    OwnAlert(
        "EbblineReceiverAway",
        f"{RECEIVER_METRIC} == 0",
        "warning",
        "The receiver {{ $labels.receiver }} takes no messages: `ebbline receivers` says why.",
    ),
)


def rules_file(public_url: str | None = None) -> str:
    """YAML. Findings have waited their time already, so their alerts fire at once. Runbooks are links below
    `public_url`, where the dashboard has one; else paths of the repository.
    """
    return "\n".join(_lines(public_url)) + "\n"


def _lines(public_url: str | None) -> Iterator[str]:
    yield "# Made by `ebbline rules`; Prometheus scrapes /metrics of the control API."
    yield "groups:"
    yield "  - name: ebbline"
    yield "    rules:"
    for own in OWN_ALERTS:
        yield from _alert(
            own.name, own.expression, {"severity": own.severity}, own.annotations(public_url), hold=BLIND_FOR
        )
    for slug, title in SLUGS.items():
        yield from _alert(
            "Ebbline" + "".join(word.capitalize() for word in slug.split("-")),
            f'sum by (job, instance, severity, slug) ({OPEN_METRIC}{{slug="{slug}"}}) > 0',
            {},
            {"summary": title + ": {{ $value }} open."} | _runbook(public_url, slug),
        )


def _runbook(public_url: str | None, slug: str) -> dict[str, str]:
    link = runbook_link(public_url, slug)
    return {"runbook": runbook(slug)} if link is None else {"runbook": link, "runbook_url": link}


def _alert(
    name: str, expression: str, labels: dict[str, str], annotations: dict[str, str], *, hold: str | None = None
) -> Iterator[str]:
    """A JSON string is a YAML string."""
    yield f"      - alert: {name}"
    yield f"        expr: {json.dumps(expression)}"
    if hold is not None:
        yield f"        for: {hold}"
    for kind, values in (("labels", labels), ("annotations", annotations)):
        if values:
            yield f"        {kind}:"
            yield from (f"          {key}: {json.dumps(value)}" for key, value in values.items())
