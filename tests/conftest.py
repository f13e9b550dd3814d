"""Settings of every test run, and the rule that CI skips nothing that it could run."""

from __future__ import annotations

import gc
import logging
import os
import warnings
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler.loadfile import LoadFileScheduling

from tests.checked import OUTSIDE, Guard, leave_out
from tests.effort import CHECK, SOAK
from tests.litter import left_behind, names
from tests.slow import HALVES, KEPT, SLOW, half_of
from tests.unsteady import unsteady

# Files of tests in memory: a cluster waits for its disk at every flush, and so for whoever else writes to that disk.
# No test cuts the power, and a kill leaves what was written to memory and to a page cache alike. A whole run keeps
# less than 2 GB (it keeps those of failed tests only).
MEMORY_FOLDER, MEMORY_FREE_BYTES = Path("/dev/shm"), 8 << 30
if MEMORY_FOLDER.is_dir():
    _room = os.statvfs(MEMORY_FOLDER)
    if _room.f_bavail * _room.f_frsize >= MEMORY_FREE_BYTES and not _room.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY_FOLDER))

# The same examples every time: `make test` fails for a change, never by luck. `make soak` looks for new ones.
# No example has a deadline: a busy machine may take half a second for what takes a microsecond.
settings.register_profile("test", derandomize=True, deadline=None)
settings.register_profile("soak", deadline=None)
settings.load_profile("soak" if SOAK else "test")

# Elsewhere an unclosed file, socket or coroutine is an error. The simulator abandons crashed processes as they stand;
# clients of others leave sockets when their constructors fail (kafka-python), and processes of `ebbline up` are
# killed in the middle. On a busy machine one test of the migrations leaves a connection of SQLAlchemy to PostgreSQL.
NOT_STRICT = ("tests/simulation/", "tests/interop/", "tests/e2e/", "tests/migrations/", "tests/incidents/")

# The process of `make check` that runs tests; its controller starts the workers.
GUARD = Guard() if CHECK else None

# Both clients tell every connection and rebalance; a failing test shows what the brokers logged instead.
for noisy in ("aiokafka", "kafka"):
    logging.getLogger(noisy).setLevel(logging.WARNING)

# What CI may lack although its script tries to install it: the reason of such a skip must name it.
MAY_BE_MISSING = {
    "chromium": "EBBLINE_CI_WITHOUT_CHROMIUM",
    "postgresql": "EBBLINE_CI_WITHOUT_POSTGRESQL",
    "pgbouncer": "EBBLINE_CI_WITHOUT_PGBOUNCER",
    "apache kafka is unavailable": "EBBLINE_CI_WITHOUT_APACHE_KAFKA",
    "a java compiler is unavailable": "EBBLINE_CI_WITHOUT_JAVA_COMPILER",
    "go is unavailable": "EBBLINE_CI_WITHOUT_GO",
    "spark's kafka connector is unavailable": "EBBLINE_CI_WITHOUT_SPARK_CONNECTOR",
    "promtool is unavailable": "EBBLINE_CI_WITHOUT_PROMTOOL",
}


# The names in the project's folder before the tests, and those that the tests have left there.
NAMES_BEFORE = pytest.StashKey[frozenset[str]]()
LEFT = pytest.StashKey[list[str]]()

# Files that go to one worker, beside the file they are named with: they share what is slow to start.
TOGETHER = {"tests/e2e/test_kill_backend.py": "tests/e2e/test_flights.py"}


# Folders of tests that wait for processes most of their time, and take the longest.
WAITING = (
    "tests/incidents/test_quick.py",
    "tests/e2e/",
    "tests/spark/",
    "tests/cluster/",
    "tests/interop/",
    "tests/control/",
    "tests/scenarios/",
)


