"""Commands about what others are told: the rules file for Prometheus, and who reads from the remote tier."""

from __future__ import annotations

import sys

from backend.cli import tables, value_text
from backend.cli.options import ApiOptions, console, show_json, with_options


def rules() -> None:
    """The rules file for Prometheus, one alert per incident. Asks nobody: `ebbline rules > ebbline.rules.yml`."""
    # Only here: it takes a moment to import the rules.
    from backend.control.alerts.prometheus_rules import rules_file

    sys.stdout.write(rules_file())


@with_options
def readers(options: ApiOptions) -> None:
    """Which groups read from the remote tier next, and how much is left for them there."""
    with options.connected() as opened:
        answer = opened.get("/v1/remote-readers")
    if options.json_:
        show_json(answer)
        return
    if answer["items"]:
        console().print(tables.readers(answer["items"]))
    elif answer["asked_ms"] is not None:
        print("No group is below the local log of a tiered partition.")
    if answer["error"] or answer["asked_ms"] is None:
        print(
            value_text.printable_text(answer["error"] or "The groups were not asked yet; wait a moment."),
            file=sys.stderr,
        )
