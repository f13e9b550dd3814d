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
    """An alert about the product itself; `expression` names numbers of `/metrics`."""

    name: str
    expression: str
    severity: str
    summary: str


# None of them is a finding: who is blind, dead or cannot speak does not say so.
OWN_ALERTS: Final = (
    OwnAlert(
        "EbblineAway",
        "absent(ebbline_cluster_up)",
        "critical",
        "Nothing is scraped from ebbline: it does not watch, or Prometheus does not reach it.",
    ),
    OwnAlert(
        "EbblineClusterDown",
        "ebbline_cluster_up == 0",
        "critical",
        "The watched cluster does not answer: nothing else here is known.",
    ),
    OwnAlert(
        "EbblineDatabaseDown",
        "ebbline_database_up == 0",
        "critical",
        "The database of ebbline takes no samples: history, ledger and plans stand still.",
    ),
    OwnAlert(
        "EbblinePipelineAway",
        "ebbline_pipeline_up == 0",
        "warning",
        "The pipeline gives no sign of life: what happens in the remote tier is not seen.",
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
            own.name, own.expression, {"severity": own.severity}, {"summary": own.summary}, hold=BLIND_FOR
        )
    for slug, title in SLUGS.items():
        link = runbook_link(public_url, slug)
        yield from _alert(
            "Ebbline" + "".join(word.capitalize() for word in slug.split("-")),
            f'sum by (job, instance, severity, slug) ({OPEN_METRIC}{{slug="{slug}"}}) > 0',
            {},
            {"summary": title + ": {{ $value }} open.", "runbook": link or runbook(slug)}
            | ({} if link is None else {"runbook_url": link}),
        )


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
