"""The rules file for Prometheus: one alert per incident, and two about our own blindness. Made from the catalogue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from backend.control.findings.catalogue import SLUGS, runbook

OPEN_METRIC: Final = "ebbline_findings_open"
MEDIA_TYPE: Final = "text/plain"
# A scrape every 15 s to 60 s: twice that is no hiccup any more.
BLIND_FOR: Final = "2m"


def rules_file() -> str:
    """YAML. Findings have waited their time already, so their alerts fire at once."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Made by `ebbline rules`; Prometheus scrapes /metrics of the control API."
    yield "groups:"
    yield "  - name: ebbline"
    yield "    rules:"
    yield from _alert(
        "EbblineAway",
        "absent(ebbline_cluster_up)",
        {"severity": "critical"},
        {"summary": "Nothing is scraped from ebbline: it does not watch, or Prometheus does not reach it."},
        hold=BLIND_FOR,
    )
    yield from _alert(
        "EbblineClusterAway",
        "ebbline_cluster_up == 0",
        {"severity": "critical"},
        {"summary": "The watched cluster does not answer: nothing else here is known."},
        hold=BLIND_FOR,
    )
    for slug, title in SLUGS.items():
        yield from _alert(
            "Ebbline" + "".join(word.capitalize() for word in slug.split("-")),
            f'sum by (job, instance, severity, slug) ({OPEN_METRIC}{{slug="{slug}"}}) > 0',
            {},
            {"summary": title + ": {{ $value }} open.", "runbook": runbook(slug)},
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
