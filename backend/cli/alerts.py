"""Commands about what others are told: the rules file for Prometheus, and who reads from the remote tier."""

from __future__ import annotations

import sys

from backend.cli import tables, words
from backend.cli.options import (
    DATA_DEFAULT,
    ApiOption,
    DataOption,
    JsonOption,
    TokenOption,
    calls,
    console,
    show_json,
)


def rules() -> None:
    """The rules file for Prometheus, one alert per incident. Asks nobody: `ebbline rules > ebbline.rules.yml`."""
    # Only here: it takes a moment to import the rules.
    from backend.control.alerts.prometheus_rules import rules_file

    sys.stdout.write(rules_file())


def readers(
    api: ApiOption = None, token_file: TokenOption = None, data: DataOption = DATA_DEFAULT, json_: JsonOption = False
) -> None:
    """Which groups read from the remote tier next, and how much is left for them there."""
    with calls(api, token_file, data) as opened:
        answer = opened.get("/v1/remote-readers")
    if json_:
        show_json(answer)
        return
    if answer["items"]:
        console().print(tables.readers(answer["items"]))
    elif answer["asked_ms"] is not None:
        print("No group is below the local log of a tiered partition.")
    if answer["error"] or answer["asked_ms"] is None:
        print(words.plain(answer["error"] or "The groups were not asked yet; wait a moment."), file=sys.stderr)
