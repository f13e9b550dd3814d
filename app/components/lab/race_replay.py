"""The recorded trace of a bootstrap race, one step after the other. Pure: the run as the API gives it → steps, runs.

The engine runs on independently of the step shown here: a step is an event that a replica's broker reported, with its
time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from app.components.shared import format as fmt
from app.components.shared import markup

RaceRun = Mapping[str, Any]
NAMES: Final = {False: "Flag off", True: "Flag on"}
_PHASE, _POSITION = "phases", "positions"


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """One thing that happened; ``seconds`` since that replica was asked for, so that both sides begin at 0."""

    seconds: float
    flag: bool
    what: str
    outcome: str
    kind: str
    at_ms: int


def sides(run: RaceRun) -> list[Mapping[str, Any]]:
    """Both replicas as far as they are known: those that have joined, and the one that is on its way."""
    racing = run.get("racing")
    if racing is None:
        return list(run["races"])
    end = (run["leader_log"] or {}).get("log_end")
    return [*run["races"], {"phases": [], "log_end": end, "joined": False, **racing}]


def steps(run: RaceRun) -> list[ReplayStep]:
    """All recorded steps of both replicas, in the order of the seconds since each one's start."""
    in_order = [step for race in sides(run) for step in (*_phases(race), *_positions(race))]
    # Of one moment: what the broker decided before where that put its log.
    return sorted(in_order, key=lambda step: (step.seconds, step.kind == _POSITION, step.flag))


def _phases(race: Mapping[str, Any]) -> list[ReplayStep]:
    return [
        ReplayStep(
            (seen["at_ms"] - race["began_ms"]) / 1000,
            race["flag"],
            str(seen["phase"]).lower().replace("_", " "),
            ("" if seen["target_offset"] is None else f"to {fmt.count(seen['target_offset'])}. ")
            + str(seen["reason"] or ""),
            _PHASE,
            seen["at_ms"],
        )
        for seen in race["phases"]
    ]


def _positions(race: Mapping[str, Any]) -> list[ReplayStep]:
    positions = []
    before: Mapping[str, Any] | None = None
    for seen in race["positions"]:
        began = before is None or before["local_start"] != seen["local_start"]
        what = f"Log starts at {fmt.count(seen['local_start'])}" if began else f"Has up to {fmt.count(seen['log_end'])}"
        outcome = f"{fmt.count(max(0, race['log_end'] - seen['log_end']))} to go"
        seconds = (seen["at_ms"] - race["began_ms"]) / 1000
        positions.append(ReplayStep(seconds, race["flag"], what, outcome, _POSITION, seen["at_ms"]))
        before = seen
    return positions


def until(run: RaceRun, number: int) -> RaceRun:
    """The run as it was after so many of its steps: a replica that had not joined then is on its way again."""
    recorded = steps(run)
    shown = recorded[: max(0, number)]
    if len(shown) == len(recorded):
        return run
    races = [_truncated(race, [step for step in shown if step.flag == race["flag"]]) for race in sides(run)]
    return {**run, "races": races, "racing": None}


def _truncated(race: Mapping[str, Any], shown: Sequence[ReplayStep]) -> dict[str, Any]:
    counts = {kind: sum(step.kind == kind for step in shown) for kind in (_PHASE, _POSITION)}
    complete = all(counts[kind] == len(race[kind]) for kind in counts)
    joined = complete and race.get("joined", True)
    return {**race, **{kind: race[kind][:count] for kind, count in counts.items()}, "joined": joined}


def step_text(run: RaceRun, number: int | None) -> str:
    """``step 14 of 22 · 3.1 s``; without a number the whole trace."""
    recorded = steps(run)
    if number is None:
        return f"{len(recorded)} steps recorded"
    shown = min(number, len(recorded))
    when = f" · {recorded[shown - 1].seconds:.2f} s" if shown else ""
    return f"step {shown} of {len(recorded)}{when}"


def rows(run: RaceRun) -> pd.DataFrame:
    """All steps, as plain values."""
    recorded = [(NAMES[step.flag], step.seconds, step.at_ms, step.what, step.outcome) for step in steps(run)]
    return pd.DataFrame(recorded, columns=["replica", "seconds", "at_ms", "what", "answer"])


def steps_table(run: RaceRun, number: int | None, most: int) -> str:
    """The newest ``most`` steps until this one, the newest last."""
    recorded = steps(run)
    shown = recorded if number is None else recorded[: max(0, number)]
    rows: list[list[markup.Cell | str]] = []
    for step in shown[-most:]:
        narrow = (f"{step.seconds:.3f} s", NAMES[step.flag], step.what)
        rows.append([*(markup.Cell(cell, css="eb-nowrap") for cell in narrow), step.outcome])
    columns = [("After", "right"), ("Replica", "left"), ("What", "left"), ("Answer", "left")]
    return markup.table(columns, rows, caption="What both new replicas did, newest last")