# The files that take over a minute, the longest first: one that is left for the end would keep one worker alone.
LONGEST = (
    "tests/spark/test_pipeline_process.py",
    "tests/cluster/test_lost_voter_disk.py",
    "tests/control/test_findings.py",
    "tests/ui/test_browser.py",
    "tests/control/test_database_away.py",
    "tests/incidents/test_quick.py",
    "tests/interop/test_java_admin.py",
    "tests/spark/test_pipeline.py",
    "tests/e2e/test_dashboard.py",
    "tests/e2e/test_quorum_recover.py",
    "tests/cluster/test_damaged_logs.py",
    "tests/e2e/test_stopped_together.py",
    "tests/e2e/test_postgresql_away.py",
    "tests/e2e/test_provider.py",
    "tests/docs/test_pages_run.py",
    "tests/e2e/test_trouble_up.py",
    "tests/e2e/test_up_refuses.py",
    "tests/cluster/test_lost_disks.py",
    "tests/cluster/test_most_expensive_requests.py",
    "tests/ui/test_access.py",
    "tests/interop/test_java_tools.py",
)


class FileByFile(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """As `--dist loadfile`, but for files that belong together, and for who gets which.

    One worker begins with the tests that wait for nothing, which fill the core that the others leave; these begin with
    the tests that wait for processes, so that the longest are not left for the end.
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return TOGETHER.get(file, file)

    def _assign_work_unit(self, node: Any) -> None:
        waits = self.nodes.index(node) > 0
        queued = (*(file for file in LONGEST if file in self.workqueue), *self.workqueue)
        first = next((file for file in queued if file.startswith(WAITING) is waits), None)
        if first is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> FileByFile | None:
    return FileByFile(config, log) if config.getoption("dist") == "loadfile" else None


def _allowed(reason: str) -> bool:
    lacks = (name for name, variable in MAY_BE_MISSING.items() if os.environ.get(variable) == "1")
    return any(name in reason.lower() for name in lacks)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{OUTSIDE}: starts a process, a browser or a JVM, or waits for the real clock; not in `make check`"
    )

    config.addinivalue_line("markers", f"{SLOW}: in a file of tests/slow.py; `make test-slow` runs them")
    for half in HALVES:
        config.addinivalue_line("markers", f"{half}: in one half of them")


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[NAMES_BEFORE] = names()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """The run fails when the tests have left files in the project's folder."""
    left = [] if hasattr(session.config, "workerinput") else left_behind(session.config.stash[NAMES_BEFORE])
    session.config.stash[LEFT] = left
    if left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if left := config.stash.get(LEFT, []):
        terminalreporter.section("files in the project's folder", red=True)
        terminalreporter.line(f"Tests write to their own folders; these are new beside README.md: {', '.join(left)}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if (file := item.nodeid.partition("::")[0]) in KEPT:
            item.add_marker(SLOW)
            item.add_marker(half_of(file))
        if item.nodeid.startswith(NOT_STRICT):
            for warning in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))
    if CHECK:
        leave_out(config, items)


def pytest_collection_finish() -> None:
    """The modules themselves are never garbage: each look for leftovers passes them by."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _leftovers() -> Generator[None]:
    """Unclosed things that only a cycle keeps are collected, and reported, at the end of the file that opened them.

    `python -X tracemalloc=10 -m pytest FILE` shows the line that opened them. Not in `make check`, where tests of one
    file are spread over workers.
    """
    yield
    if not CHECK:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with ExitStack() as stack:
        if item.nodeid.startswith(NOT_STRICT):
            # Until its arguments are gone: else they would be reported with the next test, of another file.
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore", ResourceWarning)
        if GUARD is not None:
            stack.enter_context(GUARD.of(item.nodeid))
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skip is a failure, unless its reason names what may be missing; unsteady tests' failures do not count."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("EBBLINE_CI") == "1":
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not _allowed(reason):
            report.outcome = "failed"
            report.longrepr = f"CI could have run this and skipped it: {reason}"
    entry = unsteady(report.nodeid)
    if report.failed and entry is not None:
        report.outcome = "skipped"
        report.wasxfail = f"unsteady since {entry.since}: {entry.reason}"
    return report
