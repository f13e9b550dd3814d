"""The parts of the soak that run now: those whose evidence is oldest, as many as fit into the time of a run."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Of a part that no result tells of.
UNKNOWN_S = 300.0
# Starts of clusters and browsers are in no test's own time.
STARTS = 1.3


@dataclass(frozen=True, slots=True)
class LastRun:
    """When a part last ran, as text that sorts; "" for never. ``seconds``: of all its tests, one after the other."""

    finished: str = ""
    seconds: float = UNKNOWN_S


def last_run(part: str, results: Sequence[dict[str, Any]]) -> LastRun:
    """When a test of the part last ran, by ``results``, oldest first, and the longest time that the part ever took."""
    runs = []
    for result in results:
        times = [float(test["seconds"]) for test in result["tests"] if _belongs(test, part)]
        if times:
            runs.append(LastRun(str(result["finished"]), STARTS * sum(times)))
    return LastRun(runs[-1].finished, max(run.seconds for run in runs)) if runs else LastRun()


def _belongs(test: dict[str, Any], part: str) -> bool:
    file, run = str(test["test"]).partition("::")[0], test.get("run")
    return run == part or (not run and (file == part or file.startswith(f"{part}/")))


def read_results(folder: Path) -> list[dict[str, Any]]:
    """The results in the folder, oldest first. The earliest results had their day in the file's name only."""
    results = []
    for file in folder.glob("*.json"):
        result = json.loads(file.read_text())
        results.append(result | {"finished": result.get("finished") or file.name[:8]})
    return sorted(results, key=lambda result: str(result["finished"]))


def parts_that_fit(
    parts: Sequence[str], alone: Collection[str], last_runs: dict[str, LastRun], *, workers: int, budget_s: float
) -> list[str]:
    """The parts that fit, in their own order; parts ``alone`` have no other beside them. At least one has its turn."""
    chosen: set[str] = set()
    left_s = budget_s
    for part in sorted(parts, key=lambda candidate: (last_runs[candidate].finished, parts.index(candidate))):
        takes_s = last_runs[part].seconds / (1 if part in alone else workers)
        if takes_s <= left_s or not chosen:
            chosen.add(part)
            left_s -= takes_s
    return [part for part in parts if part in chosen]
