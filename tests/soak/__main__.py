"""Runs the tests that gain from length with their long efforts and writes what happened.

python -m tests.soak [--output FILE] [--all | TEST ...]

A run is planned for 60 minutes, by the times of earlier results: the parts whose evidence is oldest have their turn,
the result names those left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.engine_cluster import TIERING_VARIABLE
from tests.incidents.rigs.apache_cluster import KAFKA_VARIABLE
from tests.soak.turns import last_run, parts_that_fit, read_results

# Added up, the parts take some 100 minutes on 2 cores: the simulation 22, the pipeline 15 to 26, the control plane 13,
# a year of metadata 11, kills of brokers and clients 11, a large cluster 9, estimates 5 (their results have the times);
# the incidents take a run each, which is longer than an hour: they have it when their results are the oldest.
# Each names its efforts with `tests.effort`. Of a run's hour ten minutes are for what takes longer than before.
BUDGET_S = 50 * 60
TESTS = (
    "tests/properties",
    "tests/simulation",
    "tests/scenarios/test_transaction_table_as_kafka.py",
    "tests/interop/test_exactly_once_clients.py",
    "tests/interop/test_sessions.py",
    "tests/interop/test_transactions.py",
    "tests/cluster/test_broker_processes.py",
    "tests/cluster/test_exactly_once.py",
    "tests/cluster/test_hostile_requests.py",
    "tests/cluster/test_lost_disks.py",
    "tests/cluster/test_many_connections.py",
    "tests/cluster/test_most_expensive_requests.py",
    "tests/cluster/test_quorum.py",
    "tests/control/test_api_fuzz.py",
    "tests/control/test_estimates.py",
    "tests/control/test_kill_in_a_move.py",
    "tests/docs/test_pages_run.py",
    "tests/e2e/test_attach.py",
    "tests/incidents/test_small_disks.py",
    "tests/migrations/test_wheel_before.py",
    "tests/spark/test_pipeline.py",
    "tests/spark/test_pipeline_process.py",
    "tests/spark/test_time_travel.py",
    "tests/spark/test_batch_analysis.py",
    "tests/spark/test_full_disk.py",
    "tests/spark/test_secure_kafka.py",
    "tests/spark/test_spark_cluster.py",
    "tests/e2e/test_flights.py",
    "tests/e2e/test_dashboard.py",
    "tests/e2e/test_journeys.py",
    "tests/e2e/test_kill_backend.py",
    "tests/ui/test_browser.py",
)
# These measure times, so that nothing may run beside them.
ALONE_TESTS = (
    "tests/control/test_estimate_times.py",
    "tests/control/test_large_cluster.py",
    "tests/incidents/test_embedded.py",
    "tests/incidents/test_kafka.py",
    "tests/incidents/test_quiet_hour.py",
    "tests/spark/test_year.py",
)
# Once more with the tier switched on: what clients see does not depend on remote.log.storage.system.enable.
TIERED_TESTS = ("tests/interop",)
TIERED = "with the tier"
# And the incidents on an older Apache Kafka, for those who have not moved to the newest.
OLDER_KAFKA = "4.2.0"
OLDER = f"on Apache Kafka {OLDER_KAFKA}"
OLDER_TESTS = ("tests/incidents/test_kafka.py",)
# Most of them wait for clusters; the simulation and the properties fill both cores.
WORKERS = 2
SPREAD = ("--numprocesses", str(WORKERS), "--dist", "loadfile")
RESULTS = Path(__file__).parent / "results"


class Recorder:
    """Outcome and time of every test."""

    def __init__(self) -> None:
        self.tests: list[dict[str, object]] = []
        self.run = ""
        """What is special about the run that is under way."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.tests.append(
                {"test": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 1)}
                | ({"efforts": dict(report.user_properties)} if report.user_properties else {})
                | ({"run": self.run} if self.run else {})
            )


def commit_id() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def _parts_of_run(*, everything: bool) -> tuple[list[str], list[str]]:
    """The parts of this run, and those left out."""
    parts, results = [*TESTS, *ALONE_TESTS, TIERED, OLDER], read_results(RESULTS)
    if everything:
        return parts, []
    last_runs = {part: last_run(part, results) for part in parts}
    expected = parts_that_fit(parts, (*ALONE_TESTS, OLDER), last_runs, workers=WORKERS, budget_s=BUDGET_S)
    return expected, [part for part in parts if part not in expected]


def main() -> int:
    """Exit code 0 when every test passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS / f"{time.strftime('%Y%m%dT%H%M%S')}.json")
    parser.add_argument("--all", action="store_true", help="every part, however long it takes")
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()
    os.environ["EBBLINE_SOAK"] = "1"
    recorder = Recorder()
    started_s = time.monotonic()
    parts, left = (options.tests, []) if options.tests else _parts_of_run(everything=options.all)
    code = 0
    for tests, how in (
        ([test for test in parts if test not in (*ALONE_TESTS, TIERED, OLDER)], SPREAD),
        ([test for test in parts if test in ALONE_TESTS], []),
    ):
        if tests:
            code = pytest.main(["-q", *how, *tests], plugins=[recorder]) or code
    if OLDER in parts:
        recorder.run = OLDER
        os.environ[KAFKA_VARIABLE] = OLDER_KAFKA
        code = pytest.main(["-q", *OLDER_TESTS], plugins=[recorder]) or code
    if TIERED in parts:
        recorder.run = TIERED
        os.environ |= {TIERING_VARIABLE: "on", "EBBLINE_SOAK": "0"}
        code = pytest.main(["-q", *SPREAD, *TIERED_TESTS], plugins=[recorder]) or code
    options.output.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        "commit": commit_id(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "finished": time.strftime("%Y%m%dT%H%M%S"),
        "seconds": round(time.monotonic() - started_s),
        "exit_code": int(code),
        "left_for_the_next_run": left,
        "tests": recorder.tests,
    }
    options.output.write_text(json.dumps(facts, indent=2) + "\n")
    print(f"Results in {options.output}")
    if left:
        print(f"Left for the next run, as their results are newer: {' '.join(left)}")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
