"""Runs the works on every peer that this machine has and writes a table and JSON.

python -m tests.benchmarks [--only GROUP] [--quick] [--output DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.bootstrap import bootstrap_verdicts
from tests.benchmarks.dashboard import measure_dashboard
from tests.benchmarks.many_topics import measure_many_topics
from tests.benchmarks.peers import Peer, PeerUnavailable, apache_kafka, ebbline
from tests.benchmarks.pipeline import measure_pipeline
from tests.benchmarks.quorum import measure_quorum
from tests.benchmarks.remote_metadata import measure_remote_metadata
from tests.benchmarks.slow_store import measure_slow_store
from tests.benchmarks.works import WORKS, Work

REPEATS, REPEATS_QUICK = 5, 1
# A work that has taken so long on one peer is not repeated once more. With it `tiering`, `times`, `slow-store` and
# `remote-metadata` together stay within 12 minutes on two quiet cores, about 4, 4, 2 and 2 of them.
REPEAT_BUDGET_S = 15.0
# Measured on ebbline alone: figures by name.
ALONE: dict[str, Callable[..., dict[str, float]]] = {
    "many-topics": measure_many_topics,
    "slow-store": measure_slow_store,
    "remote-metadata": measure_remote_metadata,
    "pipeline": measure_pipeline,
    "dashboard": measure_dashboard,
    "quorum": measure_quorum,
}
Figures = dict[str, list[float]]
# A limit in the name of a figure that is measured on ebbline alone: an upper one unless it says otherwise.
_TARGET = re.compile(r"\(target: (at least )?([\d.]+)\)")


def measure(open_peer: Callable[[], AbstractContextManager[Peer]], works: list[Work], *, quick: bool) -> Figures:
    """Every figure of one peer, by the work's name."""
    figures: Figures = {}
    with open_peer() as peer:
        for number, work in enumerate(works):
            started_s = time.monotonic()
            for repeat in range(REPEATS_QUICK if quick or not work.repeat else REPEATS):
                if repeat and time.monotonic() - started_s > REPEAT_BUDGET_S:
                    break
                topic = f"bench-{number}-{repeat}"
                value = work.measure(peer, topic, quick)
                peer.delete_topic(topic)
                figures.setdefault(work.name, []).append(value)
                print(f"  {peer.name}: {work.name}: {value:.2f} {work.unit}", file=sys.stderr, flush=True)
    return figures


def ratio(work: Work, ours: float, theirs: float) -> str:
    """Ours over theirs, and which way is better."""
    return f"{ours / theirs:.2f}x ({'more' if work.higher_is_better else 'less'} is better)"


def verdict(work: Work, ours: float, theirs: float) -> str:
    """The wanted ratio and whether it is met; nothing where none is named."""
    if work.target is None:
        return ""
    reached = ours / theirs
    is_met = reached >= work.target if work.higher_is_better else reached <= work.target
    bound = "at least" if work.higher_is_better else "at most"
    return f"{bound} {work.target}x: {'met' if is_met else 'missed'}"


def verdict_alone(name: str, value: float) -> str:
    """Whether a figure is within the target that its name tells."""
    told = _TARGET.search(name)
    if told is None:
        return ""
    limit = float(told[2])
    return ": met" if (value >= limit if told[1] else value <= limit) else ": missed"


def table_of(works: list[Work], ours: Figures, theirs: Figures | None) -> Table:
    """One row a work: medians, range, ratio."""
    table = Table(title="ebbline beside Apache Kafka 4.3.1, same machine, same run, clients included")
    for heading in ("work", "unit", "ebbline", "Apache Kafka", "ratio", "target"):
        table.add_column(heading)
    for work in works:
        mine = ours[work.name]
        row = [work.name, work.unit, f"{statistics.median(mine):.2f} [{min(mine):.2f}..{max(mine):.2f}]"]
        if theirs is None:
            row += ["-", "-", ""]
        else:
            other = theirs[work.name]
            row.append(f"{statistics.median(other):.2f} [{min(other):.2f}..{max(other):.2f}]")
            row.append(ratio(work, statistics.median(mine), statistics.median(other)))
            row.append(verdict(work, statistics.median(mine), statistics.median(other)))
        table.add_row(*row)
    return table


def commit_id() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> int:
    """The whole run; exit code 0 when every work of ebbline gave a figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted({work.group for work in WORKS} | ALONE.keys()))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("bench-results"))
    options = parser.parse_args()
    works = [work for work in WORKS if options.only in (None, work.group)]

    ours: Figures = {}
    theirs: Figures | None = None
    reason = None
    started_s = time.monotonic()
    console = Console(width=150)
    if works:
        ours = measure(ebbline, works, quick=options.quick)
        try:
            theirs = measure(apache_kafka, works, quick=options.quick)
        except PeerUnavailable as error:
            reason = str(error)
            print(f"Apache Kafka was not measured: {reason}", file=sys.stderr)
        console.print(table_of(works, ours, theirs))
        for verdict in bootstrap_verdicts():
            console.print(str(verdict), highlight=False)
    alone: dict[str, dict[str, float]] = {}
    for group, measure_alone in ALONE.items():
        if options.only in (None, group):
            group_started_s = time.monotonic()
            alone[group] = measure_alone(quick=options.quick)
            print(f"  {group}: {time.monotonic() - group_started_s:.0f} s", file=sys.stderr, flush=True)
            for name, value in alone[group].items():
                console.print(f"{name}: {value:.2f}{verdict_alone(name, value)}", highlight=False)
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"{time.strftime('%Y%m%dT%H%M%S')}.json"
    path.write_text(
        json.dumps(
            {
                "commit": commit_id(),
                "machine": f"{platform.machine()}, {os.cpu_count()} cores",
                "python": platform.python_version(),
                "quick": options.quick,
                "seconds": round(time.monotonic() - started_s),
                "load_average": os.getloadavg(),
                "ebbline": ours,
                "ebbline_alone": alone,
                "apache_kafka": theirs,
                "apache_kafka_skipped": reason,
                "bootstrap_verdicts": [str(verdict) for verdict in bootstrap_verdicts()],
            },
            indent=2,
        )
    )
    took_s, load = time.monotonic() - started_s, os.getloadavg()[0]
    console.print(f"Figures in {path}; {took_s:.0f} s, load average {load:.1f} at the end", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
