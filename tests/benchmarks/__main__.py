"""Runs the works on every peer that this machine has and writes a table and JSON.

python -m tests.benchmarks [--only GROUP …] [--quick] [--output DIR]

All of it takes at most 45 minutes: `rounds.BUDGETS_S` and `alone.BUDGETS_S` have the arithmetic. `observe` is measured
only when it is named.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks import alone
from tests.benchmarks.bootstrap import bootstrap_verdicts
from tests.benchmarks.machine import million_additions_per_s
from tests.benchmarks.rounds import Figures, measure
from tests.benchmarks.verdicts import NOT_MEASURED, target_alone, verdict_alone
from tests.benchmarks.works import WORKS, Work


def row(work: Work, figures: Figures) -> dict[str, Any]:
    """One work's medians, ranges, ratio and verdict, as they stand in the JSON."""
    ours, theirs = figures.ours.get(work.name, []), figures.theirs.get(work.name, [])
    failure = figures.failures.get(work.name)
    return {
        "group": work.group,
        "work": work.name,
        "unit": work.unit,
        "ebbline": statistics.median(ours) if ours else None,
        "apache_kafka": statistics.median(theirs) if theirs else None,
        "ratio": statistics.median(ours) / statistics.median(theirs) if ours and theirs else None,
        "rounds": len(ours),
        "target": str(work.target),
        "verdict": NOT_MEASURED if failure else work.target.verdict(ours, theirs),
        "failure": failure,
    }


def table_of(works: Sequence[Work], figures: Figures) -> Table:
    """One row a work: medians with ranges, ratio, verdict."""
    table = Table(title="ebbline beside Apache Kafka 4.3.1, same machine, same run, clients included")
    for heading in ("work", "unit", "ebbline", "Apache Kafka", "ratio", "rounds", "target"):
        table.add_column(heading)
    for work in works:
        result = row(work, figures)
        target = f"{result['target']}: {result['verdict']}" if result["target"] else ""
        table.add_row(
            work.name,
            work.unit,
            _range(figures.ours.get(work.name, [])),
            _range(figures.theirs.get(work.name, [])),
            "-" if result["ratio"] is None else f"{result['ratio']:.2f}x",
            str(result["rounds"]),
            target if result["failure"] is None else f"{target} ({result['failure']})",
        )
    return table


def _range(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} [{min(values):.2f}..{max(values):.2f}]" if values else "-"


def commit_id() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> int:
    """The whole run; exit code 0 when every work of ebbline gave a figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", nargs="+", default=[], choices=sorted({work.group for work in WORKS} | alone.BUDGETS_S.keys())
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("bench-results"))
    options = parser.parse_args()
    began_s = time.monotonic()
    # At the begin, between the two halves, and at the end.
    speeds = [million_additions_per_s()]
    works = [work for work in WORKS if not options.only or work.group in options.only]

    figures = Figures()
    console = Console(width=170)
    if works:
        measure(works, figures, quick=options.quick)
        console.print(table_of(works, figures))
        for verdict in bootstrap_verdicts():
            console.print(str(verdict), highlight=False)
    speeds.append(million_additions_per_s())
    rows_alone: list[dict[str, Any]] = []
    overdue: dict[str, str] = {}
    for group in alone.BUDGETS_S:
        if group not in options.only and (options.only or group in alone.ON_REQUEST):
            continue
        try:
            measured = alone.measure_alone(group, quick=options.quick)
        except alone.Overdue as error:
            overdue[group] = str(error)
            console.print(str(error), highlight=False)
            continue
        for name, value in measured.items():
            verdict_of = verdict_alone(name, value)
            rows_alone.append(
                {"group": group, "work": name, "ebbline": value, "target": target_alone(name), "verdict": verdict_of}
            )
            console.print(f"{name}: {value:.2f}{f': {verdict_of}' if verdict_of else ''}", highlight=False)
    speeds.append(million_additions_per_s())
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"{time.strftime('%Y%m%dT%H%M%S')}.json"
    path.write_text(
        json.dumps(
            {
                "commit": commit_id(),
                "machine": f"{platform.machine()}, {os.cpu_count()} cores",
                "python": platform.python_version(),
                "quick": options.quick,
                "seconds": round(time.monotonic() - began_s),
                "load_average": os.getloadavg(),
                "million_additions_per_s": speeds,
                "rows": [row(work, figures) for work in works],
                "rows_alone": rows_alone,
                "ebbline": figures.ours,
                "apache_kafka": figures.theirs,
                "apache_kafka_skipped": figures.kafka_skipped,
                "failures": figures.failures | overdue,
                "bootstrap_verdicts": [str(verdict) for verdict in bootstrap_verdicts()],
            },
            indent=2,
        )
    )
    took_s, load = time.monotonic() - began_s, os.getloadavg()[0]
    console.print(f"{took_s:.0f} s, load average {load:.1f} at the end; figures in {path}", highlight=False)
    result = ", ".join(f"{speed:.1f}" for speed in speeds)
    console.print(f"one core in plain Python, million additions/s, at begin, half time, end: {result}", highlight=False)
    return 1 if figures.failures or overdue else 0


if __name__ == "__main__":
    sys.exit(main())
