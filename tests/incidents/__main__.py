"""Plays incidents and writes docs/incidents.md.

python -m tests.incidents [--on embedded|kafka] [--only NAME …] [--no-page] [--list]

All of them take about an hour and a half on each cluster; the quiet hour is one of the incidents.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.incidents import results
from tests.incidents.catalogue import INCIDENTS
from tests.incidents.expectations import Where
from tests.incidents.page import page
from tests.incidents.runs import play_all

PAGE = Path(__file__).parents[2] / "docs" / "incidents.md"


def main() -> int:
    """Exit code 0 when each incident that was played went as it should."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=[where.value for where in Where])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="names of incidents, or parts of them")
    parser.add_argument("--no-page", action="store_true", help="leave docs/incidents.md as it is")
    parser.add_argument("--list", action="store_true", help="print the names")
    options = parser.parse_args()
    chosen = [
        incident
        for incident in INCIDENTS
        # The short form of the quiet hour is played when it is asked for.
        if (any(part in incident.name for part in options.only) if options.only else incident.name != "quiet-minutes")
    ]
    if options.list:
        print("\n".join(f"{incident.name:30} {incident.title}" for incident in chosen))
        return 0
    places = [Where(options.on)] if options.on else list(Where)
    began, began_s = results.now(), time.monotonic()
    played: list[results.Result] = []
    for where in places:
        for result in play_all(chosen, where):
            played.append(result)
            # After each, so that a run that is ended leaves what it has.
            results.write(played, began, time.monotonic() - began_s)
    if not options.no_page:
        PAGE.write_text(page(INCIDENTS, results.newest()))
        print(f"{PAGE} is written", file=sys.stderr)
    return 0 if all(result.passed or result.not_played for result in played) else 1


if __name__ == "__main__":
    sys.exit(main())
