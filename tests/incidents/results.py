"""Results of incidents that were played: as JSON in `results`, and as the page docs/incidents.md."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.incidents.expectations import Incident, Where
from tests.incidents.rigs.apache_cluster import kafka_version
from tests.incidents.verdicts import Verdict
from tests.oracle import apache_kafka

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = Path(__file__).parent / "results"
# The product, and the incidents with what must be said of them.
PLAYED: Final = (
    *("app", "backend", "spark", "migrations", "tests/incidents/catalogue", "tests/incidents/rigs"),
    *(":!backend/ARCHITECTURE.md", ":!backend/decisions"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One incident on one cluster. `not_played`: why it could not be, on that machine."""

    incident: str
    where: str
    commit: str
    not_played: str = ""
    passed: bool = False
    recall: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)
    cleared_s: Mapping[str, float] = field(default_factory=dict)
    missed: Sequence[str] = ()
    notices: int = 0
    notices_expected: int = 0
    false_findings: Sequence[str] = ()
    false_criticals: int = 0
    right_action: bool | None = None
    complaints: Sequence[str] = ()


def result_of(incident: Incident, where: Where, commit: str, verdict: Verdict) -> Result:
    """The row of a verdict."""
    return Result(
        incident=incident.name,
        where=where.value,
        commit=commit,
        passed=verdict.passed,
        recall=round(verdict.recall, 3),
        seconds={name: round(value, 1) for name, value in verdict.seconds.items()},
        cleared_s={name: round(value, 1) for name, value in verdict.cleared_s.items()},
        missed=verdict.missed,
        notices=verdict.notices,
        notices_expected=verdict.notices_expected,
        false_findings=[str(finding) for finding in verdict.false_findings],
        false_criticals=verdict.false_criticals,
        right_action=verdict.right_action,
        complaints=verdict.complaints,
    )


def commit_id() -> str:
    """The newest commit of the product and of the incidents, with `-dirty` when files differ from it.

    Later ones that change other tests or pages are the same product: results of several days are then of one commit.
    """
    commit = _git("log", "-1", "--format=%h", "--abbrev=12", "--", *PLAYED)
    return f"{commit or 'unknown'}{'-dirty' if _git('status', '--porcelain', '--', *PLAYED) else ''}"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False, cwd=ROOT).stdout.strip()


def write(results: Sequence[Result], began: str, seconds: float, folder: Path = FOLDER) -> Path:
    """One file for each run; two runs may begin in one second, each on its own cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = {
        "began": began,
        "seconds": round(seconds),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "kafka": kafka_version(),
        "results": [asdict(result) for result in results],
    }
    path = folder / f"{began}-{'-'.join(sorted({result.where for result in results}))}.json"
    path.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    return path


def newest(folder: Path = FOLDER) -> dict[tuple[str, str], Result]:
    """The newest result of each incident on each cluster; those of an older Apache Kafka stay files."""
    result: dict[tuple[str, str], Result] = {}
    for path in sorted(folder.glob("*.json")):
        facts: dict[str, Any] = json.loads(path.read_text())
        if facts.get("kafka", apache_kafka.DEFAULT_VERSION) != apache_kafka.DEFAULT_VERSION:
            continue
        for row in facts["results"]:
            result[row["incident"], row["where"]] = Result(**row)
    return result


def now() -> str:
    """The name of a run."""
    return time.strftime("%Y%m%dT%H%M%S")
